"""Settings of the process: what an environment variable may say, and that nonsense stops a run before it begins."""

import math
import os
import platform
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import pytest

from mesax import runtime
from mesax.cli.parser import main
from mesax.errors import USAGE, UsageError
from mesax.runtime import CHECKPOINT_SECONDS, THREADS, checkpoint_seconds, host_threads, physical_memory


@pytest.mark.parametrize("said, meant", [(None, 60.0), ("", 60.0), ("0", 0.0), ("2.5", 2.5), ("inf", math.inf)])
def test_seconds_between_checkpoints(monkeypatch, said, meant):
    monkeypatch.delenv(CHECKPOINT_SECONDS, raising=False)
    if said is not None:
        monkeypatch.setenv(CHECKPOINT_SECONDS, said)
    assert checkpoint_seconds() == meant


@pytest.mark.parametrize("said", ["nan", "-1", "soon", "1 min", "-inf"])
def test_no_number_of_seconds(monkeypatch, said):
    monkeypatch.setenv(CHECKPOINT_SECONDS, said)
    with pytest.raises(UsageError, match=rf"MESAX_CHECKPOINT_SECONDS .* not '{said}'"):
        checkpoint_seconds()


@pytest.mark.parametrize("said", ["0", "-2", "two", "1.5", "²"])
def test_no_number_of_threads(monkeypatch, said):
    monkeypatch.setenv(THREADS, said)
    with pytest.raises(UsageError, match="MESAX_THREADS must be a whole number from 1"):
        host_threads()


def test_nonsense_is_one_line_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(CHECKPOINT_SECONDS, "often")
    assert main(["run", "mesa", "climb-one", "--preset", "smoke", "--out", str(tmp_path / "run")]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "mesax: $MESAX_CHECKPOINT_SECONDS must be a number of seconds from 0, not 'often'"
    assert not list(tmp_path.iterdir())


def test_a_container_may_have_less_memory_than_the_machine(tmp_path: Path):
    """By either version of cgroups, and whether it has a limit or not."""
    machine = physical_memory(tmp_path)
    assert machine is not None and machine > 10_000
    second, first = tmp_path / "memory.max", tmp_path / "memory" / "memory.limit_in_bytes"
    first.parent.mkdir()
    for path, unlimited in ((second, "max"), (first, "9223372036854771712")):
        path.write_text(f"{unlimited}\n")
        assert physical_memory(tmp_path) == machine
        path.write_text("4096\n")
        assert physical_memory(tmp_path) == 4096
        path.unlink()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed in /proc")
def test_xla_has_one_thread_and_the_environment_is_as_before():
    """With as many as cores, sums would be cut in other places on other machines."""
    lines = """
    import os
    from pathlib import Path
    from mesax import runtime
    runtime.configure()
    import jax.numpy as jnp
    assert jnp.ones((300, 300)).sum() == 90_000
    names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    print(names.count("tf_XLAEigen"), os.environ.get("NPROC"))
    """
    words = [sys.executable, "-c", textwrap.dedent(lines)]
    for given in (None, "3"):
        environment = {name: text for name, text in os.environ.items() if name != "NPROC"}
        environment |= {} if given is None else {"NPROC": given}
        result = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert result.stdout.split() == ["1", str(given)]


FAULTS = """
import ctypes, resource, sys
import numpy as np
from mesax import runtime
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: no huge pages, of which there are few and not always
if sys.argv[1:]:
    runtime._keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(2**22)  # 32 MiB, 8,192 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_of_freed_arrays_is_used_again():
    words = [sys.executable, "-c", FAULTS]
    usual, kept = (
        int(subprocess.run([*words, *extra], capture_output=True, text=True, check=True).stdout)
        for extra in ([], ["keep"])
    )
    assert kept < usual / 4


KEPT_PROGRAMS = """
import sys
from pathlib import Path
from mesax import runtime
runtime.configure()
runtime.configure()  # as often as anybody likes
import jax, jax.numpy as jnp
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)

def found():
    hits.clear()
    jax.clear_caches()
    assert jax.jit(lambda x: 3 * x)(jnp.float32(2)) == 6
    return len(hits)

found()
kept = sorted(runtime.cache_directory().glob("xla/*-cache"))
print(found() == len(kept) > 0)
for path in kept:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if sys.argv[1] == "half" else b"")
print(found(), found() == len(kept))
"""


@pytest.mark.parametrize("left", ["half", "nothing"])
def test_a_program_that_was_half_written_is_kept_anew(tmp_path, left):
    """A process was killed, or the disk was full: JAX alone would warn of it and compile it in every process."""
    words = [sys.executable, "-c", KEPT_PROGRAMS, left]
    environment = os.environ | {"MESAX_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "0", "True"]
    assert not result.stderr


def test_other_warnings_are_shown_as_ever(tmp_path):
    """Of a program that is whole too, which JAX cannot read for another reason."""
    shown: list[str] = []
    show = runtime._MendsCache(tmp_path, lambda message, *_: shown.append(str(message)))
    (tmp_path / "jit_f-1-cache").write_bytes(zlib.compress(b"a program"))
    (tmp_path / "jit_g-1-cache").write_bytes(zlib.compress(b"a program")[:-1])
    unreadable = "Error reading persistent compilation cache entry for '{}': error: why"
    for message in ("anything", unreadable.format("jit_f"), unreadable.format("jit_g"), unreadable.format("jit_g")):
        show(UserWarning(message), UserWarning, "file.py", 1)
    assert shown == [
        "anything",
        unreadable.format("jit_f"),
        unreadable.format("jit_g"),
    ]  # the last is of one that is gone
    assert [path.name for path in tmp_path.iterdir()] == ["jit_f-1-cache"]


def test_a_cache_that_cannot_be_written_is_told_once(tmp_path):
    """It may be shared, and read-only: JAX warns of every program."""
    shown: list[str] = []
    show = runtime._MendsCache(tmp_path, lambda message, *_: shown.append(str(message)))
    unwritable = "Error writing persistent compilation cache entry for '{}': OSError: read-only"
    for message in (unwritable.format("jit_f"), unwritable.format("jit_g"), "anything"):
        show(UserWarning(message), UserWarning, "file.py", 1)
    assert shown == [unwritable.format("jit_f"), "anything"]
