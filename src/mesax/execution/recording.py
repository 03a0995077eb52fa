"""A few episodes of a finished run's policies, kept as a small file that a report plays without computing anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from mesax.envs.base import HostEnvironment
from mesax.execution.saved_policies import play_policy, policy_names
from mesax.methods.base import Experiment
from mesax.rendering.recorded import EPISODES_FILE, VERSION
from mesax.rendering.scene import MOST_FRAMES
from mesax.store.files import write_file
from mesax.store.json_values import Json, signed
from mesax.store.run_directory import RunDirectory

MOST_TASKS = 10
"""Test tasks of which episodes are kept: the first ones."""
FEWEST, MOST, MOST_ON_HOST = 2, 40, 1
"""Episodes of one policy on one task; stepping an environment on the host takes longer."""


def record_episodes(run: RunDirectory, experiment: Experiment, modules: Sequence[ModuleType] = ()) -> Path:
    """Play every policy of a finished run on its test tasks and keep what a player shows; returns the file."""
    number = number_of_episodes(experiment)
    stages: dict[str, int] = {}
    plays: list[Json] = []
    for name in policy_names(run, experiment):
        for task in range(min(MOST_TASKS, experiment.num_test_tasks)):
            scene = play_policy(run, experiment, task, name, modules, number).scene()
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
