"""Maps of joint actions hold the payoff of a task, M_* and the plays of every visitor, from a small fake store."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from fake_store import FakeRun, write_run
from mesax.store.reading import RunResults, load_run
from mesax.suites.climb.figures import FIGURES, explorer_coverage
from mesax.suites.visits import are_in_a_plane

SMALL = FakeRun(num_tasks=4, evaluations=12, num_actions=4, num_explorers=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> dict[str, RunResults]:
    root = tmp_path_factory.mktemp("runs")
    fakes = {
        "mesa": SMALL,
        "plain": replace(SMALL, method="plain"),
        "stages": replace(SMALL, env="climb-multi-mixed", num_stages=3),
        "three": replace(SMALL, num_agents=3),
    }
    return {name: load_run(write_run(root / name, fake)) for name, fake in fakes.items()}


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def panels_of(figure: Figure) -> list:
    """The panels that show cells, without the color bar."""
    return [axes for axes in figure.axes if axes.images]


def outlined(axes) -> list[set]:
    """Segments of both borders: of M_*, and of what is optimal."""
    lines = [one for one in axes.collections if isinstance(one, LineCollection)]
    return [{tuple(map(tuple, segment)) for segment in one.get_segments()} for one in lines]


def test_explorer_coverage_shows_every_visitor(store):
    run = store["mesa"]
    panels = panels_of(explorer_coverage(run))
    assert [axes.get_title() for axes in panels] == ["uniform", "explorer 1", "explorer 2", "all explorers"]
    for axes, visitor in zip(panels, run.coverage["visitors"], strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), visitor["frequency"][0])
        share = np.sum(np.multiply(visitor["frequency"], run.coverage["dataset"]))
        assert axes.get_xlabel().startswith(f"{share:.0%} in")
    assert len({axes.images[0].norm for axes in panels}) == 1, "one color scale for all visitors"


@pytest.mark.parametrize(("task", "optimal"), [(0, 6), (1, 1)])
def test_explorer_coverage_marks_what_pays_in_the_task(store, task, optimal):
    run = store["mesa"]
    k, u = run.run["test_tasks"][task]["target"][0]
    panel = panels_of(explorer_coverage(run, task))[1]
    cells = [(row, column) for row in range(4) for column in range(4) if (row == u) + (column == u) == k]
    assert len(cells) == optimal
    frequency = np.array(run.coverage["visitors"][1]["frequency"][0])
    share = sum(frequency[cell] for cell in cells)
    assert panel.get_xlabel().endswith(f"{share:.1%} optimal")
    _, border = outlined(panel)
    sides = [((c - 0.5, r - 0.5), (c + 0.5, r - 0.5)) for r, c in cells if (r - 1, c) not in cells]
    assert set(sides) <= border


def test_explorer_coverage_picks_a_task_where_all_must_meet(store):
    _, border = outlined(panels_of(explorer_coverage(store["mesa"]))[0])
    assert border == {
        *(((-0.5, y), (0.5, y)) for y in (-0.5, 0.5)),
        *(((x, -0.5), (x, 0.5)) for x in (-0.5, 0.5)),
    }, "the corner of u=0"


def test_explorer_coverage_outlines_the_border_of_the_dataset(store):
    dataset = np.zeros((1, 4, 4), dtype=int)
    dataset[0, 1, 1:3] = 1
    run = replace(store["mesa"], coverage={**store["mesa"].coverage, "dataset": dataset[0].tolist()})
    for axes in panels_of(explorer_coverage(run)):
        segments, _ = outlined(axes)
        assert len(segments) == 6
        assert ((0.5, 0.5), (1.5, 0.5)) in segments and ((2.5, 0.5), (2.5, 1.5)) in segments


def test_explorer_coverage_has_a_row_for_each_stage(store):
    run = store["stages"]
    panels = panels_of(explorer_coverage(run, task=1))
    assert len(panels) == 3 * 4
    assert [axes.get_ylabel() for axes in panels[::4]] == ["stage 1", "stage 2", "stage 3"]
    third = np.asarray(run.coverage["visitors"][1]["frequency"][2])
    np.testing.assert_array_equal(panels[8 + 1].images[0].get_array(), third)


def test_explorer_coverage_of_three_agents_is_the_marginal_of_two_and_says_so(store):
    run = store["three"]
    figure = explorer_coverage(run, task=1)
    panels = panels_of(figure)
    full = np.asarray(run.coverage["visitors"][1]["frequency"])[0]
    np.testing.assert_allclose(panels[1].images[0].get_array(), full.sum(axis=-1))
    k, u = run.run["test_tasks"][1]["target"][0]
    optimal = [(u, u), *((u, other) for other in range(4)), *((other, u) for other in range(4))]
    share = sum(full.sum(axis=-1)[cell] for cell in set(optimal))
    assert k == 2 and panels[1].get_xlabel().endswith(f"{share:.1%} optimal"), "the third agent plays its best"
    assert "first two of 3 agents" in texts(figure)
    assert "first two" not in texts(explorer_coverage(store["mesa"]))


def test_what_cannot_be_shown_as_maps_is_not_tried(store):
    maps, bars = FIGURES
    for name, run in store.items():
        assert maps.applies(run) == (name != "plain") and not bars.applies(run)
    known = store["mesa"].coverage
    # A document about more configurations than `coverage_pictures` counts one by one.
    unseen = {"shape": [200, 200], "visitors": [{**one, "frequency": None} for one in known["visitors"]]}
    for change in ({"shape": None}, {"shape": [5]}, unseen):
        assert not are_in_a_plane(replace(store["mesa"], coverage={**known, **change}))
