"""What tables, figures and reports call a run: the one place where a method's label comes from its settings.

`mesa` is a family of methods. What is published has explorers paid by Eq. (6); ours are paid for records, and may be
given wishes. A label that said "mesa" for all of them would claim one's results for another.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
