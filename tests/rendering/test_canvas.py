"""The canvas: places in inches, titles in as many lines as they need, and a style that is the package's own."""

from itertools import pairwise

import matplotlib
import pytest
from matplotlib.figure import Figure

from mesax.rendering import canvas


def test_axes_are_placed_in_inches():
    figure = canvas.new_frame(4.0, 2.0)
    assert canvas.place_axes(figure, 1.0, 0.5, 2.0, 1.0).get_position().bounds == (0.25, 0.25, 0.5, 0.5)


@pytest.mark.parametrize("title, lines", [("", 1), ("short", 1), ("a long title of words " * 6, 3)])
@pytest.mark.parametrize("text", ["what it means", "what it means, in many words " * 6])
def test_a_heading_makes_room_for_its_lines(title, lines, text):
    figure = canvas.new_frame(5.0, 2.0)
    canvas.write_heading(figure, title, text)
    above, below = figure.texts
    assert above.get_text().count("\n") == lines - 1
    figure.canvas.draw()
    assert below.get_window_extent().y1 <= above.get_window_extent().y0 or not title
    room = figure.dpi * (2.0 - canvas.heading_room(title, text, 5.0))
    for written in (above, below):
        assert written.get_window_extent().x1 <= figure.bbox.x1 and written.get_window_extent().y0 >= room


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


def test_names_at_the_ends_of_lines_do_not_overlap():
    figure = canvas.new_frame(4.0, 2.0)
    axes = canvas.place_axes(figure, 0.5, 0.5, 2.0, 1.0)
    canvas.label_ends(
        axes, [(0.5, "one", "red"), (0.5, "two", "blue"), (0.02, "three", "green"), (0.0, "four", "gray")]
    )
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["one", "two", "three", "four"]
    assert all(lower.y1 <= upper.y0 + 1 for upper, lower in pairwise(boxes))
    assert boxes[-1].y1 >= axes.bbox.y0 and boxes[0].y0 < axes.bbox.y1
