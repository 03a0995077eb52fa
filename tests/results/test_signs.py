"""Signs that explorers could not help, which a user is told."""

from dataclasses import replace

import numpy as np
import pytest

from fake_store import SMALL, write_run
from mesax.results.page.sections import run_section
from mesax.results.summary import signs
from mesax.store.reading import ALL_EXPLORERS, UNIFORM_PLAY, RunResults, load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunResults:
    found = load_run(write_run(tmp_path_factory.mktemp("signs") / "run", SMALL))
    return replace(found, curves=tuple(replace(curve, returns=0.5 * np.ones(9)) for curve in found.curves))


def visited(run: RunResults, **steps: float) -> RunResults:
    """The run with so many high-reward steps of each visitor."""
    visitors = [{"name": name, "high_reward_steps": number} for name, number in steps.items()]
    return replace(run, coverage={"visitors": visitors})


def test_training_tasks_that_never_paid_are_told(run: RunResults):
    rows = [{"phase": "collect", "task": task, "high_reward_pairs": pairs} for task, pairs in enumerate((0, 3, 0))]
    (sign,) = signs(replace(run, metrics=tuple(rows), coverage=None))
    assert sign.startswith("stage 1 found no high reward on 2 of 3 training tasks") and "collect longer" in sign
    assert signs(replace(run, metrics=(), coverage=None)) == []


def test_explorers_that_reach_no_more_than_random_play_are_told(run: RunResults):
    fewer = visited(run, **{UNIFORM_PLAY: 0.25, "explorer 1": 0.5, ALL_EXPLORERS: 0.125})
    (sign,) = signs(fewer)
    told = "explorers meet the high reward of unseen tasks in 0.12 steps an episode, fewer than random play (0.25)"
    assert sign == f"{told}; see docs/methods/mesa.md, When it fails"
    (sign,) = signs(visited(run, **{UNIFORM_PLAY: 0.0, "explorer 1": 0.0}))
    assert sign.startswith("neither explorers nor random play meet the high reward of unseen tasks; see docs")
    assert signs(visited(run, **{UNIFORM_PLAY: 0.25, ALL_EXPLORERS: 0.5})) == []
    assert signs(visited(run, **{UNIFORM_PLAY: 0.25, ALL_EXPLORERS: 0.24})) == [], "as often, by all that is known"
    assert signs(visited(run)) == []


def test_where_all_is_solved_there_is_nothing_to_explain(run: RunResults):
    solved = replace(run, curves=tuple(replace(curve, returns=np.ones(9)) for curve in run.curves))
    assert signs(visited(solved, **{UNIFORM_PLAY: 0.25, ALL_EXPLORERS: 0.125})) == []


def test_reports_have_them(run: RunResults):
    rows = ({"phase": "collect", "task": 0, "step": 1, "high_reward_pairs": 0},)
    assert "Note: stage 1 found no high reward on 1 of 1 training tasks" in run_section(
        "MESA", replace(run, metrics=rows)
    )
