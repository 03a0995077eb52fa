"""What checkpoints cost, how soon a run that is asked to stop has saved itself, and how Orbax does at the same.

    python benchmarks/checkpoints.py cost         share of a run's time that went into saving, at the default interval
    python benchmarks/checkpoints.py sigterm      seconds from SIGTERM to exit code 75, once the replay has filled
    python benchmarks/checkpoints.py formats      one learner's state: seconds to save and to load, and a flipped bit
    python benchmarks/checkpoints.py checks       share of a smoke run's time that goes into looking whether its files
                                                  are what it has written

The run is `plain` on `wide-3a6l` in preset `quick`, whose state is the largest of all families. Orbax is measured if it
is installed (`pip install orbax-checkpoint`); mesax itself does not need it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mesax.runtime import configure

configure()

import jax  # noqa: E402  (the runtime must be configured first)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from mesax.store.trees import load_tree, save_tree  # noqa: E402

RUN = ["plain", "wide-3a6l", "--preset", "quick", "--num-test-tasks", "2", "--quiet"]
COST_BAR, STOP_BAR, CHECKS_BAR = 0.05, 10.0, 0.01


def start(run: Path) -> subprocess.Popen[bytes]:
    """The run, in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "mesax.cli", "run", *RUN, "--out", str(run)])


def size_of(directory: Path) -> float:
    """Megabytes below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


def verdict(met: bool) -> str:
    """As in the other benchmarks."""
    return "met" if met else "MISSED"


def cost(out: Path, after: float) -> None:
    """A whole run."""
    del after
    assert start(out / "run").wait() == 0
    rows = [json.loads(line) for line in (out / "run" / "timing.jsonl").read_text().splitlines()]
    seconds, saving = (sum(row[name] for row in rows) for name in ("seconds", "saving_seconds"))
    share = saving / seconds
    print(f"saving took {saving:.1f} of {seconds:.0f} s of all jobs: {share:.2%}   bar <= {COST_BAR:.0%}", end="  ")
    print(verdict(share <= COST_BAR))


def sigterm(out: Path, after: float) -> None:
    """A run that is stopped `after` seconds; then its last checkpoints."""
    run = out / "run"
    process = start(run)
    time.sleep(after)
    asked, clock = time.monotonic(), time.time()
    process.send_signal(signal.SIGTERM)
    code = process.wait()
    seconds = time.monotonic() - asked
    print(f"exit code {code} after {seconds:.1f} s   bar <= {STOP_BAR:.0f} s and 75", end="  ")
    print(verdict(code == 75 and seconds <= STOP_BAR))
    for job in sorted((run / "jobs" / "adapt").iterdir()):
        saved = sorted((job / "checkpoints").glob("0*"))
        newest = saved[-1].stat().st_mtime - clock if saved else float("-inf")
        when = f"{newest:+.1f} s" if saved else "never"
        print(f"  {job.name}: last checkpoint {when} from the signal, {size_of(saved[-1]) if saved else 0:.0f} MB")


def timed(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def flip(directory: Path) -> None:
    """Turn one bit in the middle of the largest file below."""
    path = max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def formats(out: Path, after: float) -> None:
    """Ours and Orbax's, in turn, on replay of random numbers and a hundred small arrays."""
    del after
    random = np.random.default_rng(0)
    state = {
        "replay": [jnp.asarray(random.normal(size=(1_000, 81, 3, 24)), jnp.float32) for _ in range(20)],
        "nets": {f"layer {i}": jnp.asarray(random.normal(size=(64, 64)), jnp.float32) for i in range(100)},
    }
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / 1e6
    kinds: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
        "mesax": (lambda path: save_tree(path, state, {}), lambda path: load_tree(path, state))
    }
    try:
        import orbax.checkpoint as ocp

        checkpointer = ocp.StandardCheckpointer()

        def save(path: Path) -> None:
            checkpointer.save(path.absolute(), state)
            checkpointer.wait_until_finished()

        kinds["Orbax"] = save, lambda path: checkpointer.restore(path.absolute(), state)
    except ImportError:
        print("Orbax is not installed: pip install orbax-checkpoint")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for turn in range(5):
        for name, (save_it, load_it) in kinds.items():
            path = out / f"{name}-{turn}"
            times[name].append((timed(lambda: save_it(path)), timed(lambda: jax.block_until_ready(load_it(path)))))  # noqa: B023
            if turn < 4:
                shutil.rmtree(path)
    for name, (_, load_it) in kinds.items():
        saving, loading = (sorted(values)[2] for values in zip(*times[name], strict=True))
        flip(out / f"{name}-4")
        try:
            loaded = load_it(out / f"{name}-4")
            equal = all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (loaded, state)), strict=True))
            noticed = "not hit" if equal else "loaded as if nothing were wrong"
        except Exception as error:
            noticed = f"refused ({type(error).__name__})"
        print(
            f"{name:<6} {size:.0f} MB: save {saving:.2f} s, load {loading:.2f} s (medians of 5); flipped bit {noticed}"
        )


def checks(out: Path, after: float) -> None:
    """MESA's smoke run in this process, twice: once compiled, it is short, and checks weigh more."""
    del after
    from mesax.cli.parser import main as command_line
    from mesax.execution import jobs, runner
    from mesax.store.checkpoints import Checkpoints
    from mesax.store.run_directory import RunDirectory

    spent, depth = [0.0], [0]

    def counted(place: Any, name: str) -> None:
        check = getattr(place, name)

        def clocked(*args: Any, **options: Any) -> Any:
            depth[0] += 1
            begun = time.perf_counter()
            try:
                return check(*args, **options)
            finally:
                depth[0] -= 1
                spent[0] += (time.perf_counter() - begun) * (not depth[0])

        setattr(place, name, clocked)

    for place, name in (
        *((Checkpoints, name) for name in ("wrote", "rows")),
        *((jobs, name) for name in ("tree_checksums", "file_checksum")),
        *((RunDirectory, name) for name in ("check_job", "identity_of")),
        (runner, "undo_damaged"),
    ):
        counted(place, name)
    for number in range(3):
        spent[0] = 0.0
        words = ["run", "mesa", "climb-one", "--preset", "smoke", "--quiet", "--workers", "1"]
        seconds = timed(lambda: command_line([*words, "--out", str(out / f"run-{number}")]))  # noqa: B023
        share = spent[0] / seconds
        print(
            f"checks took {1000 * spent[0]:.1f} ms of {seconds:.1f} s: {share:.2%}   bar <= {CHECKS_BAR:.0%}", end="  "
        )
        print(verdict(share <= CHECKS_BAR))


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures = {function.__name__: function for function in (cost, sigterm, formats, checks)}
    parser.add_argument("what", choices=measures)
    parser.add_argument("--after", type=float, default=150.0, help="seconds until the signal (default 150)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        measures[options.what](Path(out), options.after)


if __name__ == "__main__":
    main()
