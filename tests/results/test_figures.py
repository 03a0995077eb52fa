"""Figures drawn from a small fake store hold what they should: panels, lines, labels, colors, cells."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from fake_store import FakeRun, write_run
from mesax.experiments.request import family_facts
from mesax.rendering.canvas import save
from mesax.results import figures
from mesax.results.curves import mean_curve, only_group
from mesax.results.labels import COLORS, colors_of
from mesax.results.labels import NAMES as METHOD_NAMES
from mesax.results.summary import final_interval
from mesax.store.reading import RunResults, load_run
from mesax.suites.registry import suite_of

SMALL = FakeRun(num_tasks=4, evaluations=12, num_actions=4, num_explorers=2)
METHODS = ("mesa", "plain", "uniform")
NAMES = {"mesa": "MESA", "plain": "learner alone", "uniform": "learner and random episodes"}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> dict[str, RunResults]:
    root = tmp_path_factory.mktemp("runs")
    fakes = {method: replace(SMALL, method=method) for method in METHODS}
    fakes["stages"] = replace(SMALL, env="climb-multi-mixed", num_stages=3)
    return {name: load_run(write_run(root / name, fake)) for name, fake in fakes.items()}


def runs_of(store) -> list[RunResults]:
    return [store[method] for method in METHODS]


def curve_lines(axes) -> dict:
    named = (line for line in axes.lines if not line.get_label().startswith("_"))
    return {line.get_label().replace("\n", " "): line for line in named}


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def test_learning_curves_draw_every_task_run_their_mean_and_its_interval(store):
    runs = runs_of(store)
    (axes,) = figures.learning_curves(runs).axes
    lines = curve_lines(axes)
    assert list(lines) == list(NAMES.values()) and not axes.collections, "no bands"
    for run, line in zip(runs, lines.values(), strict=True):
        steps, mean, _, _ = mean_curve(run)
        np.testing.assert_array_equal(line.get_xdata(), steps)
        np.testing.assert_array_equal(line.get_ydata(), mean)
        own = [one for one in axes.lines if one.get_color() == line.get_color() and one is not line]
        *thin, interval, end = own
        assert all(one.get_linewidth() < line.get_linewidth() for one in thin)
        np.testing.assert_array_equal([one.get_ydata() for one in thin], [curve.returns for curve in run.curves])
        final = final_interval(run)
        assert list(interval.get_ydata()) == [final.low, final.high] and list(end.get_ydata()) == [final.value]
        label = f"{NAMES[run.run['method']]} {final.value:.2f}"
        assert label in [text.get_text().replace("\n", " ") for text in axes.texts], "that of the table"
    assert len({line.get_color() for line in lines.values()}) == 3
    assert axes.get_xlabel() == "environment steps"
    assert axes.xaxis.get_major_formatter()(10_000, 0) == "10k"


def test_too_many_task_runs_leave_their_means_alone(store, monkeypatch):
    monkeypatch.setattr(figures, "MOST_THIN_LINES", 11)
    (axes,) = figures.learning_curves(runs_of(store)).axes
    assert len(curve_lines(axes)) == 3 and all(one.get_linewidth() > 0.7 for one in axes.lines)


def test_a_method_has_one_color_wherever_it_is_drawn(store):
    mesa, plain, uniform = figures.run_colors(runs_of(store))
    assert figures.run_colors([store["uniform"], store["mesa"]]) == [uniform, mesa]
    assert colors_of(["MESA (ours)", "learner alone", "maddpg", "MADDPG"])[:2] == [mesa, plain]
    assert len(set(colors_of(["mesa"] * 3))) == 3, "the same method with other settings"
    assert len(set(COLORS.values())) == len(COLORS) and COLORS.keys() == METHOD_NAMES.keys()


def test_learning_curves_mark_the_optimal_and_the_suboptimal_return(store):
    (axes,) = figures.learning_curves([store["plain"]]).axes
    dotted = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert dotted == [1.0, 0.5]
    assert {"optimum", "safe equilibrium"} <= {text.get_text() for text in axes.texts}


@pytest.mark.parametrize(
    ("env", "levels", "names"),
    [
        ("mpe-2a5l", [71.5, 36.6], {"scripted optimum", "scripted safe equilibrium"}),
        ("mpe-3a5l-hard", [68.1, 34.65], {"scripted optimum", "scripted safe equilibrium"}),
        ("swimmer", [996.0, 500.0], {"scripted optimum", "scripted safe equilibrium"}),
        ("wide-2a5l", [80.0, 40.0], {"optimum", "safe equilibrium"}),
    ],
)
def test_lines_of_measured_levels_are_those_of_scripted_teams(store, env: str, levels: list[float], names: set[str]):
    """As run.json of a world says it."""
    family = json.loads(json.dumps(family_facts(suite_of(env).family(env), env)))
    (axes,) = figures.learning_curves([replace(store["plain"], run={**store["plain"].run, "family": family})]).axes
    assert [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"] == pytest.approx(levels)
    assert names <= {text.get_text() for text in axes.texts}


def test_what_took_no_step_is_a_level_for_those_that_did(store):
    plain, curves = store["plain"], store["mesa"].curves
    level = replace(
        store["mesa"],
        run={**store["mesa"].run, "method": "optimum"},
        curves=tuple(replace(own, steps=np.zeros(1, int), returns=np.ones(1), groups={}) for own in curves),
    )
    (axes,) = figures.learning_curves([plain, level]).axes
    lines = curve_lines(axes)
    assert lines["scripted optimum"].get_linestyle() == "--" and set(lines["scripted optimum"].get_ydata()) == {1.0}
    assert axes.get_xlim()[1] == pytest.approx(1.08 * plain.curves[0].steps[-1])
    (alone,) = figures.learning_curves([level]).axes
    assert alone.get_xlim() == (0, 1.055)


def test_learning_curves_have_a_panel_for_each_group_and_environment(store):
    grouped = figures.learning_curves(runs_of(store), by_group=True)
    assert [axes.get_title(loc="left") for axes in grouped.axes] == [
        "climb-one",
        "climb-one, k=1",
        "climb-one, k=2",
    ]
    stuck = curve_lines(grouped.axes[2])["learner alone"].get_ydata()
    np.testing.assert_array_equal(stuck, mean_curve(only_group(store["plain"], "k=2"))[1])
    both = figures.learning_curves([store["mesa"], store["stages"]])
    assert [axes.get_title(loc="left") for axes in both.axes] == ["climb-one", "climb-multi-mixed"]
    assert [list(curve_lines(axes)) for axes in both.axes] == [["MESA"], ["MESA"]]


def test_panels_that_share_an_axis_hold_every_curve_and_its_label(store):
    levels = {"k=1": 0.1, "k=2": 0.8}  # the last panel alone would begin above the first two
    curves = [
        replace(own, groups={name: np.full(own.returns.shape, levels[name]) for name in own.groups})
        for own in store["plain"].curves
    ]
    low = replace(store["plain"], curves=tuple(replace(own, returns=own.groups[own.label[:3]]) for own in curves))
    figure = figures.learning_curves([low, replace(low, run={**low.run, "method": "uniform"})], by_group=True)
    figure.draw_without_rendering()
    for axes in figure.axes:
        bottom, top = axes.get_ylim()
        drawn = np.concatenate([line.get_ydata() for line in curve_lines(axes).values()])
        assert bottom <= drawn.min() and drawn.max() <= top
        labels = [text.get_window_extent() for text in axes.texts if text.get_text()[-1].isdigit()]
        assert all(axes.bbox.y0 <= (box.y0 + box.y1) / 2 <= axes.bbox.y1 for box in labels) and len(labels) == 2


def test_panels_of_the_same_runs_name_them_once(store):
    """A name with its settings is long: at the end of every curve it would leave no room for the panels."""
    changed = {**store["plain"].run, "overrides": {"schedule.total-steps": "300_000", "schedule.num-evaluations": "9"}}
    figure = figures.learning_curves([store["mesa"], replace(store["plain"], run=changed)], by_group=True)
    figure.draw_without_rendering()
    name = "learner alone schedule.num-evaluations=9 schedule.total-steps=300_000"[:57] + "... "
    named = [[text.get_text() for text in axes.texts if "alone" in text.get_text()] for axes in figure.axes]
    assert [len(texts) for texts in named] == [0, 0, 1]
    assert named[-1][0].replace("\n", " ").startswith(name.partition("evaluations")[0])
    assert all(axes.bbox.width > 0.15 * figure.bbox.width for axes in figure.axes) and not figure.legends


def test_labels_of_equal_curves_do_not_overlap(store):
    runs = [replace(store["mesa"], run={**store["mesa"].run, "seed": seed}) for seed in range(6)]
    figure = figures.learning_curves(runs)
    figure.draw_without_rendering()
    labels = [text for text in figure.axes[0].texts if "seed" in text.get_text()]
    boxes = sorted((text.get_window_extent() for text in labels), key=lambda box: box.y0)
    assert len(boxes) == 6
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in pairwise(boxes))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_dollar_signs_in_names_are_not_mathematics(store, tmp_path):
    odd = replace(store["mesa"], run={**store["mesa"].run, "method": r"a$\frac$b", "env": "$$^$"})
    figure = figures.learning_curves([odd, store["plain"]], by_group=True)
    save(figure, tmp_path / "odd")
    save(figures.final_returns([odd]), tmp_path / "odd-dots")


def test_final_returns_show_every_task_run(store):
    figure = figures.final_returns(runs_of(store))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["all task runs", "k=1", "k=2"]
    everything, _, second = figure.axes
    dots = [line.get_xdata() for line in everything.lines if line.get_marker() == "o"]
    np.testing.assert_array_equal(dots, [run.final_returns for run in runs_of(store)])
    assert [line.get_xdata().size for line in second.lines if line.get_marker() == "o"] == [2, 2, 2]
    means = [line.get_xdata()[0] for line in everything.lines if line.get_marker() == "D"]
    assert means == pytest.approx([run.final_returns.mean() for run in runs_of(store)])
    names = [label.get_text().replace("\n", " ") for label in everything.get_yticklabels()]
    assert names == list(NAMES.values())


def test_meta_training_has_a_line_for_each_explorer(store):
    figure = figures.meta_training(store["mesa"])
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "intrinsic return",
        "true distinct visits",
    ]
    rows = [row for row in store["mesa"].metrics if row["phase"] == "explore" and row["policy"] == 1]
    for axes, metric in zip(figure.axes, ("intrinsic_return", "distinct_visits"), strict=True):
        line = curve_lines(axes)["explorer 2"]
        assert line.get_xdata().tolist() == [row["step"] for row in rows]
        assert line.get_ydata().tolist() == [row[metric] for row in rows]
    assert set(curve_lines(figure.axes[1])) == {"explorer 1", "explorer 2", "uniform play"}


def test_runs_without_explorers_have_no_figure_of_their_training(store):
    training = next(figure for figure in figures.RUN_FIGURES if figure.name == "meta-training")
    assert training.applies(store["mesa"]) and not training.applies(store["plain"])


def test_every_listed_figure_is_drawn_and_told_apart(store):
    listed = [*figures.RUN_FIGURES, *figures.COMPARISON_FIGURES]
    assert len({figure.name for figure in listed}) == len(listed)
    assert all(figure.caption.endswith(".") and figure.title for figure in listed)
    for figure in figures.COMPARISON_FIGURES:
        assert isinstance(figure.draw([store["mesa"]]), Figure)


def test_save_writes_both_files_and_the_same_bytes_again(store, tmp_path):
    png, svg = save(figures.learning_curves(runs_of(store)), tmp_path / "figures" / "curves.v1")
    assert (png.name, svg.name) == ("curves.v1.png", "curves.v1.svg")
    assert png.read_bytes().startswith(b"\x89PNG") and b"<svg" in svg.read_bytes()
    again = save(figures.learning_curves(runs_of(store)), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]


def test_drawing_needs_neither_jax_nor_pyplot():
    code = "import sys, mesax.results.report; print({'jax', 'matplotlib.pyplot'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
