"""Progress: what a log file gets to see, and what a terminal shows."""

import io
import re

import pytest

from mesax.execution.progress import Progress
from mesax.execution.workers import warn


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_piped_lines(clock: Clock):
    stream = io.StringIO()
    with Progress("mesa climb-one", stream=stream, clock=clock) as progress:
        progress.phase("collect", 1_000_000)
        for second in range(1, 151):
            clock.now += 1.0
            progress.update(5_000 * second, f"return .{second}" if second % 50 == 0 else "")
        progress.message("half of it")
        progress.phase("adapt", 10)
        clock.now += 0.5
        progress.update(10)
    assert stream.getvalue().splitlines() == [
        "mesa climb-one: collect, 1M steps  compiling",
        "collect  30%  5k steps/s  ETA 2m20s  return .50",
        "collect  60%  5k steps/s  ETA 1m20s  return .100",
        "half of it",
        "collect  done  750k steps in 2m30s  5k steps/s  return .150",
        "mesa climb-one: adapt, 10 steps  compiling",
        "adapt  done  10 steps in 0.5s  20 steps/s",
    ]


def test_speed_forgets_the_past(clock: Clock):
    stream = io.StringIO()
    with Progress("run", stream=stream, clock=clock) as progress:
        progress.phase("adapt", 1000)
        clock.now += 50  # compilation
        for done in range(10, 110, 10):
            clock.now += 5
            progress.update(done)
    assert stream.getvalue().splitlines()[1] == "adapt   2%  0.333 steps/s  ETA 49m00s"
    stream = io.StringIO()
    with Progress("run", stream=stream, clock=clock) as progress:
        progress.phase("adapt", 1000)
        clock.now += 20
        for done in range(10, 510, 10):
            clock.now += 5
            progress.update(done)
    assert stream.getvalue().splitlines()[2] == "adapt  20%  2 steps/s  ETA 6m40s"


def test_a_resumed_phase_counts_only_what_it_did(clock: Clock):
    stream = io.StringIO()
    with Progress("run", stream=stream, clock=clock) as progress:
        progress.phase("adapt", 1000, done_steps=500)
        clock.now += 60
        progress.update(560)
    assert stream.getvalue().splitlines()[1:] == [
        "adapt  56%  1 steps/s  ETA 7m20s",
        "adapt  done  560 steps in 1m00s  1 steps/s",
    ]


def test_an_error_says_where_it_stopped(clock: Clock):
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), Progress("run", stream=stream, clock=clock) as progress:
        progress.phase("adapt", 1000)
        clock.now += 3700
        progress.update(250)
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines()[-1] == "adapt  stopped at 25% after 1h01m  0.0676 steps/s"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["pipe", "terminal"])
def test_quiet_is_silent(clock: Clock, stream: io.StringIO):
    with Progress("run", quiet=True, stream=stream, clock=clock) as progress:
        progress.phase("adapt", 10)
        clock.now += 100
        progress.update(5)
        progress.message("hello")
    assert stream.getvalue() == ""


def test_odd_uses_are_harmless(clock: Clock):
    stream = io.StringIO()
    with Progress("run", stream=stream, clock=clock) as progress:
        progress.update(5)
        progress.phase("nothing", 0)
        clock.now += 60
        progress.update(0)
        clock.now += 60
        progress.update(7)
    assert stream.getvalue().splitlines()[1:] == [
        "nothing  100%",
        "nothing  100%  0.117 steps/s  ETA 0.0s",
        "nothing  done  7 steps in 2m00s  0.0583 steps/s",
    ]


def test_a_reader_that_left_does_not_stop_the_run(clock: Clock):
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    with (
        Progress("run", stream=Broken(), clock=clock) as one,
        Progress("run", stream=closed, clock=clock) as two,
    ):
        closed_early = closed
        for progress in (one, two):
            progress.phase("adapt", 10)
            closed_early.close()
            progress.update(5)
            progress.message("hello")


def test_a_terminal_that_has_gone_does_not_stop_the_run(clock: Clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")

    class Gone(Terminal):
        gone = False

        def write(self, text: str) -> int:
            if self.gone:
                raise OSError(5, "Input/output error")
            return super().write(text)

    stream = Gone()
    with Progress("run", stream=stream, clock=clock) as progress:
        progress.phase("collect", 10)
        stream.gone = True
        for phase in ("explore", "adapt"):
            progress.phase(phase, 10)
            clock.now += 1
            progress.update(5)
            progress.message("hello")


def test_many_updates_are_cheap(clock: Clock):
    stream = io.StringIO()
    with Progress("run", stream=stream, clock=clock) as progress:
        progress.phase("adapt", 10**6)
        for done in range(10**5):
            clock.now += 0.0001
            progress.update(done)
        assert progress._phase is not None and len(progress._phase.samples) < 100
    assert len(stream.getvalue().splitlines()) == 2


def test_terminal_shows_a_bar_per_phase(clock: Clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    with Progress("mesa [climb-one]", stream=stream, clock=clock) as progress:
        progress.phase("collect", 1000)
        clock.now += 10
        progress.update(450, "return [.81]")
        assert progress._bars.tasks[0].fields["left"] == "ETA 12s"
        clock.now += 0.01
        progress.update(1000)
        progress.phase("adapt", 10)
        clock.now += 1
        progress.update(5)
        progress.message("a [note]")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "mesa [climb-one]" in text and "a [note]" in text
    last = [line.split() for line in text.splitlines() if "took" in line][-2:]
    assert [line[0] for line in last] == ["collect", "adapt"]
    assert "100%" in last[0] and "return [.81]" in " ".join(last[0]) and "99.9 steps/s took 10s" in " ".join(last[0])
    assert "50%" in last[1] and "took 1.0s" in " ".join(last[1])


def test_a_dumb_terminal_gets_lines(clock: Clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress("run", stream=stream, clock=clock) as progress:
        progress.phase("adapt", 10)
    assert stream.getvalue() == "run: adapt, 10 steps  compiling\nadapt  done  0 steps in 0.0s\n"


def test_standard_error_is_the_default(capsys, clock: Clock):
    with Progress("run", clock=clock) as progress:
        progress.phase("adapt", 10)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("run: adapt, 10 steps  compiling\n")


def test_a_warning_that_nobody_reads_stops_nothing(monkeypatch):
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Broken())
    warn("resumed under other conditions")
