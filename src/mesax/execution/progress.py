"""How far a run is: a bar per phase on a terminal, a line a minute when piped."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bars

from mesax.formatting import format_count, format_duration

SECONDS_BETWEEN_LINES = 60.0
SECONDS_BETWEEN_SAMPLES = 0.25
SECONDS_BETWEEN_DRAWINGS = 0.05
COMPILING = "compiling"
"""What a phase does until it has taken its first steps."""
WINDOW = 30.0
"""Seconds over which the speed is measured: long enough to be calm, short enough to forget compilation."""


class Progress:
    """Shows phases, speed and time to go; a context manager."""

    def __init__(
        self,
        title: str,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._quiet = quiet
        self._bars: Bars | None = None
        self._phase: Phase | None = None

    def __enter__(self) -> Self:
        if not self._quiet and is_terminal(self._stream):
            bars = self._bars = _rich_bars(self._stream)
            self._safely(bars.start)
            self.message(self._title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_phase(stopped=error is not None)
        if self._bars is not None:
            self._safely(self._bars.stop)
            self._bars = None

    def phase(self, name: str, total_steps: int, done_steps: int = 0) -> None:
        """Begin a phase of that many steps, some of them perhaps done in an earlier run."""
        self._end_phase()
        self._phase = Phase(name, total_steps, done_steps, self._clock())
        if self._bars is not None:
            self._safely(lambda: self._add_bar(name, total_steps, done_steps))
        else:
            self._print(_join(f"{self._title}: {name}, {format_count(total_steps)} steps", self._phase.note))

    def update(self, done_steps: int, note: str = "") -> None:
        """Say how many steps of the phase are done in all; cheap enough to call often."""
        phase = self._phase
        if phase is None or self._quiet:
            return
        now = self._clock()
        phase.see(done_steps, note, now)
        if now - phase.shown < (SECONDS_BETWEEN_LINES if self._bars is None else SECONDS_BETWEEN_DRAWINGS):
            return
        phase.shown = now
        if self._bars is None:
            self._print(phase.line())
        else:
            self._draw(phase, phase.speed_text(), phase.left_text())

    def message(self, text: str) -> None:
        """Show a line among the progress."""
        bars = self._bars
        if bars is not None:
            self._safely(lambda: bars.console.print(text, highlight=False, markup=False))
        else:
            self._print(text)

    def _end_phase(self, stopped: bool = False) -> None:
        phase, self._phase = self._phase, None
        if phase is None or self._quiet:
            return
        phase.note = phase.note.removeprefix(COMPILING)
        now = self._clock()
        if self._bars is not None and phase.bar is not None:
            word = "stopped after" if stopped else "took"
            self._draw(phase, phase.mean_speed_text(now), f"{word} {format_duration(now - phase.began)}")
            self._bars.stop_task(phase.bar)  # draws nothing
        else:
            self._print(phase.last_line(now, stopped))

    def _add_bar(self, name: str, total: int, done: int) -> None:
        if self._bars is not None and self._phase is not None:
            note = self._phase.note
            bar = self._bars.add_task(name, total=max(total, 1), completed=done, speed="", left="", note=note)
            self._phase.bar = bar

    def _draw(self, phase: Phase, speed: str, left: str) -> None:
        bars, bar = self._bars, phase.bar
        if bars is not None and bar is not None:
            self._safely(lambda: bars.update(bar, completed=phase.done, speed=speed, left=left, note=phase.note))

    def _print(self, text: str) -> None:
        if not self._quiet:
            self._safely(lambda: print(text, file=self._stream, flush=True))

    def _safely(self, show: Callable[[], object]) -> None:
        """A reader that has gone is no reason to stop a run."""
        try:
            show()
        except (OSError, ValueError):
            self._quiet = True


class Phase:
    """One phase's counters: how far it is, how fast, and for how long still."""

    def __init__(self, name: str, total: int, done: int, now: float) -> None:
        self.name = name
        self.total = total
        self.began_with = self.done = done
        self.began = self.shown = now
        self.note = COMPILING if done < total else ""
        self.bar: TaskID | None = None
        self.samples = deque([(now, done)])

    def see(self, done: int, note: str, now: float) -> None:
        """Take a count; old samples leave once a younger one spans the window."""
        self.done = done
        self.note = note or self.note.removeprefix(COMPILING)
        if now - self.samples[-1][0] >= SECONDS_BETWEEN_SAMPLES:
            self.samples.append((now, done))
        while len(self.samples) > 2 and now - self.samples[1][0] >= WINDOW:
            self.samples.popleft()

    @property
    def speed(self) -> float:
        """Recent steps per second."""
        (first, before), (last, after) = self.samples[0], self.samples[-1]
        return max(0.0, (after - before) / (last - first)) if last > first else 0.0

    def speed_text(self) -> str:
        """For example `5k steps/s`; nothing if it is not known."""
        return f"{format_count(self.speed)} steps/s" if self.speed > 0 else ""

    def mean_speed_text(self, now: float) -> str:
        """The same over the whole phase."""
        made, seconds = self.done - self.began_with, now - self.began
        return f"{format_count(made / seconds)} steps/s" if made > 0 and seconds > 0 else ""

    def left_text(self) -> str:
        """For example `ETA 2m20s`."""
        return f"ETA {format_duration(max(0, self.total - self.done) / self.speed)}" if self.speed > 0 else ""

    def percent_text(self) -> str:
        """For example `30%`."""
        return f"{int(100 * min(1.0, self.done / self.total)) if self.total > 0 else 100}%"

    def line(self) -> str:
        """All of it on one line."""
        return _join(self.name, f"{self.percent_text():>3}", self.speed_text(), self.left_text(), self.note)

    def last_line(self, now: float, stopped: bool) -> str:
        """How the phase ended."""
        end = f"stopped at {self.percent_text()} after" if stopped else f"done  {format_count(self.done)} steps in"
        return _join(self.name, f"{end} {format_duration(now - self.began)}", self.mean_speed_text(now), self.note)


def _join(*parts: str) -> str:
    return "  ".join(part for part in parts if part)


def is_terminal(stream: TextIO) -> bool:
    """Whether it shows what changes."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _rich_bars(stream: TextIO) -> Bars:
    texts = [TextColumn("{task.fields[" + name + "]}", markup=False) for name in ("speed", "left", "note")]
    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        *texts,
        console=Console(file=stream),
        refresh_per_second=4,
    )
