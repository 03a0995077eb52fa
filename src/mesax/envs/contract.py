"""Whether a user's family and environment keep their contracts, seen before anything runs and without computing.

What does not is one line that names it; inside a job it would be a page about the carry of a scan, or nothing at all:
rewards by agent, for example, are broadcast where as many agents as episodes are side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mesax.envs.base import AnyEnvironment, Environment, HostEnvironment, Task, TaskFamily
from mesax.errors import UsageError
from mesax.types import EnvSpec, Key, tree_index

OF_A_FAMILY = tuple(name for name in vars(TaskFamily) if not name.startswith("_"))
OF_A_STEP = ("obs", "reward", "terminated")
REAL = (jnp.floating, jnp.integer, jnp.bool_)
Result = TypeVar("Result")


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
    missing = [member for member in OF_A_FAMILY if not hasattr(family, member)]
    if missing:
        raise UsageError(f"{name} is no task family: it has no {', '.join(missing)} (mesax.TaskFamily)")
    task = _first_task(family)
    if not isinstance(family.env, HostEnvironment):
        check_environment(family.env, task)
    else:
        _check_spec(family.env)


def _first_task(family: TaskFamily) -> Task:
    """The first training task; stacked tasks are arrays with a leading axis."""
    tasks, name = family.split(0, 1, 1).train, type(family).__name__
    leaves = jax.tree.leaves(tasks)
    if not leaves:
        raise UsageError(f"{name}.split gives tasks without any array: give each a number, at least")
    for leaf in leaves:
        if np.shape(leaf)[:1] != (1,):
            raise UsageError(
                f"{name}.split(0, 1, 1) gives {_shown(leaf)} for one task: its leading axis must be 1 long"
            )
    return tree_index(tasks, 0)


def check_environment(env: Environment, task: Task) -> None:
    """Refuse an environment in JAX whose `reset` and `step` do not give what its spec says."""
    _check_spec(env)
    name, spec = type(env).__name__, env.spec
    for method in ("reset", "step"):
        if not callable(getattr(env, method, None)):
            raise UsageError(f"{name} is no environment: it has no {method} (mesax.Environment)")
    key = jax.eval_shape(_any_key)
    state, obs = _pair(name, "reset", "(state, obs)", _shapes(name, "reset", env.reset, task, key))
    _check_obs(name, "reset", obs, spec)
    action = jax.eval_shape(lambda: spec.action_space.zeros((spec.num_agents,)))
    after, outcome = _pair(name, "step", "(state, Step)", _shapes(name, "step", env.step, task, state, action, key))
    missing = [part for part in OF_A_STEP if not hasattr(outcome, part)]
    if missing:
        raise UsageError(
            f"{name}.step gives a {type(outcome).__name__} without {', '.join(missing)}: give a mesax.Step"
        )
    _check_obs(name, "step", outcome.obs, spec)
    if not _same(obs, outcome.obs):
        raise UsageError(
            f"{name}.step gives observations of {outcome.obs.dtype} where reset gives {obs.dtype}: make both float32"
        )
    if not _is_real(outcome.reward) or outcome.reward.shape:
        raise UsageError(f"{name}.step gives a reward {_shown(outcome.reward)}: it must be one number for the team")
    if not _is_real(outcome.terminated) or outcome.terminated.shape or outcome.terminated.dtype != bool:
        raise UsageError(f"{name}.step gives terminated {_shown(outcome.terminated)}: it must be one bool for the team")
    _check_state(name, state, after)


def _check_spec(env: AnyEnvironment) -> None:
    if not isinstance(getattr(env, "spec", None), EnvSpec):
        raise UsageError(f"{type(env).__name__} is no environment: its spec must be a mesax.EnvSpec")


def _shapes(name: str, method: str, function: Callable[..., Result], *arguments: PyTree) -> Result:
    """What a method gives back, without the numbers; what breaks while it is traced is one line."""
    try:
        return jax.eval_shape(function, *arguments)
    except UsageError:
        raise
    except Exception as error:
        told = str(error).strip().splitlines() or [""]
        raise UsageError(f"{name}.{method} cannot be traced by JAX: {type(error).__name__}: {told[0]}") from error


def _pair(name: str, method: str, expected: str, answer: PyTree) -> tuple[PyTree, PyTree]:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise UsageError(f"{name}.{method} gives a {type(answer).__name__}: it must give {expected}")
    return answer


def _check_obs(name: str, method: str, obs: PyTree, spec: EnvSpec) -> None:
    expected = (spec.num_agents, spec.obs_size)
    if not _is_real(obs) or obs.shape != expected:
        raise UsageError(
            f"{name}.{method} gives observations {_shown(obs)}, but its spec says float32{list(expected)}"
            " (num_agents, obs_size)"
        )


def _check_state(name: str, before: PyTree, after: PyTree) -> None:
    """The state of an episode is the carry of a scan: its form must stay."""
    forms: set[Hashable] = {jax.tree.structure(tree) for tree in (before, after)}
    if len(forms) > 1:
        raise UsageError(f"{name}.step gives a state of another structure than reset gives")
    pairs = zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, one), other in pairs:
        if not _same(one, other):
            place = f"state{jax.tree_util.keystr(path)}"
            raise UsageError(f"{name}.step gives {place} as {_shown(other)} where reset gives {_shown(one)}")


def _same(one: jax.ShapeDtypeStruct, other: jax.ShapeDtypeStruct) -> bool:
    """Whether one may stand for the other; a plain number has no type of its own yet."""
    return one.shape == other.shape and (one.dtype == other.dtype or bool(one.weak_type))


def _is_real(value: PyTree) -> bool:
    """Whether it is an array of real numbers, or of truth values."""
    return hasattr(value, "dtype") and any(jnp.issubdtype(value.dtype, kind) for kind in REAL)


def _shown(value: PyTree) -> str:
    """Type and shape, as JAX writes them."""
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else f"a {type(value).__name__}"


def _any_key() -> Key:
    return jax.random.key(0)
