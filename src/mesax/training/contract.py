"""Whether a user's learner keeps its contract, seen before anything runs and without computing.

What does not is one line that names it; inside a job it would be a page about the carry of a scan.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from mesax.algorithms.base import EPISODE_ERROR, Learner
from mesax.errors import UsageError
from mesax.policy import Policy
from mesax.tracing import changed, is_real, shapes, shown, told
from mesax.training.loop import check_names
from mesax.training.schedule import Budget, Schedule
from mesax.types import Discrete, Elapsed, EnvSpec, Episode, Label, blank_episode

OF_A_LEARNER = ("init", "behavior", "greedy", "update")
"""What every learner says for itself."""
INHERITED = ("check", "variants", "latent", "observe")
"""What `OffPolicy` and `OnPolicy` fill in."""
OF_A_POLICY = ("start", "act", "label")
UNTRACED = "cannot be traced by JAX"


def check_learner(learner: Learner, spec: EnvSpec, schedule: Budget) -> None:
    """Refuse a learner that lacks something, or whose functions do not give what the loop goes on with.

    `spec` has the sizes as the learner sees them. Only shapes are traced, of what the loop would compile anyway.
    """
    check_members(learner)
    name, key, elapsed = type(learner).__name__, jax.eval_shape(lambda: jax.random.key(0)), jax.eval_shape(Elapsed.end)
    state = shapes(f"{name}.init", lambda key: learner.init(spec, key), key)
    latent = _check_policy(
        f"{name}.behavior", spec, lambda state, elapsed: learner.behavior(spec, state, elapsed), state, elapsed
    )
    _check_policy(f"{name}.greedy", spec, lambda state: learner.greedy(spec, state), state)
    shapes(f"{name}.greedy", lambda state: learner.greedy(spec, state), state)  # it is saved, so that it must be a tree
    number = schedule.batch_size if isinstance(schedule, Schedule) else schedule.num_envs
    fresh, batch = (_episodes(spec, latent, size) for size in (schedule.num_envs, number))

    def observe(state: PyTree, fresh: Episode) -> PyTree:
        return learner.observe(spec, state, fresh)

    def update(state: PyTree, batch: Episode, elapsed: Elapsed, key: PyTree) -> PyTree:
        return learner.update(spec, state, batch, elapsed, key)

    def updated(*arguments: PyTree) -> PyTree:
        return update(*arguments)[0]

    _check_carry(f"{name}.observe", "a state", observe, state, shapes(f"{name}.observe", observe, state, fresh), fresh)
    answer = shapes(f"{name}.update", update, state, batch, elapsed, key)
    after, metrics = _pair(f"{name}.update", "(state, metrics)", answer)
    _check_carry(f"{name}.update", "a state", updated, state, after, batch, elapsed, key)
    _check_metrics(f"{name}.update", metrics, number)


def check_members(learner: object) -> None:
    """Refuse what is no learner by its members alone."""
    if isinstance(learner, type):
        raise UsageError(f"{learner.__name__} is a class, and a learner is one of its instances: {learner.__name__}()")
    name = type(learner).__name__
    try:
        hash(learner)
    except TypeError as error:
        raise UsageError(
            f"{name} is not hashable ({error}), and programs are cached by it: make it a frozen dataclass of numbers,"
            " text, tuples and frozen dataclasses"
        ) from error
    missing = _missing(learner, OF_A_LEARNER)
    if missing:
        raise UsageError(f"{name} is no learner: it has no {', '.join(missing)} (mesax.Learner)")
    missing = _missing(learner, INHERITED)
    if not isinstance(getattr(learner, "needs_replay", None), bool):
        missing.append("needs_replay")
    if missing:
        raise UsageError(f"{name} has no {', '.join(missing)}: inherit from mesax.OffPolicy or mesax.OnPolicy")


def _missing(value: object, names: tuple[str, ...]) -> list[str]:
    """Functions that something does not have."""
    return [name for name in names if not callable(getattr(value, name, None))]


def _check_policy(name: str, spec: EnvSpec, policy_of: Callable[..., Policy], *arguments: PyTree) -> int:
    """Refuse what is no policy, or does not act as the spec says; the size of the latents that it draws."""
    key, team = jax.random.key(0), (spec.num_agents,)
    obs, expected = jnp.zeros((*team, spec.obs_size)), jax.eval_shape(lambda: spec.action_space.zeros(team))

    def policy(*arguments: PyTree) -> Policy:
        found = policy_of(*arguments)
        missing = _missing(found, OF_A_POLICY)
        if missing:
            raise UsageError(f"{name} gives a {type(found).__name__}, which is no policy: it has no {missing[0]}")
        return found

    def act(memory: PyTree, *arguments: PyTree) -> PyTree:
        return policy(*arguments).act(memory, obs, key)

    def remembered(*arguments: PyTree) -> PyTree:
        return act(*arguments)[1]

    memory = shapes(f"{name}(...).start", lambda *arguments: policy(*arguments).start(key), *arguments)
    answer = shapes(f"{name}(...).act", act, memory, *arguments)
    action, after = _pair(f"{name}(...).act", "(action, memory)", answer)
    kind = jnp.integer if isinstance(spec.action_space, Discrete) else jnp.floating
    if not is_real(action) or action.shape != expected.shape or not jnp.issubdtype(action.dtype, kind):
        raise UsageError(f"{name}(...).act gives an action {shown(action)}: it must be {shown(expected)}")
    _check_carry(f"{name}(...).act", "a memory", remembered, memory, after, *arguments)
    label = shapes(
        f"{name}(...).label", lambda memory, *arguments: policy(*arguments).label(memory), memory, *arguments
    )
    if not isinstance(label, Label):
        raise UsageError(f"{name}(...).label gives {shown(label)}: it must be a mesax.Label")
    return label.latent.size


def _episodes(spec: EnvSpec, latent_size: int, number: int) -> Episode:
    """So many stacked episodes, as shapes."""

    def stacked() -> Episode:
        one = blank_episode(spec, latent_size)
        bonus = None if spec.bonus_discount is None else one.reward
        episode = Episode(one.obs, one.action, one.reward, one.terminated, one.mask, one.label, bonus)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (number, *leaf.shape)), episode)

    return jax.eval_shape(stacked)


def _check_carry(
    name: str, what: str, step: Callable[..., PyTree], before: PyTree, after: PyTree, *others: PyTree
) -> None:
    change = told(f"{name} {UNTRACED}", changed, step, before, after, *others)
    if change is not None:
        raise UsageError(f"{name} gives {what}{change}: make it as it was given, for it is the carry of a scan")


def _pair(name: str, expected: str, answer: PyTree) -> tuple[PyTree, PyTree]:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise UsageError(f"{name} gives {shown(answer)}: it must give {expected}")
    return answer


def _check_metrics(name: str, metrics: PyTree, number: int) -> None:
    """Numbers by name; of episodes' errors there is one for each of a batch."""
    if not isinstance(metrics, dict) or not all(isinstance(entry, str) for entry in metrics):
        raise UsageError(f"{name} gives metrics as {shown(metrics)}: they must be a dict of numbers by name")
    check_names(name, metrics)
    for entry, value in metrics.items():
        expected = (number,) if entry == EPISODE_ERROR else ()
        if not is_real(value) or value.shape != expected:
            raise UsageError(f"{name} gives the metric {entry!r} as {shown(value)}: it must be float32{list(expected)}")
