"""The driver: what a lane computes depends on its task and key only, steps are counted, and NaN stops a run."""

from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
import pytest

from mesax.algorithms.maddpg import Maddpg
from mesax.compiling import compiled
from mesax.envs.climb import ClimbFamily, ClimbTask
from mesax.errors import TrainingError
from mesax.mesa.mixing import Mixing
from mesax.nets import Mlp
from mesax.policy import EXPLORER, UniformPolicy
from mesax.training.driver import Chunk, NotFiniteError, learn, play_episodes, prepare
from mesax.training.loop import LearningLoop, Start
from mesax.training.rollout import evaluation_key
from mesax.types import Linear, tree_index
from methods.helpers import ONE_STEP, SICK, TINY, TWO_STAGE, IndependentQ, same_bits

LEARNER = IndependentQ()
LOOP = LearningLoop(TWO_STAGE.env, LEARNER, TINY, keep_episodes=True)


def tasks_of(lanes: list[int], family: ClimbFamily = TWO_STAGE) -> ClimbTask:
    tasks = jax.device_get(family.split(0, 3, 0).train)
    return tree_index(tasks, np.array(lanes)[:, None])


keys_of = jax.jit(jax.vmap(lambda lane: jax.random.fold_in(jax.random.key(7), lane)))


def start(loop: LearningLoop, lanes: list[int], **options) -> Iterator[Chunk]:
    """Lane i has task i and key i, wherever it stands."""
    keys = keys_of(np.array(lanes))
    family = ONE_STEP if loop.env == ONE_STEP.env else TWO_STAGE
    return learn(loop, tasks_of(lanes, family), keys, eval_episodes=2, **options)


COMPILED: list[str] = []
"""What has been compiled so far."""
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **facts: COMPILED.append(str(facts.get("fun_name"))) if "backend_compile" in event else None
)


@pytest.fixture(scope="module")
def chunks() -> list[Chunk]:
    """All chunks of a loop whose programs were compiled beforehand."""
    prepare(LOOP, tasks_of([0, 1]), keys_of(np.array([0, 1])), eval_episodes=2)
    before = len(COMPILED)
    done = list(start(LOOP, [0, 1]))
    assert set(COMPILED[before:]) <= {"jit(_means)"}, "nothing is left to compile but means of metrics"
    return done
    return done


def parts(chunk: Chunk, lane: int) -> tuple:
    """All that a chunk says of one lane."""
    return tree_index((chunk.learner, chunk.rewards, chunk.metrics, chunk.episodes), lane)


def test_steps_are_counted(chunks: list[Chunk]):
    assert [chunk.step for chunk in chunks] == [200, 400, 600, 800]
    played = np.cumsum([[np.sum(chunk.episodes.mask[lane]) for lane in (0, 1)] for chunk in chunks], axis=0)
    assert played.tolist() == [[chunk.step] * 2 for chunk in chunks]
    assert TINY.steps(TWO_STAGE.env.spec.horizon) == chunks[-1].step
    rounds = [TINY.warmup_rounds(2), *[TINY.chunks(2)[1]] * 3]
    assert [chunk.episodes.reward.shape for chunk in chunks] == [(2, number, 10, 2) for number in rounds]
    updates = np.cumsum(rounds) - rounds[0]
    assert [chunk.learner["updates"].tolist() for chunk in chunks] == [[2 * number] * 2 for number in updates]


def test_the_first_chunk_is_the_warm_up(chunks: list[Chunk]):
    """Uniformly random, before any update."""
    frequency = np.bincount(np.asarray(chunks[0].episodes.action).reshape(-1), minlength=3) / (400 * 2)
    np.testing.assert_allclose(frequency, 1 / 3, atol=0.06)
    assert "loss" not in chunks[0].metrics
    assert "loss" in chunks[1].metrics
    assert [chunk.compile_seconds > 0 for chunk in chunks][::3] == [True, False]


def test_metrics_are_means_over_the_chunk(chunks: list[Chunk]):
    for chunk in chunks:
        returns = np.asarray(chunk.episodes.reward).sum(axis=-1).mean(axis=(1, 2))
        np.testing.assert_allclose(chunk.metrics["train_return"], returns, rtol=1e-5)
        np.testing.assert_allclose(chunk.metrics["learnt_return"], returns, rtol=1e-5)
        assert chunk.metrics["explorer_share"].tolist() == [0.0, 0.0]


def test_rewards_are_those_of_greedy_episodes(chunks: list[Chunk]):
    chunk = chunks[-1]
    for lane in (0, 1):
        key = evaluation_key(jax.random.fold_in(jax.random.key(7), lane), chunk.step)
        policy = LEARNER.greedy(TWO_STAGE.env.spec, tree_index(chunk.learner, lane))
        episodes = play_episodes(TWO_STAGE.env, tree_index(tasks_of([0, 1]), lane), policy, key, 2)
        np.testing.assert_allclose(chunk.rewards[lane], episodes.reward.mean(axis=0))


def test_the_same_seed_twice_is_identical(chunks: list[Chunk]):
    for first, second in zip(chunks, start(LOOP, [0, 1]), strict=True):
        assert first.step == second.step
        assert all(same_bits(parts(first, lane), parts(second, lane)) for lane in (0, 1))


def test_other_keys_and_tasks_differ(chunks: list[Chunk]):
    assert not same_bits(parts(chunks[0], 0), parts(chunks[0], 1))


def test_earlier_chunks_are_not_overwritten():
    """The state is donated to the next chunk, but what was handed out stays."""
    run = start(LOOP, [0, 1])
    first = next(run)
    before = jax.tree.map(np.copy, first.learner)
    list(run)
    assert same_bits(first.learner, before)


@pytest.mark.parametrize("lanes", [[1, 2], [2, 0], [0, 0]])
def test_neighbors_and_position_change_nothing(chunks: list[Chunk], lanes: list[int]):
    for first, second in zip(chunks, start(LOOP, lanes), strict=True):
        for lane in {0, 1} & set(lanes):
            assert same_bits(parts(first, lane), parts(second, lanes.index(lane)))


def test_neighbors_and_position_change_nothing_for_maddpg():
    """With networks too: at a given width, a lane is a function of its task and key, bit for bit."""
    loop = LearningLoop(ONE_STEP.env, Maddpg(actor_net=Mlp(()), critic_net=Mlp(())), TINY)
    for pair, swapped, same in zip(*(start(loop, lanes) for lanes in ([0, 1], [1, 2], [1, 1])), strict=True):
        assert same_bits(parts(pair, 1), parts(swapped, 0))
        assert same_bits(parts(pair, 1), parts(same, 1))


def test_a_lane_alone_computes_the_same_to_rounding(chunks: list[Chunk]):
    """Programs of different widths may sum in another order; `methods` therefore never changes the width."""
    for first, second in zip(chunks, start(LOOP, [1]), strict=True):
        np.testing.assert_array_equal(first.episodes.action[1], second.episodes.action[0])
        np.testing.assert_allclose(first.learner["weight"][1], second.learner["weight"][0], atol=1e-5)


def test_how_a_run_is_cut_changes_nothing(chunks: list[Chunk]):
    others = list(start(replace(LOOP, schedule=replace(TINY, num_evaluations=1)), [0, 1]))
    assert (len(others), len(chunks)) == (2, 4)
    assert others[-1].step == chunks[-1].step
    assert same_bits(others[-1].learner, chunks[-1].learner)
    np.testing.assert_array_equal(others[-1].rewards, chunks[-1].rewards)
    played, replayed = (np.concatenate([c.episodes.action for c in run], axis=1) for run in (chunks, others))
    np.testing.assert_array_equal(played, replayed)


def test_no_key_is_used_twice(chunks: list[Chunk]):
    """Neither the learner's first key nor what is split from it is the key of a round or of an evaluation."""
    steps, rounds = np.array([chunk.step for chunk in chunks]), np.arange(TINY.rounds(2))

    @jax.jit
    def keys(key: jax.Array, born: jax.Array) -> list[jax.Array]:
        """Those of rounds, of evaluations, and those split from the learner's own."""
        evaluations = jax.vmap(lambda step: evaluation_key(key, step))(steps)
        of_rounds = jax.vmap(lambda number: jax.random.fold_in(key, number))(rounds)
        own = jax.random.split(jax.random.wrap_key_data(born), 4)
        return [jax.random.key_data(some) for some in (of_rounds, evaluations, own)]

    for lane in (0, 1):
        found = keys(keys_of(np.array([lane, lane]))[0], chunks[0].learner["born_from"][lane])
        of_rounds, evaluations, own = ({tuple(row) for row in np.asarray(some).tolist()} for some in found)
        assert (len(of_rounds), len(evaluations), len(own)) == (len(rounds), len(steps), 4)
        assert not (of_rounds | evaluations) & own


def finite(tree) -> bool:
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def sick_run(learner: IndependentQ) -> Iterator[Chunk]:
    """Learners that fall ill; begun as they are, they go on in the program of those who do not."""
    state = jax.jit(lambda key: learner.init(TWO_STAGE.env.spec, key))(jax.random.key(0))
    return start(LOOP, [0, 1], start=Start(learner=state))


def test_a_loss_that_is_not_a_number_stops_the_run():
    """Updates 20 to 39 belong to the second chunk of learning: the learner of the first is the last good one."""
    sick = sick_run(SICK)
    first, second = next(sick), next(sick)
    with pytest.raises(NotFiniteError, match="loss is not finite in lane 0, 1 by step 600") as error:
        next(sick)
    assert isinstance(error.value, TrainingError)
    assert finite((first.learner, error.value.last_good))
    assert same_bits(error.value.last_good, second.learner)


def test_the_last_good_learner_is_finite_even_if_losses_hide_the_trouble():
    """The chunk's last update spoils the weights, after its loss was computed."""
    sick = sick_run(IndependentQ(bad_weights_from=39.0))
    with pytest.raises(NotFiniteError) as error:
        list(sick)
    assert finite(error.value.last_good)
    assert error.value.last_good["updates"].tolist() == [20, 20]


def test_the_explorers_return_is_a_mean_over_their_episodes():
    """Also where they seldom play: rounds without them must not pull it down."""
    loop = replace(LOOP, behavior=Mixing(Linear(0.1, 0.1, 1.0)))
    explorer = UniformPolicy(loop.env.spec.action_space, EXPLORER)
    for chunk in list(start(loop, [0, 1], start=Start(explorer=explorer)))[1:]:
        explored = np.asarray(chunk.episodes.label.actor) == EXPLORER
        assert not explored.any(axis=-1).all(), "some rounds have none"
        returns = np.asarray(chunk.episodes.reward).sum(axis=-1)
        for lane in (0, 1):
            assert chunk.metrics["explorer_share"][lane] == pytest.approx(explored[lane].mean(), rel=1e-5)
            expected = returns[lane][explored[lane]].mean()
            assert chunk.metrics["explorer_return"][lane] == pytest.approx(expected, rel=1e-5)


def test_equal_values_share_a_program():
    """Also when the function is built anew: this is what makes later tasks, seeds and chunks cheap."""
    before = compiled.cache_info()
    tasks = tree_index(tasks_of([0]), 0)
    policy = UniformPolicy(TWO_STAGE.env.spec.action_space)
    for _ in range(2):
        play_episodes(ClimbFamily(2, 3, 2, counts=(2,)).env, tasks, policy, jax.random.key(0), 3)
    after = compiled.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 1)
