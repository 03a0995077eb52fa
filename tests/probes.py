"""Probe games: each isolates one thing that a learner must be able to do, and its values are known exactly.

The discrete probes are *tasks* of one tabular game, so that a learner is compiled once and trained on all of them side
by side. Every terminating action leads to a poisoned state, whose absurd observation fills the padding too: a leak of
it into a target or a loss shows in every probe.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from mesax.algorithms.base import Learner
from mesax.envs.base import Environment, Step
from mesax.nets import Adam, StepByStep, Trainable
from mesax.policy import UniformPolicy
from mesax.training.rollout import play
from mesax.types import Action, Box, Discrete, Elapsed, EnvSpec, Episode, Key, leading_size, random_index, tree_index

DISCOUNT = 0.5
NUM_AGENTS = 2
NUM_ACTIONS = 3
NUM_STATES = 6
OVER = NUM_STATES - 1
"""The poisoned state that follows a termination."""
POISON = 50.0
"""All that is seen there."""
HORIZON = 3
NUM_EPISODES = 192
"""Of random play: enough that no joint action at any state is missing."""
JOINT_ACTIONS = tuple(itertools.product(range(NUM_ACTIONS), repeat=NUM_AGENTS))


class Summing(StepByStep):
    """Linear and recurrent, for sums by hand: outputs are the weights times the sum of all inputs so far."""

    weight: Float[Array, "inputs outputs"]

    def start(self) -> Array:
        return jnp.zeros(self.weight.shape[0])

    def step(self, memory: Array, x: Array) -> tuple[Array, Array]:
        return memory + x, (memory + x) @ self.weight


class TabularTask(eqx.Module):
    """Dynamics and rewards as tables, indexed by state and the two agents' actions."""

    reward: Float[Array, "states actions actions"]
    successor: Int[Array, "states actions actions"]
    terminated: Bool[Array, "states actions actions"]
    start: Float[Array, " states"]
    """Probabilities of the first state."""
    obs: Float[Array, "states agents obs"]


@dataclass(frozen=True)
class TabularGame:
    """Two agents, three actions, six states, three steps: the environment of all discrete probes."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(NUM_AGENTS, OVER, Discrete(NUM_ACTIONS), HORIZON)

    def reset(self, task: TabularTask, key: Key) -> tuple[Array, Array]:
        state = jax.random.categorical(key, jnp.log(task.start))
        return state, task.obs[state]

    def step(self, task: TabularTask, state: Array, action: Action, key: Key) -> tuple[Array, Step]:
        del key
        cell = (state, action[0], action[1])
        successor = task.successor[cell]
        return successor, Step(task.obs[successor], task.reward[cell], task.terminated[cell])


class ContinuousTask(eqx.Module):
    """The joint action to be played at each step."""

    target: Float[Array, "time agents size"]


@dataclass(frozen=True)
class ContinuousGame:
    """Reward 1 minus the squared distance to a joint action in a box, known and different at each step."""

    num_agents: int = 2
    size: int = 1
    horizon: int = 2

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.num_agents, self.horizon, Box(self.size), self.horizon)

    def reset(self, task: ContinuousTask, key: Key) -> tuple[Array, Array]:
        del task, key
        return jnp.zeros((), jnp.int32), self._observe(jnp.zeros((), jnp.int32))

    def step(self, task: ContinuousTask, state: Array, action: Action, key: Key) -> tuple[Array, Step]:
        del key
        reward = 1.0 - jnp.sum(jnp.square(action - task.target[state]))
        return state + 1, Step(self._observe(state + 1), reward, state + 1 >= self.horizon)

    def _observe(self, time: Array) -> Array:
        return jnp.tile(jax.nn.one_hot(time, self.horizon), (self.num_agents, 1))


class WalkTask(eqx.Module):
    """How far to go."""

    goal: Float[Array, ""]


@dataclass(frozen=True)
class Walk:
    """Agents move along a line by their actions and are paid where they stand; over when one is at the goal.

    Deterministic, and the game would go on beyond its end: an agent that is moved once too often shows.
    """

    num_agents: int = 2
    horizon: int = 6

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.num_agents, 1, Box(1), self.horizon)

    def reset(self, task: WalkTask, key: Key) -> tuple[Array, Array]:
        del task, key
        position = jnp.arange(self.num_agents, dtype=jnp.float32)[:, None] / 4.0
        return position, position

    def step(self, task: WalkTask, state: Array, action: Action, key: Key) -> tuple[Array, Step]:
        del key
        position = state + action
        return position, Step(position, jnp.sum(position), jnp.max(position) >= task.goal)


@dataclass(frozen=True)
class Probe:
    """A game, and what it asks of a learner."""

    task: TabularTask
    needs_memory: bool = False
    """What counts is no longer in the observation when it counts."""
    trap: float = 0.0
    """Regret of the equilibrium that no agent alone wants to leave: learners that move one at a time end there."""


def build(
    rule: Callable[[int, tuple[int, ...]], tuple[float, int | None]],
    starts: tuple[int, ...] = (0,),
    looks: tuple[int, ...] | None = None,
) -> TabularTask:
    """Tables from `rule(state, joint action) -> (reward, next state or None for the end)`.

    States look like one-hot vectors of their own number, or of `looks[state]` to hide what happened.
    """
    shape = (NUM_STATES, NUM_ACTIONS, NUM_ACTIONS)
    reward, successor = np.full(shape, 100.0, np.float32), np.full(shape, OVER, np.int32)
    terminated = np.zeros(shape, bool)
    for state, action in itertools.product(range(OVER), JOINT_ACTIONS):
        paid, following = rule(state, action)
        reward[state][action] = paid
        successor[state][action] = OVER if following is None else following
        terminated[state][action] = following is None
    start = np.zeros(NUM_STATES, np.float32)
    start[list(starts)] = 1.0 / len(starts)
    appearance = np.vstack([np.eye(OVER)[list(looks or range(OVER))], np.full((1, OVER), POISON)])
    obs = np.repeat(appearance[:, None], NUM_AGENTS, axis=1).astype(np.float32)
    return TabularTask(*jax.device_put((reward, successor, terminated, start, obs)))


def last_step_only(state: int, action: tuple[int, ...]) -> tuple[float, int | None]:
    """The second agent's first action decides (0 -> 1 if right, else 2) what is paid two steps later (at 3 or 4)."""
    if state == 0:
        return 0.0, 1 if action[1] == 2 else 2
    if state in (1, 2):
        return 0.0, state + 2
    return float(state == 3), None


def recall(state: int, action: tuple[int, ...]) -> tuple[float, int | None]:
    """The first state is a cue; after it, each agent earns a half for playing what it saw."""
    if state in (0, 1):
        return 0.0, state + 2
    return 0.5 * action.count(state - 2), None


def climb(state: int, action: tuple[int, ...]) -> tuple[float, int | None]:
    """1 if both play action 1, .8 if none does: with a random partner, playing 1 is worth a third, else .53."""
    return {0: 0.8, 1: 0.0, 2: 1.0}[action.count(1)], None


PROBES = {
    "constant reward": Probe(build(lambda s, a: (1.0, None))),
    "value depends on the observation": Probe(build(lambda s, a: (2.0 * s - 1.0, None), starts=(0, 1))),
    "delayed reward": Probe(build(lambda s, a: (float(s), None if s else 1))),
    "own action": Probe(build(lambda s, a: (0.5 * (a[0] == 1) + 0.5 * (a[1] == 2), None))),
    "coordination": Probe(build(lambda s, a: (float(a == (1, 1)), None))),
    "coordinated climb": Probe(build(climb), trap=0.2),
    "reward at the last step only": Probe(build(last_step_only)),
    "early termination": Probe(build(lambda s, a: (1.0, None) if a[0] == 0 else (0.0, s))),
    "truncation only": Probe(build(lambda s, a: (1.0, s))),
    "reward at the last step only, unseen": Probe(build(last_step_only, looks=(0, 1, 1, 2, 2)), needs_memory=True),
    "recall of a cue": Probe(build(recall, starts=(0, 1), looks=(0, 1, 2, 2, 2)), needs_memory=True),
}


def best_values(task: TabularTask, discount: float = DISCOUNT) -> np.ndarray:
    """Q* of a probe by value iteration, `[states, actions, actions]`; the horizon is a cut, not an end."""
    reward, successor = np.asarray(task.reward)[:OVER], np.asarray(task.successor)[:OVER]
    continues = ~np.asarray(task.terminated)[:OVER]
    values = np.zeros(NUM_STATES)
    for _ in range(100):
        q = reward + discount * continues * values[successor]
        values[:OVER] = q.max(axis=(1, 2))
    return q


def is_additive(task: TabularTask) -> bool:
    """Whether Q* is a sum of what each agent's action is worth."""
    q = best_values(task)
    return bool(np.allclose(q - q[:, :1] - q[:, :, :1] + q[:, :1, :1], 0.0))


def states_along(task: TabularTask, first_obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """States of an episode, from its first observation (which no probe hides) and its joint actions."""
    state = int(np.argmax(first_obs[0]))
    successor, states = np.asarray(task.successor), []
    for action in actions:
        states.append(state)
        state = int(successor[state][tuple(action)])
    return np.array(states)


def put(values: Any, dtype: Any = None) -> Array:
    """Numbers as an array of JAX; `jnp.array` and `jnp.asarray` compile a program for every new shape."""
    return jax.device_put(np.asarray(values, dtype))


def stacked(trees: list[Any]) -> Any:
    """Equal trees along a new leading axis, by NumPy: `jnp.stack` compiles too."""
    return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *trees))


def untrained(net: Any, optimizer: Adam) -> Trainable:
    """`Trainable.create` without compiling anything: all that an optimizer knows at first is zero."""
    shapes = jax.eval_shape(lambda: Trainable.create(net, optimizer).optimizer_state)
    return Trainable(net, jax.device_put(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)))


def side_by_side(run: Callable[[PyTree, Key], PyTree], cases: PyTree) -> list[PyTree]:
    """`run(case, key)` of all stacked cases, as NumPy; compiled once."""
    number = leading_size(cases)
    results = jax.device_get(jax.jit(jax.vmap(run))(cases, jax.random.split(jax.random.key(0), number)))
    return [tree_index(results, index) for index in range(number)]


@cache
def played_at_random() -> Episode:
    """Uniformly random episodes of every probe, the same for all learners: `[probes, episodes, ...]`."""
    env, tasks = TabularGame(), stacked([probe.task for probe in PROBES.values()])
    keys = jax.random.split(jax.random.key(0), len(PROBES))
    return jax.device_get(
        jax.jit(jax.vmap(lambda task, key: random_episodes(env, task, key, NUM_EPISODES)))(tasks, keys)
    )


def learn_probes(
    learn: Callable[[Episode, Key], tuple[Array, ...]], titles: Iterable[str]
) -> dict[str, tuple[Any, ...]]:
    """By probe, the random episodes of it and what `learn(episodes, key)` makes of them."""
    titles = list(titles)
    which = np.array([list(PROBES).index(title) for title in titles])
    episodes = tree_index(played_at_random(), which)
    results = side_by_side(learn, episodes)
    return {title: (tree_index(episodes, index), *results[index]) for index, title in enumerate(titles)}


def random_episodes(env: Environment, task: PyTree, key: Key, number: int) -> Episode:
    """Uniformly random play, which is all that an off-policy learner needs."""
    policy = UniformPolicy(env.spec.action_space)
    return poisoned(play(env, jax.tree.map(lambda leaf: leaf[None], task), policy, key, number))


def poisoned(episodes: Episode) -> Episode:
    """The same episodes with padding that nobody may look at."""
    seen = jnp.where(episodes.mask[..., None, None], episodes.obs[:, 1:], POISON)
    return eqx.tree_at(lambda e: e.obs, episodes, jnp.concatenate([episodes.obs[:, :1], seen], axis=1))


def learn_offline(
    algorithm: Learner, spec: EnvSpec, episodes: Episode, key: Key, updates: int, batch_size: int = 16
) -> Any:
    """The learner after many updates from the same episodes."""
    number = episodes.reward.shape[0]

    def learn(state: Any, key: Key) -> tuple[Any, None]:
        key_sample, key_update = jax.random.split(key)
        batch = tree_index(episodes, random_index(key_sample, (batch_size,), number))
        return algorithm.update(spec, state, batch, Elapsed.end(), key_update)[0], None

    key_init, key_learn = jax.random.split(key)
    return jax.lax.scan(learn, algorithm.init(spec, key_init), jax.random.split(key_learn, updates))[0]


def worst(
    task: TabularTask, episodes: Episode, values: np.ndarray, ratings: np.ndarray, rated: str = "action"
) -> tuple[float, float]:
    """Largest error of a value, and largest loss by the joint action that is rated highest, over what happened.

    Values are of the joint action that was played, or of the state.
    """
    known = best_values(task)
    states = [states_along(task, obs[0], action) for obs, action in zip(episodes.obs, episodes.action, strict=True)]
    errors, regrets = [], []
    for index, time in np.argwhere(episodes.mask):
        best = known[states[index][time]]
        true = best[tuple(episodes.action[index, time])] if rated == "action" else best.max()
        errors.append(np.abs(values[index, time] - true).max())
        regrets.append(best.max() - best[tuple(ratings[index, time].argmax(axis=-1))])
    return max(errors), max(regrets)
