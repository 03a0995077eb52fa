"""The benchmark of recorded outcomes: its rows can be run, and runs count that ended at a level that was recorded."""

from pathlib import Path

import pytest
from benchmarks.recorded import BY_SUM, ROWS, beside

from mesax.algorithms.mixers import Sum
from mesax.baselines.emc import Emc
from mesax.experiments.overrides import parse_arguments
from mesax.experiments.request import Request
from mesax.results.evidence.kept import Kept
from mesax.training.schedule import Prioritized

FOUR = next(row for row in ROWS if row.name == "2a4l")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_is_a_run_of_preset_paper(row):
    words = row.sweep([3], Path("out"))
    assert words[words.index("--out") + 1] == f"out/{row.name}"
    request = Request(row.method, row.env, "paper", 3, row.tasks, tuple(parse_arguments(list(row.settings))))
    experiment = request.experiment()
    assert (experiment.seed, experiment.num_test_tasks) == (3, row.tasks)
    if set(BY_SUM) <= set(row.settings):
        learner = experiment.algorithm
        assert isinstance(learner, Emc) and isinstance(experiment.schedule, Prioritized)
        assert (learner.control.mixer, learner.control.discount, learner.memory) == (Sum(), 0.9, None)


def kept(*finals: float) -> Kept:
    return Kept(Path("one.json"), {"per_task": [{"final_return": final} for final in finals], "clocks": {}})


def test_runs_count_that_ended_at_one_of_the_levels():
    """36.5 give or take 1.5, or 71.5 give or take 2; between them lies nothing that was recorded."""
    line = beside(FOUR, [kept(36.6), kept(70.0), kept(50.0), kept(34.9)])
    assert line[3:5] == ("36.6, 70, 50, 34.9", "2 of 4")
    assert beside(FOUR, [])[3:] == ("", "", "")
