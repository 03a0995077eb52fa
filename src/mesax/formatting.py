"""How numbers look to people, wherever they are shown: tables, figures, reports, progress. Needs nothing."""

from __future__ import annotations

NOTHING = "–"
"""An en dash stands for "no value"."""
NOT_MEASURED = "not measured"
"""Stands where a number would be if anyone could have found it out."""
COUNT_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
BYTE_UNITS = ((2**40, "TB"), (2**30, "GB"), (2**20, "MB"), (2**10, "kB"))


def format_number(value: float | None) -> str:
    """A number with the digits that matter: two decimals below 100, none above it or for integers."""
    if value is None:
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if abs(value) < 99.995 else f"{value:,.0f}"


def format_measured(value: float | None) -> str:
    """A number, or that it was not measured."""
    return NOT_MEASURED if value is None else format_number(value)


def format_tenths(value: float) -> str:
    """A number with one decimal, or none if that would be 0: 1.5, 12."""
    return f"{value:.1f}".removesuffix(".0")


def format_range(low: float, high: float) -> str:
    """Both ends of an interval; one without width is none: a single score, or equal ones, say nothing of others."""
    return NOTHING if low == high else f"[{format_number(low)}, {format_number(high)}]"


def format_interval(value: float, low: float, high: float, signed: bool = False) -> str:
    """A value with its interval in brackets, if it has any."""
    middle, *ends = (_signed(number) if signed else format_number(number) for number in (value, low, high))
    return middle if low == high else f"{middle} [{', '.join(ends)}]"


def format_count(value: float | None) -> str:
    """A number of steps, or a speed, in three digits: 0.25, 950, 12.5k, 3M."""
    if value is None:
        return NOTHING
    for size, unit in COUNT_UNITS:
        if abs(value) >= 0.9995 * size:  # what rounds to 1000 of the smaller unit
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def format_duration(seconds: float | None) -> str:
    """A time span: 8.2s, 32s, 3m05s, 2h10m."""
    if seconds is None:
        return NOTHING
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def format_bytes(number: int) -> str:
    """A size in memory or on disk: 512 bytes, 8.0 kB, 1.5 GB."""
    for size, unit in BYTE_UNITS:
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def shorten(text: str, width: int = 60) -> str:
    """Text of at most `width` characters; dots stand for what was cut off."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _signed(number: float) -> str:
    text = format_number(number)
    return text if text.startswith("-") else f"+{text}"
