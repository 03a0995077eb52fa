"""Whether a result that is kept is still one of the settings of today.

fresh        its settings are those that its command has now; settings that did not exist then may have been added,
             if they are at their defaults; explorers that it has borrowed would be trained alike
stale        its command has other settings now, or the run whose explorers it has borrowed
unverified   its settings were not recorded, or whose explorers it has borrowed; or its world or its learner, or those
             of the lender, are of a user's own module, which is not loaded because a file names it
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Literal

from mesax.errors import UsageError
from mesax.experiments.names import method_and_learner
from mesax.experiments.request import Request, family_facts
from mesax.methods.base import Experiment
from mesax.results.evidence.kept import Kept, training_digest
from mesax.results.evidence.same_settings import is_of
from mesax.store.json_values import Json
from mesax.store.modules import is_reference, refuse_references
from mesax.store.settings import to_plain
from mesax.suites.registry import suite_of
from paper.zero_shot import name_of

Freshness = Literal["fresh", "stale", "unverified"]


def freshness(kept: Kept) -> Freshness:
    """Whether the file's own command would make the same result today."""
    lenders = [lender for lender in kept.lenders if lender is not None]
    if kept.config_hash is None or len(lenders) < len(kept.lenders):
        return "unverified"
    if any(is_reference(str(name)) for one in (kept.facts, *lenders) for name in _names(one)):
        return "unverified"
    try:
        is_fresh = is_of(kept, requested(request_of(kept))) and all(map(_trains_as_it_did, lenders))
    except UsageError:  # a method, world or setting that is no more
        return "stale"
    return "fresh" if is_fresh else "stale"


def _names(facts: Json) -> list[object]:
    """All that a request may say in words of somebody's own."""
    return [facts["env"], facts["method"], *(facts.get("overrides") or {}).values()]


def borrows_from(kept: Kept, explorers: str) -> bool:
    """Whether its explorers are those of a run that `name_of` calls so, and would be trained alike today."""
    today = trained_today(explorers)
    return bool(kept.lenders) and all(
        lender is not None
        and name_of(lender) == explorers
        and _training_of(lender) == today  # overrides may have made another run of it
        and _trains_as_it_did(lender)
        for lender in kept.lenders
    )


def is_of_today(row: Json) -> bool:
    """Whether explorers of that name would be trained with the same settings today."""
    return row.get("trained_with") == trained_today(str(row["explorers"]))


@cache
def trained_today(explorers: str) -> str | None:
    """What stands for the settings of explorers that are called as `name_of` calls them."""
    words = explorers.replace(",", "").split()
    if len(words) != 4 or is_reference(explorers):  # nothing is imported because a file names it
        return None
    method, env, _, preset = words
    return training_digest(to_plain(Request(method, env, preset).experiment()))


def _trains_as_it_did(lender: Json) -> bool:
    """Whether a lender would train the same explorers today; yes if what trained them was not recorded."""
    recorded = lender.get("trained_with")
    return recorded is None or recorded == _training_of(lender)


def _training_of(lender: Json) -> str | None:
    """Stands for all settings that explorers of such a run would be trained with today; None: there is no such run."""
    name, learner = method_and_learner(lender["method"])
    overrides = tuple((str(path), str(value)) for path, value in (lender.get("overrides") or {}).items())
    try:
        request = Request(name, lender["env"], lender["preset"], overrides=overrides, learner=learner)
        return training_digest(to_plain(requested(request)))
    except UsageError:
        return None


def request_of(kept: Kept) -> Request:
    """What would have to be asked for to get the result again."""
    name, learner = method_and_learner(kept.method)
    overrides = tuple(kept.overrides.items())
    return Request(name, kept.env, kept.preset, kept.seed, kept.num_test_tasks, overrides, learner)


@cache
def requested(request: Request) -> Experiment:
    """The experiment of a request that a file may have made."""
    refuse_references(request.env, request.learner, *(text for _, text in request.overrides))
    return request.experiment()


@cache
def _family_facts(env: str) -> Json:
    refuse_references(env)
    return family_facts(suite_of(env).family(env), env)


def with_family(kept: Kept) -> Kept:
    """The same, with what its world says of returns if the file does not."""
    if "family" in kept.facts:
        return kept
    return dataclasses.replace(kept, facts=kept.facts | {"family": _family_facts(kept.env)})
