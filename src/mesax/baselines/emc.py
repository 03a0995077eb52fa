"""EMC: curiosity about the values of single agents, and a memory of the best returns (Zheng et al. 2021).

    curious VDN   Q^c_i, learned from the task's own reward alone; its target S follows softly
    predictor     P_i(h_t, .) learns 10 S_i(h_t, .); where it is wrong, what an agent can earn is news
    r_int_t       = scale(steps) mean_i || P_i(h_{t+1}, .) - 10 S_i(h_{t+1}, .) ||      before the predictor learns
    memory        H(cell(G s)) = the best discounted return that any episode had from a state of this cell
    control       any value decomposition (QPLEX or VDN in the release) lowers
                  (Qtot_t - y_t)^2 with y_t = r_t + r_int_t + gamma Qtot'_{t+1},
                  and weight (Qtot_t - r_t - gamma H(s_{t+1}))^2 where s_{t+1} is remembered

The team acts on the control learner's values. Curiosity enters neither its own VDN nor the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from mesax.algorithms.base import EPISODE_ERROR, OffPolicy
from mesax.algorithms.mixers import Duplex, Mixer, Sum
from mesax.algorithms.targets import lambda_returns
from mesax.algorithms.value_decomposition import (
    ActionValues,
    Hint,
    Soft,
    ValueDecomposition,
    Values,
    ValueState,
    choices_of,
)
from mesax.errors import UsageError
from mesax.hashing import scrambled
from mesax.nets import Adam, CodedTeam, Team, Trainable
from mesax.policy import Policy
from mesax.ranges import above, at_least, at_most, between
from mesax.runtime import physical_memory
from mesax.types import Discrete, Elapsed, EnvSpec, Episode, Key, Metrics, masked_mean, tree_stack

NAMES: dict[str, str] = {
    "emc": "EMC: QPLEX with curiosity about single agents' values and a memory of the best returns",
}
BYTES_PER_ENTRY = 8
COPIES = 4
"""Copies of a learner that a run has at a time: two on the device, two on the host to go back to and to save."""
EMPTY = 0

States: TypeAlias = Float[Array, "*batch agents obs"]


@dataclass(frozen=True)
class Falling:
    """A number that is multiplied by `factor` every so many steps of the learner, down to a floor."""

    start: float = 0.001
    """When the learner begins to play."""
    factor: float = 0.9
    """What is left of it each time."""
    steps: int = 100_000
    """Environment steps between two times; the random phase before the first update does not count."""
    floor: float = 0.0
    """Never less than this."""

    def __post_init__(self) -> None:
        """Refuse what does not fall."""
        at_least(self, 0, "floor")
        at_least(self, self.floor, "start")
        above(self, 0, "factor")
        at_most(self, 1, "factor")
        at_least(self, 1, "steps")

    def __call__(self, elapsed: Elapsed) -> Float[Array, ""]:
        """Value at this point of a run."""
        times = jnp.floor(jnp.maximum(elapsed.own_steps, 0.0) / self.steps)
        return jnp.maximum(self.start * self.factor**times, self.floor)


@dataclass(frozen=True)
class Curiosity:
    """How much news of their own values is worth to agents."""

    scale: Falling = Falling()
    """Scale of the intrinsic reward, over the run."""
    gain: float = 10.0
    """Factor of the values that are predicted: small ones would be predicted too soon."""
    head_gain: float = 0.5
    """Gain of the curious VDN's last layer at the start: its random values are all the news until something is paid."""
    target_rate: float = 0.005
    """Polyak step of the curious VDN's target, which is also what is predicted."""
    optimizer: Adam = Adam()
    """Optimizer of the predictor."""

    def __post_init__(self) -> None:
        """Refuse what predicts nothing."""
        above(self, 0, "gain")
        at_least(self, 0, "head_gain")
        between(self, 0, 1, "target_rate")


@dataclass(frozen=True)
class BestReturns:
    """The best return from every state, as far as states are told apart."""

    weight: float = 0.1
    """Weight of the remembered returns in the loss."""
    capacity: int = 2**17
    """Entries; where two states want the same one, the later one has it."""
    size: int = 4
    """Numbers that a state is projected to."""
    tolerance: float = 0.05
    """Width of the cells in which projected states are one."""
    at_least: bool = False
    """Whether values may exceed what is remembered: returns of episodes that were cut say too little."""

    def __post_init__(self) -> None:
        """Refuse what remembers nothing."""
        at_least(self, 1, "capacity", "size")
        above(self, 0, "tolerance")
        at_least(self, 0, "weight")

    def check(self) -> None:
        """Refuse a memory that this machine cannot hold."""
        needed, there = COPIES * BYTES_PER_ENTRY * self.capacity, physical_memory()
        if there is not None and needed > there:
            raise UsageError(
                f"a memory of {self.capacity:,} entries takes {needed / 2**30:,.1f} GiB with the copies that a run"
                f" keeps, more than this machine's {there / 2**30:,.1f} GiB: choose a smaller memory.capacity"
            )

    def build(self, spec: EnvSpec, key: Key) -> EpisodicMemory:
        """Nothing remembered yet."""
        state = spec.num_agents * spec.obs_size
        return EpisodicMemory(
            jax.random.normal(key, (state, self.size)) / (math.sqrt(self.size) * self.tolerance),
            jnp.zeros(self.capacity, jnp.uint32),
            jnp.zeros(self.capacity),
            jnp.zeros(()),
            jnp.zeros(()),
        )


class EpisodicMemory(eqx.Module):
    """A hash table of fixed size from cells of projected states to the best return seen from there."""

    projection: Float[Array, "state size"]
    """Random and fixed; in units of the cells' width."""
    tag: UInt32[Array, " capacity"]
    """Which cell an entry is of (a second hash of it); `EMPTY` for none."""
    value: Float[Array, " capacity"]
    known: Float[Array, ""]
    """Share of the latest round's steps whose states were in the table already."""
    occupancy: Float[Array, ""]
    """Share of entries that are taken."""

    def forgotten(self) -> EpisodicMemory:
        """An empty table for states that are projected in the same way."""
        empty, nothing = jnp.full_like(self.tag, EMPTY), jnp.zeros_like(self.known)
        return EpisodicMemory(self.projection, empty, jnp.zeros_like(self.value), nothing, nothing)

    def entries(self, states: States) -> tuple[Int[Array, "*batch"], UInt32[Array, "*batch"]]:
        """(entry, tag) that each state would have."""
        flat = states.reshape(*states.shape[:-2], -1)
        cells = jnp.floor(flat @ self.projection).astype(jnp.int32).astype(jnp.uint32)
        slot, tag = jnp.zeros(cells.shape[:-1], jnp.uint32), jnp.ones(cells.shape[:-1], jnp.uint32)
        for place in range(cells.shape[-1]):
            slot = scrambled(slot ^ cells[..., place])
            tag = scrambled(tag * jnp.uint32(0x9E3779B1) + cells[..., place])
        return (slot % self.tag.size).astype(jnp.int32), jnp.maximum(tag, EMPTY + 1)

    def recall(self, states: States) -> tuple[Float[Array, "*batch"], Bool[Array, "*batch"]]:
        """(best return from each state, whether it is remembered); 0 where it is not."""
        slot, tag = self.entries(states)
        found = self.tag[slot] == tag
        return jnp.where(found, self.value[slot], 0.0), found

    def remember(self, states: States, returns: Float[Array, "*batch"], mask: Bool[Array, "*batch"]) -> EpisodicMemory:
        """With the returns of these steps: the larger one on a hit, a new entry (which may displace another) else."""
        slot, tag = (part.reshape(-1) for part in self.entries(states))
        returns, mask = returns.reshape(-1), mask.reshape(-1)
        before, best = self.tag[slot], self.value[slot]
        known = masked_mean((before == tag).astype(jnp.float32), mask)
        # What never happened is written nowhere. Of several new states that want an entry, the largest tag has it.
        here = jnp.where(mask, slot, self.tag.size)
        tags = self.tag.at[here].set(EMPTY, mode="drop").at[here].max(tag, mode="drop")
        owner = tags[slot]
        value = self.value.at[here].set(jnp.where(owner == before, best, -jnp.inf), mode="drop")
        value = value.at[jnp.where(owner == tag, here, self.tag.size)].max(returns, mode="drop")
        occupancy = jnp.mean((tags != EMPTY).astype(jnp.float32))
        return EpisodicMemory(self.projection, tags, value, known, occupancy)


def discounted_returns(episodes: Episode, discount: float) -> Float[Array, "*batch time"]:
    """R_t = r_t + discount R_{t+1} along stacked episodes, as far as they went."""

    def of_one(episode: Episode) -> Float[Array, " time"]:
        paid = jnp.where(episode.mask, episode.reward, 0.0)
        going_on = discount * episode.goes_on
        return lambda_returns(paid, going_on, jnp.zeros_like(paid), 1.0)

    return jax.vmap(of_one)(episodes)


class CuriosityState(eqx.Module):
    """Values of the task's own reward, and who predicts them."""

    values: ValueState
    predictor: Trainable[Team]


class EmcState(eqx.Module):
    """The learner that acts, and what it is told by curiosity and memory."""

    control: ValueState
    curiosity: CuriosityState | None
    memory: EpisodicMemory | None


@dataclass(frozen=True)
class Emc(OffPolicy):
    """A learner of values that looks for news and remembers the best."""

    control: ValueDecomposition = ValueDecomposition(mixer=Duplex())
    """Who acts: QPLEX (Duplex) or VDN (Sum) in the release."""
    curiosity: Curiosity | None = Curiosity()
    """None: only the memory."""
    memory: BestReturns | None = BestReturns()
    """None: only curiosity."""

    def check(self, spec: EnvSpec, num_envs: int) -> None:
        """Refuse a memory that does not fit, and curiosity about what cannot differ."""
        super().check(spec, num_envs)
        if self.memory is not None:
            self.memory.check()
        if self.curiosity is not None and spec.horizon == 1 and not self.control.last_action:
            raise UsageError(
                "in a game of one step curiosity depends on nothing but the last action, which agents do not see:"
                " set control.last-action to true (or curiosity to none)"
            )

    def init(self, spec: EnvSpec, key: Key) -> EmcState:
        """Fresh nets, an empty memory."""
        keys = jax.random.split(jax.random.fold_in(key, 1), 3)
        curiosity = None
        if self.curiosity is not None:
            agents = self.control.fresh_agents(spec, keys[0], self.curiosity.head_gain)
            values = Values(agents, Sum().build(spec, keys[0]))
            predictor = self.control.fresh_agents(spec, keys[1])
            curiosity = CuriosityState(
                ValueState(Trainable.create(values, self.control.optimizer), values, jnp.zeros((), jnp.int32)),
                Trainable.create(predictor, self.curiosity.optimizer),
            )
        memory = None if self.memory is None else self.memory.build(spec, keys[2])
        return EmcState(self.control.init(spec, key), curiosity, memory)

    @property
    def curious(self) -> ValueDecomposition:
        """The VDN whose values are predicted; its target follows softly."""
        assert self.curiosity is not None
        return replace(self.control, mixer=Sum(), target=Soft(self.curiosity.target_rate))

    def behavior(self, spec: EnvSpec, state: EmcState, elapsed: Elapsed) -> Policy:
        """The control learner's."""
        return self.control.behavior(spec, state.control, elapsed)

    def greedy(self, spec: EnvSpec, state: EmcState) -> Policy:
        """The control learner's."""
        return self.control.greedy(spec, state.control)

    def observe(self, spec: EnvSpec, state: EmcState, fresh: Episode) -> EmcState:
        """Remember what was earned from every state on."""
        del spec
        if state.memory is None:
            return state
        returns = discounted_returns(fresh, self.control.discount)
        return replace(state, memory=state.memory.remember(fresh.obs[:, :-1], returns, fresh.mask))

    def update(
        self, spec: EnvSpec, state: EmcState, batch: Episode, elapsed: Elapsed, key: Key
    ) -> tuple[EmcState, Metrics]:
        """One step of the curious VDN, of the predictor and of the control learner."""
        del key
        space = choices_of(spec)
        metrics: Metrics = {}
        hint = None
        if self.memory is not None:  # looked up here: the table is not to travel with lanes that take turns
            hint, metrics = self.hint(state, batch)
        scale = None if self.curiosity is None else self.curiosity.scale(elapsed)

        def learn(
            control: ValueState,
            curiosity: CuriosityState | None,
            batch: Episode,
            hint: Hint | None,
            scale: Float[Array, ""] | None,
        ) -> tuple[ValueState, CuriosityState | None, Metrics]:
            if curiosity is None or scale is None:
                control, metrics, errors = self.control.learn(space, control, batch, hint)
                return control, None, metrics | {EPISODE_ERROR: errors}
            return self.learn(space, (control, curiosity), batch, hint, scale)

        control, curiosity, learned = self.control.in_turn(learn)(state.control, state.curiosity, batch, hint, scale)
        return EmcState(control, curiosity, state.memory), learned | metrics

    def hint(self, state: EmcState, batch: Episode) -> tuple[Hint, Metrics]:
        """What the best return was that followed each step, if its next state is remembered or nothing followed."""
        assert self.memory is not None and state.memory is not None
        best, found = state.memory.recall(batch.obs[:, 1:])
        continues = self.control.continues(batch)
        known = (found | (continues == 0.0)).astype(jnp.float32)
        value = batch.reward + self.control.discount * continues * best
        return Hint(value, self.memory.weight * known, self.memory.at_least), {
            "memory_hit_rate": masked_mean(known, batch.mask),
            "memory_value": masked_mean(value * known, batch.mask) / jnp.maximum(masked_mean(known, batch.mask), 1e-6),
            "memory_known": state.memory.known,
            "memory_occupancy": state.memory.occupancy,
        }

    def learn(
        self,
        space: Discrete,
        states: tuple[ValueState, CuriosityState],
        batch: Episode,
        hint: Hint | None,
        scale: Float[Array, ""],
    ) -> tuple[ValueState, CuriosityState, Metrics]:
        """Predictor, curious VDN and control learner a step further: (both states, metrics).

        They are alike but for what they lower, and take turns in one loop. Its turns use the same memory, which then
        stays in the processor's cache: that saves an eighth of their time.
        """
        assert self.curiosity is not None
        (control, curiosity), settings, curious = states, self.curiosity, self.curious

        def values_of(agents: Team | CodedTeam) -> ActionValues:
            return self.control.agent_values(space, agents, batch)

        targets = tree_stack([curiosity.values.target.agents, control.target.agents])
        soft, target_q = jax.lax.map(values_of, targets)

        def of_predictor(predicted: ActionValues, news: Array) -> tuple[ActionValues, Float[Array, "batch time"]]:
            del news  # none yet
            gradients, wrong = jax.grad(self.wrong, has_aux=True)(predicted, settings.gain * soft, batch)
            return gradients, jnp.mean(wrong, axis=-1)

        def of_curious(q: ActionValues, news: Array) -> tuple[ActionValues, Metrics]:
            del news  # the task's own reward alone
            target, mixer = (soft, curiosity.values.target.mixer), curiosity.values.values.net.mixer
            gradients, (metrics, _) = jax.grad(
                lambda q: curious.loss(space, (q, mixer), batch, target, None), has_aux=True
            )(q)
            return gradients, metrics

        def of_control(
            q: ActionValues, news: Float[Array, "batch time"]
        ) -> tuple[ActionValues, tuple[Mixer, Metrics, Float[Array, " batch"]]]:
            rewarded = replace(batch, reward=batch.reward + scale * news)
            target = target_q, control.target.mixer
            (gradients, mixer), told = jax.grad(
                lambda online: self.control.loss(space, online, rewarded, target, hint), has_aux=True
            )((q, control.values.net.mixer))
            return gradients, (mixer, *told)

        def turn(news: Float[Array, "batch time"], who: tuple[Int[Array, ""], Team | CodedTeam]) -> tuple[Array, Any]:
            q, back = jax.vjp(values_of, who[1])
            told = one_of(who[0], (of_predictor, of_curious, of_control), q, news)
            (gradients,) = back(sum(of_values for of_values, _ in told))
            return news + told[0][1], (gradients, [rest for _, rest in told])

        agents = tree_stack([curiosity.predictor.net, curiosity.values.values.net.agents, control.values.net.agents])
        news, (gradients, told) = jax.lax.scan(turn, jnp.zeros_like(batch.reward), (jnp.arange(3), agents))
        of_agents = [jax.tree.map(lambda leaf: leaf[number], gradients) for number in range(3)]  # noqa: B023
        learned = jax.tree.map(lambda leaf: leaf[1], told[1])
        mixer, metrics, errors = jax.tree.map(lambda leaf: leaf[2], told[2])
        metrics |= {
            "curiosity_scale": scale,
            "intrinsic_mean": scale * masked_mean(news, batch.mask),
            "prediction_error": masked_mean(news, batch.mask),
            "curious_loss": learned["critic_loss"],
            "curious_q_mean": learned["q_mean"],
            EPISODE_ERROR: errors,
        }
        values = curious.descended(curiosity.values, Values(of_agents[1], curiosity.values.values.net.mixer))
        predictor = curiosity.predictor.descend(of_agents[0], settings.optimizer)
        control = self.control.descended(control, Values(of_agents[2], mixer))
        return control, CuriosityState(values, predictor), metrics

    @staticmethod
    def wrong(
        predicted: ActionValues, told: ActionValues, batch: Episode
    ) -> tuple[Float[Array, ""], Float[Array, "batch time agents"]]:
        """(what the predictor lowers, how wrong it is about what follows every step)."""
        # As in the release's distance: without it the gradient of a norm has no value at zero.
        wrong = jnp.sqrt(jnp.sum(jnp.square(predicted[:, 1:] - told[:, 1:] + 1e-6), axis=-1))
        return masked_mean(wrong, batch.mask), wrong


def one_of(which: Int[Array, ""], functions: Sequence[Callable[..., Any]], *operands: Any) -> list[Any]:
    """What each function returns, but for zeros instead of all that is not number `which`: only that is computed."""
    shapes = [jax.eval_shape(function, *operands) for function in functions]

    def alone(number: int) -> Callable[..., list[Any]]:
        def told(*operands: Any) -> list[Any]:
            rest = [jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape) for shape in shapes]
            return [*rest[:number], functions[number](*operands), *rest[number + 1 :]]

        return told

    told: list[Any] = jax.lax.switch(which, [alone(number) for number in range(len(functions))], *operands)
    return told
