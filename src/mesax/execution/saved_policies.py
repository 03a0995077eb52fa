"""Loading the policies that a run saved, playing them again, drawing what they play, and recording it for a report."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mesax.envs.base import HostEnvironment, ShowsItself, Task
from mesax.envs.goals import without_goal
from mesax.errors import UsageError
from mesax.experiments.rebuild import ModuleNeeded, check_tasks, experiment_of
from mesax.explorers.foreign_loop import LearnedPolicy
from mesax.explorers.places import EXPLORERS, explorers_in
from mesax.explorers.recipe import HasExplorers, saved_explorers
from mesax.methods.adapt import best_policy_name, greedy_shape, policy_name
from mesax.methods.base import Experiment, Purpose
from mesax.moments import COUNTED_BATCHES
from mesax.ours.transfer import Borrowed
from mesax.policy import Policy, UniformPolicy
from mesax.rendering.episode import draw_scene, join_pictures
from mesax.rendering.recorded import EPISODES_FILE, VERSION
from mesax.rendering.scene import MOST_FRAMES, Scene
from mesax.results.safe_drawing import attempt
from mesax.runtime import configure
from mesax.store.files import write_file
from mesax.store.json_values import Json, signed
from mesax.store.run_directory import PRODUCTS, RunDirectory, product_in
from mesax.store.trees import MANIFEST, open_tree, read_manifest
from mesax.suites.foreign.suite import plain_scene
from mesax.suites.registry import suite_of_run
from mesax.suites.renamed import names_of_before, open_run
from mesax.training.driver import play_episodes
from mesax.training.host_rollout import episode_seeds
from mesax.types import Episode, tree_index

LEARNED = ("final", "best")
"""Policies that every run keeps of each test task: that of the end, and that of the best evaluation."""
EPISODES, EPISODES_ON_HOST = 200, 20
"""Episodes of a picture."""
MILLISECONDS_OF_A_PICTURE = 80
"""Of an environment's own pictures."""
MOST_TASKS = 10
"""Test tasks of which episodes are recorded: the first ones."""
FEWEST, MOST, MOST_ON_HOST = 2, 40, 1
"""Recorded episodes of one policy on one task; stepping an environment on the host takes longer."""


def learned_policy(run: RunDirectory, experiment: Experiment, task: int, repeat: int = 0, best: bool = False) -> Policy:
    """The greedy policy learned on one test task: that of the end, or that of the `best` evaluation."""
    path = product_in(run.path, (best_policy_name if best else policy_name)(task, repeat))
    if not path.is_dir():
        raise UsageError(
            f"{run.path} has no {'best ' if best else ''}policy for task {task}, run {repeat}: the run has"
            f" {experiment.num_test_tasks} tasks and its state is '{run.state}'"
        )
    run.check(f"{PRODUCTS}/{path.name}/{MANIFEST}")
    saved = open_tree(path)
    saved.check_finite(but=(COUNTED_BATCHES,))
    policy: Policy = saved.restore(greedy_shape(experiment))
    return policy


def load_policy(
    run: Path | str,
    task: int = 0,
    repeat: int = 0,
    modules: ModuleType | Iterable[ModuleType] = (),
    best: bool = False,
) -> LearnedPolicy:
    """The greedy policy that a finished run has learned on one of its test tasks.

    `modules`, once imported, are those that define classes of your own that the run used: an environment, say, or a
    learner. `best` is the policy of the best evaluation in place of that of the end. If the run's world has another
    name now, a warning says so.
    """
    configure()
    given = [modules] if isinstance(modules, ModuleType) else list(modules)
    if not all(isinstance(module, ModuleType) for module in given):
        raise UsageError("modules must be modules, not their names: import them first")
    directory = open_run(Path(run))
    for line in names_of_before([(directory.path, directory.run)]):
        warnings.warn(line, stacklevel=2)
    try:
        experiment = experiment_of(directory.run, given)
    except ModuleNeeded as error:
        names = ", ".join(error.modules)
        raise UsageError(f"{error}: import {names}, then load_policy(..., modules=[{names}])") from None
    policy = jax.device_get(learned_policy(directory, experiment, task, repeat, best))
    return LearnedPolicy(experiment.env.spec, policy)


def named_policy(run: RunDirectory, experiment: Experiment, name: str, task: int) -> Policy:
    """`final`, `best`, `uniform` or `explorer-N`."""
    if name in LEARNED:
        return learned_policy(run, experiment, task, best=name == "best")
    spec = experiment.family.env.spec
    if name == "uniform":
        return UniformPolicy(spec.action_space)
    if not isinstance(experiment.method, HasExplorers | Borrowed):
        raise UsageError(f"unknown policy '{name}'; this run has final, best, uniform")
    if not explorers_in(run.path).is_dir():
        raise UsageError(f"{run.path} has no explorers yet: its state is '{run.state}'")
    run.check(f"{PRODUCTS}/{EXPLORERS}/{MANIFEST}")
    method = experiment.method
    choices = _explorer_names(run, experiment)
    if name not in choices:
        raise UsageError(f"unknown policy '{name}'; this run has final, best, uniform, {', '.join(choices)}")
    index = choices.index(name)
    if isinstance(method, HasExplorers):
        recipe = method.recipe(spec)
        return recipe.deployed(tree_index(saved_explorers(recipe, explorers_in(run.path)).policies, index))
    return method.borrowed(experiment, explorers_in(run.path), index, 1)


def policy_names(run: RunDirectory, experiment: Experiment) -> list[str]:
    """Who can be watched: the learned policy, the explorers if the run has any, uniform play."""
    names = ["final"]
    if isinstance(experiment.method, HasExplorers | Borrowed) and explorers_in(run.path).is_dir():
        run.check(f"{PRODUCTS}/{EXPLORERS}/{MANIFEST}")
        names += _explorer_names(run, experiment)
    return [*names, "uniform"]


def _explorer_names(run: RunDirectory, experiment: Experiment) -> list[str]:
    """Of a run's explorers; of borrowed ones, those that it uses."""
    number = int(read_manifest(explorers_in(run.path))["facts"]["num_explorers"])
    method = experiment.method
    if isinstance(method, Borrowed):
        number = min(number, method.num_explorers)
    return [f"explorer-{index}" for index in range(1, number + 1)]


def evaluate_run(
    run: RunDirectory, experiment: Experiment, episodes: int, seed: int, best: bool = False
) -> list[dict[str, Any]]:
    """Greedy returns of every saved policy of the end, or of the `best` evaluation, one row each."""
    check_tasks(run.run, experiment)
    family, test = experiment.family, experiment.split.test
    rows = []
    for task in range(experiment.num_test_tasks):
        for repeat in range(experiment.num_repeats):
            policy = learned_policy(run, experiment, task, repeat, best)
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), task), repeat)
            one = jax.tree.map(lambda leaf, task=task: leaf[task : task + 1], test)
            rewards = np.mean(play_episodes(experiment.env, one, policy, key, episodes).reward, axis=0)
            rows.append(
                {
                    "task": task,
                    "repeat": repeat,
                    "label": run.run["test_tasks"][task]["label"],
                    "return": float(family.score(jnp.asarray(rewards))),
                    "groups": family.breakdown(tree_index(test, task), rewards),
                }
            )
    return rows


def render_run(
    run: RunDirectory,
    experiment: Experiment,
    task: int,
    policy: str,
    gif: Path | None,
    modules: Sequence[ModuleType] = (),
) -> list[Path]:
    """Play a saved policy on a test task; draw a still (PNG and SVG) and a GIF, and what the environment shows itself.

    A suite of the user's own draws its runs if its module is among `modules`.
    """
    if not 0 <= task < experiment.num_test_tasks:
        raise UsageError(f"no test task {task}; this run has tasks 0 to {experiment.num_test_tasks - 1}")
    base = run.path / "figures" / f"episode-task-{task:02d}-{policy}"
    target = gif or base.with_name(base.name + ".gif")
    if target.suffix.lower() != ".gif" or target.is_dir():
        raise UsageError(f"--gif {target} is not the name of a file that ends in .gif")
    if gif is not None and not gif.parent.is_dir():
        raise UsageError(f"--gif {target} cannot be written: there is no directory {gif.parent}")
    played = _played(run, experiment, task, policy)
    title = f"{run.run['method']} on {run.run['env']}, test task {task}: policy {policy}"
    drawn = draw_scene(_as_drawn(run, experiment, played, modules), title, base, target)
    film = base.with_name(f"{base.name}-environment.gif")
    return drawn + (attempt(film.name, lambda: _draw_film(experiment, played, film)) or [])


def play_policy(
    run: RunDirectory,
    experiment: Experiment,
    task: int,
    name: str,
    modules: Sequence[ModuleType] = (),
    episodes: int | None = None,
) -> Scene:
    """Episodes of the named policy on one test task, as their suite draws them; by default as many as a picture has."""
    return _as_drawn(run, experiment, _played(run, experiment, task, name, episodes), modules)


class _Played(NamedTuple):
    """What a policy played on one test task."""

    task: Task
    episodes: Episode
    first_seed: int
    """What the first episode was reset with, if the environment is on the host."""


def _played(
    run: RunDirectory, experiment: Experiment, task: int, name: str, episodes_wanted: int | None = None
) -> _Played:
    check_tasks(run.run, experiment)
    env, key = experiment.env, experiment.key(Purpose.RENDER, task)
    policy = named_policy(run, experiment, name, task)
    one = jax.tree.map(lambda leaf: leaf[task : task + 1], experiment.split.test)
    number = episodes_wanted or (EPISODES_ON_HOST if isinstance(env, HostEnvironment) else EPISODES)
    episodes = without_goal(experiment.family.env, play_episodes(env, one, policy, key, number))
    first_seed = int(episode_seeds(key, number, 1, env.spec.horizon)[0])
    return _Played(tree_index(one, 0), episodes, first_seed)


def _as_drawn(run: RunDirectory, experiment: Experiment, played: _Played, modules: Sequence[ModuleType]) -> Scene:
    suite = suite_of_run(run.run, modules)
    draw = plain_scene if suite is None else suite.scene
    return draw(experiment.family, played.task, played.episodes)


def _draw_film(experiment: Experiment, played: _Played, path: Path) -> list[Path]:
    """The first episode as the environment itself shows it, if it does."""
    env = experiment.family.env
    if not isinstance(env, ShowsItself):
        return []
    first = tree_index(played.episodes, 0)
    pictures = env.film(played.task, played.first_seed, np.asarray(first.action)[np.asarray(first.mask)])
    if not pictures:
        return []
    join_pictures(pictures, MILLISECONDS_OF_A_PICTURE, path)
    return [path]


def record_episodes(run: RunDirectory, experiment: Experiment, modules: Sequence[ModuleType] = ()) -> Path:
    """Play every policy of a finished run on its test tasks and keep what a player shows; returns the file."""
    number = number_of_episodes(experiment)
    stages: dict[str, int] = {}
    plays: list[Json] = []
    for name in policy_names(run, experiment):
        for task in range(min(MOST_TASKS, experiment.num_test_tasks)):
            scene = play_policy(run, experiment, task, name, modules, number)
            stage = stages.setdefault(json.dumps(scene.stage()), len(stages))
            plays.append({"policy": name, "task": task, "stage": stage, "takes": scene.episodes()})
    content = {"version": VERSION, "config_hash": run.run["config_hash"]}
    content |= {"stages": [json.loads(stage) for stage in stages], "plays": plays}
    path = run.path / EPISODES_FILE
    write_file(path, json.dumps(signed(content), separators=(",", ":"), allow_nan=False).encode())
    return path


def number_of_episodes(experiment: Experiment) -> int:
    """Many short ones, which say little alone, and few long ones."""
    env = experiment.family.env
    most = MOST_ON_HOST if isinstance(env, HostEnvironment) else MOST
    return min(most, max(FEWEST, -(-MOST_FRAMES // env.spec.horizon)))
