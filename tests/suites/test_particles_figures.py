"""Visits of places are drawn as bars, with the numbers of the coverage document, wherever they are no plane."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fake_store import FakeRun, write_landmark_run, write_run
from mesax.envs.climb import ClimbFamily
from mesax.envs.particle_climb import ParticleClimbFamily
from mesax.methods.visits import configuration_grid
from mesax.results import figures
from mesax.results.drawing import draw_run, world_figures
from mesax.results.report import report_html
from mesax.store.reading import RunResults, load_run
from mesax.suites.climb.figures import FIGURES as CLIMB_FIGURES
from mesax.suites.particles.figures import FIGURES
from mesax.suites.visits import are_in_a_row

draw_visits = FIGURES[0].draw


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunResults:
    return load_run(write_landmark_run(tmp_path_factory.mktemp("runs") / "landmarks"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> RunResults:
    fake = FakeRun(num_tasks=2, evaluations=6, num_actions=4, num_explorers=2)
    return load_run(write_run(tmp_path_factory.mktemp("runs") / "plane", fake))


def with_coverage(run: RunResults, **changes) -> RunResults:
    return replace(run, coverage={**run.coverage, **changes})


def panels_of(figure: Figure) -> list:
    """The visitors' panels."""
    return [axes for axes in figure.axes if axes.axison]


def test_the_fake_run_has_the_form_that_mesa_writes(run):
    written = configuration_grid(ParticleClimbFamily(), np.array([0, 3]))
    assert written == [[1.0, 0.0, 0.0, 1.0, 0.0]]
    assert np.shape(written) == np.shape(run.coverage["visitors"][0]["frequency"])
    assert list(ParticleClimbFamily().configuration_shape[1:]) == run.coverage["shape"]
    assert set(ParticleClimbFamily().facts()) >= {"num_landmarks", "num_agents", "count"}


def test_each_visitor_has_a_bar_for_each_landmark(run):
    panels = panels_of(draw_visits(run))
    visitors = run.coverage["visitors"]
    for axes, visitor in zip(panels, visitors, strict=True):
        title = f"{visitor['name']}\n{visitor['distinct_visits']:.2f} distinct an episode"
        assert axes.get_title(loc="left") == title
        assert [bar.get_height() for bar in axes.patches] == visitor["frequency"][0]
        assert [label.get_text() for label in axes.get_xticklabels()] == list("01234")
    assert len({axes.get_ylim() for axes in panels}) == 1, "one scale for all visitors"
    assert panels[0].get_ylim()[1] >= max(max(visitor["frequency"][0]) for visitor in visitors), "no bar is cut off"


def test_explorers_have_the_colors_of_their_training(run):
    lines = {line.get_label(): to_hex(line.get_color()) for line in figures.meta_training(run).axes[1].lines}
    names = [one["name"] for one in run.coverage["visitors"]]
    colors = [to_hex(axes.patches[0].get_facecolor()) for axes in panels_of(draw_visits(run))]
    bars = dict(zip(names, colors, strict=True))
    assert bars["explorer 1"] == lines["explorer 1"] and bars["explorer 2"] == lines["explorer 2"]
    assert len(set(bars.values())) == len(bars)


@pytest.mark.parametrize("landmarks, explorers", [(1, 1), (5, 2), (20, 9)])
def test_any_number_of_landmarks_and_explorers_fits(tmp_path, landmarks, explorers):
    figure = draw_visits(load_run(write_landmark_run(tmp_path / "run", landmarks, explorers)))
    panels = panels_of(figure)
    assert len(panels) == explorers + 2
    assert all(len(axes.patches) == landmarks for axes in panels)
    figure.canvas.draw()
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert drawn.x0 >= 0 and drawn.y0 >= 0 and drawn.x1 <= width and drawn.y1 <= height
    titles = [axes._left_title.get_window_extent() for axes in panels[:4]]
    assert all(one.x1 < two.x0 for one, two in pairwise(titles))


def test_a_single_agents_actions_are_places_too(run):
    family = ClimbFamily(num_agents=1, num_actions=3, num_stages=2)
    frequency = configuration_grid(family, np.array([0, 4]))
    visitors = [{**one, "frequency": frequency} for one in run.coverage["visitors"]]
    facts = {**run.run, "family": {**family.facts(), "optimal_return": 1.0, "suboptimal_return": 0.5}}
    alone = replace(with_coverage(run, num_stages=2, shape=[3], visitors=visitors), run=facts)
    assert [figure.applies(alone) for figure in CLIMB_FIGURES] == [False, True]
    figure = CLIMB_FIGURES[1].draw(alone)
    assert [bar.get_height() for bar in panels_of(figure)[0].patches] == [1, 0, 0, 0, 1, 0]
    assert "action, stage after stage" in [text.get_text() for text in figure.findobj(lambda o: hasattr(o, "get_text"))]


def test_only_counted_visits_in_a_row_are_drawn(run, plane):
    assert are_in_a_row(run) and not are_in_a_row(plane) and not are_in_a_row(replace(run, coverage=None))
    assert not are_in_a_row(with_coverage(run, visitors=[]))
    unseen = [{**one, "frequency": None} for one in run.coverage["visitors"]]
    assert not are_in_a_row(with_coverage(run, visitors=unseen))


def test_the_figures_of_a_run_are_those_of_its_world(run, plane):
    (bars,) = world_figures(run)
    assert bars.applies(run) and (bars,) == FIGURES
    assert world_figures(plane) == CLIMB_FIGURES
    assert world_figures(replace(run, run=run.run | {"env": "own"})) == ()
    assert world_figures(replace(run, run=run.run | {"suite": "climb"})) == CLIMB_FIGURES


# In the report


def test_the_report_of_a_particle_run_has_both_figures(run):
    page = report_html([run])
    for heading in ("What the explorers visit", "Coverage during stage 2"):
        after = page.split(f"<h3>{heading}</h3>")[1]
        assert after.lstrip().startswith("<figure>"), heading
    assert "spend at each place" in page and "next to the payoff" not in page


def test_the_report_says_what_a_particle_run_lacks(run):
    page = report_html([replace(run, coverage=None, metrics=())])
    assert "MESA recorded no visits of landmarks." in page
    assert "MESA logged no training of explorers." in page


def test_the_run_s_own_figures_include_its_visits(run):
    drawn = [path.name for path in draw_run(run)]
    assert drawn == ["learning-curves.png", "explorer-coverage.png", "meta-training.png"]


# Coverage during stage 2


def test_uniform_play_is_a_dashed_level_beside_the_explorers_visits(run):
    (_, visits) = figures.meta_training(run).axes
    lines = {line.get_label(): line for line in visits.lines}
    assert set(lines) == {"explorer 1", "explorer 2", "uniform play"}
    level = next(one["distinct_visits"] for one in run.coverage["visitors"] if one["name"] == "uniform")
    assert lines["uniform play"].get_linestyle() == "--"
    assert list(lines["uniform play"].get_ydata()) == [level, level]
    for policy in range(2):
        rows = [row for row in run.metrics if row.get("policy") == policy]
        drawn = lines[f"explorer {policy + 1}"]
        assert drawn.get_xdata().tolist() == [row["step"] for row in rows]
        assert drawn.get_ydata().tolist() == [row["distinct_visits"] for row in rows]


@pytest.mark.parametrize("level", [0.0, 0.5, 40.0])
def test_the_level_of_uniform_play_is_in_sight(run, level):
    """Also where explorers are worse than chance, and where nobody visits anything."""
    visitors = [{**one, "distinct_visits": level} for one in run.coverage["visitors"]]
    metrics = tuple(row | {"distinct_visits": 0.0} for row in run.metrics if row["phase"] == "explore")
    (_, visits) = figures.meta_training(replace(with_coverage(run, visitors=visitors), metrics=metrics)).axes
    bottom, top = visits.get_ylim()
    assert bottom == 0.0 and top > level
    assert visits.get_xlim() == (0, max(row["step"] for row in metrics))


def test_before_stage_2_has_ended_there_is_no_level_yet(run):
    (_, visits) = figures.meta_training(replace(run, coverage=None)).axes
    assert [line.get_label() for line in visits.lines] == ["explorer 1", "explorer 2"]
