"""What tables, figures and reports call a run: the one place where a method's label comes from its settings.

`mesa` is a family of methods. What is published has explorers paid by Eq. (6); ours are paid for records, and may be
given wishes. A label that said "mesa" for all of them would claim one's results for another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mesax.experiments.names import method_and_learner
from mesax.store.json_values import Json, flatten

PRIVILEGED = "(privileged)"
"""Mark of a method whose learner is told what others have to find out."""
PUBLISHED = "MESA as published"
"""Every setting as in preset `paper`; docs/deviations.md says where that differs from the paper."""
OUTDATED = "†"
"""Mark of a result that does not count: it is unverified or stale."""
OUTDATED_NOTE = (
    f"{OUTDATED}: unverified (made before settings were recorded) or stale (made with settings that have since"
    " changed); to be rerun."
)
MESA = ("mesa", "told", "transfer")
"""Names of the family."""
OF_MESA: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    ("wishes", "method.reward.wish-decay", lambda decay: decay != 1.0),
    ("raw observations", "method.reward.features.obs-weight", lambda weight: weight != 0.0),
    ("borrowed", "method.explorers-from", lambda run: run is not None),
    ("turned", "method.turn", lambda turned: turned is True),
)
"""Parts that make a difference, next to what explorers are paid for: what a label calls it, the setting, and which
values mean that it is there."""


NAMES = {
    "mesa": "MESA",
    "learned": "MESA with a learned reward",
    "structured": "MESA with structured explorers",
    "plain": "learner alone",
    "uniform": "learner and random episodes",
    "diagonal": "learner and diagonal episodes",
    "tour": "learner and a scripted tour",
    "filled": "learner and a filled replay",
    "optimum": "scripted optimum",
    "safe": "scripted safe equilibrium",
    "pretrain": "Pretrain",
    "goal": "Goal",
    "cbet": "C-BET",
    "maesn": "MA-MAESN",
    "coordinated": "coordinated MADDPG",
} | {
    name: name.upper()
    for name in ("maddpg", "iql", "vdn", "qmix", "qplex", "dmaq", "mappo", "mappo-rnd", "maven", "emc")
}
"""What people call the methods: in tables, figures, reports and sentences alike."""
SPOKEN = {
    "learner alone": "the learner alone",
    "learner and": "the learner with",
    "scripted": "the scripted",
}
"""How names begin inside a sentence."""
COLORS = {
    "mesa": "#0072B2",
    "learned": "#6C8EBF",
    "structured": "#3B5BA5",
    "plain": "#D55E00",
    "uniform": "#009E73",
    "diagonal": "#66A61E",
    "tour": "#E69F00",
    "filled": "#8C6BB1",
    "optimum": "#777777",
    "safe": "#AAAAAA",
    "pretrain": "#A6761D",
    "goal": "#1B9E9E",
    "cbet": "#B2182B",
    "maesn": "#8B6D5C",
    "coordinated": "#E7298A",
    "maddpg": "#CC79A7",
    "iql": "#9E9AC8",
    "vdn": "#6A51A3",
    "qmix": "#56B4E9",
    "qplex": "#3690C0",
    "dmaq": "#74C4B6",
    "mappo": "#B79F00",
    "mappo-rnd": "#F781BF",
    "maven": "#7570B3",
    "emc": "#4D7F17",
}
"""A method has the same color in every figure, report and chart."""
OTHER_COLORS = ("#555555", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#A6761D", "#66A61E", "#B2182B", "#111111")
"""Colors of what has none of its own, or would have that of another run next to it."""


def display_name(run: Json) -> str:
    """The method of a run.json as people call it."""
    label, method = method_label(run), str(run["method"])
    mark = f" {PRIVILEGED}" if label.endswith(PRIVILEGED) else ""
    if label.removesuffix(mark) != method:
        return label
    name, learner = method_and_learner(method)
    around = f" around {NAMES.get(learner, learner)}" if learner else ""
    return f"{NAMES.get(name, name)}{around}{mark}"


def spoken(names: Sequence[str]) -> list[str]:
    """Names as a sentence has them; parts of MESA are left out if no other name would be the same."""
    short = [name.partition(" (")[0] if name.startswith("MESA (") else name for name in names]
    chosen = [one if short.count(one) == 1 else name for one, name in zip(short, names, strict=True)]
    return [
        next((name.replace(start, said, 1) for start, said in SPOKEN.items() if name.startswith(start)), name)
        for name in chosen
    ]


def colors_of(methods: Sequence[str]) -> list[str]:
    """A color for each of several methods, by their names in a run.json or for people."""
    known = COLORS | {name: COLORS[method] for method, name in NAMES.items()}
    chosen: list[str] = []
    for method in methods:
        name = method.partition(" (")[0].partition("+")[0].partition(" around")[0]
        own = known.get(method) or known.get(name)
        spare = [color for color in OTHER_COLORS if color not in chosen] or list(OTHER_COLORS)
        chosen.append(own if own and own not in chosen else spare[0])
    return chosen


def method_label(run: Json) -> str:
    """The method of a run.json, its parts if it has a choice of them, and whether it is told what others must find."""
    label = str(run.get("label") or _from_settings(run))
    return f"{label} {PRIVILEGED}" if run.get("privileged") and PRIVILEGED not in label else label


def _from_settings(run: Json) -> str:
    name = str(run["method"])
    settings = flatten(run.get("config") or {})
    method, learner = method_and_learner(name)
    if method not in MESA or "method" not in settings:
        return name
    around = f" around {learner}" if learner else ""
    if run.get("preset") == "paper" and run.get("paper_diff") == []:
        return PUBLISHED + around
    parts = [f"{_in_words(str(settings['method.reward']))} explorers"] if "method.reward" in settings else []
    parts += [part for part, path, is_there in OF_MESA if path in settings and is_there(settings[path])]
    return f"MESA ({', '.join(parts)}){around}" if parts else f"MESA{around}"


def _in_words(reward: str) -> str:
    """What explorers are paid for, by the name of its class: `RecordReward`, or one of somebody's own module."""
    words = re.findall(
        r"[A-Z]?[^A-Z_]+|[A-Z]+", reward.rpartition(":")[2].removesuffix("Reward").removesuffix("Records")
    )
    return " ".join(words).lower()
