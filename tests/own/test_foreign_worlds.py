"""Four worlds that nobody wrote for mesax, from `env check` to `export`; those that are not installed are left out."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from mesax import load_explorers
from mesax.formatting import NOT_MEASURED
from mesax.store.run_directory import RunDirectory

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SMALL = [
    *("--preset", "smoke", "--num-test-tasks", "1", "--method.num-explorers", "1", "--method.coverage-episodes", "2"),
    *("--method.explorer.algorithm.actor-net.hidden", "8", "--method.explorer.algorithm.critic-net.hidden", "8"),
    *("--method.explorer.algorithm.epochs", "1", "--method.explorer.algorithm.minibatches", "1"),
    *("--algorithm.algorithm.actor-net.hidden", "8", "--algorithm.algorithm.critic-net.hidden", "8"),
]


@dataclass(frozen=True)
class World:
    package: str
    module: str
    factory: str
    reward: float | None
    """What the high rewards are, if there is only one."""
    agents: int

    @property
    def name(self) -> str:
        return f"{self.module}:{self.factory}"


WORLDS = {
    "foraging": World("lbforaging", "foraging", "make", 0.5, 2),
    "warehouse": World("rware", "foreign_worlds", "warehouse", None, 2),
    "speaker": World("mpe2", "foreign_worlds", "speaker", None, 2),
    "spread": World("jaxmarl", "foreign_worlds", "spread", None, 3),
}
IN_TURN = """
import contextlib, io, json, sys
with contextlib.suppress(ImportError):
    import jaxmarl  # exchanges sys.stdout while it is imported
from mesax.cli.parser import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(words)
    print(json.dumps([code, output.getvalue(), errors.getvalue()]))
"""


def needs(package: str):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def in_turn(*commands: list[object], **environment: str) -> list[tuple[int, str, str]]:
    """Several commands in one process: exit code, output and errors of each."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    path = os.pathsep.join([str(HERE), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", IN_TURN, words],
        env=os.environ | {"PYTHONPATH": path, "MESAX_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [tuple(json.loads(line)) for line in result.stdout.splitlines() if line.startswith("[")]


Findings = tuple[int, dict[str, dict[str, str]]]
"""Exit code and findings of `env check`, by name."""


def check_in_turn(*commands: list[object], **environment: str) -> list[Findings]:
    """`env check` of several worlds in one process."""
    results = in_turn(*(["env", "check", *words, "--seeds", 2, "--json"] for words in commands), **environment)
    found = [(code, json.loads(output.splitlines()[-1])["findings"]) for code, output, _ in results]
    return [(code, {finding["name"]: finding for finding in findings}) for code, findings in found]


def checked(*words: object, **environment: str) -> Findings:
    """`env check` of one world."""
    return check_in_turn(list(words), **environment)[0]


IN_ONE_PROCESS = {
    "foreign_worlds:foraging": ("lbforaging", []),
    "foreign_worlds:speaker": ("mpe2", []),
    "foraging:make": ("lbforaging", ["--steps", 1000]),
}


@pytest.fixture(scope="module")
def found_in() -> dict[str, Findings]:
    """What is found in the worlds that are installed and cheap."""
    there = {name: options for name, (package, options) in IN_ONE_PROCESS.items() if find_spec(package)}
    return dict(zip(there, check_in_turn(*([name, *options] for name, options in there.items())), strict=True))


@needs("lbforaging")
def test_foraging_as_it_comes_keeps_something_between_episodes(found_in: dict[str, Findings]):
    code, found = found_in["foreign_worlds:foraging"]
    assert code == 2 and found["determinism"]["state"] == "problem"
    assert re.search(r"reset\(seed=\d+\) twice .*agent 'agent_\d' observes \d, then \d", found["determinism"]["detail"])
    assert "positions" in found["determinism"]["advice"]
    assert "rewards from 0.5 on are high" in found["stage 1"]["detail"]


@needs("rware")
@pytest.mark.slow
def test_a_warehouse_counts_its_shelves_for_all_threads_together():
    """Its shelves are numbered by a counter of their class, so that environments in threads disturb each other."""
    code, found = checked("foreign_worlds:warehouse", "--steps", 2000)
    assert code == 0 and found["determinism"]["state"] == "ok" and found["stage 1"]["state"] == "ok"
    code, found = checked("foreign_worlds:warehouse", "--steps", 20, MESAX_THREADS="2")
    assert code == 2 and "environments that run in threads" in found["determinism"]["detail"]
    assert "MESAX_THREADS=1" in found["determinism"]["advice"]
    assert found["stage 1"]["state"] == "note" and "--steps 20000" in found["stage 1"]["advice"]


@needs("mpe2")
def test_rewards_that_are_always_below_zero(found_in: dict[str, Findings]):
    code, found = found_in["foreign_worlds:speaker"]
    assert code == 0 and found["determinism"]["state"] == "ok"
    assert re.search(r"would go for \d+ of 1000 random steps, on 2 of 2 tasks.* from -0", found["stage 1"]["detail"])


@needs("jaxmarl")
@pytest.mark.slow
def test_jaxmarl_is_played_too():
    code, found = checked("foreign_worlds:spread", "--steps", 100)
    assert code == 0 and found["kind"]["detail"].startswith("JaxMARL environment SimpleSpreadMPE")
    assert found["play"]["detail"].startswith("200 random steps on 2 tasks")
    assert {"determinism", "task seeds", "episodes", "stage 1", "speed"} <= found.keys()
    assert re.search(r"2 of 2 tasks: rewards from -\d", found["stage 1"]["detail"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(world.package)) for name, world in WORLDS.items()])
def test_every_verb(name: str, tmp_path: Path):
    """As `test_every_verb.py` has it for a world of its own, which is checked for the same by default."""
    world, run, bundle = WORLDS[name], tmp_path / "run", tmp_path / "bundle"
    load = ["--load", world.module]
    found = in_turn(
        ["run", "mesa", world.name, *SMALL, "--out", run, "--workers", 1, "--json"],
        ["eval", run, *load, "--episodes", 2, "--json"],
        ["report", run],
        ["compare", run],
        ["export", run, "--out", bundle],
    )
    assert [code for code, _, _ in found] == [0] * 5, found
    assert f"distinct rewarding places {NOT_MEASURED}" in found[0][2]
    directory = RunDirectory.open(run)
    _check_numbers(directory, world)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "the paper's configuration" not in page and "is no environment of the paper" in page
    assert NOT_MEASURED in page and "its last evaluation" in page and "last 5" not in page
    assert "its last evaluation" in " ".join(found[3][1].split())
    explorers = load_explorers(bundle)
    assert explorers.spec.num_agents == world.agents and explorers.about["env"] == world.name
    assert NOT_MEASURED in (bundle / "README.md").read_text(encoding="utf-8")
    _check_resume(run, load)


def _check_numbers(run: RunDirectory, world: World) -> None:
    """Stage 1 found something, and what nobody could measure is null."""
    collected = [row for row in run.read_rows("metrics.jsonl") if row["phase"] == "collect"]
    found = [row for row in collected if row["high_reward_pairs"]]
    assert found and all(row["reward_threshold"] is not None for row in found)
    if world.reward is not None:
        assert {row["reward_threshold"] for row in found} == {world.reward}
    coverage = run.read_json("coverage.json")
    assert [visitor["distinct_visits"] for visitor in coverage["visitors"]] == [None] * 3
    assert all(visitor["high_reward_steps"] is not None for visitor in coverage["visitors"])
    assert coverage["leaks"]["precision"] is None and coverage["leaks"]["rewarding_steps"] is None
    assert run.read_json("summary.json")["explorers"]["visitors"]["uniform"]["distinct_visits"] is None


def _check_resume(run: Path, load: list[str]) -> None:
    """A job that was lost is done again, to the same bytes."""
    names = ("eval.jsonl", "metrics.jsonl", "coverage.json")
    before = [(run / name).read_bytes() for name in names]
    (run / "jobs" / "adapt" / "000" / "done.json").unlink()
    (run / "STATUS").write_text("preempted\n")
    ((code, _, errors),) = in_turn(["resume", run, *load, "--workers", 1, "--quiet"])
    assert code == 0, errors
    assert [(run / name).read_bytes() for name in names] == before


@needs("lbforaging")
def test_foraging_takes_fifteen_lines(found_in: dict[str, Findings]):
    page = (ROOT / "docs" / "level-based-foraging.md").read_text(encoding="utf-8")
    shown = re.search(r"`foraging.py`:\n\n```python\n(.*?)```", page, re.DOTALL)[1]
    assert len(shown.splitlines()) <= 15
    assert shown == (ROOT / "examples" / "foraging.py").read_text(encoding="utf-8").partition("\n\n")[2]
    code, found = found_in["foraging:make"]
    assert code == 0 and found["determinism"]["state"] == "ok"
    assert "rewards from 0.5 on are high" in found["stage 1"]["detail"]
