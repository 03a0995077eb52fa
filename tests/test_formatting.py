"""What numbers look like, by hand."""

import pytest

from mesax.formatting import (
    format_bytes,
    format_count,
    format_duration,
    format_interval,
    format_number,
    format_range,
    format_tenths,
    shorten,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1_234_567, "1,234,567"),
        (0.0, "0.00"),
        (0.126, "0.13"),
        (-1.5, "-1.50"),
        (99.99, "99.99"),
        (99.996, "100"),
        (100.4, "100"),
        (-12_345.6, "-12,346"),
    ],
)
def test_numbers_have_the_digits_that_matter(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.25, "0.25"),
        (1 / 3, "0.333"),
        (999, "999"),
        (999.4, "999"),
        (999.7, "1k"),
        (1_000, "1k"),
        (12_345, "12.3k"),
        (12_500, "12.5k"),
        (999_499, "999k"),
        (999_600, "1M"),
        (3e6, "3M"),
        (1.5e9, "1.5G"),
        (2e12, "2T"),
        (-12_500, "-12.5k"),
    ],
)
def test_counts_have_three_digits(value, text):
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0s"),
        (8.24, "8.2s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (32.4, "32s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (3_599.4, "59m59s"),
        (3_600, "1h00m"),
        (7_800, "2h10m"),
        (90_061, "25h01m"),
    ],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_intervals_and_ranges():
    assert format_range(0.4, 0.626) == "[0.40, 0.63]"
    assert format_interval(0.5, 0.4, 0.6) == "0.50 [0.40, 0.60]"
    assert format_interval(0.1, -0.25, 0.6, signed=True) == "+0.10 [-0.25, +0.60]"


def test_an_interval_without_width_is_none():
    """A single task, or tasks that all end alike, would else look like the most certain of results."""
    assert format_range(0.5, 0.5) == "–"
    assert format_interval(0.5, 0.5, 0.5) == "0.50"
    assert format_interval(0.0, 0.0, 0.0, signed=True) == "+0.00"


def test_tenths_of_whole_numbers_are_left_out():
    assert [format_tenths(value) for value in (12.0, 1.54, -0.5, 2.96)] == ["12", "1.5", "-0.5", "3"]


def test_bytes():
    sizes = (0, 1_023, 1_024, 3 * 2**19, 5 * 2**30, 2**41)
    assert [format_bytes(size) for size in sizes] == ["0 bytes", "1023 bytes", "1.0 kB", "1.5 MB", "5.0 GB", "2.0 TB"]


def test_long_text_is_cut():
    assert shorten("a" * 60) == "a" * 60
    assert shorten("a" * 61) == "a" * 57 + "..."
    assert shorten("abcdef", width=5) == "ab..."
