"""Signs in a finished run that explorers could not help, in words: what to tell a user who wonders why."""

from __future__ import annotations

from mesax.formatting import format_number
from mesax.store.reading import ALL_EXPLORERS, UNIFORM_PLAY, RunResults

WHERE_TO_LOOK = "docs/methods/mesa.md, When it fails"


def signs(run: RunResults) -> list[str]:
    """One sentence for each sign; none if there is nothing to worry about, or nothing is known."""
    return [sign for sign in (_collected(run), _reached(run)) if sign is not None]


def _collected(run: RunResults) -> str | None:
    """Training tasks on which stage 1 found nothing."""
    pairs = {row["task"]: row["high_reward_pairs"] for row in run.metrics if "high_reward_pairs" in row}
    without = sum(not number for number in pairs.values())
    if not without:
        return None
    return (
        f"stage 1 found no high reward on {without} of {len(pairs)} training tasks: explorers learn nothing"
        " of where these pay (collect longer: --method.collect.total-steps)"
    )


def _reached(run: RunResults) -> str | None:
    """Whether explorers meet the high reward of unseen tasks no more often than random play does."""
    steps = {one["name"]: one["high_reward_steps"] for one in (run.coverage or {}).get("visitors", ())}
    uniform = steps.pop(UNIFORM_PLAY, None)
    together = steps.get(ALL_EXPLORERS, max(steps.values(), default=None))
    if uniform is None or together is None or together > uniform:
        return None
    if not uniform:
        return f"on unseen tasks neither explorers nor random play met the high reward ({WHERE_TO_LOOK})"
    return (
        f"on unseen tasks explorers meet the high reward in {format_number(together)} steps an episode, random play in"
        f" {format_number(uniform)}, which they should exceed ({WHERE_TO_LOOK})"
    )
