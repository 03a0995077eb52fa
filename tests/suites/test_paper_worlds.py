"""The seven columns of the paper by their names: tasks, levels that scripted teams reach, and the way to PettingZoo."""

import json
import warnings

import jax
import numpy as np
import pytest

from envs.test_jammed_world import MAPS
from mesax.bridges.environments.pettingzoo_export import parallel_env
from mesax.envs.goals import telling
from mesax.experiments.catalogue import experiment
from mesax.experiments.names import PRESETS
from mesax.experiments.request import Request, described
from mesax.suites.registry import suite_of
from mesax.training.driver import play_episodes

with warnings.catch_warnings():  # it imports a game of its own in a way of its own that it deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test

COLUMNS = ("climb-one", "climb-multi", "mpe-2a5l", "mpe-2a6l", "mpe-3a5l", "mpe-3a6l", "swimmer")


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != "smoke"])
@pytest.mark.parametrize(("env", "landmarks"), [("mpe-2a3l", 3), ("mpe-2a5l", 5), ("mpe-2a6l", 6), ("mpe-3a6l", 6)])
def test_a_run_has_30_tasks_to_train_on_and_all_targets_of_the_authors_map_to_be_tested_on(env, landmarks, preset):
    entry = experiment("mesa", env, preset)
    assert (entry.num_train_tasks, entry.num_test_tasks) == (30, landmarks)
    for seed in (0, 1, 2):
        tasks = jax.device_get(entry.family.split(seed, entry.num_train_tasks, entry.num_test_tasks))
        train = tasks.train.landmarks.reshape(30 // landmarks, landmarks, landmarks, 2)
        assert np.ptp(train, axis=1).max() == 0.0 and len(np.unique(train[:, 0, 0], axis=0)) == 30 // landmarks
        for targets in (tasks.test.target, *tasks.train.target.reshape(-1, landmarks)):
            assert sorted(targets.tolist()) == list(range(landmarks))
        assert tasks.test.target[0] == seed % landmarks
        if (landmarks, 0.1, seed) in MAPS:
            np.testing.assert_allclose(tasks.test.landmarks, [MAPS[landmarks, 0.1, seed]] * landmarks, atol=1e-5)


def test_numbers_of_layouts_and_of_targets_are_typed():
    asked = (("num-train-tasks", "12"), ("family.targets-each", "3"))
    asked_for = Request("plain", "mpe-2a5l", overrides=asked).experiment()
    tasks = described(asked_for.family, asked_for.split.train)
    maps = [json.dumps(task["target"][1:]) for task in tasks]
    assert [maps.count(one) for one in dict.fromkeys(maps)] == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("env", "optimum", "safe"),
    [
        ("climb-multi", (1.0, 1.0), (0.5, 0.5)),
        ("mpe-3a5l", (71.0, 73.0), (36.1, 37.1)),
        ("mpe-3a6l", (71.0, 73.0), (36.1, 37.1)),
        ("mpe-2a5l-hard", (67.5, 69.0), (34.1, 35.2)),
        ("swimmer", (995.0, 998.0), (499.0, 500.0)),
    ],
)
def test_scripted_teams_earn_what_is_called_optimal_and_safe(env: str, optimum: tuple, safe: tuple):
    """The paper's EMC ended at 36.63 with three agents and five landmarks, and at 36.47 with six."""
    if env == "swimmer":
        pytest.importorskip("mujoco")
    preset = suite_of(env).preset(env, "quick")
    family, script = preset.mesa.family, preset.script
    world, tasks = telling(family.env, script.goal), family.split(0, 0, preset.mesa.num_test_tasks).test
    episodes = 2 if env == "swimmer" else 10 * preset.mesa.num_test_tasks
    levels = (family.optimal_return, family.suboptimal_return)
    for aim, level, (low, high) in zip(("optimum", "safe"), levels, (optimum, safe), strict=True):
        played = play_episodes(world, tasks, script(world.spec, aim), jax.random.key(0), episodes)
        returns = jax.jit(jax.vmap(family.score))(jax.device_put(played.reward))
        assert low <= np.mean(returns) <= high and low - 0.5 <= level <= high + 0.5, (aim, np.mean(returns))


@pytest.mark.parametrize("env", COLUMNS)
def test_every_column_is_a_pettingzoo_environment(env: str, capsys):
    """The first training task; what all agents are paid is what the family says."""
    if env == "swimmer":
        pytest.importorskip("mujoco")
    family = suite_of(env).family(env)
    exported = parallel_env(family, 0)
    parallel_api_test(exported, num_cycles=20)
    assert "Passed" in capsys.readouterr().out
    observations, _ = exported.reset(seed=3)
    assert {len(seen) for seen in observations.values()} == {family.env.spec.obs_size}
