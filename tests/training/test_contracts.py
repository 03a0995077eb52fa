"""What the loop promises to learners, reward models and test tasks: labels, starts, observation, what is told."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hosted import Hosted
from mesax.algorithms.base import OffPolicy, OnPolicy
from mesax.baselines.controls import Plain
from mesax.baselines.counts import CountReward, ProjectedKeys
from mesax.errors import Preempted, UsageError
from mesax.execution.saved_policies import learned_policy
from mesax.mesa.mixing import Mixing
from mesax.methods.adapt import adapt_stage
from mesax.methods.base import Experiment
from mesax.policy import EXPLORER, LEARNER, UniformPolicy
from mesax.rewards.base import TaskReward
from mesax.store.run_directory import RunDirectory
from mesax.store.trees import load_tree, open_tree, save_tree
from mesax.training.driver import learn, play_episodes
from mesax.training.loop import LearningLoop, Start, packed, unpacked
from mesax.training.rollout import play
from mesax.training.schedule import Budget, Prioritized, Schedule
from mesax.types import Elapsed, Label, Linear, leading_size, tree_index, tree_stack
from methods.helpers import TWO_STAGE, MemoryServices, Preferences

ENV = TWO_STAGE.env
TASK = jax.device_get(TWO_STAGE.split(0, 1, 1).train)
TASKS = tree_stack([TASK] * 2)
KEYS = jax.random.split(jax.random.key(3), 2)
SCHEDULE = Schedule(80, 4, 2, warmup_steps=16, updates_per_round=3, batch_size=4, replay_capacity=64)
WARM_UP, ROUNDS = 2, 8
EXPLORING = Start(explorer=UniformPolicy(ENV.spec.action_space, EXPLORER))


class LatentPolicy(eqx.Module):
    """Draws two positive numbers before the first step."""

    def start(self, key):
        return jax.random.uniform(key, (2,), minval=1.0, maxval=2.0)

    def act(self, memory, obs, key):
        return jax.random.randint(key, (obs.shape[0],), 0, 3), memory

    def label(self, memory):
        return Label(jnp.asarray(LEARNER, jnp.int32), memory)


@dataclass(frozen=True)
class LatentLearner(OffPolicy):
    """Its own latents are positive, those that it gives to others' episodes are negative; it counts what it sees."""

    def init(self, spec, key):
        return {"fresh": jnp.zeros(()), "mine": jnp.zeros(()), "updates": jnp.zeros(()), "elapsed": jnp.zeros(())}

    def latent(self, spec, key):
        return -jax.random.uniform(key, (2,), minval=1.0, maxval=2.0)

    def behavior(self, spec, state, elapsed):
        return LatentPolicy()

    def greedy(self, spec, state):
        return LatentPolicy()

    def observe(self, spec, state, fresh):
        mine = jnp.sum(jnp.all(fresh.label.latent > 0, axis=-1))
        return state | {"fresh": state["fresh"] + len(fresh.reward), "mine": state["mine"] + mine}

    def update(self, spec, state, batch, elapsed, key):
        agree = jnp.mean((batch.label.actor == LEARNER) == jnp.all(batch.label.latent > 0, axis=-1))
        state = state | {"updates": state["updates"] + 1, "elapsed": elapsed.fraction}
        return state, {"agree": agree}


@pytest.mark.parametrize("env", [ENV, Hosted(ENV)], ids=["jax", "host"])
def test_labels_reach_replay_and_updates_whoever_plays(env):
    """Warm-up and explorers' episodes carry the learner's prior; its own carry what it drew."""
    mixing = Mixing(Linear(0.5, 0.5, 1.0))
    loop = LearningLoop(env, LatentLearner(), SCHEDULE, mixing, keep_episodes=True)
    warm_up, *chunks = learn(loop, TASKS, KEYS, start=EXPLORING, eval_episodes=0)
    label = warm_up.episodes.label
    assert label.latent.shape == (2, WARM_UP, 4, 2) and np.all(label.latent < 0) and not label.actor.any()
    played = [chunk.episodes.label for chunk in chunks]
    actor = np.concatenate([label.actor for label in played], axis=1)
    positive = np.concatenate([np.all(label.latent > 0, axis=-1) for label in played], axis=1)
    np.testing.assert_array_equal(actor == LEARNER, positive)
    assert 0 < np.mean(positive) < 1
    last = chunks[-1].learner
    np.testing.assert_array_equal(last["fresh"], 4 * (WARM_UP + ROUNDS))
    np.testing.assert_array_equal(last["mine"], positive.sum(axis=(1, 2)))
    np.testing.assert_array_equal(last["updates"], 3 * ROUNDS)
    np.testing.assert_allclose(last["elapsed"], (ROUNDS - 1) / ROUNDS, rtol=1e-6)


def test_latents_differ_from_episode_to_episode():
    episodes = play_episodes(ENV, TASK, LatentPolicy(), jax.random.key(0), 6)
    assert len(np.unique(episodes.label.latent[:, 0])) == 6


def test_a_learner_without_latents_changes_no_random_number():
    """Explorers and warm-up are wrapped all the same: what they play must not notice."""

    @dataclass(frozen=True)
    class Silent(LatentLearner):
        def latent(self, spec, key):
            return jnp.zeros(0)

        def behavior(self, spec, state, elapsed):
            return UniformPolicy(spec.action_space)

        def observe(self, spec, state, fresh):
            return state

        def update(self, spec, state, batch, elapsed, key):
            return state, {}

    loop = LearningLoop(ENV, Silent(), SCHEDULE, Mixing(Linear(1.0, 1.0, 1.0)), keep_episodes=True)
    _, chunk, *_ = learn(loop, TASKS, KEYS, start=EXPLORING, eval_episodes=0)
    assert np.all(chunk.episodes.label.actor == EXPLORER) and chunk.episodes.label.latent.shape[-1] == 0

    @jax.jit
    def alone(task, key):
        player = loop.player((), (), jnp.asarray(WARM_UP), EXPLORING.explorer)
        return play(ENV, task, player, jax.random.split(jax.random.fold_in(key, WARM_UP))[0], 4).action

    np.testing.assert_array_equal(chunk.episodes.action[0, 0], alone(TASK, KEYS[0]))


@dataclass(frozen=True)
class Told:
    """Shows every agent a number that the environment does not; pays nothing else."""

    secret: float = 2.0

    def learner_spec(self, spec):
        return replace(spec, obs_size=spec.obs_size + 1)

    def begin(self, spec, given, key):
        return jnp.full((), self.secret)

    def equip(self, spec, state, policy):
        return Shown(policy, state)

    def observe(self, spec, state, episodes, key):
        shown = jnp.full((*episodes.obs.shape[:-1], 1), state)
        return state, eqx.tree_at(lambda e: e.obs, episodes, jnp.concatenate([episodes.obs, shown], axis=-1))


class Shown(eqx.Module):
    """A policy that sees the number too."""

    policy: eqx.Module
    number: jax.Array

    def start(self, key):
        return self.policy.start(key)

    def act(self, memory, obs, key):
        return self.policy.act(memory, jnp.concatenate([obs, jnp.full((len(obs), 1), self.number)], axis=1), key)

    def label(self, memory):
        return self.policy.label(memory)


class Obedient(eqx.Module):
    """Plays the last number that it sees."""

    scale: jax.Array

    def start(self, key):
        return ()

    def act(self, memory, obs, key):
        return (self.scale * obs[:, -1]).astype(jnp.int32), memory

    def label(self, memory):
        return Label.of(LEARNER)


@dataclass(frozen=True)
class Follower(OffPolicy):
    """Does what it is told, from the start."""

    def init(self, spec, key):
        return jnp.ones(())

    def behavior(self, spec, state, elapsed):
        return Obedient(state)

    def greedy(self, spec, state):
        return Obedient(state)

    def update(self, spec, state, batch, elapsed, key):
        return state, {"shown": jnp.mean(batch.obs[..., -1])}


def test_what_a_reward_model_tells_reaches_evaluation_and_saved_policies(tmp_path):
    """The special action of every stage of this task is told; without being told, nobody could play it."""
    task = tree_index(jax.device_get(TWO_STAGE.split(0, 1, 3).test), 0)
    secret = float(task.special[0])
    assert secret > 0, "or a policy that is told nothing would look obedient"
    experiment = Experiment(Plain(), TWO_STAGE, Follower(), SCHEDULE, num_train_tasks=1, num_test_tasks=3, lanes=3)
    experiment = replace(experiment, reward_model=Told(secret))
    Plain().check(experiment)
    services = MemoryServices(tmp_path, "policies")
    adapt_stage(experiment).run(0, services)
    first = [row["return"] for row in services.eval if row["task"] == 0]
    told = np.mean([float(number == secret) for number in np.asarray(task.special)])
    assert told > 0 and min(first) >= told, "evaluation is told as well"
    assert services.metrics[-1]["shown"] == secret, "and so is learning"
    # `learned_policy` reads <run>/policies/<name>; the job has written below policies/000.
    run = tmp_path / "run"
    run.mkdir()
    (run / "policies").symlink_to(services.directory)
    policy = learned_policy(RunDirectory(run), experiment, 0)
    one = jax.tree.map(lambda leaf: leaf[None], task)
    episodes = play_episodes(ENV, one, policy, jax.random.key(0), 2)
    assert np.all(episodes.action == secret)


@dataclass(frozen=True)
class Constant(OffPolicy):
    """A learner whose state never changes."""

    def init(self, spec, key):
        return jax.random.normal(key, (2, 3))

    def behavior(self, spec, state, elapsed):
        return Preferences(state)

    def greedy(self, spec, state):
        return Preferences(state)

    def update(self, spec, state, batch, elapsed, key):
        return state, {"replayed": jnp.mean(batch.reward)}


@dataclass(frozen=True)
class Undecided(Constant):
    """Its policy may prefer any one action, at every stage."""

    def variants(self, spec, state):
        return Preferences(jnp.broadcast_to(100.0 * jnp.eye(3)[:, None], (3, *state.shape)))


@jax.jit
def paid_for_each(task) -> jax.Array:
    """What playing one action at every stage earns, `[action, stage]`."""
    stage = jax.vmap(ENV.reward, in_axes=(0, 0, None))
    return jax.vmap(lambda action: stage(task.count, task.special, jnp.full(2, action)))(jnp.arange(3))


@pytest.mark.parametrize("env", [ENV, Hosted(ENV)], ids=["jax", "host"])
def test_every_form_of_a_policy_is_evaluated(env):
    """All play one action at both stages: what each of the three earns is known from the task."""
    first = next(learn(LearningLoop(env, Undecided(), SCHEDULE), TASKS, KEYS, eval_episodes=3))
    expected = np.asarray(paid_for_each(tree_index(TASK, 0)))
    np.testing.assert_allclose(first.variants, [expected, expected])
    assert len(np.unique(expected)) > 1


def test_uniform_and_best_forms_are_logged(tmp_path):
    experiment = Experiment(Plain(), TWO_STAGE, Undecided(), SCHEDULE, num_train_tasks=1, num_test_tasks=2, lanes=2)
    services = MemoryServices(tmp_path, "policies")
    adapt_stage(experiment).run(0, services)
    assert {row["task"] for row in services.metrics} == {0, 1}
    for row in services.metrics:
        task = tree_index(jax.device_get(TWO_STAGE.split(0, 1, 2).test), row["task"])
        returns = np.mean(paid_for_each(task), axis=1)
        assert row["uniform_variant_return"] == pytest.approx(np.mean(returns))
        assert row["best_variant_return"] == pytest.approx(max(returns))


def test_a_test_task_may_start_from_a_learner():
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    fresh = next(learn(LearningLoop(ENV, Constant(), SCHEDULE), TASKS, KEYS, eval_episodes=0))
    *_, last = learn(LearningLoop(ENV, Constant(), SCHEDULE), TASKS, KEYS, start=Start(learner=given), eval_episodes=0)
    np.testing.assert_array_equal(last.learner, [given] * 2)
    assert not np.array_equal(fresh.learner[0], fresh.learner[1]), "fresh lanes have nets of their own"


def test_a_test_task_may_start_from_episodes():
    """They are replayed from the first update on, and belong to one lane each."""
    loop = LearningLoop(ENV, Constant(), SCHEDULE)
    played = play_episodes(ENV, TASK, UniformPolicy(ENV.spec.action_space, 5), KEYS[0], 40)
    lanes = tree_stack(
        [eqx.tree_at(lambda e: e.reward, played, np.full_like(played.reward, pay)) for pay in (100.0, -100.0)]
    )
    start = Start(episodes=lanes)
    state = jax.eval_shape(lambda key: loop.init(Start(episodes=tree_index(lanes, 0)), (), key), KEYS[0])
    assert state.replay.episodes.reward.shape == (64, 2)
    _, first, *_ = learn(loop, TASKS, KEYS, start=start, eval_episodes=0)
    assert first.metrics["replayed"][0] > 30 and first.metrics["replayed"][1] < -30


@dataclass(frozen=True)
class Sure(Constant):
    """Says how wrong it is about an episode: by what that paid, and a little."""

    def update(self, spec, state, batch, elapsed, key):
        return state, {"episode_error": jnp.sum(batch.reward, axis=1) + 0.25}


def test_priorities_are_what_the_learner_last_said():
    schedule = Prioritized(
        80, 4, 2, warmup_steps=16, updates_per_round=30, batch_size=8, replay_capacity=32, first=50.0
    )
    loop = LearningLoop(ENV, Sure(), schedule)

    @jax.jit
    def run(task, key):
        state, _ = loop.warm_up(task, loop.init(Start(), (), key), key)
        return state, *loop.advance(task, None, state, key, 2)

    before, after, log = jax.device_get(run(TASK, KEYS[0]))
    np.testing.assert_array_equal(before.replay.priority, np.where(np.arange(32) < 8, 50.0, 0.0))
    assert log.metrics["episode_error"].shape == (2,)
    said = np.asarray(after.replay.episodes.reward).sum(axis=1) + 0.25
    np.testing.assert_allclose(after.replay.priority[:16], said[:16], rtol=1e-6)  # 480 draws: each was drawn
    np.testing.assert_array_equal(after.replay.priority[16:], 0.0)
    saved, filled = packed(jax.tree.map(lambda leaf: leaf[None], after))
    like = jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[None], after))
    jax.tree.map(np.testing.assert_array_equal, unpacked(saved, like).replay.priority, after.replay.priority[None])
    assert filled == 16


def test_priorities_are_not_made_up():
    schedule = Prioritized(80, 4, 2, warmup_steps=16, updates_per_round=3, batch_size=4, replay_capacity=64)
    loop = LearningLoop(ENV, Constant(), schedule)

    def run(task, key):
        return loop.advance(task, None, loop.init(Start(), (), key), key, 1)

    with pytest.raises(UsageError, match="Constant does not say: use a Schedule"):
        jax.eval_shape(run, TASK, KEYS[0])


@dataclass(frozen=True)
class Fleeting(OnPolicy):
    """An on-policy learner that never changes."""

    init, behavior, greedy, update = Constant.init, Constant.behavior, Constant.greedy, Constant.update


def test_an_on_policy_learner_has_no_replay_to_fill():
    loop = LearningLoop(ENV, Fleeting(), Budget(80, 4, 2))
    episodes = play_episodes(ENV, TASK, UniformPolicy(ENV.spec.action_space), KEYS[0], 6)
    with pytest.raises(UsageError, match="no replay that could be filled"):
        loop.init(Start(episodes=episodes), (), KEYS[0])


@pytest.mark.parametrize(
    "learner, schedule, behavior, message",
    [
        (Fleeting(), SCHEDULE, None, "Fleeting learns on-policy and has no replay: its schedule is a Budget"),
        (Constant(), Budget(80), None, "Constant learns from replay: its schedule is a Schedule"),
        (Fleeting(), Budget(80), Mixing(), "cannot learn from another's episodes"),
    ],
)
def test_a_loop_that_cannot_run_is_refused_when_it_is_made(learner, schedule, behavior, message):
    with pytest.raises(UsageError, match=message):
        LearningLoop(ENV, learner, schedule, *([] if behavior is None else [behavior]))


@dataclass(frozen=True)
class OwnRestarts(TaskReward):
    """A reward model of somebody's own, which may go on where the task ends."""

    restarts: bool


@pytest.mark.parametrize("model", [CountReward(ProjectedKeys()), OwnRestarts(True)])
def test_what_goes_on_at_fresh_starts_is_not_replayed(model):
    LearningLoop(ENV, Fleeting(), Budget(80), reward_model=model)
    message = f"^{type(model).__name__} goes on .* such as Constant, .* an old memory: choose an on-policy learner"
    with pytest.raises(UsageError, match=message):
        LearningLoop(ENV, Constant(), SCHEDULE, reward_model=model)


def test_what_ends_where_the_task_ends_is_replayed():
    LearningLoop(ENV, Constant(), SCHEDULE, reward_model=OwnRestarts(False))


@dataclass(frozen=True)
class Stateless(OffPolicy):
    """Plays at random, and has nothing to remember."""

    def init(self, spec, key):
        return ()

    def behavior(self, spec, state, elapsed):
        return UniformPolicy(spec.action_space)

    def greedy(self, spec, state):
        return UniformPolicy(spec.action_space)

    def update(self, spec, state, batch, elapsed, key):
        return state, {}


class OfAKey(eqx.Module):
    """Plays what its key says."""

    key: jax.Array

    def start(self, key):
        return ()

    def act(self, memory, obs, key):
        return jax.random.randint(self.key, (obs.shape[0],), 0, 3), memory

    def label(self, memory):
        return Label.of(LEARNER)


@dataclass(frozen=True)
class OwnKey(Stateless):
    """Keeps a typed key, which NumPy cannot hold, and draws from it."""

    def init(self, spec, key):
        return {"key": key}

    def greedy(self, spec, state):
        return OfAKey(state["key"])

    def update(self, spec, state, batch, elapsed, key):
        key, drawn = jax.random.split(state["key"])
        return {"key": key}, {"drawn": jax.random.uniform(drawn)}


@pytest.mark.parametrize("env", [ENV, Hosted(ENV)], ids=["jax", "host"])
@pytest.mark.parametrize("learner", [Stateless(), OwnKey()], ids=["nothing", "a key"])
def test_a_state_may_be_nothing_or_a_key(learner, env):
    """What a chunk hands back is still there when the loop has gone on."""
    chunks = list(learn(LearningLoop(env, learner, SCHEDULE), TASKS, KEYS, eval_episodes=2))
    assert [chunk.rewards.shape for chunk in chunks] == [(2, 2)] * 3
    if isinstance(learner, OwnKey):
        states = [jax.random.key_data(chunk.learner["key"]) for chunk in chunks]
        assert not np.array_equal(states[0], states[1]) and not np.array_equal(states[1], states[2])


def test_keys_are_saved_and_continued(tmp_path):
    """In the best policies, and in a loop that is stopped."""
    experiment = Experiment(Plain(), TWO_STAGE, OwnKey(), SCHEDULE, num_train_tasks=1, num_test_tasks=2, lanes=2)
    services = Stopped(tmp_path, "policies")
    with pytest.raises(Preempted):
        adapt_stage(experiment).run(0, services)
    adapt_stage(experiment).run(0, services)
    whole = MemoryServices(tmp_path, "whole")
    adapt_stage(experiment).run(0, whole)
    names = [path.name for path in sorted(whole.directory.iterdir())]
    assert "best-task-00-run-00" in names
    like = OfAKey(jax.random.key(0))
    for name in names:
        left, right = (load_tree(place.directory / name, like) for place in (services, whole))
        np.testing.assert_array_equal(*(jax.random.key_data(policy.key) for policy in (left, right)))


class Stopped(MemoryServices):
    """Is stopped at its second pause, and goes on from there."""

    pauses = 0

    def pause(self, loop):
        self.pauses += 1
        if self.pauses == 2:
            tree, facts = loop()
            save_tree(self.root / "saved", {"loop": tree, "job": self.best}, {"loop": facts})
            raise Preempted

    def keep(self, state):
        self.best = state

    def kept(self, like):
        return open_tree(self.root / "saved").restore(like(), "job") if self.pauses else None

    def left(self):
        return open_tree(self.root / "saved") if self.pauses else None


def test_what_is_stacked_must_hold_an_array():
    with pytest.raises(UsageError, match="must hold an array at least"):
        leading_size(((), {}))


def test_mixing_without_explorers_is_refused():
    with pytest.raises(UsageError, match="no explorers"):
        Mixing()(UniformPolicy(ENV.spec.action_space), None, Elapsed.end())
