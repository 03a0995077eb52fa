"""Lists for `mesax list`: all names that can be typed, and every difference from the paper."""

from __future__ import annotations

import argparse

from mesax.errors import UsageError, unknown_name
from mesax.experiments.names import LEARNERS, METHODS, PRESETS, method_and_learner, refuse_swapped
from mesax.store.modules import is_reference
from mesax.suites.deviations import DEVIATIONS
from mesax.suites.registry import environments, patterns


def list_names() -> int:
    """All names."""
    methods = {name: text for name, text in METHODS.items() if name not in LEARNERS}
    _print_tables(
        {
            "Methods": methods,
            "Learners (also methods by themselves)": LEARNERS,
            "Environments": environments(),
            "Presets": PRESETS,
        }
    )
    print(f"\nEnvironments of any size: {', '.join(patterns())}.")
    print("An environment of your own is named MODULE:ATTRIBUTE; 'mesax env check MODULE:ATTRIBUTE' says if it fits.")
    print("'mesax list METHOD ENV [--preset P]' shows the settings of a run that matter most, --all every one.")
    return 0


def list_deviations() -> int:
    """Every difference from the paper."""
    _print_tables(DEVIATIONS)
    print("\nWhat the paper has, why, and how to switch it: docs/deviations.md, under these names.")
    print("In which settings a run differs from preset paper is printed when it starts, and in its report.")
    return 0


def _print_tables(tables: dict[str, dict[str, str]]) -> None:
    width = max(len(name) for entries in tables.values() for name in entries)
    for title, entries in tables.items():
        print(title)
        for name, text in entries.items():
            print(f"  {name:<{width}}  {text}")


def check_names(options: argparse.Namespace) -> None:
    """Refuse a method that does not exist, or one without an environment."""
    method, _ = method_and_learner(options.method)
    refuse_swapped(options.method, options.env or "")
    if method not in METHODS and not is_reference(method):
        raise unknown_name("unknown method", method, METHODS)
    if options.env is None:
        raise UsageError(f"name an environment too: {', '.join(environments())}, or MODULE:ATTRIBUTE")
