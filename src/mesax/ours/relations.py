"""Relations: what joint actions that pay have in common from task to task, and the density that explorers are paid by.

    rho(a)        code of a joint action under a relation: which agents play the same, say
    |rho|         number of joint actions with that code
    q(rho)        share of the code in M_*, every training task counting once
    p*(a)         = (1 - smoothing) q(rho(a)) / |rho(a)| + smoothing / U^n
    d(a)          the explorer's own expected visit density
    r(a)          = clip(log p*(a) - log d(a), -limit, limit)

Paid r, an explorer visits joint actions as often as p* has them: it finds the optimum of an unseen task wherever that
has a relation in common with those of the training tasks. Which relation that is, is not told: of several, the one
whose p* of all training tasks but one best predicts the remaining task is taken. Relations forget which action it is,
so they are for agents that have the same, finite set of actions.

Densities are written as logarithms of their ratio to uniform play, log(p U^n): 0 is as good as random.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from mesax.compiling import compiled
from mesax.errors import UsageError
from mesax.types import Discrete, EnvSpec, Key, on_device

Joint: TypeAlias = Int[Array, " agents"]
"""A joint action, or its code."""
RelationName: TypeAlias = Literal[
    "equality", "counts", "identities", "equality-by-step", "counts-by-step", "identities-by-step"
]


@dataclass(frozen=True)
class Relation(ABC):
    """Which joint actions are alike."""

    by_step: bool = False
    """Whether shares are counted separately at each step of an episode."""

    @abstractmethod
    def code(self, action: Joint) -> Joint:
        """rho(a): the same for all joint actions that are alike, and for no others."""

    @abstractmethod
    def log_size(self, code: Joint, num_actions: int) -> Float[Array, ""]:
        """log |rho|: of the number of joint actions with this code."""

    @abstractmethod
    def member(self, code: Joint, num_actions: int, key: Key) -> Joint:
        """A uniformly random joint action with this code."""


@dataclass(frozen=True)
class Identities(Relation):
    """Every joint action is like itself only: what published MESA compares."""

    def code(self, action: Joint) -> Joint:
        """The joint action."""
        return action

    def log_size(self, code: Joint, num_actions: int) -> Float[Array, ""]:
        """One."""
        del code, num_actions
        return jnp.zeros(())

    def member(self, code: Joint, num_actions: int, key: Key) -> Joint:
        """The only one."""
        del num_actions, key
        return code


@dataclass(frozen=True)
class Equality(Relation):
    """Which agents play the same: agents are numbered by the first to play their action."""

    def code(self, action: Joint) -> Joint:
        """For example (7, 3, 7) is (0, 1, 0)."""
        first = jnp.argmax(action[:, None] == action[None, :], axis=1)
        new = first == jnp.arange(action.size)
        return (jnp.cumsum(new) - 1)[first].astype(jnp.int32)

    def log_size(self, code: Joint, num_actions: int) -> Float[Array, ""]:
        """U (U - 1) ... for as many different actions as there are."""
        return _log_arrangements(jnp.max(code) + 1, code.size, num_actions)

    def member(self, code: Joint, num_actions: int, key: Key) -> Joint:
        """Different actions for different numbers."""
        return distinct(key, code.size, num_actions)[code]


@dataclass(frozen=True)
class Counts(Relation):
    """How many agents play the same, no matter which: sizes of the groups, largest first."""

    def code(self, action: Joint) -> Joint:
        """For example (7, 3, 7) is (2, 1, 0)."""
        groups = Equality().code(action)
        sizes = jnp.sum(groups[None, :] == jnp.arange(action.size)[:, None], axis=1)
        return -jnp.sort(-sizes).astype(jnp.int32)

    def log_size(self, code: Joint, num_actions: int) -> Float[Array, ""]:
        """Ways to form the groups, times ways to give each an action of its own."""
        sizes = jnp.arange(1, code.size + 1)
        alike = jnp.sum(code[None, :] == sizes[:, None], axis=1)
        groupings = gammaln(code.size + 1.0) - jnp.sum(gammaln(code + 1.0)) - jnp.sum(gammaln(alike + 1.0))
        return groupings + _log_arrangements(jnp.sum(code > 0), code.size, num_actions)

    def member(self, code: Joint, num_actions: int, key: Key) -> Joint:
        """Random agents in each group, and different actions for different groups."""
        key_agents, key_actions = jax.random.split(key)
        place = distinct(key_agents, code.size, code.size)
        group = jnp.sum(jnp.cumsum(code)[None, :] <= place[:, None], axis=1)
        return distinct(key_actions, code.size, num_actions)[group]


RELATIONS: Mapping[RelationName, Relation] = {
    "equality": Equality(),
    "counts": Counts(),
    "identities": Identities(),
    "equality-by-step": Equality(by_step=True),
    "counts-by-step": Counts(by_step=True),
    "identities-by-step": Identities(by_step=True),
}


def _log_arrangements(groups: Int[Array, ""], most: int, num_actions: int) -> Float[Array, ""]:
    """log U (U - 1) ... (U - groups + 1), for at most `most` groups."""
    taken = jnp.arange(most)
    left = jnp.maximum(num_actions - taken, 1).astype(jnp.float32)
    return jnp.sum(jnp.where(taken < groups, jnp.log(left), 0.0))


def distinct(key: Key, number: int, among: int) -> Int[Array, " {number}"]:
    """Different random integers below `among`, in random order; beyond the first `among` of them they mean nothing.

    Lehmer's code: digit i says which of the integers still left is next, so no list of all of them is shuffled.
    """
    left = jnp.maximum(among - jnp.arange(number), 1)
    digits = jnp.floor(jax.random.uniform(key, (number,)) * left).astype(jnp.int32)
    digits = jnp.minimum(digits, left - 1)

    def insert(back: Int[Array, ""], digits: Int[Array, " number"]) -> Int[Array, " number"]:
        place = number - 1 - back
        later = jnp.arange(number) > place
        return jnp.where(later & (digits >= digits[place]), digits + 1, digits)

    return jax.lax.fori_loop(0, number, insert, digits)


def log_ratio(
    share: Float[Array, "*batch"], log_size: Float[Array, "*batch"], log_joint: float, smoothing: Float[Array, "..."]
) -> Float[Array, "*batch"]:
    """log(p* U^n) of joint actions whose codes have these shares and sizes."""
    ours = jnp.log1p(-smoothing) + jnp.log(share) + log_joint - log_size
    return jnp.logaddexp(jnp.log(smoothing), ours)


class RelationDensity(eqx.Module):
    """p* under one relation, at every step of an episode."""

    codes: Int[Array, "steps codes agents"]
    """Those seen in M_*."""
    share: Float[Array, "steps codes"]
    """q: sums to 1 at each step, or is all 0 where nothing is known; then p* is uniform."""
    smoothing: Float[Array, " steps"]
    """1 where nothing is known."""
    relation: Relation = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def log_ratio(self, step: Int[Array, ""], action: Joint) -> Float[Array, ""]:
        """log(p*(a) U^n) at a step."""
        code = self.relation.code(action)
        known = jnp.all(self.codes[step] == code[None, :], axis=1)
        share = jnp.sum(jnp.where(known, self.share[step], 0.0))
        size = self.relation.log_size(code, self.num_actions)
        return log_ratio(share, size, action.size * math.log(self.num_actions), self.smoothing[step])

    def draw(self, step: Int[Array, ""], key: Key) -> Joint:
        """A joint action from p*."""
        key_code, key_member, key_uniform = jax.random.split(key, 3)
        which = jax.random.categorical(key_code, jnp.log(self.share[step]))
        member = self.relation.member(self.codes[step, which], self.num_actions, key_member)
        whether, *others = jax.random.uniform(key_uniform, (1 + member.size,))
        anything = Discrete(self.num_actions).from_uniform(jnp.stack(others))
        return jnp.where(whether < self.smoothing[step], anything, member)


@dataclass(frozen=True)
class Members:
    """M_* as distinct (step, joint action), with the training task that each paid in."""

    task: Int[np.ndarray, " members"]
    step: Int[np.ndarray, " members"]
    action: Int[np.ndarray, "members agents"]

    @property
    def num_tasks(self) -> int:
        """Training tasks that have any."""
        return len(np.unique(self.task))


@dataclass(frozen=True)
class _Coded:
    """Codes and sizes of many joint actions, as a compiled program."""

    relation: Relation
    num_actions: int

    def __call__(
        self, action: Int[Array, "members agents"]
    ) -> tuple[Int[Array, "members agents"], Float[Array, " members"]]:
        codes = jax.vmap(self.relation.code)(action)
        return codes, jax.vmap(lambda code: self.relation.log_size(code, self.num_actions))(codes)


def check_relations(spec: EnvSpec, num_tasks: int) -> Discrete:
    """The actions that relations compare, or a `UsageError` that says why there is nothing to compare."""
    if not isinstance(spec.action_space, Discrete):
        raise UsageError(
            "relations between actions need discrete actions, the same for all agents;"
            f" here an action is a point in a box (size {spec.action_space.size}), and no two of them are ever equal"
        )
    if num_tasks < 2:
        raise UsageError(
            f"relations are chosen by predicting one training task from the others: num-train-tasks must be at least 2,"
            f" not {num_tasks}"
        )
    return spec.action_space


def relation_density(relation: Relation, members: Members, spec: EnvSpec, smoothing: float) -> RelationDensity:
    """p* of all training tasks under one relation."""
    counted = _count(relation, members, check_relations(spec, members.num_tasks), spec.horizon)
    share, known = _shares(counted.weight.sum(axis=0))
    steps = spec.horizon
    codes, shares, smoothed = on_device(
        (
            np.broadcast_to(counted.codes, (steps, *counted.codes.shape)).astype(np.int32),
            np.broadcast_to(share, (steps, share.shape[1])).astype(np.float32),
            np.broadcast_to(np.where(known, smoothing, 1.0), (steps,)).astype(np.float32),
        )
    )
    return RelationDensity(codes, shares, smoothed, relation, counted.num_actions)


def held_out_score(relation: Relation, members: Members, spec: EnvSpec, smoothing: float) -> float:
    """Mean log(p* U^n) of a training task's members under the p* of all other tasks: how well the relation carries."""
    counted = _count(relation, members, check_relations(spec, members.num_tasks), spec.horizon)
    others = counted.weight.sum(axis=0)[None] - counted.weight
    share, known = _shares(np.where(others > 1e-6, others, 0.0))  # a difference of sums leaves rounding behind
    at = (counted.task, counted.step)
    scores = log_ratio(
        jnp.asarray(share[(*at, counted.which)]),
        jnp.asarray(counted.log_size),
        spec.num_agents * math.log(counted.num_actions),
        jnp.asarray(np.where(known[at], smoothing, 1.0)),
    )
    return float(np.mean([np.mean(np.asarray(scores)[counted.task == task]) for task in range(members.num_tasks)]))


def held_out_scores(
    names: Sequence[RelationName], members: Members, spec: EnvSpec, smoothing: float
) -> dict[RelationName, float]:
    """How well each relation predicts a training task from the others; the first of the best is to be chosen."""
    return {name: held_out_score(RELATIONS[name], members, spec, smoothing) for name in names}


def best_relation(scores: Mapping[RelationName, float]) -> RelationName:
    """The name with the highest score; of equals, to within rounding, the first."""
    best = max(scores.values())
    return next(name for name, score in scores.items() if score >= best - 1e-4)


class _Counted(NamedTuple):
    """Members under a relation; steps are all 0 unless they are kept apart."""

    codes: np.ndarray
    """The different ones, `[codes, agents]`."""
    weight: np.ndarray
    """Weight of each code, `[tasks, steps, codes]`; every task counts once, however many members it has at a step."""
    task: np.ndarray
    step: np.ndarray
    which: np.ndarray
    """Code of each member."""
    log_size: np.ndarray
    num_actions: int


def _count(relation: Relation, members: Members, space: Discrete, horizon: int) -> _Counted:
    coded = compiled(_Coded(relation, space.num_actions))(members.action.astype(np.int32))
    all_codes, log_size = map(np.asarray, coded)
    codes, which = np.unique(all_codes, axis=0, return_inverse=True)
    which = which.reshape(-1)
    tasks, task = np.unique(members.task, return_inverse=True)
    step = members.step if relation.by_step else np.zeros_like(members.step)
    weight = np.zeros((len(tasks), horizon if relation.by_step else 1, len(codes)))
    np.add.at(weight, (task, step, which), 1.0)
    return _Counted(codes, _shares(weight)[0], task, step, which, log_size, space.num_actions)


def _shares(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights along the last axis as shares, and where there are any."""
    total = weight.sum(axis=-1, keepdims=True)
    known = total > 0
    return np.divide(weight, total, out=np.zeros_like(weight), where=known), known[..., 0]
