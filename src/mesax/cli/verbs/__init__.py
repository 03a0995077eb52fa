"""The verbs: a line about each, all that `mesax --help` needs. A verb's module is imported when the verb is typed.

Such a module declares the verb's arguments (`arguments`) and does it (`main`). It imports nothing heavy itself: `main`
names the module that does the work, and JAX is set up before one that computes is imported (`telling.with_jax`).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from mesax import clone

OWN = {
    "list": "methods, environments and presets; with METHOD and ENV, every setting",
    "run": "meta-train if the method needs it, learn each unseen test task, save and summarize",
    "resume": "continue a stopped run where it was saved",
    "eval": "play the saved policies again, greedily, with fresh randomness",
    "render": "draw an episode of a saved policy: a still, and a GIF",
    "compare": "one table and one plot for several runs, or files of a store of results",
    "sweep": "methods x environments x seeds, one run after another; then compare them",
    "report": "a self-contained HTML page about runs, or about all runs below a directory",
    "verify": "check every file of a run against its checksum",
    "export": "a run's exploration policies as a bundle that loads without a trainer, or its rows for another tool",
    "status": "state of all runs of a directory: phase, speed, time to go, last return",
    "doctor": "versions, devices, caches and a short self-test",
    "env": "environments of your own: 'mesax env check MODULE:ATTRIBUTE' says whether one fits",
}
"""The verbs of this folder, a module each."""


def verbs() -> dict[str, tuple[str, str]]:
    """Every verb with its module and the line about it; a clone's verb stands in place of one of the same name."""
    found = {name: (f"{__name__}.{name}", text) for name, text in OWN.items()}
    found["completion"] = ("mesax.cli.completion", "a script that completes verbs, names and options in a shell")
    if clone.is_here():
        own = clone.part("cli", "a verb")
        found |= {name: (f"{own.__name__}.{name}", text) for name, text in own.VERBS.items()}
    return found


def module_of(verb: str) -> ModuleType:
    """The module that declares a verb and does it."""
    return import_module(verbs()[verb][0])
