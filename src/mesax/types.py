"""The values that every part of mesax shares: keys, action spaces, environment facts, episodes.

Shapes are written for one example; `vmap` adds axes from outside, in the order
`[task or seed, environment, time, agent, feature]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mesax.errors import UsageError
from mesax.ranges import at_least
from mesax.store.leaves import is_key

Key: TypeAlias = PRNGKeyArray
Keys: TypeAlias = jaxtyping.Key[Array, "..."]
"""Keys of lanes, of episodes, of steps."""
if TYPE_CHECKING:  # learners work on the device, and need not look
    AnyArray: TypeAlias = Array
else:
    AnyArray = Array | np.ndarray
"""On the device or on the host: episodes are on either side, and JAX takes both."""
Metrics: TypeAlias = dict[str, Float[Array, "..."]]
Action: TypeAlias = Int[Array, " agents"] | Float[Array, "agents size"]
"""A joint action, for `Discrete` or for `Box`."""
Actions: TypeAlias = Int[AnyArray, "*batch agents"] | Float[AnyArray, "*batch agents size"]
"""Joint actions of many steps, or of one."""
Truth: TypeAlias = Bool[Array, ""] | np.bool_
"""The answer to a question about arrays: on the device, where it may be traced, or on the host."""
Played = TypeVar("Played", Array, np.ndarray)
Tree = TypeVar("Tree")


def random_index(key: Key, shape: tuple[int, ...], number: int | Array) -> Int[Array, "..."]:
    """Integers uniform on 0 .. number - 1.

    A scaled uniform draw compiles several times faster on a CPU than `randint`; its bias is below number * 2^-23.
    """
    index = jnp.floor(jax.random.uniform(key, shape) * number).astype(jnp.int32)
    return jnp.minimum(index, jnp.asarray(number, jnp.int32) - 1)


@dataclass(frozen=True)
class Discrete:
    """Each agent picks one of `num_actions` actions."""

    num_actions: int
    """Actions to choose from."""

    @property
    def feature_size(self) -> int:
        """Numbers per agent that a network sees of an action."""
        return self.num_actions

    def encode(self, action: Int[AnyArray, "*shape"]) -> Float[Array, "*shape {self.num_actions}"]:
        """One-hot form of integer actions: what critics and distances see."""
        return jax.nn.one_hot(action, self.num_actions)

    def contains(self, action: Int[AnyArray, "*shape"]) -> Truth:
        """Whether all of these are actions."""
        return ((action >= 0) & (action < self.num_actions)).all()

    def held(self, action: Played) -> Played:
        """Choices have no nearest one: they are what they are."""
        return action

    def from_uniform(self, uniform: Float[Array, "*shape"]) -> Int[Array, "*shape"]:
        """The action that a number in [0, 1) stands for, all actions equally likely."""
        index = jnp.floor(uniform * self.num_actions).astype(jnp.int32)
        return jnp.minimum(index, self.num_actions - 1)

    def sample(self, key: Key, shape: tuple[int, ...]) -> Int[Array, "*batch agents"]:
        """Uniformly random actions; `shape` ends with the agents."""
        return self.from_uniform(jax.random.uniform(key, shape))

    def zeros(self, shape: tuple[int, ...]) -> Int[Array, "*batch agents"]:
        """Placeholders for actions not chosen yet."""
        return jnp.zeros(shape, jnp.int32)


@dataclass(frozen=True)
class Box:
    """Each agent picks `size` numbers in [-1, 1]; environments rescale."""

    size: int
    """Numbers of an action."""

    @property
    def feature_size(self) -> int:
        """Numbers per agent that a network sees of an action."""
        return self.size

    def encode(self, action: Float[AnyArray, "*shape {self.size}"]) -> Float[AnyArray, "*shape {self.size}"]:
        """Continuous actions are seen as they are."""
        return action

    def contains(self, action: Float[AnyArray, "*shape {self.size}"]) -> Truth:
        """Whether all of these are numbers: environments take the nearest action for one beyond the box."""
        return (abs(action) < math.inf).all()

    def held(self, action: Played) -> Played:
        """The nearest actions, which a Gaussian policy means when it plays beyond the box."""
        return action.clip(-1.0, 1.0)

    def sample(self, key: Key, shape: tuple[int, ...]) -> Float[Array, "*batch agents {self.size}"]:
        """Uniformly random actions; `shape` ends with the agents."""
        return jax.random.uniform(key, (*shape, self.size), minval=-1.0, maxval=1.0)

    def zeros(self, shape: tuple[int, ...]) -> Float[Array, "*batch agents {self.size}"]:
        """Placeholders for actions not chosen yet."""
        return jnp.zeros((*shape, self.size))


ActionSpace: TypeAlias = Discrete | Box


@dataclass(frozen=True)
class EnvSpec:
    """What a learner must know of an environment to be built for it."""

    num_agents: int
    """Agents of the team."""
    obs_size: int
    """Length of each agent's observation (shorter ones are padded by the environment)."""
    action_space: ActionSpace
    """Actions of each agent."""
    horizon: int
    """Steps after which an episode is cut if it has not terminated."""
    bonus_discount: float | None = None
    """Discount of a bonus that is valued apart from the reward (see `Episode.bonus`); None: there is none."""

    def __post_init__(self) -> None:
        """Refuse sizes that no network can be built for."""
        for name in ("num_agents", "obs_size", "horizon"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def joint_size(self) -> int:
        """Size of the joint observation with the joint action: what a centralized critic sees."""
        return self.num_agents * (self.obs_size + self.action_space.feature_size)


class Transition(eqx.Module):
    """One joint step, seen from outside: what feature maps read."""

    obs: Float[AnyArray, "*batch agents obs"]
    """Observations before the step."""
    action: Actions
    """Actions of all agents."""
    next_obs: Float[AnyArray, "*batch agents obs"]
    """Observations after the step."""


class Label(eqx.Module):
    """What a policy leaves in the episode that it plays: who it was, and what it had drawn before the first step."""

    actor: Int[AnyArray, "*batch"]
    """0 the learner, e explorer number e."""
    latent: Float[AnyArray, "*batch latent"]
    """Numbers drawn once per episode that a learner must know; most policies draw none (size 0)."""

    @staticmethod
    def of(actor: int | Int[AnyArray, "*batch"]) -> Label:
        """A label without a latent."""
        actor = jnp.asarray(actor, jnp.int32)
        return Label(actor, jnp.zeros((*actor.shape, 0)))


class Episode(eqx.Module):
    """One episode, padded to the horizon.

    The three ways in which an episode can end are told apart here, once, for every learner:
    * `terminated[t]`: the task is over after step t, so nothing is bootstrapped beyond it;
    * cut at the horizon: `terminated` stays false and `obs[T]` is there to bootstrap from;
    * `mask[t]` is false for padding after an early end: such a step never happened. If the last step that did happen
      is not `terminated`, the environment cut the episode short; `obs[t + 1]` is there to bootstrap from.
    """

    obs: Float[AnyArray, "*batch instants agents obs"]
    """One instant more than there are steps: what follows the last step is there too."""
    action: Int[AnyArray, "*batch instants-1 agents"] | Float[AnyArray, "*batch instants-1 agents size"]
    """Actions of all agents."""
    reward: Float[AnyArray, "*batch instants-1"]
    """Reward of the team."""
    terminated: Bool[AnyArray, "*batch instants-1"]
    """Steps after which the task is over."""
    mask: Bool[AnyArray, "*batch instants-1"]
    """Steps that happened: 0 after the end."""
    label: Label
    """Who played, and what was drawn for this episode (see `Policy.label`)."""
    bonus: Float[AnyArray, "*batch instants-1"] | None = None
    """Paid in addition to the reward, if it is kept apart: it goes on beyond the end of an episode, in the next one."""
    restarted: Bool[AnyArray, "*batch instants-1"] | None = None
    """Where the task was over and goes on at a fresh start, which is then what follows in `obs`: a net that remembers
    values it with a fresh memory. None: nowhere."""

    @property
    def continues(self) -> Float[AnyArray, "*batch time"]:
        """1 where a value may be bootstrapped from the next observation, else 0."""
        return 1.0 - self.terminated.astype(self.reward.dtype)

    @property
    def goes_on(self) -> Bool[Array, "*batch time"]:
        """Whether another step follows: beyond the last one there is only its value, no return."""
        return jnp.concatenate([self.mask[..., 1:], jnp.zeros_like(self.mask[..., :1])], axis=-1)

    @property
    def transitions(self) -> Transition:
        """Every step as (obs, action, next obs), stacked over time."""
        return Transition(self.obs[:-1], self.action, self.obs[1:])


def blank_episode(spec: EnvSpec, latent_size: int = 0) -> Episode:
    """An episode of the right shapes, with nothing in it."""
    time, agents = spec.horizon, spec.num_agents
    return Episode(
        jnp.zeros((time + 1, agents, spec.obs_size)),
        spec.action_space.zeros((time, agents)),
        jnp.zeros(time),
        jnp.zeros(time, bool),
        jnp.zeros(time, bool),
        Label(jnp.zeros((), jnp.int32), jnp.zeros(latent_size)),
    )


def masked_mean(values: Float[AnyArray, "*steps"], mask: Bool[AnyArray, "..."]) -> Float[Array, ""]:
    """Mean of `values` over the steps that happened; `mask` is broadcast from the left."""
    weights = mask.astype(values.dtype)
    weights = jnp.broadcast_to(weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim)), values.shape)
    return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), 1.0)


def tree_stack(trees: list[Tree]) -> Tree:
    """Stack equal pytrees along a new leading axis; those of NumPy stay so."""
    on_host = not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(trees))
    stacked: Tree = jax.tree.map(lambda *leaves: np.stack(leaves) if on_host else jnp.stack(leaves), *trees)
    return stacked


def on_device(arrays: Iterable[np.ndarray]) -> list[Array]:
    """Arrays of NumPy as arrays of JAX; unlike `jnp.asarray`, without compiling a program for every shape."""
    return [jax.device_put(array) for array in arrays]


def stacked_shape(tree: Tree, *axes: int) -> Tree:
    """Shapes of a tree whose leaves have these axes in front."""
    shape: Tree = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*axes, *leaf.shape), leaf.dtype), tree)
    return shape


def as_one(tree: Tree) -> Tree:
    """The same as a batch of one."""
    single: Tree = jax.tree.map(lambda leaf: leaf[None], tree)
    return single


def tree_index(
    tree: Tree, index: int | slice | tuple[int | slice, ...] | Int[Array, "..."] | Int[np.ndarray, "..."]
) -> Tree:
    """Entry `index` of every leaf's leading axis, or axes."""
    entry: Tree = jax.tree.map(lambda leaf: leaf[index], tree)
    return entry


def tree_where(condition: Bool[Array, ""], if_true: Tree, if_false: Tree) -> Tree:
    """`if_true` where the scalar `condition` holds, else `if_false`, leaf by leaf."""
    chosen: Tree = jax.tree.map(lambda left, right: jnp.where(condition, left, right), if_true, if_false)
    return chosen


def mapped(function: Callable[..., Tree], in_axes: int | tuple[int, ...] = 0, out_axes: int = 0) -> Callable[..., Tree]:
    """`jax.vmap`; but one alone is not vectorized: a batch axis of 1 makes programs slower, to compile and to run."""

    def on_all(*args: PyTree) -> Tree:
        axes = (in_axes,) * len(args) if isinstance(in_axes, int) else in_axes
        sizes = {leaf.shape[axis] for arg, axis in zip(args, axes, strict=True) for leaf in jax.tree.leaves(arg)}
        if sizes != {1}:
            return jax.vmap(function, axes, out_axes)(*args)
        alone = [
            jax.tree.map(lambda leaf, axis=axis: jax.lax.squeeze(leaf, [axis]), arg)
            for arg, axis in zip(args, axes, strict=True)
        ]
        return jax.tree.map(lambda leaf: jax.lax.expand_dims(jnp.asarray(leaf), [out_axes]), function(*alone))

    return on_all


def leading_size(tree: PyTree) -> int:
    """Length of the leading axis that all leaves share."""
    leaves = jax.tree.leaves(tree)
    if not leaves:
        raise UsageError("what is stacked (tasks, policies) must hold an array at least, or their number is unknown")
    size: int = leaves[0].shape[0]
    return size


def to_host(tree: Tree) -> Tree:
    """Arrays of NumPy; typed keys, which NumPy has none of, as copies that no program can use up."""

    def moved(leaf: object) -> np.ndarray | Array:
        if not is_key(leaf):
            return np.asarray(leaf)
        data = jax.device_put(np.asarray(jax.random.key_data(leaf)))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))

    moved_tree: Tree = jax.tree.map(moved, tree)
    return moved_tree


class Elapsed(eqx.Module):
    """How far a run has come: what schedules are functions of."""

    fraction: Float[Array, ""]
    """Fraction of the budget that follows the warm-up, in [0, 1]."""
    steps: Float[Array, ""]
    """Environment steps so far, warm-up included."""
    own_steps: Float[Array, ""]
    """Environment steps since the warm-up, in which the learner does not play."""

    @staticmethod
    def at(fraction: float, steps: float = 0.0, warmup: float = 0.0) -> Elapsed:
        """A point of a run from plain numbers."""
        return Elapsed(*(jnp.asarray(number, jnp.float32) for number in (fraction, steps, steps - warmup)))

    @staticmethod
    def end() -> Elapsed:
        """When every schedule has come to its end."""
        return Elapsed.at(1.0, math.inf)


@dataclass(frozen=True)
class Linear:
    """A number that moves in a straight line over the first `fraction` of a budget of steps, then stays."""

    start: float
    """Value at the start."""
    end: float
    """Value at the end, and from then on."""
    fraction: float
    """Share of the budget after which the end is reached."""

    def __call__(self, elapsed: Elapsed) -> Float[Array, ""]:
        """Value at this point of a run."""
        if self.fraction <= 0:
            return jnp.full_like(elapsed.fraction, self.end)
        return self.start + (self.end - self.start) * jnp.clip(elapsed.fraction / self.fraction, 0.0, 1.0)


@dataclass(frozen=True)
class LinearSteps:
    """The same over the first `steps` environment steps, whatever the budget."""

    start: float
    """Value at the start."""
    end: float
    """Value at the end, and from then on."""
    steps: int
    """Environment steps after which the end is reached."""

    def __post_init__(self) -> None:
        """Refuse a line that goes nowhere."""
        at_least(self, 1, "steps")

    def __call__(self, elapsed: Elapsed) -> Float[Array, ""]:
        """Value at this point of a run."""
        return self.start + (self.end - self.start) * jnp.clip(elapsed.steps / self.steps, 0.0, 1.0)


@dataclass(frozen=True)
class LinearOwnSteps(LinearSteps):
    """The same over the first `steps` environment steps that follow the warm-up, however long that was."""

    def __call__(self, elapsed: Elapsed) -> Float[Array, ""]:
        """Value at this point of a run."""
        return self.start + (self.end - self.start) * jnp.clip(elapsed.own_steps / self.steps, 0.0, 1.0)


Line: TypeAlias = Linear | LinearSteps | LinearOwnSteps


@runtime_checkable
class FeatureMap(Protocol):
    """A frozen dataclass that turns a joint step into the vector that distances are measured on."""

    def __call__(self, spec: EnvSpec, transition: Transition) -> Float[Array, " features"]:
        """Features of one transition."""


@runtime_checkable
class TeamSized(Protocol):
    """A setting that depends on the number of agents, and can be had for another with weights of the same shapes."""

    def for_team(self, num_agents: int) -> TeamSized:
        """The same for so many agents."""
