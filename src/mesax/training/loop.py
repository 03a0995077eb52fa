"""The loop of every learner, which `driver` runs: written for one lane, as pure functions.

    warm_up   rounds of uniformly random episodes into the replay (off-policy learners only)
    advance   rounds, one after another

    round     collect   `num_envs` episodes by `behavior(...)`
              observe   they are relabeled by the reward model, seen by the learner, and put into the replay
              update    off-policy: `updates_per_round` times from replayed episodes
                        on-policy:  once from the episodes just played, which are then forgotten

MESA touches this loop in three places, each a value: who behaves, which reward, who else reads the collected data.
Round r draws its randomness from `fold_in(key, r)`, so how a run is cut into chunks cannot change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from mesax.algorithms.base import EPISODE_ERROR, Learner
from mesax.envs.base import AnyEnvironment, Environment, HostEnvironment
from mesax.errors import UsageError
from mesax.policy import LEARNER, Policy, Relabeled, UniformPolicy
from mesax.replay import Replay
from mesax.rewards.base import Restarts, RewardModel, TaskReward
from mesax.runtime import physical_memory
from mesax.store.reading import COLUMNS
from mesax.training.behavior import Behavior, LearnerAlone
from mesax.training.rollout import play
from mesax.training.schedule import INIT_STREAM, REWARD_STREAM, Budget, Prioritized, Schedule, round_keys, store_key
from mesax.types import AnyArray, Elapsed, EnvSpec, Episode, Key, Metrics, as_one, blank_episode, tree_index


class Start(eqx.Module):
    """What meta-training hands to a test task; every part is optional."""

    explorer: PyTree = None
    """A policy that may play some episodes (MESA's explorers)."""
    learner: PyTree = None
    """A learner state to begin with instead of a fresh one, the same for all lanes."""
    episodes: Episode | None = None
    """Episodes `[lanes, episodes, ...]` that are in the replay before the first round."""


class LoopState(eqx.Module):
    """Everything that a round changes."""

    learner: PyTree
    replay: Replay | None
    """None for a learner that has none."""
    reward: PyTree
    round: Int[Array, "*lanes"]


class RoundLog(eqx.Module):
    """What a round leaves behind: metrics, and the episodes as played (with the task's own reward)."""

    metrics: Metrics
    episodes: Episode | None


OF_A_ROW = (*COLUMNS, "policy", "rewards")
OF_A_ROUND = ("train_return", "learnt_return", "intrinsic_return", "cut_short", "explorer_share", "explorer_return")
OF_VARIANTS = ("uniform_variant_return", "best_variant_return")


def check_names(learner: str, metrics: Iterable[str]) -> None:
    """Refuse metrics of a learner that would take the place of columns that rows have of their own."""
    taken = [name for name in metrics if name in (*OF_A_ROW, *OF_A_ROUND, *OF_VARIANTS)]
    if taken:
        raise UsageError(f"{learner} gives a metric the name {taken[0]!r}, which rows have already: choose another")


def returns_of(played: Episode, learned_from: Episode) -> Metrics:
    """What a round's episodes returned, in the task's reward and in the one that is learned from.

    `cut_short` is the share of episodes that the environment itself broke off.
    """
    explored = played.label.actor != LEARNER
    paid = learned_from.reward if learned_from.bonus is None else learned_from.reward + learned_from.bonus
    cut_short = ~played.mask[:, -1] & ~jnp.any(played.terminated & played.mask, axis=1)
    returns = jnp.sum(played.reward, axis=1)
    return {
        "train_return": jnp.mean(returns),
        "learnt_return": jnp.mean(jnp.sum(paid, axis=1)),
        "cut_short": jnp.mean(cut_short.astype(jnp.float32)),
        "explorer_share": jnp.mean(explored.astype(jnp.float32)),
        "explorer_return": jnp.mean(jnp.where(explored, returns, 0.0)),
    }


def mean_over_rounds(metrics: Metrics) -> Metrics:
    """Means over stacked rounds; the explorers' return becomes a mean over *their* episodes."""
    if not metrics:
        return {}
    means = jax.tree.map(jnp.mean, metrics)
    share = means["explorer_share"]
    return means | {"explorer_return": means["explorer_return"] / jnp.where(share > 0, share, 1.0)}


@dataclass(frozen=True)
class LearnerPrior:
    """Draws what an episode is labeled with that a learner has not played itself."""

    algorithm: Learner
    spec: EnvSpec

    def __call__(self, key: Key) -> Float[Array, " latent"]:
        """One draw."""
        return self.algorithm.latent(self.spec, key)


@dataclass(frozen=True)
class LearningLoop:
    """One learner on one environment with one schedule; hashable, so it names its compiled program."""

    env: AnyEnvironment
    algorithm: Learner
    schedule: Budget
    """A `Schedule` for a learner that needs replay, else a plain `Budget`."""
    behavior: Behavior = LearnerAlone()
    reward_model: RewardModel = TaskReward()
    keep_episodes: bool = False
    """Hand the collected episodes back to the host."""

    def __post_init__(self) -> None:
        """Refuse a learner that cannot go with its schedule, rounds or partners."""
        learner = type(self.algorithm).__name__
        replays = isinstance(self.schedule, Schedule)
        if self.algorithm.needs_replay and not replays:
            raise UsageError(f"{learner} learns from replay: its schedule is a Schedule, not a Budget")
        if replays and not self.algorithm.needs_replay:
            raise UsageError(f"{learner} learns on-policy and has no replay: its schedule is a Budget")
        if not replays and self.behavior != LearnerAlone():
            raise UsageError(
                "an on-policy learner cannot learn from another's episodes: choose an off-policy learner (--learner),"
                " or run it alone"
            )
        if replays and isinstance(self.reward_model, Restarts) and self.reward_model.restarts:
            raise UsageError(
                f"{type(self.reward_model).__name__} goes on at a fresh start where the task ends, which learners from"
                f" replay, such as {learner}, may value with an old memory: choose an on-policy learner, such as Mappo"
            )
        self.check_lanes(1)
        self.algorithm.check(self.learner_spec, self.schedule.num_envs)

    def check_lanes(self, lanes: int) -> None:
        """Refuse replays that this machine cannot hold: observations of all agents are nearly all of them."""
        if not isinstance(self.schedule, Schedule):
            return
        spec, there, capacity = self.learner_spec, physical_memory(), self.schedule.replay_capacity
        needed = 4 * lanes * capacity * (spec.horizon + 1) * spec.num_agents * spec.obs_size
        if there is not None and needed > there:
            several = lanes > 1
            raise UsageError(
                f"a replay of {capacity:,} episodes of {spec.num_agents} agents"
                f"{f' in each of {lanes} lanes' if several else ''} takes {needed / 2**30:,.1f} GiB, more than this"
                f" machine's {there / 2**30:,.1f} GiB: choose a smaller replay-capacity{' or fewer lanes' * several}"
            )

    @property
    def learner_spec(self) -> EnvSpec:
        """Sizes as the learner sees them."""
        return self.reward_model.learner_spec(self.env.spec)

    @property
    def prior(self) -> LearnerPrior:
        """Of the latents of episodes that the learner has not played."""
        return LearnerPrior(self.algorithm, self.learner_spec)

    def blank_episode(self, reward: PyTree) -> Episode:
        """An episode of the shapes that players of this loop leave, with nothing in it."""

        def latent(reward: PyTree, key: Key) -> Float[Array, " latent"]:
            learner = self.algorithm.init(self.learner_spec, key)
            policy = self.algorithm.behavior(self.learner_spec, learner, Elapsed.end())
            policy = self.reward_model.equip(self.env.spec, reward, policy)
            return policy.label(policy.start(key)).latent

        return blank_episode(self.env.spec, jax.eval_shape(latent, reward, jax.random.key(0)).size)

    def init(self, start: Start, reward_state: PyTree, key: Key) -> LoopState:
        """Fresh learner and an empty replay, or what there is to start from."""
        spec = self.env.spec
        learner = start.learner
        if learner is None:
            learner = self.algorithm.init(self.learner_spec, jax.random.fold_in(key, INIT_STREAM))
        key_reward = jax.random.fold_in(key, REWARD_STREAM)
        reward_state = self.reward_model.begin(spec, reward_state, key_reward)
        state = LoopState(learner, self._empty_replay(reward_state), reward_state, jnp.zeros((), jnp.int32))
        if start.episodes is None:
            return state
        if state.replay is None:
            raise UsageError("an on-policy learner has no replay that could be filled beforehand")
        reward_state, seen = self.reward_model.observe(spec, reward_state, start.episodes, key_reward)
        learner = self.algorithm.observe(self.learner_spec, learner, seen)
        return LoopState(learner, self._added(state.replay, seen), reward_state, state.round)

    def _added(self, replay: Replay, episodes: Episode) -> Replay:
        schedule = self.schedule
        return replay.add(episodes, schedule.first) if isinstance(schedule, Prioritized) else replay.add(episodes)

    def _empty_replay(self, reward_state: PyTree) -> Replay | None:
        if not isinstance(self.schedule, Schedule):
            return None

        def example(reward_state: PyTree, key: Key) -> Episode:
            episodes = as_one(self.blank_episode(reward_state))
            return tree_index(self.reward_model.observe(self.env.spec, reward_state, episodes, key)[1], 0)

        shape = jax.eval_shape(example, reward_state, jax.random.key(0))
        return Replay.create(shape, self.schedule.replay_capacity, prioritized=isinstance(self.schedule, Prioritized))

    def warm_up(self, tasks: PyTree, state: LoopState, key: Key) -> tuple[LoopState, RoundLog]:
        """Fill the replay with uniformly random episodes; nothing to do for a learner that has none."""
        rounds = self.schedule.warmup_rounds(self.env.spec.horizon)
        if not rounds:
            return state, RoundLog({}, None)

        def body(state: LoopState, _: None) -> tuple[LoopState, RoundLog]:
            key_play = jax.random.fold_in(key, state.round)
            played = play(self._jax_env, tasks, self.warmup_policy(state.reward), key_play, self.schedule.num_envs)
            return self.store(state, played, key)

        return jax.lax.scan(body, state, None, rounds)

    def advance(
        self, tasks: PyTree, explorer: PyTree, state: LoopState, key: Key, num_rounds: int
    ) -> tuple[LoopState, RoundLog]:
        """`num_rounds` rounds of playing and learning; on the host somebody else plays, and hands over to `learn`."""

        def round(state: LoopState, _: None) -> tuple[LoopState, RoundLog]:
            policy = self.player(state.learner, state.reward, state.round, explorer)
            played = play(self._jax_env, tasks, policy, round_keys(key, state.round)[0], self.schedule.num_envs)
            return self.learn(state, played, key)

        return jax.lax.scan(round, state, None, num_rounds)

    def learn(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, RoundLog]:
        """Take a round's episodes in, then update from replayed ones, or from those just seen; `key` is the lane's."""
        elapsed, (_, key_learn) = self.elapsed(state.round), round_keys(key, state.round)
        state, seen, log = self.observe(state, episodes, key)
        replay = state.replay

        def update(learner: PyTree, batch: Episode, key: Key) -> tuple[PyTree, Metrics]:
            learner, metrics = self.algorithm.update(self.learner_spec, learner, batch, elapsed, key)
            if isinstance(self.schedule, Prioritized) and EPISODE_ERROR not in metrics:
                raise UsageError(
                    f"a Prioritized schedule asks how wrong a learner is about an episode, and"
                    f" {type(self.algorithm).__name__} does not say: use a Schedule"
                )
            return learner, metrics

        if replay is None:
            learner, metrics = update(state.learner, seen, key_learn)
        else:
            assert isinstance(self.schedule, Schedule)
            learner, replay, metrics = from_replay(update, self.schedule, state.learner, replay, key_learn)
        check_names(f"{type(self.algorithm).__name__}.update", metrics)
        return LoopState(learner, replay, state.reward, state.round), RoundLog(log.metrics | metrics, log.episodes)

    def store(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, RoundLog]:
        """The same without learning: of the warm-up."""
        state, _, log = self.observe(state, episodes, key)
        return state, log

    def observe(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, Episode, RoundLog]:
        """(state with the episodes in it, the episodes as the learner sees them, log)."""
        key_store = store_key(key, state.round)
        reward, seen = self.reward_model.observe(self.env.spec, state.reward, episodes, key_store)
        learner = self.algorithm.observe(self.learner_spec, state.learner, seen)
        replay = None if state.replay is None else self._added(state.replay, seen)
        log = RoundLog(returns_of(episodes, seen), episodes if self.keep_episodes else None)
        return LoopState(learner, replay, reward, state.round + 1), seen, log

    @property
    def _jax_env(self) -> Environment:
        assert not isinstance(self.env, HostEnvironment), "the host plays these episodes"
        return self.env

    def elapsed(self, number: Int[Array, ""]) -> Elapsed:
        """How far the run has come at round `number`."""
        return self.schedule.elapsed(self.env.spec.horizon, number)

    def warmup_policy(self, reward: PyTree) -> Policy:
        """Who plays the warm-up."""
        uniform = Relabeled(UniformPolicy(self.env.spec.action_space), self.prior)
        return self.reward_model.equip(self.env.spec, reward, uniform)

    def player(self, learner: PyTree, reward: PyTree, number: Int[Array, ""], explorer: PyTree) -> Policy:
        """Who plays round `number`."""
        if explorer is not None and not self.algorithm.needs_replay:
            raise UsageError("an on-policy learner cannot learn from another's episodes")
        elapsed = self.elapsed(number)
        own = self.algorithm.behavior(self.learner_spec, learner, elapsed)
        own = self.reward_model.equip(self.env.spec, reward, own)
        other = None if explorer is None else Relabeled(explorer, self.prior)
        return self.behavior(own, other, elapsed)

    def greedy(self, spec: EnvSpec, learner: PyTree, reward: PyTree) -> Policy:
        """The learned policy as it plays in an environment of these sizes."""
        policy = self.algorithm.greedy(self.reward_model.learner_spec(spec), learner)
        return self.reward_model.equip(spec, reward, policy)

    def variants(self, spec: EnvSpec, learner: PyTree, reward: PyTree) -> Policy | None:
        """Every form that it may take in an episode, stacked; None if there is one only."""
        forms = self.algorithm.variants(self.reward_model.learner_spec(spec), learner)
        return None if forms is None else jax.vmap(lambda form: self.reward_model.equip(spec, reward, form))(forms)


def from_replay(
    learn: Callable[[PyTree, Episode, Key], tuple[PyTree, Metrics]],
    schedule: Schedule,
    learner: PyTree,
    replay: Replay,
    key: Key,
) -> tuple[PyTree, Replay, Metrics]:
    """A round's updates, each of which renews the priorities of what it has learned from, if there are some."""

    def update(
        carry: tuple[PyTree, Float[Array, " capacity"] | None], key: Key
    ) -> tuple[tuple[PyTree, Float[Array, " capacity"] | None], Metrics]:
        learner, priority = carry
        rated = Replay(replay.episodes, replay.added, priority)
        key_sample, key_update = jax.random.split(key)
        if not isinstance(schedule, Prioritized):
            learner, metrics = learn(learner, rated.sample(key_sample, schedule.batch_size), key_update)
            return (learner, priority), metrics
        batch, slots = rated.sample_by_priority(key_sample, schedule.batch_size, schedule.exponent)
        learner, metrics = learn(learner, batch, key_update)
        return (learner, rated.rated(slots, metrics[EPISODE_ERROR]).priority), metrics

    keys = jax.random.split(key, schedule.updates_per_round)
    (learner, priority), metrics = jax.lax.scan(update, (learner, replay.priority), keys)
    return learner, Replay(replay.episodes, replay.added, priority), jax.tree.map(jnp.mean, metrics)


def packed(state: LoopState) -> tuple[LoopState, int]:
    """The state without the part of its replay that was never written, and the episodes that are left of it."""
    replay = state.replay
    if replay is None:
        return state, 0
    filled = min(int(np.max(replay.added)), jax.tree.leaves(replay.episodes)[0].shape[1])
    episodes = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :filled], replay.episodes)
    return _with_replayed(state, episodes), filled


def unpacked(saved: LoopState, like: LoopState) -> LoopState:
    """A state as it was before `packed`: what was never written is zero."""
    if saved.replay is None or like.replay is None:
        return saved

    def whole(part: AnyArray, like: jax.ShapeDtypeStruct) -> jax.Array:
        full = np.zeros(like.shape, like.dtype)
        full[:, : part.shape[1]] = part
        return jax.device_put(full, may_alias=False)

    episodes = jax.tree.map(whole, saved.replay.episodes, like.replay.episodes)
    return _with_replayed(saved, episodes)


def shape_of_packed(like: LoopState, filled: int) -> LoopState:
    """Shapes of what `packed` leaves of a state of shapes `like`."""
    if like.replay is None:
        return like
    short = jax.tree.map(lambda leaf: struct_like((leaf.shape[0], filled, *leaf.shape[2:]), leaf), like.replay.episodes)
    return _with_replayed(like, short)


def _with_replayed(state: LoopState, episodes: Episode) -> LoopState:
    """The state, or its shapes, with other episodes in its replay."""
    changed: LoopState = eqx.tree_at(lambda state: state.replay.episodes, state, episodes)
    return changed


def struct_like(shape: tuple[int, ...], leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """Another shape of the same type."""
    return jax.ShapeDtypeStruct(shape, leaf.dtype)
