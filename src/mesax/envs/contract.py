"""Whether a user's family and environment keep their contracts, seen before anything runs and without computing.

What does not is one line that names it; inside a job it would be a page about the carry of a scan, or nothing at all:
rewards by agent, for example, are broadcast where as many agents as episodes are side by side.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import numpy as np
from jaxtyping import PyTree

from mesax.envs.base import AnyEnvironment, Environment, HostEnvironment, Task, TaskFamily, TaskSplit
from mesax.errors import UsageError
from mesax.tracing import changed, is_real, shapes, shown, told
from mesax.types import EnvSpec, Key, tree_index

OF_A_FAMILY = tuple(name for name in vars(TaskFamily) if not name.startswith("_"))
OF_A_SPLIT = ("train", "test")
OF_A_STEP = ("obs", "reward", "terminated")


def check_family(family: TaskFamily) -> None:
    """Refuse a family that lacks something, or whose environment does not do what its spec says."""
    try:
        hash(family)
    except TypeError as error:
        raise UsageError(
            f"{type(family).__name__} is not hashable ({error}), and programs are cached by it: make it a frozen"
            " dataclass of numbers, text, tuples and frozen dataclasses"
        ) from error
    _check_family(family)  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _check_family(family: TaskFamily) -> None:
    """What fits is not traced again."""
    name = type(family).__name__
    missing = [member for member in OF_A_FAMILY if not _offers(family, member)]
    if missing:
        raise UsageError(f"{name} is no task family: it has no {', '.join(missing)} (mesax.TaskFamily)")
    _check_spec(family.env)
    task = tree_index(split_of(family, 1, 1).train, 0)
    if not isinstance(family.env, HostEnvironment):
        check_environment(family.env, task)


def _offers(value: object, member: str) -> bool:
    """Whether it has a member; a property that breaks when it is asked is no missing one."""
    place = f"{type(value).__name__}.{member} cannot be read"
    if hasattr(type(value), member):
        told(place, getattr, value, member)
    return told(place, hasattr, value, member)


def split_of(family: TaskFamily, num_train: int, num_test: int) -> TaskSplit:
    """The tasks of seed 0; what breaks, or is not so many tasks stacked, is one line."""
    place = f"{type(family).__name__}.split"
    split = told(f"{place} cannot be called", family.split, 0, num_train, num_test)
    missing = [part for part in OF_A_SPLIT if not hasattr(split, part)]
    if missing:
        raise UsageError(f"{place} gives a {type(split).__name__} without {', '.join(missing)}: give a mesax.TaskSplit")
    for part, tasks, number in (("training", split.train, num_train), ("test", split.test, num_test)):
        leaves = jax.tree.leaves(tasks)
        if not leaves:
            raise UsageError(f"{place} gives tasks without any array: give each a number, at least")
        for leaf in leaves:
            if np.shape(leaf)[:1] != (number,):
                raise UsageError(
                    f"{place}(0, {num_train}, {num_test}) gives {shown(leaf)} for {number} {part} task(s): its leading"
                    f" axis must be {number} long"
                )
    return split


def check_environment(env: Environment, task: Task) -> None:
    """Refuse an environment in JAX whose `reset` and `step` do not give what its spec says."""
    _check_spec(env)
    name, spec = type(env).__name__, env.spec
    for method in ("reset", "step"):
        if not callable(getattr(env, method, None)):
            raise UsageError(f"{name} is no environment: it has no {method} (mesax.Environment)")
    key = jax.eval_shape(_any_key)
    state, obs = _pair(name, "reset", "(state, obs)", shapes(f"{name}.reset", env.reset, task, key))
    _check_obs(name, "reset", obs, spec)
    action = jax.eval_shape(lambda: spec.action_space.zeros((spec.num_agents,)))
    after, outcome = _pair(name, "step", "(state, Step)", shapes(f"{name}.step", env.step, task, state, action, key))
    missing = [part for part in OF_A_STEP if not hasattr(outcome, part)]
    if missing:
        raise UsageError(
            f"{name}.step gives a {type(outcome).__name__} without {', '.join(missing)}: give a mesax.Step"
        )
    _check_obs(name, "step", outcome.obs, spec)
    if not is_real(outcome.reward) or outcome.reward.shape:
        raise UsageError(f"{name}.step gives a reward {shown(outcome.reward)}: it must be one number for the team")
    if not is_real(outcome.terminated) or outcome.terminated.shape or outcome.terminated.dtype != bool:
        raise UsageError(f"{name}.step gives terminated {shown(outcome.terminated)}: it must be one bool for the team")

    def step(state: PyTree, action: PyTree, key: Key) -> PyTree:
        return env.step(task, state, action, key)[0]

    change = told(f"{name}.step cannot be traced by JAX", changed, step, state, after, action, key)
    if change is not None:
        raise UsageError(f"{name}.step gives state{change}: make it as reset gives it, for it is the carry of a scan")


def _check_spec(env: AnyEnvironment) -> None:
    if not _offers(env, "spec") or not isinstance(env.spec, EnvSpec):
        raise UsageError(f"{type(env).__name__} is no environment: its spec must be a mesax.EnvSpec")


def _pair(name: str, method: str, expected: str, answer: PyTree) -> tuple[PyTree, PyTree]:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise UsageError(f"{name}.{method} gives a {type(answer).__name__}: it must give {expected}")
    return answer


def _check_obs(name: str, method: str, obs: PyTree, spec: EnvSpec) -> None:
    expected = (spec.num_agents, spec.obs_size)
    if not is_real(obs) or obs.shape != expected:
        raise UsageError(
            f"{name}.{method} gives observations {shown(obs)}, but its spec says float32{list(expected)}"
            " (num_agents, obs_size)"
        )


def _any_key() -> Key:
    return jax.random.key(0)
