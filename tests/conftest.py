"""What all tests share: JAX on the CPU with a compilation cache, deterministic keys, hypothesis settings."""

import atexit
import gc
import os
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

CACHE = Path(
    os.environ.get("MESAX_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mesax"
)
# Before JAX is imported, and in the environment, so that commands started by tests have it too.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("MESAX_CACHE_DIR", str(CACHE / "tests"))
# Nearly all the time of the tests is compiling, and their nets are tiny: LLVM's optimizer, XLA's newer emitters for
# fusions and code in many pieces cost two thirds of it and gain nothing. `make test-slow` compiles as a run does.
COMPILE_LITTLE = (
    "--xla_backend_optimization_level=0",
    # Later ones know no other emitters, and refuse the flag.
    *(["--xla_cpu_use_fusion_emitters=false"] if version("jaxlib").startswith("0.10.") else []),
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("XLA_FLAGS", " ".join(COMPILE_LITTLE))

# Look for garbage seldom: what is imported stays, and tracing makes many objects that are none.
gc.set_threshold(200_000, 20, 20)
atexit.register(gc.freeze)

import jaxtyping  # noqa: E402

import eager  # noqa: E402
import quick_random  # noqa: E402
import type_checks  # noqa: E402

# Before any module of mesax is imported.
type_checks.install()

from mesax import runtime  # noqa: E402

# Before anything is computed: without it compiled loops can deadlock on a CPU.
runtime.configure()
eager.install()
quick_random.install()

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

# A silent broadcast between arrays of different rank is nearly always a mistake.
jax.config.update("jax_numpy_rank_promotion", "raise")
# Compilation makes first examples slow, and a failure must be the same failure on every machine.
hypothesis.settings.register_profile("mesax", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("mesax")


def pytest_configure(config: pytest.Config) -> None:
    """Let workers share the compilation cache: one may read an entry that another is still writing."""
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache")


def pytest_collection_finish() -> None:
    """What is imported stays: it need not be looked at again."""
    gc.collect()
    gc.freeze()


TESTS = Path(__file__).parent
LONGEST = (
    "execution/test_runner.py",
    "mesa/test_mesa_on_host.py",
    "bridges/ray_cluster/test_two_nodes.py",
    "own/test_every_verb.py",
    "algorithms/test_probes.py",
    "algorithms/test_value_decomposition_probes.py",
    "training/test_host_rollout.py",
    "training/test_off_policy.py",
    "experiments/test_catalogue.py",
    "algorithms/test_mappo_probes.py",
)


class Backwards(pytest.Dir):
    """A folder whose last file comes first."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        yield from reversed(list(super().collect()))


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Every other worker collects from the end: what one has rewritten and compiled, those from the other end read."""
    backwards = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2
    return Backwards.from_parent(parent, path=path) if backwards else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: begun last, one of them would leave the other workers nothing to do."""
    if missing := [name for name in LONGEST if not (TESTS / name).is_file()]:
        raise pytest.UsageError(f"LONGEST in {__file__} names files that are not there: {', '.join(missing)}")
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), item.path))


TOGETHER = {
    "runs": (
        *("execution/", "bridges/test_tracking.py", "cli/", "examples/"),
        *("explorers/test_bundle.py", "rendering/test_episode.py"),
    ),
    "methods": (
        *("methods/", "mesa/", "ours/test_learned.py", "ours/test_structured.py", "ours/test_targets.py"),
        "training/test_contracts.py",
        *(f"baselines/test_{name}.py" for name in ("filled", "pretrain", "scripted")),
        "baselines/maesn/test_method.py",
    ),
}
"""Files whose tests use the same runs and programs: in one process, what is traced for one is there for the others."""


def place_of(nodeid: str) -> str:
    """What is done by one worker: a group of files, or a file."""
    file = nodeid.partition("::")[0]
    inside = file.removeprefix(f"{TESTS.name}/")
    return next((name for name, starts in TOGETHER.items() if inside.startswith(starts)), file)


UNCHECKED = tuple(
    str(TESTS / name)
    for name in (
        *("cli", "docs", "examples", "execution", "experiments", "own", "results", "paper/quoting"),
        *("bridges/test_tracking.py", "paper/test_reproduce.py", "paper/theory/test_shown.py"),
        *("bridges/ray_cluster/test_two_nodes.py", "suites/test_baselines.py", "mesa/test_mesa_on_host.py"),
    )
)
"""Whole runs, of parts that other tests use with their types checked."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check types, except in whole runs: a sixth of their time."""
    jaxtyping.config.update("jaxtyping_disable", str(item.path).startswith(UNCHECKED))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile`, with some files together."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return place_of(nodeid)

    return Together(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped inside a test may take its time: leaving at once would take the tests along."""
    monkeypatch.setenv("MESAX_GRACE_SECONDS", "250")


@pytest.fixture(autouse=True, scope="session")
def unwatched() -> Iterator[None]:
    """Reports play no episodes that a run has not recorded: that would compile programs of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mesax.execution.saved_policies.record_episodes", lambda *arguments: None)
        yield


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not painted, which takes most of the time: for tests that look at something else."""
    monkeypatch.setattr("mesax.results.page.sections._svg", lambda draw: draw() and b"<svg/>")
    monkeypatch.setattr("mesax.results.drawing.save", lambda figure, path: (Path(f"{path}.png"), Path(f"{path}.svg")))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Types are not checked: for mistakes of users, who have no such checks and must be told in one line."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def getkey(request: pytest.FixtureRequest) -> Callable[[], jax.Array]:
    """A function that gives a fresh key at each call, the same keys every time this test runs."""
    key = jax.random.key(zlib.crc32(request.node.nodeid.encode()))

    def next_key() -> jax.Array:
        nonlocal key
        key, fresh = jax.random.split(key)
        return fresh

    return next_key
