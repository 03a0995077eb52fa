"""Names a person can type, with a line about each; no JAX here, so that `--help` and `list` answer at once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from mesax import algorithms, baselines
from mesax.errors import UsageError
from mesax.suites.registry import BUILT_IN


class Wrapper(NamedTuple):
    """A method around a learner."""

    text: str
    build: str
    """`module:function` of this package, from a `Preset` to an `Experiment`."""
    kind: str
    """Its class, which the first method of several has the name of; so have subclasses without a name of their own."""
    learner: str | None = None
    """The learner that it wraps unless told otherwise; None: MESA's own."""
    brings_learner: bool = False
    """Whether the learner is its own, and `--learner` refused."""
    tells: bool = False
    """Whether the learner is told what others have to find out; methods of one class may differ in it."""
    takes_on_policy: bool = False
    """Whether its learner may be one that learns from its own episodes only: no others are mixed in."""


WRAPPERS = {
    "mesa": Wrapper(
        "meta-learned exploration policies around the learner (this paper)",
        "mesax.methods.preset:mesa",
        "Mesa",
    ),
    "told": Wrapper(
        "the same, its explorers told what to look for by a hand-written map where a world has one (ours)",
        "mesax.methods.preset:told",
        "Mesa",
    ),
    "transfer": Wrapper(
        "the same with the explorers of another run, in their world or in a harder one (ours)",
        "mesax.ours.transfer:transfer",
        "Borrowed",
    ),
    "learned": Wrapper(
        "MESA whose explorers are paid for what a model has learned to pay, with no feature map (ours)",
        "mesax.ours.learned:learned",
        "LearnedMesa",
    ),
    "structured": Wrapper(
        "MESA whose explorers share randomness and know relations between actions (ours)",
        "mesax.ours.structured:structured",
        "StructuredMesa",
    ),
    "plain": Wrapper(
        "the same learner alone: the control without explorers",
        "mesax.baselines.controls:plain",
        "Plain",
        takes_on_policy=True,
    ),
    "filled": Wrapper(
        "the same learner alone, its replay filled with what paid in training tasks (the paper's ablation)",
        "mesax.baselines.filled:filled",
        "Filled",
    ),
    "uniform": Wrapper(
        "the same learner, mixed with uniformly random episodes as MESA mixes its explorers",
        "mesax.baselines.controls:uniform",
        "Uniform",
    ),
    "diagonal": Wrapper(
        "the same, mixed with episodes in which all agents play one random action: a ceiling, told what to look for",
        "mesax.baselines.controls:diagonal",
        "Diagonal",
    ),
    "tour": Wrapper(
        "the same, mixed with a scripted tour of all places that may pay: a control, told what to look for",
        "mesax.baselines.controls:tour",
        "Tour",
    ),
    "optimum": Wrapper(
        "no learner: a scripted team that is told the task and plays what pays most, a ceiling: privileged",
        "mesax.baselines.controls:optimum",
        "Optimum",
        brings_learner=True,
        tells=True,
    ),
    "safe": Wrapper(
        "no learner: a scripted team that is told the task and plays the safe equilibrium, a floor: privileged",
        "mesax.baselines.controls:safe",
        "Safe",
        brings_learner=True,
        tells=True,
    ),
    "pretrain": Wrapper(
        "one policy over all training tasks, then tuned on each test task",
        "mesax.baselines.pretrain:pretrain",
        "Pretrain",
        "mappo",
        takes_on_policy=True,
    ),
    "goal": Wrapper(
        "the same, told what every task asks for: privileged",
        "mesax.baselines.pretrain:goal",
        "Pretrain",
        "mappo",
        tells=True,
        takes_on_policy=True,
    ),
    "cbet": Wrapper(
        "C-BET: exploration learned from rare states and changes, beneath a fresh learner of each test task",
        "mesax.baselines.pretrain:cbet",
        "CBet",
        "mappo",
        takes_on_policy=True,
    ),
    "maesn": Wrapper(
        "MA-MAESN: policies, latents and step sizes meta-learned on the training tasks, by policy gradient",
        "mesax.baselines.maesn.method:maesn",
        "Maesn",
        brings_learner=True,
    ),
}
"""Methods that have more than a learner."""
AROUND_ANY = [name for name, wrapper in WRAPPERS.items() if not wrapper.brings_learner]
"""Those that wrap a learner of one's choice."""


def _learners() -> dict[str, str]:
    """The constant `NAMES` of every algorithm, read from its source: to import it would load JAX."""
    found: dict[str, str] = {}
    places = [place for package in (algorithms, baselines) for place in package.__path__]
    for path in sorted((path for place in places for path in Path(place).glob("*.py")), key=lambda path: path.stem):
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source, filename=str(path)).body if "\nNAMES" in source else ():
            if isinstance(node, ast.AnnAssign | ast.Assign) and "NAMES" in _assigned(node):
                assert node.value is not None
                found |= ast.literal_eval(node.value)
    return found


def _assigned(node: ast.AnnAssign | ast.Assign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


LEARNERS = _learners()
"""Every algorithm's learners; which of them a world has is in its table."""
METHODS = {name: wrapper.text for name, wrapper in WRAPPERS.items()} | LEARNERS
"""A learner's name is a method too: that learner, alone."""
ENVIRONMENTS = {name: text for suite in BUILT_IN for name, text in suite.environments.items()}
"""Environments of this package; `mesax.suites.registry.environments` also has those of installed ones."""
PRESETS = {
    "smoke": "a minute or so, mostly to compile: checks that everything runs",
    "quick": "minutes on two cores: learns for real",
    "paper": "the paper's networks and budgets",
}
OWN_PRESET = "own"
"""What run.json has in place of a preset if an experiment was built in code."""


def method_and_learner(label: str) -> tuple[str, str | None]:
    """A label such as `mesa+qmix` taken apart; None if the method brings its own learner or a preset's."""
    method, plus, learner = label.partition("+")
    return method, learner if plus else None


def refuse_swapped(method: str, environment: str) -> None:
    """Refuse a method that was typed where the environment belongs."""
    if method_and_learner(environment)[0] in METHODS and method_and_learner(method)[0] not in METHODS:
        raise UsageError(f"'{environment}' is a method, and METHOD comes before ENV: {environment} {method}")
