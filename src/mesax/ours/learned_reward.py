"""What pays, learned from the random steps of stage 1: which entity counts in a task, and what it takes there.

    r_i(s)  = sum_j w_ij sigma(g(s; j))       chance that step s pays high in training task i
    t_aj    = MLP(what agent a sees of entity j, its length)            one net for all agents and all entities
    s_j     = relu(W [mean, largest, second, smallest of t_aj over agents a])
    anchor    g(s; j) = MLP(s_j), where t_aj is given lengths alone
    full      g(s; j) = MLP(s_j, mean and largest of the other entities' s)

    1. the anchor, every w_ij alike; then w_i = softmax_j of the log-likelihood of task i's paid steps if entity j is
       what counts, and the anchor again, in turn
    2. w_i = the most likely entity; the full head

A batch is a third high, a third paid less, a third unpaid. Without an anchor tasks end with each other's entities, and
an anchor that is given more than lengths may settle on "next to" in place of "at".

Deviation(learned-reward): the paper has no model of what pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mesax.compiling import compiled
from mesax.nets import Adam, Dense, Trainable
from mesax.ranges import above, at_least
from mesax.rewards.features import descending
from mesax.types import AnyArray, Key

Head: TypeAlias = Literal["anchor", "full"]
HIGH, LESS, UNPAID = 0, 1, 2
"""Kinds of steps: paid at least R*, paid less, paid as usual."""
KINDS = 3
BLOCK = 16_384
"""Steps that a model judges in one call."""
ROOM = 2**16
"""Numbers of steps are rounded up to this, so that most runs share one compiled program."""
SMALL_GAIN = 0.14
"""Of the last layers: at the start all steps look alike."""


class PayModel(eqx.Module):
    """g: how firmly each entity looks as if it pays, as logits; entities and agents are sets."""

    first: Dense
    second: Dense
    pool: Dense
    anchor: tuple[Dense, Dense]
    full: tuple[Dense, Dense]

    @staticmethod
    def create(numbers: int, hidden: int, key: Key) -> PayModel:
        """A fresh model of entities of which so many numbers are seen."""
        keys = jax.random.split(key, 7)
        return PayModel(
            Dense.create(numbers + 1, hidden, keys[0]),
            Dense.create(hidden, hidden, keys[1]),
            Dense.create(4 * hidden, hidden, keys[2]),
            (Dense.create(hidden, hidden, keys[3]), Dense.create(hidden, 1, keys[4], SMALL_GAIN)),
            (Dense.create(3 * hidden, hidden, keys[5]), Dense.create(hidden, 1, keys[6], SMALL_GAIN)),
        )

    def logits(
        self, seen: Float[AnyArray, "*batch agents entities numbers"], head: Head = "full"
    ) -> Float[Array, "*batch entities"]:
        """g of every entity."""
        if head == "anchor":
            return _through(self.anchor, self._entities(jnp.zeros_like(seen), _lengths(seen)))
        own = self._entities(seen, _lengths(seen))
        mean, largest = of_others(own)
        return _through(self.full, (own, mean, largest))

    def _entities(self, seen: Array, lengths: Array) -> Float[Array, "*batch entities hidden"]:
        """s: what all agents together are to each entity."""
        tokens = jax.nn.relu(self.second(jax.nn.relu(self.first((seen, lengths)))))
        agents = tokens.ndim - 3
        ranked = descending([jnp.take(tokens, agent, axis=agents) for agent in range(tokens.shape[agents])])
        return jax.nn.relu(
            self.pool((jnp.mean(tokens, agents), ranked[0], ranked[min(1, len(ranked) - 1)], ranked[-1]))
        )


def _lengths(seen: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(seen), axis=-1, keepdims=True) + 1e-8)


def _through(layers: tuple[Dense, Dense], x: Array | tuple[Array, ...]) -> Array:
    return layers[1](jax.nn.relu(layers[0](x)))[..., 0]


def of_others(
    values: Float[Array, "*batch entities hidden"],
) -> tuple[Float[Array, "*batch entities hidden"], Float[Array, "*batch entities hidden"]]:
    """Mean and largest of the other entities' values, which are at least 0; zeros where there are no others."""
    others = max(values.shape[-2] - 1, 1)
    mean = (jnp.sum(values, axis=-2, keepdims=True) - values) / others
    top = jnp.max(values, axis=-2, keepdims=True)
    runner_up = jnp.max(jnp.where(values >= top, 0.0, values), axis=-2, keepdims=True)
    return mean, jnp.where(values >= top, runner_up, top)


@runtime_checkable
class SaysLogits(Protocol):
    """What judges entities: `PayModel`, as a rule."""

    def logits(
        self, seen: Float[AnyArray, "*batch agents entities numbers"], head: Head = "full"
    ) -> Float[AnyArray, "*batch entities"]:
        """g of every entity."""


class StepPool(eqx.Module):
    """Steps of all training tasks, kind after kind, padded."""

    seen: Float[Array, "steps agents entities numbers"]
    task: Int[Array, " steps"]
    first: Int[Array, " kinds"]
    """Where each kind begins."""
    number: Int[Array, " kinds"]
    """Steps of each kind."""

    def draw(self, key: Key, batch: int, hard: Int[Array, " hard"]) -> Int[Array, " batch"]:
        """Steps, as many of each kind; half of the unpaid ones are among the `hard`."""
        lots = jax.random.uniform(key, (KINDS, batch))
        place = jnp.minimum((lots * self.number[:, None]).astype(jnp.int32), self.number[:, None] - 1)
        index = self.first[:, None] + jnp.maximum(place, 0)
        half = batch // 2
        harder = hard[(lots[UNPAID, :half] * hard.size).astype(jnp.int32)]
        return index.at[UNPAID, :half].set(harder).reshape(-1)


@dataclass(frozen=True)
class RewardFit:
    """How the reward model is fitted."""

    anchor_updates: int = 1_250
    """Updates of the head that sees lengths alone; after each fifth, w is what it makes likely."""
    full_updates: int = 1_250
    """Updates of the full head."""
    held_out_updates: int = 500
    """Updates of the full head, for each model that has not seen some of the layouts."""
    folds: int = 3
    """Models that each leave out some of the training layouts, to be judged there; every layout is left out once."""
    batch_size: int = 768
    """Steps of an update: a third high, a third paid less, a third unpaid."""
    learning_rate: float = 3e-3
    """At the start of each of the fits; it falls in a straight line."""
    hard_steps: int = 4_096
    """Half of the unpaid steps of a batch are among so many that the model takes for high ones."""

    def __post_init__(self) -> None:
        """Refuse fits that learn nothing."""
        at_least(self, 5, "anchor_updates", "full_updates", "held_out_updates")
        at_least(self, 2, "folds")
        at_least(self, 1, "hard_steps")
        at_least(self, 2 * KINDS, "batch_size")
        above(self, 0, "learning_rate")

    @property
    def optimizer(self) -> Adam:
        """Of every fit; its rate is annealed from outside."""
        return Adam(self.learning_rate, clip_norm=1.0)


class Given(NamedTuple):
    """What a chunk of updates is given in addition to the model."""

    pool: StepPool
    weights: Float[Array, "tasks entities"]
    """w: which entity counts in each task."""
    used: Float[Array, " tasks"]
    """1 for tasks that are learned from, 0 for those left out."""
    hard: Int[Array, " hard"]


@dataclass(frozen=True)
class Advance:
    """A chunk of updates; update number i draws from `fold_in(key, i)`, however they are cut into chunks."""

    fit: RewardFit
    head: Head
    number: int

    def __call__(
        self, state: Trainable[PayModel], given: Given, key: Key, first: Int[Array, ""], total: Int[Array, ""]
    ) -> tuple[Trainable[PayModel], Float[Array, ""]]:
        """From update number `first` on, of `total`."""
        batch = self.fit.batch_size // KINDS
        kind = np.repeat(np.arange(KINDS), batch)
        high = jnp.asarray(kind == HIGH, jnp.float32)

        def update(state: Trainable[PayModel], index: Int[Array, ""]) -> tuple[Trainable[PayModel], Float[Array, ""]]:
            steps = given.pool.draw(jax.random.fold_in(key, index), batch, given.hard)
            task = given.pool.task[steps]
            counts = given.used[task] * (given.pool.number > 0)[kind]

            def loss(model: PayModel) -> Float[Array, ""]:
                pays = jax.nn.sigmoid(model.logits(given.pool.seen[steps], self.head))
                chance = jnp.clip(jnp.sum(given.weights[task] * pays, axis=-1), 1e-6, 1.0 - 1e-6)
                wrong = -(high * jnp.log(chance) + (1.0 - high) * jnp.log(1.0 - chance))
                return jnp.sum(counts * wrong) / jnp.maximum(jnp.sum(counts), 1.0)

            value, gradient = jax.value_and_grad(loss)(state.net)
            return state.descend(gradient, self.fit.optimizer, 1.0 - index / total), value

        state, losses = jax.lax.scan(update, state, first + jnp.arange(self.number))
        return state, jnp.mean(losses)


@dataclass(frozen=True)
class _Logits:
    head: Head

    def __call__(self, model: SaysLogits, seen: Float[AnyArray, "steps agents entities numbers"]) -> AnyArray:
        return model.logits(seen, self.head)


def logits_of(model: SaysLogits, seen: np.ndarray, head: Head) -> np.ndarray:
    """g of many steps, in blocks of one size."""
    parts = [np.zeros((0, seen.shape[-2]), np.float32)]
    for start in range(0, len(seen), BLOCK):
        block = seen[start : start + BLOCK]
        full = np.concatenate([block, np.zeros((BLOCK - len(block), *block.shape[1:]), block.dtype)])
        parts.append(np.asarray(compiled(_Logits(head))(model, full))[: len(block)])
    return np.concatenate(parts)


@dataclass(frozen=True)
class PaidSteps:
    """What stage 1 kept: all paid steps and some unpaid ones, in one order for all kinds: high, less, unpaid."""

    seen: np.ndarray
    """`[steps, agents, entities, numbers]`."""
    kind: np.ndarray
    task: np.ndarray
    weight: np.ndarray
    """Steps of stage 1 that each of them stands for."""
    num_tasks: int

    @staticmethod
    def gathered(seen: np.ndarray, kind: np.ndarray, task: np.ndarray, weight: np.ndarray, num_tasks: int) -> PaidSteps:
        """In that order."""
        order = np.argsort(kind, kind="stable")
        return PaidSteps(seen[order].astype(np.float32), kind[order], task[order], weight[order], num_tasks)

    def only(self, chosen: np.ndarray) -> PaidSteps:
        """Those that are chosen."""
        seen, kind, task = self.seen[chosen], self.kind[chosen], self.task[chosen]
        return PaidSteps(seen, kind, task, self.weight[chosen], self.num_tasks)

    @property
    def number(self) -> np.ndarray:
        """Steps of each kind."""
        return np.bincount(self.kind, minlength=KINDS)

    @property
    def first(self) -> np.ndarray:
        """Where each kind begins."""
        return np.concatenate([[0], np.cumsum(self.number)[:-1]])

    def pool(self) -> StepPool:
        """As a fit draws from them."""
        room = -(-len(self.task) // ROOM) * ROOM - len(self.task)
        seen = np.concatenate([self.seen, np.zeros((room, *self.seen.shape[1:]), np.float32)])
        task = np.concatenate([self.task, np.zeros(room, int)])
        whole = (task, self.first, self.number)
        return StepPool(jnp.asarray(seen), *(jnp.asarray(part, jnp.int32) for part in whole))


def likelihoods(logits: np.ndarray, steps: PaidSteps) -> np.ndarray:
    """Log-likelihood of each task's paid steps under each entity; high ones and others count alike in all."""
    if_high, if_not = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
    found = np.zeros((steps.num_tasks, logits.shape[1]))
    for task in range(steps.num_tasks):
        high, less = _chosen(steps, task, HIGH), _chosen(steps, task, LESS)
        found[task] = if_high[high].sum(axis=0) + if_not[less].sum(axis=0) * max(high.sum(), 1) / max(less.sum(), 1)
    return found


def _chosen(steps: PaidSteps, task: int, kind: int) -> np.ndarray:
    """Which steps are of one kind, on one task."""
    return (steps.task == task) & (steps.kind == kind)


def softened(scores: np.ndarray) -> np.ndarray:
    """w as chances."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (chances / chances.sum(axis=1, keepdims=True)).astype(np.float32)


def decided(scores: np.ndarray) -> np.ndarray:
    """w with all weight on the most likely entity."""
    return np.eye(scores.shape[1], dtype=np.float32)[np.argmax(scores, axis=1)]


def precision_at(scores: np.ndarray, true: np.ndarray, weight: np.ndarray, recall: float) -> float | None:
    """The share of true ones among those with scores as high as it takes to recall so many of them; None: none is."""
    if not true.any():
        return None
    order = np.argsort(-scores, kind="stable")
    hits, all_of_them = np.cumsum((true * weight)[order]), np.cumsum(weight[order])
    place = int(np.searchsorted(hits, recall * hits[-1]))
    return float(hits[place] / all_of_them[place])


class HeldOut(NamedTuple):
    """How well a model tells paying steps on layouts that it has not seen."""

    log_likelihood: float
    """Of a step, kinds counting alike, in nats."""
    by_chance: float
    """The same of a model that knows how many are high, and no more."""
    precision: float
    """At recall .9."""
    steps: float
    """High ones that it is judged by."""

    def row(self) -> dict[str, float]:
        """The figures by the names that files have for them."""
        return {
            "high_steps": int(self.steps),
            "precision_at_recall_90": self.precision,
            "log_likelihood": self.log_likelihood,
            "log_likelihood_by_chance": self.by_chance,
        }


RECALL = 0.9


def judged(model: SaysLogits, steps: PaidSteps, tasks: Sequence[int]) -> HeldOut | None:
    """A model on tasks that it has not seen: which entity counts there, half of their paid steps say, and the others
    are what it is judged by. None if there is nothing to judge by.
    """
    own = steps.only(np.isin(steps.task, tasks))
    place = np.arange(len(own.task)) % 2 == 0
    logits = logits_of(model, own.seen, "full")
    paid = own.kind != UNPAID
    told, asked = own.only(place & paid), ~place
    weights = decided(likelihoods(logits[place & paid], told))
    score = np.sum(weights[own.task] * logits, axis=1)[asked]
    kind, high = own.kind[asked], own.kind[asked] == HIGH
    if not high.any() or not (told.kind == HIGH).any():
        return None
    right = -np.logaddexp(0.0, np.where(high, -score, score))
    there = [number for number in range(KINDS) if np.any(kind == number)]
    share = 1.0 / len(there)
    others = max(1.0 - share, 1e-9)
    precision = precision_at(score, high, own.weight[asked], RECALL)
    assert precision is not None
    return HeldOut(
        float(np.mean([right[kind == number].mean() for number in there])),
        float(share * np.log(share) + others * np.log(others)),
        precision,
        float(high.sum()),
    )
