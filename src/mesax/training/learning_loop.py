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

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from mesax.algorithms.base import EPISODE_ERROR, Learner
from mesax.envs.base import AnyEnvironment, Environment, HostEnvironment
from mesax.errors import UsageError
from mesax.policy import Policy, Relabeled, UniformPolicy
from mesax.replay import Replay
from mesax.rewards.base import Restarts, RewardModel, TaskReward
from mesax.runtime import physical_memory
from mesax.training.behavior import Behavior, LearnerAlone
from mesax.training.loop import LoopState, RoundLog, Start, check_names, returns_of
from mesax.training.rollout import play
from mesax.training.schedule import INIT_STREAM, REWARD_STREAM, Budget, Prioritized, Schedule, round_keys, store_key
from mesax.types import Elapsed, EnvSpec, Episode, Key, Metrics, as_one, blank_episode, tree_index


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
        """`num_rounds` rounds of playing and learning."""

        def body(state: LoopState, _: None) -> tuple[LoopState, RoundLog]:
            return self.round(tasks, explorer, state, key)

        return jax.lax.scan(body, state, None, num_rounds)

    def round(self, tasks: PyTree, explorer: PyTree, state: LoopState, key: Key) -> tuple[LoopState, RoundLog]:
        """One round; on the host somebody else collects, and hands over to `learn`."""
        return self.learn(state, self.collect(tasks, explorer, state, key), key)

    def collect(self, tasks: PyTree, explorer: PyTree, state: LoopState, key: Key) -> Episode:
        """Episodes side by side, by the learner and whoever else plays."""
        key_play = round_keys(key, state.round)[0]
        policy = self.player(state.learner, state.reward, state.round, explorer)
        return play(self._jax_env, tasks, policy, key_play, self.schedule.num_envs)

    def learn(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, RoundLog]:
        """Take a round's episodes in, then update; `key` is the lane's own."""
        elapsed, (_, key_learn) = self.elapsed(state.round), round_keys(key, state.round)
        state, seen, log = self.observe(state, episodes, key)
        state, metrics = self.update(state, seen, elapsed, key_learn)
        return state, RoundLog(log.metrics | metrics, log.episodes)

    def observe(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, Episode, RoundLog]:
        """(state with the episodes in it, the episodes as the learner sees them, log)."""
        key_store = store_key(key, state.round)
        reward, seen = self.reward_model.observe(self.env.spec, state.reward, episodes, key_store)
        learner = self.algorithm.observe(self.learner_spec, state.learner, seen)
        replay = None if state.replay is None else self._added(state.replay, seen)
        log = RoundLog(returns_of(episodes, seen), episodes if self.keep_episodes else None)
        return LoopState(learner, replay, reward, state.round + 1), seen, log

    def store(self, state: LoopState, episodes: Episode, key: Key) -> tuple[LoopState, RoundLog]:
        """The same without learning: of the warm-up."""
        state, _, log = self.observe(state, episodes, key)
        return state, log

    def update(self, state: LoopState, seen: Episode, elapsed: Elapsed, key: Key) -> tuple[LoopState, Metrics]:
        """Learn from replayed episodes, or from those just seen."""
        replay = state.replay
        if replay is None:
            learner, metrics = self.algorithm.update(self.learner_spec, state.learner, seen, elapsed, key)
        elif isinstance(self.schedule, Prioritized):
            learner, replay, metrics = self._prioritized_updates(state.learner, replay, elapsed, key)
        else:
            learner, metrics = self._replayed_updates(state.learner, replay, elapsed, key)
        check_names(f"{type(self.algorithm).__name__}.update", metrics)
        return LoopState(learner, replay, state.reward, state.round), metrics

    def _replayed_updates(self, learner: PyTree, replay: Replay, elapsed: Elapsed, key: Key) -> tuple[PyTree, Metrics]:
        schedule = self.schedule
        assert isinstance(schedule, Schedule)

        def update(learner: PyTree, key: Key) -> tuple[PyTree, Metrics]:
            key_sample, key_update = jax.random.split(key)
            batch = replay.sample(key_sample, schedule.batch_size)
            return self.algorithm.update(self.learner_spec, learner, batch, elapsed, key_update)

        learner, metrics = jax.lax.scan(update, learner, jax.random.split(key, schedule.updates_per_round))
        return learner, jax.tree.map(jnp.mean, metrics)

    def _prioritized_updates(
        self, learner: PyTree, replay: Replay, elapsed: Elapsed, key: Key
    ) -> tuple[PyTree, Replay, Metrics]:
        """The same from a replay whose priorities every update renews."""
        schedule = self.schedule
        assert isinstance(schedule, Prioritized)

        def update(
            carry: tuple[PyTree, Float[Array, " capacity"] | None], key: Key
        ) -> tuple[tuple[PyTree, Float[Array, " capacity"] | None], Metrics]:
            learner, priority = carry
            rated = Replay(replay.episodes, replay.added, priority)
            key_sample, key_update = jax.random.split(key)
            batch, slots = rated.sample_by_priority(key_sample, schedule.batch_size, schedule.exponent)
            learner, metrics = self.algorithm.update(self.learner_spec, learner, batch, elapsed, key_update)
            if EPISODE_ERROR not in metrics:
                raise UsageError(
                    f"a Prioritized schedule asks how wrong a learner is about an episode, and"
                    f" {type(self.algorithm).__name__} does not say: use a Schedule"
                )
            return (learner, rated.rated(slots, metrics[EPISODE_ERROR]).priority), metrics

        keys = jax.random.split(key, schedule.updates_per_round)
        (learner, priority), metrics = jax.lax.scan(update, (learner, replay.priority), keys)
        return learner, Replay(replay.episodes, replay.added, priority), jax.tree.map(jnp.mean, metrics)

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
