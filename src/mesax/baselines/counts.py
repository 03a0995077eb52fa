"""C-BET's reward (Parisi et al. 2021): rare states and rare changes are worth a visit, in every environment alike.

    N(s') += 1,  N(c) += 1,  c = the change from s to s'
    reward = weight / (N(s') + N(c))            averaged over agents, each with keys of its own
    both tables are cleared now and then, each by itself, so that nothing is known for good

The task's reward is ignored and nothing is terminal: where the task ends, it goes on at a fresh start. Every copy of
the environment has its own tables, of a fixed size: keys are hashed into buckets. A table is cleared by starting a new
era: what an older era wrote counts as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, UInt32

from mesax.errors import UsageError
from mesax.hashing import scrambled
from mesax.policy import Policy
from mesax.ranges import above, at_least, between, each_at_least
from mesax.store.settings import added
from mesax.types import EnvSpec, Episode, Key, Metrics, Transition

MOST_BUCKETS = 2**22
STATE, CHANGE = 0, 1
"""The two tables."""


@runtime_checkable
class KeyMap(Protocol):
    """A frozen dataclass that says which states and which changes are the same."""

    def __call__(
        self, spec: EnvSpec, step: Transition
    ) -> tuple[Int[Array, "agents state"], Int[Array, "agents change"]]:
        """Integers that name the state each agent reaches and the change it brings about, in its own view."""


@dataclass(frozen=True)
class ActionKeys:
    """For games in which an action is all that happens: state = (what is seen, own action), change = own action."""

    seen: int
    """Entries at the start of an observation that tell states apart; they are 0 or 1."""

    def __call__(
        self, spec: EnvSpec, step: Transition
    ) -> tuple[Int[Array, "agents state"], Int[Array, "agents change"]]:
        """Exact."""
        action = jnp.round(spec.action_space.encode(step.action)).astype(jnp.int32)
        seen = jnp.round(step.obs[:, : self.seen]).astype(jnp.int32)
        return jnp.concatenate([seen, action], axis=1), action


@dataclass(frozen=True)
class BinnedEntries:
    """Some entries of an agent's observation, in bins; a change is by how many bins each of them moves."""

    entries: tuple[int, ...]
    """Which ones."""
    width: float
    """Width of a bin."""
    where: bool = added(False)
    """Whether the same change is another one elsewhere, as it is in what an agent sees around it."""

    def __post_init__(self) -> None:
        """Refuse bins that tell nothing apart."""
        if not self.entries:
            raise UsageError("entries must name at least one entry")
        each_at_least(self, 0, "entries")
        above(self, 0, "width")

    def __call__(
        self, spec: EnvSpec, step: Transition
    ) -> tuple[Int[Array, "agents state"], Int[Array, "agents change"]]:
        """State = bins after the step."""
        del spec
        before, after = (self._bins(obs) for obs in (step.obs, step.next_obs))
        change = after - before
        return after, jnp.concatenate([change, after], axis=1) if self.where else change

    def _bins(self, obs: Float[Array, "agents obs"]) -> Int[Array, "agents entries"]:
        return jnp.round(obs[:, jnp.array(self.entries)] / self.width).astype(jnp.int32)


@dataclass(frozen=True)
class PlaceKeys:
    """Among points: state = bin of the own place, change = by how many bins it moves, and from which point to which.

    Places are relative to the points' center: an agent need not see where it is.
    """

    num_points: int
    obs_from: int = 2
    """Where each agent's observation holds the offsets to the points, two numbers each."""
    radius: float = 0.2
    """An agent is on its nearest point if that is no farther."""
    width: float = 0.2
    """Width of a bin."""

    def __post_init__(self) -> None:
        """Refuse a map of nothing."""
        at_least(self, 1, "num_points")
        at_least(self, 0, "obs_from")
        above(self, 0, "radius", "width")

    def __call__(
        self, spec: EnvSpec, step: Transition
    ) -> tuple[Int[Array, "agents state"], Int[Array, "agents change"]]:
        """Own place and own landmark."""
        del spec
        (place_before, on_before), (place, on) = (self._view(obs) for obs in (step.obs, step.next_obs))
        return place, jnp.concatenate([place - place_before, on_before, on], axis=1)

    def _view(self, obs: Float[Array, "agents obs"]) -> tuple[Int[Array, "agents 2"], Int[Array, "agents 1"]]:
        offsets = obs[:, self.obs_from : self.obs_from + 2 * self.num_points].reshape(-1, self.num_points, 2)
        place = jnp.round(jnp.mean(offsets, axis=1) / self.width).astype(jnp.int32)
        squares = jnp.sum(jnp.square(offsets), axis=-1)
        on = jnp.where(jnp.min(squares, axis=1) <= self.radius**2, jnp.argmin(squares, axis=1), -1)
        return place, on[:, None].astype(jnp.int32)


@dataclass(frozen=True)
class ProjectedKeys:
    """For any observation: a few random projections, each -1, 0 or 1; a change is how these move.

    As released for continuous observations: tanh(P x) + b, beyond +- .5 or between.
    """

    weight: float = 1.0
    """Weight of observations, so that they are about 1."""
    rows: int = 8
    """Projections: at most 3^rows states."""

    def __post_init__(self) -> None:
        """Refuse a map of nothing."""
        at_least(self, 1, "rows")
        above(self, 0, "weight")

    def __call__(
        self, spec: EnvSpec, step: Transition
    ) -> tuple[Int[Array, "agents state"], Int[Array, "agents change"]]:
        """The same projections for all agents and all runs."""
        key_projection, key_shift = jax.random.split(jax.random.key(0))
        projection = jax.random.normal(key_projection, (spec.obs_size, self.rows)) * self.weight
        shift = jax.random.uniform(key_shift, (self.rows,), minval=-1.0, maxval=1.0)

        def codes(obs: Float[Array, "agents obs"]) -> Int[Array, "agents rows"]:
            value = jnp.tanh(obs @ projection) + shift[None]
            return (value > 0.5).astype(jnp.int32) - (value < -0.5).astype(jnp.int32)

        after = codes(step.next_obs)
        return after, after - codes(step.obs)


class CountState(eqx.Module):
    """Two hashed tables for each copy of the environment, and how often the latest round met what it knew."""

    count: Int[Array, "tables buckets"]
    """All copies side by side."""
    era: Int[Array, "tables buckets"]
    """In which era of its copy a bucket was last written."""
    now: Int[Array, "tables copies"]
    """The era of every copy."""
    repeats: Float[Array, " tables"]
    """Share of the latest round's keys that had been counted before."""


@dataclass(frozen=True)
class CountReward:
    """Pay for rare states and rare changes instead of the task."""

    keys: KeyMap
    """What is counted."""
    joint: bool = False
    """Count what all agents do together, instead of each agent by itself."""
    changes: bool = True
    """Count changes too; without, states alone."""
    weight: float = 1.0
    """Weight of the bonus."""
    reset_chance: float = 1e-3
    """Chance of a table to be cleared, per step of its copy."""
    buckets: int = 8_192
    """Buckets of a table."""
    copies: int = 32
    """Copies of the environment with tables of their own; the episodes of a round are dealt out to them in order."""

    def __post_init__(self) -> None:
        """Refuse tables that cannot count."""
        if not 1 <= self.copies * self.buckets <= MOST_BUCKETS or min(self.copies, self.buckets) < 1:
            raise UsageError(
                f"copies x buckets must lie between 1 and {MOST_BUCKETS}, not {self.copies} x {self.buckets}"
            )
        between(self, 0, 1, "reset_chance")

    @property
    def restarts(self) -> bool:
        """Where the task ends."""
        return True

    def learner_spec(self, spec: EnvSpec) -> EnvSpec:
        """The learner sees what there is."""
        return spec

    def begin(self, spec: EnvSpec, given: PyTree, key: Key) -> CountState:
        """Nothing counted."""
        del spec, given, key
        table = jnp.zeros((2, self.copies * self.buckets), jnp.int32)
        return CountState(table, table, jnp.zeros((2, self.copies), jnp.int32), jnp.zeros(2))

    def equip(self, spec: EnvSpec, state: CountState, policy: Policy) -> Policy:
        """Nothing to add."""
        del spec, state
        return policy

    def observe(self, spec: EnvSpec, state: CountState, episodes: Episode, key: Key) -> tuple[CountState, Episode]:
        """Count step by step, and pay by the count; no step is the last one for the learner.

        Where the task ends, it goes on at a fresh start: no policy acts on what is seen at an end, so no value of it
        could be learned, and one that is only guessed would grow with whatever is built on it.
        """
        copy = jnp.arange(episodes.reward.shape[0]) % self.copies
        hashes = jax.vmap(lambda episode: jax.vmap(lambda step: self._hashes(spec, step))(episode.transitions))
        place = (hashes(episodes) % self.buckets).astype(jnp.int32) + self.buckets * copy.reshape(-1, 1, 1, 1)
        cleared = jax.random.bernoulli(key, self.reset_chance, (episodes.reward.shape[1], *state.now.shape))
        by_time = (jnp.moveaxis(place, 0, 1), episodes.mask.T, cleared)

        def step(
            tables: tuple[Array, Array, Array], now: tuple[Array, Array, Array]
        ) -> tuple[tuple[Array, Array, Array], Int[Array, "envs agents tables"]]:
            place, alive, cleared = now
            count, era, eras = tables
            tables, parts = (count, era, eras + cleared), []
            # A table that serves several episodes counts them one after another: all at once, it would miss some.
            for first in range(0, len(copy), self.copies):
                some = slice(first, first + self.copies)
                tables, counts = self._counted(tables, place[some], alive[some], copy[some])
                parts.append(counts)
            return tables, jnp.concatenate(parts)

        (count, era, now), counts = jax.lax.scan(step, (state.count, state.era, state.now), by_time)
        counts = jnp.moveaxis(counts, 0, 1)
        visits = jnp.sum(counts, axis=-1) if self.changes else counts[..., STATE]
        paid = self.weight * jnp.mean(1.0 / jnp.maximum(visits, 1).astype(jnp.float32), axis=-1)
        known = (counts > 1) & episodes.mask[..., None, None]
        number = jnp.maximum(jnp.sum(episodes.mask) * counts.shape[2], 1)
        state = CountState(count, era, now, jnp.sum(known, axis=(0, 1, 2)) / number)
        after = jnp.where(episodes.terminated[..., None, None], episodes.obs[:, :1], episodes.obs[:, 1:])
        return state, replace(
            episodes,
            obs=jnp.concatenate([episodes.obs[:, :1], after], axis=1),
            reward=jnp.where(episodes.mask, paid, 0.0),
            terminated=jnp.zeros_like(episodes.terminated),
            restarted=episodes.terminated,
        )

    def _counted(
        self,
        tables: tuple[Int[Array, "tables buckets"], Int[Array, "tables buckets"], Int[Array, "tables copies"]],
        place: Int[Array, "envs agents tables"],
        alive: Bool[Array, " envs"],
        copy: Int[Array, " envs"],
    ) -> tuple[tuple[Array, Array, Array], Int[Array, "envs agents tables"]]:
        """The tables after one step of at most one episode of each copy, and what they then say of it."""
        count, era, now = tables
        current = now[:, copy].T[:, None, :]
        which = jnp.broadcast_to(jnp.arange(2)[None, None], place.shape)
        known = jnp.where(era[which, place] == current, count[which, place], 0)
        # Beyond the end of the table nothing is written: steps that never happened are not counted.
        target = jnp.where(alive[:, None, None], place, count.shape[1])
        count = count.at[which, target].set(known + 1, mode="drop")
        era = era.at[which, target].set(jnp.broadcast_to(current, place.shape), mode="drop")
        return (count, era, now), known + 1

    def _hashes(self, spec: EnvSpec, step: Transition) -> UInt32[Array, "agents tables"]:
        """Hash of the state and of the change for every agent, or for the team."""
        keys = [part.reshape(1, -1) if self.joint else part for part in self.keys(spec, step)]
        number = keys[0].shape[0]
        numbered = (jnp.concatenate([jnp.arange(number)[:, None], part], axis=1) for part in keys)
        return jnp.stack([jax.vmap(mixed)(part) for part in numbered], axis=-1)

    def report(self, state: CountState) -> Metrics:
        """How full the tables are, and how often keys repeat: counts that never repeat tell nothing."""
        current = jnp.repeat(state.now, self.buckets, axis=1)
        used = jnp.mean(((state.era == current) & (state.count > 0)).astype(jnp.float32), axis=1)
        return {
            "state_occupancy": used[STATE],
            "change_occupancy": used[CHANGE],
            "state_repeats": state.repeats[STATE],
            "change_repeats": state.repeats[CHANGE],
        }


def mixed(numbers: Int[Array, " numbers"]) -> UInt32[Array, ""]:
    """One number that stands for several, whose bits all depend on all of theirs (FNV-1a, then scrambled)."""
    value = jnp.uint32(2166136261)
    for index in range(numbers.shape[0]):
        value = (value ^ numbers[index].astype(jnp.uint32)) * jnp.uint32(16777619)
        value = value ^ (value >> 15)
    return scrambled(value)
