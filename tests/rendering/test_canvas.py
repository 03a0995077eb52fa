"""The canvas: places in inches, titles in as many lines as they need, and a style that is the package's own."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from mesax.rendering import canvas


def test_axes_are_placed_in_inches():
    figure = canvas.new_frame(4.0, 2.0)
    assert canvas.place_axes(figure, 1.0, 0.5, 2.0, 1.0).get_position().bounds == (0.25, 0.25, 0.5, 0.5)


@pytest.mark.parametrize("title, lines", [("", 1), ("short", 1), ("a long title of words " * 6, 3)])
def test_a_heading_makes_room_for_its_title(title, lines):
    figure = canvas.new_frame(5.0, 2.0)
    canvas.write_heading(figure, title, "what it means")
    above, below = figure.texts
    assert above.get_text().count("\n") == lines - 1
    assert canvas.title_room(title, 5.0) == pytest.approx((lines - 1) * canvas.TITLE_LINE)
    figure.canvas.draw()
    assert below.get_window_extent().y1 <= above.get_window_extent().y0 or not title
    assert above.get_window_extent().x1 <= figure.bbox.x1


def test_text_from_outside_is_not_mathematics():
    figure = canvas.new_frame(3.0, 1.0)
    canvas.write_heading(figure, r"costs $5 and $\frac", "")
    figure.canvas.draw()
    assert figure.texts[0].get_text() == r"costs \$5 and \$\frac"


def test_the_style_is_in_force_while_drawing_and_gone_after():
    @canvas.styled
    def draw() -> Figure:
        assert matplotlib.rcParams["axes.labelcolor"] == canvas.INK
        return canvas.new_figure(1.0, 1.0)

    with matplotlib.rc_context({"axes.labelcolor": "red"}):
        draw()
        assert matplotlib.rcParams["axes.labelcolor"] == "red"


@pytest.mark.parametrize("returns, text", [([1.25], "1 episode 1.2"), ([1.0, 3.0], "2 episodes 2")])
def test_mean_returns_are_words(returns, text):
    assert canvas.mean_return(np.array(returns)) == f"mean return of {text}"


@pytest.mark.parametrize("past, drawn", [(0, 1), (2, 3)])
def test_rewards_to_come_are_pale(past, drawn):
    axes = canvas.place_axes(canvas.new_frame(2.0, 2.0), 0.5, 0.5, 1.0, 1.0)
    canvas.draw_rewards(axes, np.array([0.5, 0.0, 1.0]), past, horizon=5, safe_reward=0.5)
    assert len(axes.patches) == drawn and axes.get_xlim() == (0, 5)
    whole, *earned = (patch.get_data() for patch in axes.patches)
    assert whole.values.tolist() == [0.5, 0.0, 1.0] and all(part.values.tolist() == [0.5, 0.0] for part in earned)
