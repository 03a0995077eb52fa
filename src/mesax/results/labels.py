"""What tables, figures and reports call a run: the one place where a method's label comes from its settings.

`mesa` is a family of methods. What is published has explorers paid by Eq. (6); ours are paid for records, and may be
given wishes. A label that said "mesa" for all of them would claim one's results for another.
"""

from __future__ import annotations

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
OF_MESA: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    ("coverage explorers", "method.reward", lambda kind: kind == "CoverageReward"),
    ("record explorers", "method.reward", lambda kind: kind == "RecordReward"),
    ("wishes", "method.reward.wish-decay", lambda decay: decay != 1.0),
    ("raw observations", "method.reward.features.obs-weight", lambda weight: weight != 0.0),
    ("borrowed", "method.explorers-from", lambda run: run is not None),
    ("turned", "method.turn", lambda turned: turned is True),
)
"""Parts that make a difference: what a label calls it, the setting, and which values mean that it is there."""


def method_label(run: Json) -> str:
    """The method of a run.json, its parts if it has a choice of them, and whether it is told what others must find."""
    label = str(run.get("label") or _from_settings(run))
    return f"{label} {PRIVILEGED}" if run.get("privileged") and PRIVILEGED not in label else label


def _from_settings(run: Json) -> str:
    name = str(run["method"])
    settings = flatten(run.get("config") or {})
    if settings.get("method") != "Mesa":
        return name
    around = f" around {learner}" if (learner := method_and_learner(name)[1]) else ""
    if run.get("preset") == "paper" and run.get("paper_diff") == []:
        return PUBLISHED + around
    parts = [part for part, path, is_there in OF_MESA if path in settings and is_there(settings[path])]
    return f"MESA ({', '.join(parts)}){around}" if parts else f"MESA{around}"
