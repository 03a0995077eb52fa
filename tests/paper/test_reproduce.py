"""The paper's figures as values: which runs they need, which are there, what to type for the rest."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fake_store import FakeRun, write_run
from mesax.algorithms.maddpg import Maddpg
from mesax.bridges.ray_cluster.where import OnRay
from mesax.cli.parser import main
from mesax.errors import DamageError, UsageError
from mesax.experiments.catalogue import experiment
from mesax.experiments.names import ENVIRONMENTS, METHODS
from mesax.experiments.overrides import digest
from mesax.experiments.request import Request
from mesax.formatting import format_duration, format_number
from mesax.ours.records import ToldCoverage
from mesax.results.evidence.kept import keep, training_digest
from mesax.results.intervals import Interval
from mesax.results.profiles import profile
from mesax.results.summary import Comparison
from mesax.results.tables import run_labels
from mesax.store.reading import final_return, load_run
from mesax.store.settings import to_plain
from paper.ablation import ablation_figure
from paper.cells import Cell, Found, Sources, cost_lines, missing_commands, results_for, status_table
from paper.costs import break_even_table
from paper.curves import curves_of_all, look_of
from paper.freshness import is_of_today, trained_today
from paper.generalization import Reached, generalization_figure
from paper.reproduce import PIECES, piece_named
from paper.rows import CLIMB, IN_THE_PAPER, PAPER_ROW, TABLE_2
from paper.side_by_side import pairs, side_by_side_figure, side_by_side_table
from paper.solved import tasks_solved
from paper.table import _over, controls_table, gain_over, gain_table, mean_table, result_table
from paper.zero_shot import keep_row, measured


def test_every_cell_can_be_typed():
    for piece in PIECES:
        for cell in piece.cells:
            assert cell.method in METHODS and cell.env in ENVIRONMENTS and cell.minutes > 0


def test_a_cell_knows_its_runs_again():
    cell = Cell(
        "transfer", "wide-3a5l-hard", 1.0, overrides=(("method.explorers-from", "RUN_DIR"), ("method.turn", "true"))
    )
    run = {"method": "transfer", "env": "wide-3a5l-hard", "preset": "quick"}
    borrowed = {"method.explorers-from": "runs/mine", "method.turn": "True"}
    assert cell.is_met_by(run | {"overrides": borrowed})
    assert not cell.is_met_by(run | {"overrides": {}})
    assert not cell.is_met_by(run | {"overrides": borrowed, "preset": "paper"})
    assert not Cell("transfer", "wide-3a5l-hard", 1.0).is_met_by(run | {"overrides": borrowed})
    assert cell.command(2) == (
        "mesax run transfer wide-3a5l-hard --method.explorers-from RUN_DIR --method.turn true --seed 2"
    )


def test_a_cell_that_borrows_names_its_lender():
    for cell in (cell for piece in PIECES for cell in piece.cells):
        assert cell.stands_alone == (not cell.lender) and (cell.stands_alone or trained_today(cell.lender))


@pytest.mark.parametrize(
    ("lender", "is_fresh"),
    [
        ({}, True),
        ({"overrides": {"method.num-explorers": "1", "schedule.total-steps": "51200"}}, True),
        ({"trained_with": trained_today("mesa wide-2a5l, preset quick")}, True),
        ({"trained_with": "other settings"}, False),
        ({"env": "wide-3a5l"}, False),
        ({"preset": "paper"}, False),
        ({"method": "structured"}, False),
        ({"overrides": {"num-train-tasks": "3"}}, False),
        ({"overrides": {"method.no-more": "3"}}, False),
        (None, False),
    ],
)
def test_a_result_counts_only_with_the_explorers_of_its_cell(
    lender: dict[str, object] | None, is_fresh: bool, tmp_path: Path
):
    piece = piece_named("figure-7-wide")
    cell = piece.cells[0]
    experiment = cell.request(0).experiment()
    known = {"method": "mesa", "env": "wide-2a5l", "preset": "quick", "seed": 0, "overrides": {}}
    task = {"task": 0, "label": "u=1", "repeat": 0, "final_return": 70.0, "groups": {}}
    tasks = [task | {"task": number} for number in range(experiment.num_test_tasks)]
    facts = {
        **{"method": cell.method, "env": cell.env, "preset": cell.preset, "seed": 0, "overrides": dict(cell.overrides)},
        **{"mean_return": 70.0, "per_task": tasks, "env_steps": 40, "meta_env_steps": 0, "wall_seconds": 2.0},
        "config": to_plain(experiment),
        "made_with": {"config_hash": digest(experiment)},
        "borrowed": [None if lender is None else known | lender],
    }
    (tmp_path / "one.json").write_text(json.dumps(facts))
    (found,) = results_for(replace(piece, cells=(cell,)), tmp_path / "none", tmp_path)
    assert (sorted(found.runs), sorted(found.stale)) == (([0], []) if is_fresh else ([], [0]))


def write_of_today(path: Path, method: str, seed: int) -> Path:
    """A run that says it has the settings of its cell in Table 2."""
    settings = digest(Request(method, "climb-one", "quick", seed, 10).experiment())
    return write_run(path, FakeRun(method, seed=seed, evaluations=8, config_hash=settings))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for method, seed in (("mesa", 0), ("mesa", 1), ("plain", 0)):
        write_of_today(tmp_path / "runs" / "deep" / f"{method}-{seed}", method, seed)
    unfinished = write_run(tmp_path / "runs" / "unfinished", FakeRun("uniform", evaluations=8))
    (unfinished / "STATUS").write_text("running\n")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    return tmp_path / "runs"


def test_what_is_stored_and_what_is_missing(runs: Path):
    piece = piece_named("figure-3")
    found = {one.cell.name: one for one in results_for(piece, runs)}
    ours = found["MESA (ours) on climb-one"]
    assert sorted(ours.runs) == [0, 1] and ours.missing == [2]
    assert found["learner and random episodes on climb-one"].missing == [0, 1, 2]
    assert "mesax run mesa climb-one --num-test-tasks 10 --seed 2" in missing_commands(found.values())
    pooled = ours.pooled[0]
    assert pooled.run["seed"] == [0, 1] and len(pooled.curves) == 8
    rows = {row[0]: row[1:] for row in status_table(piece, list(found.values())).rows}
    clocked = found["learner alone on climb-one"].seconds
    assert clocked is not None
    assert rows["learner alone on climb-one"] == ("0", "1, 2", format_duration(2 * clocked))
    estimated = format_duration(3 * 60 * found["QMIX on climb-one"].cell.minutes)
    assert rows["QMIX on climb-one"] == ("–", "0, 1, 2", estimated)
    rest = sum(len(one.missing) * one.cost for one in found.values() if one.cell.preset == "quick")
    told = next(line for line in cost_lines(list(found.values())) if line.startswith("preset quick: 3 of "))
    assert f" on 2 cores; missing runs {format_duration(rest)}. (CPU time divided evenly over the cores; " in told
    assert "; measured for 2 of " in told and told.endswith(" rows, estimated for the others.)")


def test_costs_say_when_nothing_is_missing_and_what_is_an_estimate():
    (cell, *_) = piece_named("table-2").cells
    runs = dict.fromkeys((0, 1, 2), None)
    end = "(CPU time divided evenly over the cores; measured for"
    one, two = Found(cell, runs, seconds=60.0), Found(cell, runs, seconds=120.0)
    assert cost_lines([one, two]) == [
        f"preset quick: 6 of 6 runs stored. Total cost 9m00s on 2 cores; nothing missing. {end} all 2 rows.)"
    ]
    assert cost_lines([one])[0].endswith(" measured for 1 row.)")
    assert cost_lines([Found(cell, {})])[0].endswith(" estimated for 1 row.)")


def test_the_table_shows_what_there_is_and_marks_what_is_stale(runs: Path, tmp_path: Path):
    piece, store = piece_named("table-2"), tmp_path / "store"
    for method, seed in (("mesa", 0), ("mesa", 1), ("plain", 0)):
        keep(write_run(tmp_path / f"{method}-{seed}", FakeRun(method, seed=seed, evaluations=8)), store)
    found = results_for(piece, tmp_path / "none", store)
    assert not any(one.runs for one in found) and piece.can_be_drawn(found)
    table = result_table(found, IN_THE_PAPER)
    cells = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert cells["MESA (ours)"]["climb-one"] == "1.00 [0.67, 1.00]† (2 seeds)"
    assert cells["learner alone"]["climb-one"] == "0.75† (1 seed)", "one seed says nothing of others"
    assert cells["QMIX"]["climb-one"] == "" and cells["MESA as published"]["mpe-3a5l"] == "–"
    assert "Goal (privileged)" in cells and cells["MESA, in the paper"]["swimmer"] == "599.32 ± 35.93"
    fresh = results_for(piece, runs, store)
    ours, alone = (next(one for one in fresh if one.label == label) for label in ("MESA (ours)", "learner alone"))
    assert sorted(ours.runs) == [0, 1]
    gains = {row[:2]: row[2:] for row in gain_table(fresh).rows}
    assert gains["climb-one", "MESA (ours)"][0].startswith("8 of 8 [")
    assert gains["climb-one", "MESA (ours)"][3:] == ("–",) * 3
    assert list(gains) == [("climb-one", "MESA (ours)")], "what has not been run has gained nothing"
    means = mean_table(fresh, IN_THE_PAPER)
    assert means.rows[0][:3] == ("MESA (ours)", "1.00 (2 seeds)", "") and "Empty: not run yet;" in means.note
    published = [replace(one, runs=ours.runs) if one.label == "MESA as published" else one for one in fresh]
    planned = mean_table(published, IN_THE_PAPER)
    assert dict(zip(planned.columns, planned.rows[1], strict=True))["mpe-3a5l"] == "–"
    controls = controls_table(fresh)
    over = {row[0]: dict(zip(controls.columns, row, strict=True)) for row in controls.rows}
    gap = np.mean(fresh_finals(fresh, "MESA (ours)")[:4]) - np.mean(fresh_finals(fresh, "learner alone"))
    assert over["climb-one"]["learner alone"] == f"+{gap:.2f} (4 tasks) (1 seed)", "both have the tasks of seed 0 only"
    assert over["climb-one"]["learner and random episodes"] == "–"
    assert gain_over(ours, ours).startswith("+0.00 [-") and gain_over(alone, alone) == "+0.00 (1 seed)"
    for made in (table, mean_table(fresh, IN_THE_PAPER), gain_table(fresh), controls):
        cells_of = [cell for row in made.rows for cell in row]
        assert ("†: unverified (" in made.note) == any("†" in cell for cell in cells_of), (
            "a note explains the signs of its table"
        )
        assert (" –: " in made.note) == ("–" in cells_of)


def fresh_finals(found: list[Found], label: str) -> list[float]:
    """Of climb-one, seed by seed."""
    runs = next(one.runs for one in found if (one.label, one.cell.env) == (label, "climb-one"))
    return [value for run in runs.values() for value in run.final_returns]


def test_a_plan_runs_nothing_and_of_some_cells_has_every_command(runs: Path, tmp_path: Path, capsys):
    words = ["reproduce", "table-2", "--plan", "--runs", str(runs), "--results", str(tmp_path / "none")]
    assert main([*words, "--methods", "plain", "--envs", "climb-one"]) == 0
    printed = capsys.readouterr().out
    command = "mesax run plain climb-one --num-test-tasks 10 --seed"
    assert f"stored   {command} 0\n" in printed and f"missing  {command} 1\n" in printed
    assert main([*words, "--run"]) == 2 and "not allowed with argument" in capsys.readouterr().err
    for name, kind in (("figure-7", "mpe"), ("figure-7-wide", "wide")):
        assert main(["reproduce", name, *words[2:], "--methods", "transfer"]) == 0
        lender = f"a finished run of mesa {kind}-2a5l, preset quick; type"
        assert f"note     RUN_DIR of 2 to 3 agents on {kind}-3a5l-hard: {lender}" in capsys.readouterr().out


def test_a_plan_shows_what_lacks_runs_and_of_one_preset_nothing_else(tmp_path: Path, capsys):
    for seed in (0, 1, 2):
        write_of_today(tmp_path / "runs" / f"{seed}", "mesa", seed)
    words = ["reproduce", "figure-3", "--plan", "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "none")]
    complete, rows, commands = ["MESA (ours) on climb-one"], {}, {}
    hidden = "1 complete row not shown (--all shows it)\n"
    for name, more in {"usual": [], "all": ["--all"], "paper": ["--preset", "paper"]}.items():
        assert main([*words, *more]) == 0
        printed = capsys.readouterr().out
        assert (hidden in printed) == (name == "usual")
        rows[name] = [row for row in (*complete, "QMIX on climb-one") if f"\n{row} " in printed]
        commands[name] = [line for line in printed.splitlines() if line.startswith("missing")]
        costs = [line.split()[2] for line in printed.splitlines() if line.startswith("costs")]
        assert costs == (["paper:"] if name == "paper" else ["quick:", "paper:"])
    assert (rows["all"], rows["usual"], rows["paper"]) == ([*complete, "QMIX on climb-one"], ["QMIX on climb-one"], [])
    assert commands["all"] == commands["usual"] and all("--preset paper" in line for line in commands["paper"])
    assert [line for line in commands["all"] if "--preset paper" in line] == commands["paper"] != []
    assert main([*words, "--preset", "smoke"]) == 2
    assert "no run of preset smoke is part of this; it has quick, paper" in capsys.readouterr().err


def test_figures_say_which_methods_lack_seeds(runs: Path):
    found = results_for(piece_named("figure-3"), runs)
    (axes,) = curves_of_all(found).axes
    title = axes.get_title(loc="left").replace("\n", " ")
    assert title == "climb-one (MESA (ours) (2 seeds), learner alone (1 seed))"
    alone = [replace(one, runs={0: one.runs[0]}) for one in found if one.runs]
    (axes,) = curves_of_all(alone).axes
    assert axes.get_title(loc="left") == "climb-one (1 seed)"
    assert [run_labels(one.pooled)[0] for one in alone] == ["MESA (ours) (1 seed)", "learner alone (1 seed)"]


def test_a_run_with_other_settings_is_stale_and_takes_no_place(tmp_path: Path):
    """Not of a fresh result in the store either, nor does its clock count."""
    cell = next(cell for cell in piece_named("table-2").cells if (cell.method, cell.env) == ("plain", "climb-one"))
    piece, store = replace(piece_named("table-2"), cells=(cell,)), tmp_path / "store"
    write_run(tmp_path / "runs" / "other", FakeRun("plain", evaluations=8))
    (found,) = results_for(piece, tmp_path / "runs")
    assert (sorted(found.runs), sorted(found.stale), found.seconds) == ([], [0], None)
    kept = keep(write_of_today(tmp_path / "kept", "plain", 0), store)
    (found,) = results_for(piece, tmp_path / "runs", store)
    assert found.runs[0].directory == kept and not found.stale and found.seconds is not None
    write_of_today(tmp_path / "runs" / "same", "plain", 0)
    (found,) = results_for(piece, tmp_path / "runs", store)
    assert found.runs[0].directory == tmp_path / "runs" / "same", "a directory has more in it than a file"


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("eval.jsonl", cut_short),
        ("timing.jsonl", Path.unlink),
        ("summary.json", Path.unlink),
    ],
)
def test_a_damaged_run_is_left_out_and_told(name: str, damage: Callable[[Path], None], tmp_path: Path, capsys):
    """Sealed or not; the store may have the same cell, and a damaged file there stops nothing either."""
    store, runs = tmp_path / "store", tmp_path / "runs"
    kept = keep(write_of_today(tmp_path / "kept", "plain", 0), store)
    for number, is_sealed in enumerate((True, False)):
        path = write_of_today(runs / f"{number}", "plain", number)
        damage(path / name)
        if not is_sealed and name != "eval.jsonl":
            (path / "checksums.json").unlink()
    (store / "damaged.json").write_text(json.dumps(json.loads(kept.read_text()) | {"seed": None}))
    told: list[str] = []
    cell = next(cell for cell in piece_named("table-2").cells if (cell.method, cell.env) == ("plain", "climb-one"))
    (found,) = results_for(replace(piece_named("table-2"), cells=(cell,)), runs, store, told.append)
    assert found.runs[0].directory == kept
    assert told[0] == f"{store / 'damaged.json'}: seed is not a whole number" and str(runs / "0" / name) in told[1]
    words = ["--runs", str(runs), "--results", str(store), "--out", str(tmp_path), "--plan", "--envs", "climb-one"]
    assert main(["reproduce", "table-2", *words]) == 0
    assert capsys.readouterr().out.count(f"note     left out: {runs / '0' / name}") == 1


@pytest.mark.parametrize("env", ["climb-one", "mpe-2a5l", "swimmer", "wide-2a5l", "swimmer-wide"])
def test_the_note_says_what_counts_as_solved(env: str):
    threshold = experiment("mesa", env, "quick").family.optimal_threshold
    assert f"{threshold:g} or more" in gain_table([]).note


def test_every_method_looks_the_same_in_every_world_and_ours_stands_out(tmp_path: Path):
    """A panel for each world that has results, a name for each method in one legend."""
    for number, (method, env) in enumerate(product(("mesa", "qmix", "plain"), CLIMB)):
        if (method, env) != ("qmix", "climb-multi"):
            write_run(tmp_path / str(number), FakeRun(method, env=env, evaluations=8))
    kinds = {"mesa": "ours", "qmix": "baseline", "plain": "control"}
    cells = [Cell(method, env, 1.0, method.upper(), kind=kinds[method]) for env, method in product(CLIMB, kinds)]
    runs = {(run.run["method"], run.run["env"]): run for run in map(load_run, tmp_path.iterdir())}
    found = [
        Found(
            cell,
            {0: runs[key], 1: replace(runs[key], run={**runs[key].run, "seed": 1})}
            if (key := (cell.method, cell.env)) in runs
            else {},
        )
        for cell in cells
    ]
    figure = curves_of_all(found)
    one, multi = figure.axes
    drawn = [[line for line in axes.get_lines() if len(line.get_xdata()) > 2] for axes in (one, multi)]
    assert [len(lines) for lines in drawn] == [3, 2] and not one.collections, "no bands"
    names = ["MESA", "baselines; the best is named", "PLAIN"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    assert [text.get_text() for axes in (one, multi) for text in axes.texts if text.get_text() == "QMIX"] == ["QMIX"]
    colors = [[line.get_color() for line in lines] for lines in drawn]
    assert colors[1] == [colors[0][0], colors[0][2]] and len(set(colors[0])) == 3
    widths = [line.get_linewidth() for line in drawn[0]]
    assert widths[0] > max(widths[1:])


@pytest.mark.parametrize("name", ["figure-3", "figure-4"])
def test_what_is_named_by_itself_has_a_look_of_its_own(name: str):
    looks = {cell.label: look_of(cell.label, cell.method, cell.kind) for cell in piece_named(name).cells}
    named = [(look.color, look.line) for label, look in looks.items() if look.name == label]
    assert len(named) >= 4 and len(set(named)) == len(named)


def test_the_front_page_chart_counts_solved_tasks(tmp_path: Path):
    """MESA, untold controls and the two best baselines; a world without any of the first two has no panel."""
    methods = {"mesa": "ours", "plain": "control", "tour": "control", "emc": "baseline", "qmix": "baseline"}
    methods["maven"] = "baseline"
    runs = {name: load_run(write_run(tmp_path / name, FakeRun(name, evaluations=8))) for name in methods}
    ends = {"mesa": 1.0, "emc": 0.2, "qmix": 0.4, "maven": 0.3}
    for name, level in ends.items():
        curves = [replace(one, returns=np.full(one.returns.shape, level)) for one in runs[name].curves]
        runs[name] = replace(runs[name], curves=tuple(curves))
    labels = {"tour": "learner and a scripted tour (privileged)"}
    cells = {name: Cell(name, "climb-one", 1.0, labels.get(name, name), kind=kind) for name, kind in methods.items()}
    found = [Found(cells[name], {0: run}) for name, run in runs.items()]
    found.append(Found(Cell("emc", "climb-multi", 1.0), {0: runs["emc"]}))
    found[1] = replace(found[1], runs={}, stale=found[1].runs)
    figure = tasks_solved(found)
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "climb-one"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mesa", "plain", "qmix", "maven"]
    number = len(runs["mesa"].curves)
    told = [text.get_text() for text in axes.texts]
    assert told[0] == f"{number} of {number}" and told[1].endswith("†") and told[2:] == [f"0 of {number}"] * 2
    assert axes.patches[1].get_width() == 1.0
    assert "†" in figure.get_supxlabel()
    assert tasks_solved([found[-1]]).axes, "whatever is stored"


def test_a_gain_says_over_how_many_tasks_it_is():
    found = Interval(1.0, 0.5, 1.5)
    said = [_over(Comparison(found, 1.0, shared, whole)) for shared, whole in ((15, True), (5, False), (0, False))]
    assert said == ["", " (5 tasks)", " (no tasks in common)"]


def found_with(label: str, kind: str, returns: list[list[float]], path: Path, steps: int = 0) -> Found:
    """Seeds of two tasks each whose evaluations are all alike, 100 steps apart, in the one-step climb game."""
    cell = Cell("plain", "climb-one", 1.0, label, kind=kind)
    runs = {}
    for seed, values in enumerate(returns):
        run = load_run(write_run(path / f"{label}-{seed}", FakeRun("plain", seed=seed, num_tasks=len(values))))
        curves = [
            replace(own, steps=np.array([100, 200, 300]), returns=np.array([0.0, value, value]), seed=seed)
            for own, value in zip(run.curves, values, strict=True)
        ]
        runs[seed] = replace(run, curves=tuple(curves), summary={**run.summary, "meta_env_steps": steps})
    return Found(cell, runs, seconds=60.0)


def test_ours_and_the_papers_agree_within_both_spreads(tmp_path: Path):
    """The paper has .74 ± .25 of MADDPG and .50 ± 0 of QMIX in the one-step game."""
    wide = found_with("MADDPG", "baseline", [[0.2, 0.4], [0.4, 0.6], [0.6, 0.8]], tmp_path)
    exact = found_with("QMIX", "baseline", [[0.5, 0.5]] * 3, tmp_path)
    higher = found_with("EMC", "baseline", [[0.5, 0.75]] * 3, tmp_path)
    lower = found_with("MESA (ours)", "ours", [[0.25, 0.25]] * 3, tmp_path)
    found = [wide, exact, higher, lower, found_with("learner alone", "control", [[0.5, 0.5]], tmp_path)]
    by_row = {pair.row: pair for pair in pairs(found, IN_THE_PAPER, PAPER_ROW)}
    # The seeds' means of MADDPG are .3, .5 and .7.
    assert (by_row["MADDPG"].mean, by_row["MADDPG"].spread) == (pytest.approx(0.5), pytest.approx(0.2))
    table = side_by_side_table(found, IN_THE_PAPER, PAPER_ROW)
    assert table.rows == (
        ("MADDPG", "0.50 = 0.74"),
        ("QMIX", "0.50 = 0.50"),
        ("EMC", "0.62 > 0.50"),
        ("MESA (ours)", "0.25 < 0.83"),
    )
    assert "Of the baselines' 3 cells 3 have been run: 2 agree, 1 are higher here, 0 lower." in table.note
    surer = found_with("MADDPG", "baseline", [[0.4, 0.4], [0.42, 0.42], [0.44, 0.44]], tmp_path / "surer")
    assert side_by_side_table([surer], IN_THE_PAPER, PAPER_ROW).rows == (("MADDPG", "0.42 < 0.74"),)
    panel, *_ = side_by_side_figure(found, IN_THE_PAPER, PAPER_ROW).axes
    assert [text.get_text() for text in panel.get_yticklabels()] == [row[0] for row in table.rows]


def test_the_papers_rows_are_held_against_ours():
    labels = {cell.label for cell in TABLE_2}
    assert set(PAPER_ROW) <= labels and set(PAPER_ROW.values()) == set(IN_THE_PAPER)
    assert IN_THE_PAPER["EMC"]["mpe-3a5l"] == (36.63, 0.11) and IN_THE_PAPER["Goal"]["swimmer"] == (498.13, 0.45)


def test_meta_training_has_paid_for_itself_when_as_many_steps_are_saved(tmp_path: Path):
    """Solved at 200 steps each; alone one of two tasks is, the other counts with all of its 300: 50 saved a task."""
    ours = found_with("MESA (ours)", "ours", [[1.5, 1.5]] * 3, tmp_path, steps=1_010)
    alone = found_with("learner alone", "control", [[1.5, 0.5]] * 3, tmp_path)
    (row,) = break_even_table([ours, alone]).rows
    assert row == ("climb-one", "MESA (ours)", "1.01k", "200 (6 of 6)", "250 (3 of 6)", "21 tasks")
    (row,) = break_even_table([replace(ours, runs=dict(alone.runs)), alone]).rows
    assert row[-1] == "never"


def test_a_profile_counts_task_runs_at_each_share(tmp_path: Path):
    run = load_run(write_run(tmp_path / "run", FakeRun("plain", evaluations=8)))
    scores = run.final_returns
    value, low, high = profile([run], np.array([0.0, 0.6, 1.1]))
    assert value == pytest.approx([1.0, np.mean(scores >= 0.6), 0.0])
    assert np.all(low <= value) and np.all(value <= high) and high[2] > 0
    few = replace(run, curves=tuple(curve for curve in run.curves if final_return(curve.returns) < 0.6)[:1])
    both, _, _ = profile([run, few], np.array([0.6]))
    assert both == pytest.approx([np.mean(scores >= 0.6) / 2]), "families count the same, whatever their size"


def test_the_verb_draws_from_what_there_is(runs: Path, tmp_path: Path, capsys):
    words = ["--runs", str(runs), "--results", str(tmp_path / "none"), "--out", str(tmp_path / "out"), "--json"]
    assert main(["reproduce", "figure-3", *words]) == 0
    printed = capsys.readouterr().out
    assert "missing  mesax run plain climb-one --num-test-tasks 10 --seed 1" in printed
    result = json.loads(printed.splitlines()[-1])
    assert result["drawn"] == [str(tmp_path / "out" / f"figure-3.{kind}") for kind in ("png", "svg")]
    assert (tmp_path / "out" / "figure-3.png").stat().st_size > 5_000


def test_nothing_stored_is_said(tmp_path: Path, capsys):
    words = ["--runs", str(tmp_path), "--results", str(tmp_path), "--out", str(tmp_path)]
    needs = {
        "figure-1": f"figure-1 needs run directories and {tmp_path}/ has none",
        "figure-4": f"figure-4 needs results and neither {tmp_path}/ nor {tmp_path}/ has any",
    }
    for name, reason in needs.items():
        assert main(["reproduce", name, *words]) == 2
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", f"mesax: {reason}; add --run to create them\n")
    assert main(["reproduce", "figure-4", *words, "--plan"]) == 0
    assert "costs    preset quick: 0 of " in capsys.readouterr().out


def test_a_part_of_a_table_is_planned_by_itself(tmp_path: Path, capsys):
    words = ["--runs", str(tmp_path), "--results", str(tmp_path), "--out", str(tmp_path), "--plan"]
    assert main(["reproduce", "table-2", *words, "--methods", "qmix", "goal", "--envs", "swimmer"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("missing")]
    assert [(line[3], line[4], line[-1]) for line in lines] == [
        (method, "swimmer", seed) for method in ("qmix", "goal") for seed in "012"
    ]


@pytest.mark.parametrize(
    "words, reason",
    [
        (["table-2", "--methods", "quix"], "'quix' is no part of this; it has mesa, learned, maddpg"),
        (
            ["figure-3", "--envs", "swimmer"],
            "'swimmer' is no part of this; it has climb-one, climb-multi",
        ),
        (["theory", "--methods", "qmix"], "it has no runs at all"),
        (["table-2", "--methods", "maesn", "--envs", "swimmer"], "no part of this in these environments"),
    ],
)
def test_parts_that_are_not_there_are_refused(words: list[str], reason: str, capsys):
    assert main(["reproduce", *words, "--plan"]) == 2
    told = capsys.readouterr().err
    assert reason in told and told.count("\n") == 1


def test_an_unknown_figure_is_one_line(capsys):
    with pytest.raises(UsageError, match="unknown figure or table 'figure-5'; choose one of figure-1, figure-3"):
        piece_named("figure-5")
    assert main(["reproduce", "figure-5"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def zero_shot_row(explorers: str, number: int, ways: dict[str, list[float]], **other: object) -> dict[str, object]:
    found = {name: {"mean": float(np.mean(tasks)), "worst": min(tasks), "tasks": tasks} for name, tasks in ways.items()}
    of = {"explorers": explorers, "explorer_seed": 0, "number": number, "env": "wide-3a5l-hard", "seed": 0}
    method, env = explorers.partition(",")[0].split()
    today = training_digest(to_plain(Request(method, env).experiment()))
    return of | {"episodes": 100, "trained_with": today, "ways": found} | other


def test_figure_7_shows_every_unseen_task_as_explorers_are_added(tmp_path: Path):
    two, easy = ("mesa wide-2a5l, preset quick", "mesa wide-3a5l, preset quick")
    ways = {"sub-teams, rest tours, turned": [2.0, 3.0], "uniform play": [0.0, 0.1]}
    for row in (
        zero_shot_row(two, 1, ways),
        zero_shot_row(two, 2, {"sub-teams, rest tours, turned": [2.5, 4.5]}),
        zero_shot_row(easy, 1, {"same team, turned": [9.0, 9.0]}, trained_with="other settings"),
        zero_shot_row(two, 4, {"sub-teams, rest tours, turned": [8.0]}, env="wide-3a5l-hard-k3"),
    ):
        keep_row(tmp_path, row)
    rows = [row for row in measured(tmp_path) if row["env"] == "wide-3a5l-hard" and is_of_today(row)]
    assert [row["number"] for row in rows] == [1, 2], "what is stale is not drawn"
    reached = [Reached("2 to 3", row["number"], row["ways"]["sub-teams, rest tours, turned"]["tasks"]) for row in rows]
    run = load_run(write_run(tmp_path / "run", FakeRun("mesa", evaluations=8)))
    figure = generalization_figure([Reached("uniform play", 0, [0.0, 0.1]), *reached], [run])
    assert [text.get_text() for text in figure.axes[0].texts] == ["3.50, worst 2.50"]
    assert list(figure.axes[0].get_xticks()) == [0, 1, 2]
    means = next(line for line in figure.axes[0].lines if line.get_label() == "2 to 3")
    assert list(means.get_ydata()) == pytest.approx([0.05, 2.5, 3.5])
    assert not generalization_figure(reached, []).axes[1].axison
    drawn = piece_named("figure-7-wide").draw([], tmp_path / "drawn", Sources(lambda *_: [], tmp_path))
    assert [path.name for path in drawn] == ["figure-7-wide.png", "figure-7-wide.svg"]


def test_another_measurement_takes_the_place_of_the_first(tmp_path: Path):
    of = "mesa wide-2a5l, preset quick"
    keep_row(tmp_path, zero_shot_row(of, 1, {"a": [1.0], "b": [2.0]}))
    keep_row(tmp_path, zero_shot_row(of, 1, {"a": [3.0]}))
    (row,) = measured(tmp_path)
    assert {name: way["mean"] for name, way in row["ways"].items()} == {"a": 3.0, "b": 2.0}
    keep_row(tmp_path, zero_shot_row(of, 1, {"a": [4.0]}, trained_with="other settings"))
    (row,) = measured(tmp_path)
    assert list(row["ways"]) == ["a"], "ways of other explorers are gone"
    assert measured(tmp_path / "none") == []
    (tmp_path / "zero-shot.json").write_text('{"rows": [1]}')
    with pytest.raises(DamageError, match="holds no rows"):
        measured(tmp_path)


def test_figure_9_has_curves_of_the_papers_arms_and_returns_of_all(tmp_path: Path):
    runs = {name: load_run(write_run(tmp_path / name, FakeRun(name, evaluations=8))) for name in ("mesa", "plain")}
    alone = load_run(write_run(tmp_path / "alone", FakeRun("mesa", env="climb-multi-mixed", evaluations=8)))
    arms = [("MESA", runs["mesa"]), ("without wishes", runs["plain"])]
    left, right = ablation_figure([*arms, ("MESA", alone)], ["MESA"]).axes
    assert left.get_title(loc="left") == "climb-one", "where there is one arm only there is nothing to compare"
    assert [label.get_text() for label in right.get_yticklabels()] == ["MESA", "without wishes"]
    assert len([text for text in left.texts if text.get_text().startswith(("MESA", "mesa"))]) == 1
    assert [text.get_text().partition(" ")[0] for text in right.texts] == [
        format_number(float(np.mean(run.final_returns))) for _, run in arms
    ]
    assert len(ablation_figure([("MESA", alone)], []).axes) == 2


def test_arms_of_the_ablation_differ_where_they_say():
    cells = [cell for cell in piece_named("figure-9").cells if cell.env == "wide-2a5l"]
    arms = {cell.label: cell.request(0).experiment() for cell in cells}
    assert len({(one.family, one.algorithm, one.schedule, one.seed) for one in arms.values()}) == 1
    assert arms["without wishes"].method.reward.wish_decay == 1.0
    assert not arms["told nothing"].method.reward.tell_demand
    assert isinstance(arms["Eq. (6) for records"].method.reward, ToldCoverage)
    assert arms["Eq. (6) for records"].method.reward.features == arms["MESA"].method.reward.features
    assert isinstance(arms["MADDPG for PPO"].method.explorer, Maddpg)
    assert arms["MADDPG for PPO"].method.explorer.actor_net == arms["MESA"].method.explorer.actor_net
    assert [arms[name].method.labels for name in ("filled, own labels", "filled, relabeled")] == ["own", "test"]


@pytest.mark.parametrize("label", ["filled, relabeled", "told nothing", "MADDPG for PPO", "raw positions"])
def test_arms_of_the_ablation_pass_the_checks_of_their_methods(label: str):
    (cell,) = (cell for cell in piece_named("figure-9").cells if (cell.env, cell.label) == ("wide-2a5l", label))
    experiment = cell.request(0).experiment()
    experiment.method.check(experiment)


def test_a_preset_of_which_nothing_is_missing_says_so(tmp_path: Path, capsys, monkeypatch):
    """MESA as published is preset paper, which `--run` of the usual preset leaves alone."""
    for seed in (0, 1, 2):
        write_of_today(tmp_path / "runs" / f"{seed}", "mesa", seed)
    monkeypatch.setattr("paper.cli.reproducing.sweep", lambda *_: pytest.fail("nothing was to be run"))
    words = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "none"), "--out", str(tmp_path), "--run"]
    assert main(["reproduce", "table-2", *words, "--methods", "mesa", "--envs", "climb-one"]) == 0
    printed = capsys.readouterr().out
    assert "note     nothing of preset quick is missing; of preset paper there is: --preset paper" in printed


def test_a_plan_begins_nothing_on_a_cluster(tmp_path: Path, capsys, monkeypatch):
    """Neither Ray nor its cluster need be where a plan is made."""
    monkeypatch.setattr(OnRay, "check", lambda on: pytest.fail("a plan begins nothing"))
    words = ["--runs", str(tmp_path), "--results", str(tmp_path), "--out", str(tmp_path), "--plan"]
    assert main(["reproduce", "figure-1", *words, "--on", "ray", "--address", "10.0.0.1:6379"]) == 0
    assert "missing  mesax run mesa " in capsys.readouterr().out


@pytest.mark.parametrize("name, kept", [("figure-1", False), ("figure-3", True)])
def test_what_is_run_to_show_play_replaces_no_stored_result(name: str, kept: bool, tmp_path: Path, capsys, monkeypatch):
    stores = []
    monkeypatch.setattr("paper.cli.reproducing.sweep", lambda planned, how, quiet, as_json, store: stores.append(store))
    words = ["--runs", str(tmp_path), "--results", str(tmp_path / "store"), "--out", str(tmp_path), "--run"]
    assert main(["reproduce", name, *words, "--methods", "mesa", "--envs", "climb-one"]) == 70
    assert stores == [tmp_path / "store" if kept else None]
    printed = capsys.readouterr().out
    places = f"neither {tmp_path}/ nor {tmp_path / 'store'}/ has any" if kept else f"{tmp_path}/ has none"
    assert f"{name} needs " in printed and f" {places}\n" in printed, "that --run would help is not said again"
