"""The host path: the same episodes and the same learning as the JAX path, early ends, faults that lose nothing."""

import atexit
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
import pytest

from hosted import Hosted, HostedBatch
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.envs.base import Guarded, HostEnvironment, HostStep
from mesax.envs.host import EnvironmentFault, repeating
from mesax.mesa.mixing import ExploreOrExploit, Mixing
from mesax.nets import Mlp
from mesax.policy import EXPLORER, UniformPolicy
from mesax.training import host_rollout
from mesax.training.driver import BrokenEnvironmentError, learn, play_episodes
from mesax.training.host_rollout import MOST_BATCHES, MOST_OPEN, RunningCopies, as_lane, play_on_host, running
from mesax.training.loop import LearningLoop, Start
from mesax.training.schedule import Budget, Schedule
from mesax.types import Discrete, Linear, tree_index
from probes import PROBES, ContinuousGame, ContinuousTask, TabularGame, Walk, WalkTask

PROBE_TASKS = [PROBES[name].task for name in ("early termination", "delayed reward", "truncation only")]
TABULAR = jax.tree.map(lambda *leaves: np.stack(leaves), *PROBE_TASKS)
WALKS = WalkTask(np.array([0.5, 1.5, 9.0], np.float32))
GAMES = {
    "tabular": (TabularGame(), TABULAR),
    "walk": (Walk(), WALKS),
    "continuous": (ContinuousGame(), ContinuousTask(np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 2, 2, 1))),
}


@pytest.fixture(autouse=True)
def fresh_copies() -> Iterator[None]:
    """Copies that break or cut episodes are equal to those that do not: no test may find another's open."""
    running.close()
    yield
    running.close()


@pytest.mark.parametrize("name", GAMES)
def test_the_host_path_plays_the_same_episodes(name: str):
    """Tasks drawn, actions, observations, rewards, masks: whatever happened is the same; padding is silent."""
    env, tasks = GAMES[name]
    actions, half = env.spec.action_space, jax.device_put(np.float32(0.5))
    policy = ExploreOrExploit(UniformPolicy(actions), UniformPolicy(actions, EXPLORER), half)
    key = jax.random.key(3)
    expected = play_episodes(env, tasks, policy, key, 40)
    found = play_episodes(Hosted(env), tasks, policy, key, 40)
    np.testing.assert_array_equal(found.mask, expected.mask)
    np.testing.assert_array_equal(found.label.actor, expected.label.actor)
    happened = expected.mask
    for part in ("action", "reward", "terminated"):
        np.testing.assert_allclose(getattr(found, part)[happened], getattr(expected, part)[happened], atol=1e-6)
        assert getattr(found, part).dtype == getattr(expected, part).dtype
    np.testing.assert_allclose(found.obs[:, 1:][happened], expected.obs[:, 1:][happened], atol=1e-6)
    np.testing.assert_array_equal(found.obs[:, 0], expected.obs[:, 0])
    assert not np.any(found.reward[~happened]) and not np.any(found.obs == 77.0)
    assert found.action.dtype == (np.int32 if isinstance(env.spec.action_space, Discrete) else np.float32)


def test_lanes_share_a_batch_and_do_not_mix():
    """Each lane equals itself alone: its own tasks, policy and key."""
    env = Hosted(Walk())
    tasks = WalkTask(np.array([[0.5, 9.0, 9.0], [1.5, 1.5, 1.5]], np.float32))
    keys = jax.random.split(jax.random.key(1), 2)
    policy = UniformPolicy(env.spec.action_space)
    both = play_on_host(env, tasks, policy, keys, 40)
    assert both.reward.shape == (2, 40, 6)
    for lane in (0, 1):
        alone = play_on_host(env, as_lane(tree_index(tasks, lane)), policy, keys[lane][None], 40)
        jax.tree.map(np.testing.assert_array_equal, tree_index(both, lane), tree_index(alone, 0))


def test_every_episode_has_a_seed_of_its_own_and_keys_decide_it():
    env = Hosted(Walk(), truncate_at=6)
    policy = UniformPolicy(env.spec.action_space)
    for seed in (0, 0, 1):
        play_episodes(env, WALKS, policy, jax.random.key(seed), 40)
    first, again, other = running.batch(env, 40, 1).resets[-3:]
    assert len(set(first.tolist())) == 40
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


@pytest.mark.parametrize(("most_asked", "asked"), [(80, (2, 40)), (79, (2, 14))])
def test_more_episodes_than_copies_are_played_part_by_part(
    most_asked: int, asked: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    """They are the same episodes, no batch has too many copies, and policies are asked about all unless those are many.

    What a policy is asked about has a shape that its net's last digits may depend on.
    """
    env = Hosted(Walk())
    policy = UniformPolicy(env.spec.action_space)
    tasks = WalkTask(np.array([[0.5, 9.0, 9.0], [1.5, 1.5, 1.5]], np.float32))
    keys = jax.random.split(jax.random.key(1), 2)
    at_once = play_on_host(env, tasks, policy, keys, 40)
    running.close()
    opened: list[int] = []
    shapes: set[tuple[int, ...]] = set()
    answer = host_rollout._act

    def watched(policy: Any, memory: Any, obs: Any, *rest: Any) -> Any:
        shapes.add(obs.shape[:2])
        return answer(policy, memory, obs, *rest)

    monkeypatch.setattr(host_rollout, "_act", watched)
    monkeypatch.setattr(Hosted, "batch", lambda env, copies, _: opened.append(copies) or HostedBatch(env, copies))
    monkeypatch.setattr(host_rollout, "MOST_COPIES", 30)
    monkeypatch.setattr(host_rollout, "MOST_ASKED", most_asked)
    in_parts = play_on_host(env, tasks, policy, keys, 40)
    assert opened == [28], "three parts of fourteen episodes in each of two lanes, by the same copies"
    assert shapes == {asked}
    jax.tree.map(np.testing.assert_array_equal, in_parts, at_once)


@dataclass(frozen=True)
class Told(Hosted):
    """Its batches say when they are closed, and then fail."""

    name: str = ""
    closed: list[str] = field(default_factory=list, compare=False)

    def batch(self, copies: int, threads: int) -> HostedBatch:
        return ToldBatch(self, copies)


class ToldBatch(HostedBatch):
    def close(self) -> None:
        assert isinstance(self.hosted, Told)
        self.hosted.closed.append(f"{self.hosted.name}{self.copies}")
        raise RuntimeError("cannot be closed")


def test_copies_are_closed_when_there_are_too_many_and_at_the_end(monkeypatch: pytest.MonkeyPatch):
    """Those not used for longest, by the number of batches and of copies; one that cannot be closed costs nothing."""
    at_the_end: list[Any] = []
    monkeypatch.setattr(atexit, "register", at_the_end.append)
    copies, closed = RunningCopies(), []
    a, b = (Told(Walk(), name=name, closed=closed) for name in "ab")
    for number in range(MOST_BATCHES):
        copies.batch(a, number + 1, 1)
    assert copies.batch(a, 1, 1) is copies.batch(a, 1, 1)
    copies.batch(b, 1, 1)
    assert closed == ["a2"]
    copies.batch(b, MOST_OPEN - 10, 1)
    assert closed == ["a2", "a3", "a4", "a5", "a6", "a7"], "a8 and one each of a and b may stay"
    copies.batch(b, MOST_OPEN + 1, 1)
    assert closed[6:] == ["a8", "a1", "b1", f"b{MOST_OPEN - 10}"]
    (close,) = at_the_end
    close()
    assert closed[10:] == [f"b{MOST_OPEN + 1}"]


def test_an_episode_cut_short_is_masked_and_not_terminated():
    env, far = Hosted(Walk(), truncate_at=3), WalkTask(np.full(3, 9.0, np.float32))
    cut = play_episodes(env, far, UniformPolicy(env.spec.action_space), jax.random.key(0), 40)
    np.testing.assert_array_equal(cut.mask, [[True] * 3 + [False] * 3] * 40)
    assert not cut.terminated.any()
    assert np.all(np.abs(cut.obs[:, 3]).sum(axis=(1, 2)) > 0), "the observation to bootstrap from is there"
    assert not cut.obs[:, 4:].any() and not cut.reward[:, 3:].any()


SCHEDULE = Schedule(96, 4, 2, warmup_steps=24, updates_per_round=2, batch_size=4, replay_capacity=32)
MADDPG = Maddpg(Mlp(()), Mlp(()), exploration=Linear(0.3, 0.1, 1.0))
LANES = WalkTask(np.array([[0.5, 9.0], [1.5, 9.0]], np.float32))
KEYS = jax.random.split(jax.random.key(5), 2)
ON_POLICY = LearningLoop(Guarded(Walk()), Mappo(Mlp(()), Mlp(()), epochs=2, minibatches=2), Budget(96, 4, 2))
LOOP = LearningLoop(Walk(), MADDPG, SCHEDULE, Mixing(Linear(0.7, 0.3, 1.0)), keep_episodes=True)
EXPLORING = Start(explorer=UniformPolicy(Walk().spec.action_space, EXPLORER))
LOOPS = {"off-policy, with an explorer": (LOOP, EXPLORING), "on-policy, alone": (ON_POLICY, Start())}
"""Alone and off-policy, `mesa/test_mesa_on_host.py` compares every row of whole stages."""


@pytest.mark.parametrize("name", LOOPS)
def test_the_host_path_learns_the_same(name: str):
    """Chunk by chunk: steps, metrics, evaluation, learner; on programs cut differently, so to rounding."""
    loop, start = LOOPS[name]
    ours = learn(replace(loop, env=Hosted(loop.env)), LANES, KEYS, start=start, eval_episodes=3)
    theirs = learn(loop, LANES, KEYS, start=start, eval_episodes=3)
    for found, expected in zip(ours, theirs, strict=True):
        assert found.step == expected.step
        assert found.metrics.keys() == expected.metrics.keys()
        for metric, values in expected.metrics.items():
            np.testing.assert_allclose(found.metrics[metric], values, rtol=1e-3, atol=1e-4, err_msg=metric)
        np.testing.assert_allclose(found.rewards, expected.rewards, rtol=1e-3, atol=1e-4)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3), found.learner, expected.learner
        )
        if found.episodes is not None:
            assert found.episodes.reward.shape == expected.episodes.reward.shape
            np.testing.assert_array_equal(found.episodes.label.actor, expected.episodes.label.actor)


def test_evaluation_may_have_longer_episodes():
    loop = replace(LOOP, env=Hosted(Walk()))
    chunk = next(iter(learn(loop, LANES, KEYS, start=EXPLORING, eval_episodes=2, eval_env=Hosted(Walk(horizon=9)))))
    assert chunk.rewards.shape == (2, 9)


def test_cut_episodes_are_counted():
    loop = replace(LOOP, env=Hosted(Walk(), truncate_at=2))
    far = WalkTask(np.full((2, 2), 99.0, np.float32))
    chunks = list(learn(loop, far, KEYS, start=EXPLORING, eval_episodes=3))
    assert [chunk.metrics["cut_short"].tolist() for chunk in chunks] == [[1.0, 1.0]] * len(chunks)


def test_a_broken_environment_keeps_what_was_learnt():
    """The fault arrives in the second chunk; the first chunk's learner travels with the error."""
    loop = replace(LOOP, env=Hosted(Walk(), break_at=30))
    chunks = learn(loop, LANES, KEYS, start=EXPLORING, eval_episodes=3)
    good = [next(chunks), next(chunks)]
    with pytest.raises(BrokenEnvironmentError, match="broken on purpose at step 30") as caught:
        list(chunks)
    jax.tree.map(np.testing.assert_array_equal, caught.value.last_good, good[-1].learner)


def test_a_broken_warm_up_is_a_plain_fault():
    loop = replace(LOOP, env=Hosted(Walk(), break_at=2))
    with pytest.raises(EnvironmentFault, match="step 2"):
        list(learn(loop, LANES, KEYS, start=EXPLORING))


class Spoiled(HostedBatch):
    """Gives something else than a step of all copies, from its second step on; or at the reset."""

    def __init__(self, spoil: Callable[[HostStep], object] | None, first: Callable[[np.ndarray], object] | None):
        super().__init__(Hosted(Walk()), 4)
        self.spoil, self.first = spoil, first

    def reset(self, tasks, seeds):
        obs = super().reset(tasks, seeds)
        return obs if self.first is None else self.first(obs)

    def step(self, actions, alive):
        outcome = super().step(actions, alive)
        return outcome if self.spoil is None or self.time < 2 else self.spoil(outcome)


@dataclass(frozen=True)
class OfSpoiled:
    """An environment of such copies."""

    spoil: Callable[[HostStep], object] | None
    first: Callable[[np.ndarray], object] | None = None

    @property
    def spec(self):
        return Walk().spec

    def batch(self, copies, threads):
        return Spoiled(self.spoil, self.first)


def spoiled(array: np.ndarray) -> np.ndarray:
    """With a NaN in its third row."""
    array = array.copy()
    array[2] = np.nan
    return array


NOT_A_STEP = {
    "fewer agents": (
        lambda step: step._replace(obs=step.obs[:, :1]),
        r"observations of step 2 are float32\(4, 1, \d\), n",
    ),
    "rewards by agent": (
        lambda step: step._replace(reward=step.obs[..., 0]),
        r"rewards of step 2 are float32\(4, 2\), not",
    ),
    "text": (lambda step: step._replace(reward=np.full(4, "1")), r"rewards of step 2 are <U1\(4,\), not float32\(4,\)"),
    "a list": (lambda step: step._replace(reward=[0.0] * 4), "rewards of step 2 are a list, not float32"),
    "flags as numbers": (
        lambda step: step._replace(truncated=np.zeros(4, int)),
        r"truncated of step 2 are int64\(4,\), not",
    ),
    "one flag": (lambda step: step._replace(terminated=np.bool_(True)), "terminated of step 2 are a bool"),
    "five values": (lambda step: (*step, {}), "step 2 gives a tuple without obs, reward, terminated, truncated"),
    "no number": (
        lambda step: step._replace(obs=spoiled(step.obs)),
        "observations of step 2 are not finite: nan in copy 2",
    ),
    "no reward": (
        lambda step: step._replace(reward=spoiled(step.reward)),
        "rewards of step 2 are not finite: nan in copy 2",
    ),
    "too large a reward": (
        lambda step: step._replace(reward=np.array([0.0, 1e39, 0.0, 0.0])),
        r"rewards of step 2 are not finite in float32: 1e\+39 in copy 1",
    ),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", NOT_A_STEP)
def test_what_is_no_step_is_a_fault(name: str):
    spoil, message = NOT_A_STEP[name]
    far = WalkTask(np.full(3, 99.0, np.float32))
    with pytest.raises(EnvironmentFault, match=message):
        play_episodes(OfSpoiled(spoil), far, UniformPolicy(Walk().spec.action_space), jax.random.key(0), 4)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_start_is_a_fault():
    policy, key = UniformPolicy(Walk().spec.action_space), jax.random.key(0)
    with pytest.raises(EnvironmentFault, match="first observations are not finite: nan in copy 2"):
        play_episodes(OfSpoiled(None, spoiled), WALKS, policy, key, 4)
    with pytest.raises(EnvironmentFault, match=r"first observations are float32\(4, 2\), not float32\(4, 2, "):
        play_episodes(OfSpoiled(None, lambda obs: obs[..., 0]), WALKS, policy, key, 4)


def test_rows_of_copies_that_are_over_mean_nothing():
    """Not even if they are no numbers."""

    def after_the_end(step: HostStep) -> HostStep:
        return step._replace(obs=spoiled(step.obs), reward=spoiled(step.reward))

    class Over(Spoiled):
        def step(self, actions, alive):
            outcome = HostedBatch.step(self, actions, alive)
            if self.time == 1:
                return outcome._replace(terminated=np.arange(4) == 2)
            return after_the_end(outcome)

    @dataclass(frozen=True)
    class OfOver(OfSpoiled):
        def batch(self, copies, threads):
            return Over(None, None)

    far = WalkTask(np.full(3, 99.0, np.float32))
    played = play_episodes(OfOver(None), far, UniformPolicy(Walk().spec.action_space), jax.random.key(0), 4)
    assert np.isfinite(played.obs).all() and played.mask.sum(axis=1).tolist() == [6, 6, 1, 6]


def test_actions_are_repeated_until_the_end():
    """Two steps a decision: rewards add up, and an episode that ends within a decision is not stepped on."""
    env = repeating(Hosted(Walk()), 2)
    assert isinstance(env, HostEnvironment) and env.spec.horizon == 3
    policy, key = UniformPolicy(env.spec.action_space), jax.random.key(2)
    expected = play_episodes(repeating(Walk(), 2), WALKS, policy, key, 30)
    found = play_episodes(env, WALKS, policy, key, 30)
    np.testing.assert_array_equal(found.mask, expected.mask)
    np.testing.assert_allclose(found.reward, expected.reward, atol=1e-5)
    happened = np.asarray(expected.mask)
    np.testing.assert_allclose(found.obs[:, 1:][happened], np.asarray(expected.obs)[:, 1:][happened], atol=1e-5)
