"""`mesax env check` of families of tasks, in JAX or on the host, and of environments of JaxMARL."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from mesax.bridges.environments.jaxmarl import JaxMarlEnvironment
from mesax.cli.env.findings import Finding, about_rewards, about_seeds
from mesax.envs.base import AnyEnvironment, Environment, HostEnvironment, Task, TaskFamily, TaskSplit
from mesax.envs.contract import check_family, split_of
from mesax.envs.host import EnvironmentFault
from mesax.errors import UsageError
from mesax.ours.threshold import RelativeThreshold
from mesax.policy import UniformPolicy
from mesax.store.leaves import is_key
from mesax.suites.foreign.families import no_setting
from mesax.suites.foreign.presets import THRESHOLD, numbers_of_tasks, threshold_of
from mesax.training.driver import play_episodes
from mesax.types import Episode, leading_size, tree_index

UNCOMPILED_STEPS = 3
"""Steps that are played without the compiler, which would hide what is not pure."""
TASKS_OF_A_RUN = (12, 4)
"""Training and test tasks that are compared, if there are so many."""


def walk_jaxmarl(env: JaxMarlEnvironment, seeds: int, steps: int) -> Iterator[Finding]:
    """All findings about an environment of JaxMARL; ends at the first problem after which nothing more can be said."""
    yield Finding("ok", "kind", f"JaxMARL environment {type(env.env).__name__}, compiled with the learner")
    yield from _walk(
        env, jnp.arange(seeds, dtype=jnp.uint32), steps, "else give JaxMarlEnvironment a start= that uses the seed"
    )


def walk_family(family: TaskFamily, seeds: int, steps: int) -> Iterator[Finding]:
    """All findings about a family of tasks; its environment may be in JAX or on the host."""
    unsuited = no_setting(family)
    if unsuited is not None:
        yield Finding("problem", "contract", *unsuited)
        return
    try:
        check_family(family)
        number, _ = numbers_of_tasks(family, seeds, 1)
        tasks = split_of(family, number, 1).train
        known = split_of(family, *numbers_of_tasks(family, *TASKS_OF_A_RUN))
    except UsageError as error:
        yield Finding("problem", "contract", str(error), "mesax.TaskFamily and mesax.Environment say what is expected")
        return
    where = "stepped by the host" if isinstance(family.env, HostEnvironment) else "compiled with the learner"
    yield Finding("ok", "kind", f"task family {type(family).__name__} of {type(family.env).__name__}, {where}")
    yield Finding("ok", "contract", "all members, shapes and types are as they must be")
    yield _unseen(known)
    try:
        yield from _walk(family.env, tasks, steps, "else let tasks differ", threshold_of(family))
    except EnvironmentFault as fault:
        yield Finding("problem", "fault", str(fault), "fix it in the environment's batch")


def _unseen(split: TaskSplit) -> Finding:
    """Test tasks must not be among the training tasks, or results on them say nothing of unseen ones."""
    trained, tested = _rows(split.train), _rows(split.test)
    again = len([row for row in tested if row in set(trained)])
    if not again:
        return Finding("ok", "split", f"no test task ({len(tested)}) is among the training tasks ({len(trained)})")
    return Finding(
        "problem",
        "split",
        f"of {len(tested)} test tasks {again} are among the {len(trained)} training tasks: unseen tasks must be unseen",
        "let split draw both from one shuffled list, or from seeds that are kept apart",
    )


def _rows(tasks: Task) -> list[tuple[bytes, ...]]:
    """Stacked tasks as values that can be compared, one by one."""
    leaves = [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in jax.tree.leaves(tasks)]
    return [tuple(leaf[index].tobytes() for leaf in leaves) for index in range(leading_size(tasks))]


def _walk(
    env: AnyEnvironment, tasks: Task, steps: int, advice: str, threshold: RelativeThreshold = THRESHOLD
) -> Iterator[Finding]:
    spec, seeds = env.spec, leading_size(tasks)
    text = f"{spec.num_agents} agents, {spec.obs_size} numbers each, {spec.action_space}, {spec.horizon} steps"
    yield Finding("ok", "as mesax sees", text)
    number = -(-steps // spec.horizon)
    if not isinstance(env, HostEnvironment):
        yield (purity := _purity(env, tree_index(tasks, 0)))
        if purity.state == "problem":
            return
    _played(env, tasks, 0, number)  # compiled now, so that the speed is that of playing
    started = time.perf_counter()
    plays = [_played(env, tasks, task, number) for task in range(seeds)]
    seconds = time.perf_counter() - started
    total = sum(int(play.mask.sum()) for play in plays)
    broken = _broken(plays)
    if broken is not None:
        yield broken
        return
    yield Finding("ok", "play", f"{total} random steps on {seeds} tasks: finite numbers")
    if isinstance(env, HostEnvironment):
        yield (repeats := _repeats(plays[0], _played(env, tasks, 0, number)))
        if repeats.state == "problem":
            return
    yield from _differences(plays, advice)
    yield _lengths(plays, spec.horizon)
    returns = [float(value) for play in plays for value in np.sum(np.where(play.mask, play.reward, 0.0), axis=1)]
    yield from about_rewards([np.asarray(play.reward)[play.mask] for play in plays], returns, threshold)
    yield Finding("ok", "speed", f"{total / max(seconds, 1e-9):,.0f} joint steps per second, {number} episodes at once")


def _played(env: AnyEnvironment, tasks: Task, task: int, number: int) -> Episode:
    """Random episodes of one task."""
    policy = UniformPolicy(env.spec.action_space)
    return play_episodes(env, tree_index(tasks, slice(task, task + 1)), policy, jax.random.key(0), number)


def _purity(env: Environment, task: Task) -> Finding:
    """The same task, key and actions must give the same steps every time."""
    with jax.disable_jit():
        first, again = _uncompiled(env, task), _uncompiled(env, task)
    for step, (one, other) in enumerate(zip(first, again, strict=True)):
        if not _same(one, other):
            return Finding(
                "problem",
                "determinism",
                f"the same seed, key and actions give another play, from {f'step {step}' if step else 'the reset'} on",
                "draw all chance from the key, and keep nothing in the object between reset and step",
            )
    return Finding("ok", "determinism", f"the same seed and actions give the same {UNCOMPILED_STEPS} steps uncompiled")


def _uncompiled(env: Environment, task: Task) -> list[np.ndarray]:
    """Observations and reward of the first steps."""
    keys = jax.random.split(jax.random.key(0), UNCOMPILED_STEPS)
    state, obs = env.reset(task, keys[0])
    rows = [np.ravel(obs)]
    action = env.spec.action_space.zeros((env.spec.num_agents,))
    for key in keys:
        state, outcome = env.step(task, state, action, key)
        rows.append(np.append(np.ravel(outcome.obs), outcome.reward))
    return rows


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two are alike; numbers that are not finite are another finding."""
    return np.array_equal(one, other, equal_nan=True)


def _repeats(first: Episode, again: Episode) -> Finding:
    """Copies that are used again must play as they did before."""
    if jax.tree.all(jax.tree.map(_same, first, again)):
        return Finding("ok", "determinism", "the same seeds and actions give the same episodes again")
    return Finding(
        "problem",
        "determinism",
        "the same seeds and actions give other episodes the second time",
        "let reset set back all that an episode changes, and draw all chance from its seeds",
    )


def _broken(plays: Sequence[Episode]) -> Finding | None:
    for seed, play in enumerate(plays):
        happened = np.asarray(play.mask)
        seen = np.concatenate([np.asarray(play.obs)[:, 0], np.asarray(play.obs)[:, 1:][happened]])
        if not (np.isfinite(seen).all() and np.isfinite(np.asarray(play.reward)[happened]).all()):
            return Finding(
                "problem",
                "fault",
                f"task {seed}: some observations or rewards are not finite numbers",
                "look for divisions by zero and logarithms; fix it there, or in a wrapper",
            )
    return None


def _differences(plays: Sequence[Episode], advice: str) -> Iterator[Finding]:
    """Seeds should make a difference."""
    starts = [play.obs[:, 0] for play in plays]
    seen = any(not np.array_equal(starts[0], start) for start in starts[1:])
    yield from about_seeds(
        not all(np.array_equal(start, np.broadcast_to(start[:1], start.shape)) for start in starts),
        len(plays),
        seen or any(not np.array_equal(plays[0].reward, play.reward) for play in plays[1:]),
        seen,
        advice,
    )


def _lengths(plays: Sequence[Episode], horizon: int) -> Finding:
    lengths = np.concatenate([play.mask.sum(axis=1) for play in plays])
    terminated = sum(int(np.any(play.terminated & play.mask, axis=1).sum()) for play in plays)
    cut = len(lengths) - terminated
    return Finding(
        "ok",
        "episodes",
        f"{lengths.min()} to {lengths.max()} steps, {terminated} terminated and {cut} cut at {horizon}",
    )
