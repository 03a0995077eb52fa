"""`mesax env check`: walk a user's environment and say in plain words whether it fits, and what to do if not."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from mesax.bridges.environments.family import ForeignFamily
from mesax.bridges.environments.foreign import (
    PROBE_SEED,
    ForeignEnvironment,
    Outcome,
    Running,
    UnlikeTask,
    close,
    made_by,
)
from mesax.bridges.environments.jaxmarl import JaxMarlEnvironment
from mesax.bridges.environments.layout import Layout, TeamReward, gymnasium_spaces
from mesax.bridges.environments.limits import own_limit
from mesax.bridges.environments.parallel import GymnasiumTeam, is_jaxmarl
from mesax.cli.env import families as family_check
from mesax.cli.env.findings import Finding, about_rewards, about_seeds
from mesax.cli.env.verdict import about_verdict
from mesax.envs.base import TaskFamily
from mesax.envs.host import EnvironmentFault
from mesax.errors import UsageError
from mesax.runtime import THREADS
from mesax.store.modules import attribute_of
from mesax.store.settings import to_plain
from mesax.suites.foreign.families import (
    HOW_TO_GIVE_A_HORIZON,
    environment_of,
    is_family,
    length_of_a_cut,
    refuse_class,
    takes_a_seed,
    unusable_task,
)

TOLERANCE = 1e-4
"""By which an observation may overstep its space: rounding is no finding."""
SHORT = 8
"""Steps of an episode that is played twice."""
PLAYING_THREADS = 4
EPISODES_PER_THREAD = 40
OFTEN = 1e-6
"""Seconds after which threads take turns: rarely disturbed environments are disturbed for sure."""
STEPS_PER_PAIR = 5
"""One episode is played twice for so many random steps: what the last one leaves behind may matter rarely."""


@dataclass
class Play:
    """What so many random steps gave, over as many episodes as they took."""

    rows: list[np.ndarray] = field(default_factory=list)
    """After each reset and step: observations, reward and flags as one vector."""
    moments: list[str] = field(default_factory=list)
    """Which reset or step each row is of."""
    lengths: list[int] = field(default_factory=list)
    """Steps of the episodes that came to an end."""
    ends: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    """Returns of the episodes that came to an end."""
    same_rewards: bool = True
    left_early: set[Hashable] = field(default_factory=set)
    outside: set[Hashable] = field(default_factory=set)
    """Agents whose observations overstepped their space."""
    seconds: float = 0.0


def check(target: str, seeds: int, steps: int, as_json: bool, verdict_steps: int | None = None) -> int:
    """Print what is found, line by line; 0 if the environment fits, else 2."""
    findings: list[Finding] = []
    for finding in _findings(target, seeds, steps, verdict_steps, findings):
        findings.append(finding)
        print(f"{finding.state:<8} {finding.name:<13} {finding.detail}", flush=True)
        if finding.advice:
            print(f"{'':<8} {'':<13} -> {finding.advice}", flush=True)
    problems = sum(finding.state == "problem" for finding in findings)
    notes = sum(finding.state == "note" for finding in findings)
    if problems:
        print(f"does not fit yet: {problems} to fix")
    else:
        print("it fits" + (f", {notes} to look at" if notes else ""))
    if as_json:
        print(json.dumps({"ok": not problems, "findings": [asdict(finding) for finding in findings]}))
    return 2 if problems else 0


def _findings(
    target: str, seeds: int, steps: int, verdict_steps: int | None, so_far: list[Finding]
) -> Iterator[Finding]:
    """The walk, and if nothing is to be fixed and it is asked for, the verdict on explorers."""
    yield from _walk(load_target(target), seeds, steps)
    if verdict_steps is not None and all(finding.state != "problem" for finding in so_far):
        yield from about_verdict(target, verdict_steps)


Adapted: TypeAlias = ForeignEnvironment | JaxMarlEnvironment
Target: TypeAlias = Callable[..., object] | Adapted | TaskFamily


def load_target(target: str) -> Target:
    """What is behind MODULE:ATTRIBUTE: a function that makes environments, an environment made of one, or a family."""
    found = attribute_of(target)
    if isinstance(found, Adapted):
        return found
    try:
        refuse_class(found)
    except UsageError as error:
        raise UsageError(f"'{target}' cannot be used: {error}") from error
    if is_family(found):
        return found
    if not callable(found):
        raise UsageError(
            f"'{target}' is a {type(found).__name__}, and a function that makes environments, or a task family,"
            " was expected"
        )
    return found


def _adapted(target: Target) -> Adapted | None:
    """The environment behind it, if an adapter is around what a factory makes."""
    env = target.env if isinstance(target, ForeignFamily) else target
    return env if isinstance(env, Adapted) else None


def _walk(target: Target, seeds: int, steps: int) -> Iterator[Finding]:
    """All findings; ends at the first problem after which nothing more can be said."""
    given = _adapted(target)
    if given is None and is_family(target):
        yield from family_check.walk_family(target, seeds, steps)
        return
    assert given is not None or callable(target)
    factory: Callable[..., object] = target if given is None else given.make  # type: ignore[assignment]
    make = factory
    if takes_a_seed(factory):
        yield Finding("ok", "factory", "takes a seed")
    else:

        def make(seed: int) -> object:
            del seed
            return factory()

        yield Finding(
            "problem",
            "factory",
            "takes no seed, so that all tasks would be one and the same",
            "def make(seed): return an environment whose hidden task (goal, map, roles) is drawn from the seed",
        )
    try:
        to_plain(target)
    except TypeError as error:
        yield Finding("problem", "factory", str(error), "write it as a function: def make(seed): ...")
    num_tasks = target.num_tasks if isinstance(target, ForeignFamily) else None
    if num_tasks == 1:
        yield Finding("problem", "tasks", "there is one alone: a run trains on some and tests on others", "num_tasks=2")
        return
    seeds = seeds if num_tasks is None else min(seeds, num_tasks)
    played = given if isinstance(given, ForeignEnvironment) else None
    env = ForeignEnvironment(make, steps, played.team_reward if played else "mean")
    try:
        if is_jaxmarl(probe := made_by(make, PROBE_SEED)):
            compiled = given if isinstance(given, JaxMarlEnvironment) else environment_of(make)
            assert isinstance(compiled, JaxMarlEnvironment)
            yield from family_check.walk_jaxmarl(compiled, seeds, steps)
            return
        limit = played.horizon if played else own_limit(probe)
        close(probe)
        layout = env.layout
        yield from _spaces(env.open(0), layout)
        if _bare(env.open(0)) is _bare(env.open(0)):
            yield Finding("problem", "factory", "gives the same object twice", "make a new environment at every call")
            return
        unusable = unusable_task(ForeignFamily(env, 1.0, num_tasks=num_tasks))
        if unusable is not None:
            yield Finding("problem", "factory", *unusable)
            return
        plays = []
        for seed in range(seeds):
            play = play_randomly(env.open(seed), layout, steps)
            plays.append(play)
        total = sum(len(play.rewards) for play in plays)
        yield Finding("ok", "play", f"{total} random steps on {seeds} tasks: shapes, types, names, finite numbers")
        repeats = list(_repeats(env, layout, plays[0], steps))
        yield from repeats
        if all(finding.state == "ok" for finding in repeats):  # else differences mean nothing
            yield from _differences(env, layout, plays, steps)
        yield from _episodes(env, plays, steps, limit)
        returns = [value for play in plays for value in play.returns]
        yield from about_rewards([np.array(play.rewards) for play in plays], returns)
        yield from _team(plays, env.team_reward)
        yield from _bounds(layout, plays)
        seconds = sum(play.seconds for play in plays)
        yield Finding("ok", "speed", f"{total / max(seconds, 1e-9):,.0f} joint steps per second in one thread")
    except EnvironmentFault as fault:
        yield Finding("problem", "fault", str(fault), _remedy(fault))
    except UsageError as error:
        yield Finding("problem", "spaces", str(error))


def _bare(running: Running) -> object:
    """The object that the factory made."""
    close(running.env)
    return running.env.env if isinstance(running.env, GymnasiumTeam) else running.env


def _remedy(fault: EnvironmentFault) -> str:
    if isinstance(fault, UnlikeTask):
        return fault.advice
    if str(fault).startswith("making the environment"):
        return "call the factory with this seed in Python and see the traceback"
    return (
        "make the environment with the task seed, reset it with the episode seed, play random actions up to this step;"
        " fix it there, or in a wrapper"
    )


def _spaces(running: Running, layout: Layout) -> Iterator[Finding]:
    if isinstance(running.env, GymnasiumTeam):
        kind = f"Gymnasium environment {type(running.env.env).__name__}, one entry of its spaces per agent"
    else:
        named = getattr(running.env, "metadata", None) or {}
        kind = f"PettingZoo ParallelEnv {named.get('name', type(running.env).__name__)}"
    yield Finding("ok", "kind", kind)
    for agent in layout.agents:
        yield Finding("ok", "agent", f"{agent.name!r} observes {agent.observation}, acts in {agent.action}")
        spaces = gymnasium_spaces()
        if isinstance(agent.observation, spaces.Dict) and "action_mask" in agent.observation.keys():  # noqa: SIM118
            yield Finding(
                "note",
                "agent",
                f"{agent.name!r} is given an action_mask, which mesax shows to the learner but does not obey",
                "let forbidden actions do nothing",
            )
    sizes = {agent.obs_size for agent in layout.agents}
    padded = " (shorter ones padded with zeros)" if len(sizes) > 1 else ""
    yield Finding(
        "ok",
        "as mesax sees",
        f"{len(layout.agents)} agents, {layout.obs_size} numbers each{padded}, {layout.action_space}",
    )
    close(running.env)


def play_randomly(running: Running, layout: Layout, steps: int, episode_seed: int = 0, keep: bool = False) -> Play:
    """So many random steps; the same arguments give the same actions and seeds."""
    play = Play()
    started = time.perf_counter()
    for _ in _stepped(play, running, layout, steps, episode_seed):
        pass
    play.seconds = time.perf_counter() - started
    if not keep:
        close(running.env)
    return play


def _stepped(play: Play, running: Running, layout: Layout, steps: int, episode_seed: int) -> Iterator[None]:
    """Fill a play, one step at a time, so that two can take turns."""
    random = np.random.default_rng(episode_seed)
    bounds = {agent.name: gymnasium_spaces().flatten_space(agent.observation) for agent in layout.agents}
    length, total, episodes = 0, 0.0, 0

    def reset() -> None:
        play.rows.append(np.ravel(running.reset(episode_seed + episodes)))
        play.moments.append(f"the reset of episode {episodes + 1}")

    reset()
    for _ in range(steps):
        outcome = running.step(layout.random_action(random))
        length, total = length + 1, total + outcome.reward
        play.rows.append(_row(outcome))
        play.moments.append(f"step {length} of episode {episodes + 1}")
        _note_step(play, outcome, layout, bounds)
        if outcome.terminated or outcome.truncated:
            play.lengths.append(length)
            play.returns.append(total)
            play.ends["terminated" if outcome.terminated else "truncated"] += 1
            length, total, episodes = 0, 0.0, episodes + 1
            reset()
        yield


def _note_step(play: Play, outcome: Outcome, layout: Layout, bounds: Mapping[Hashable, Any]) -> None:
    play.rewards.append(outcome.reward)
    play.same_rewards &= len(set(outcome.rewards.values())) <= 1
    if not (outcome.terminated or outcome.truncated):
        play.left_early.update(outcome.left)
    for agent, row in zip(layout.agents, outcome.obs, strict=True):
        box, own = bounds[agent.name], row[: agent.obs_size]
        if agent.name in outcome.rewards and not np.all((own >= box.low - TOLERANCE) & (own <= box.high + TOLERANCE)):
            play.outside.add(agent.name)


def _first_difference(left: Play, right: Play) -> str | None:
    """The first reset or step in which two plays are not the same."""
    for moment, one, other in zip(left.moments, left.rows, right.rows, strict=False):
        if not np.array_equal(one, other):
            return moment
    return None


def _repeats(env: ForeignEnvironment, layout: Layout, first: Play, steps: int) -> Iterator[Finding]:
    """The same seeds and actions must give the same play: anew, in a used environment, and next to another one."""
    running = env.open(0)
    anew = play_randomly(running, layout, steps, keep=True)
    at = _first_difference(first, anew)
    if at is not None:
        close(running.env)
        yield from _not_repeatable(env, layout, at, steps)
        return
    play_randomly(running, layout, min(steps, 50), episode_seed=1, keep=True)
    at = _first_difference(first, play_randomly(running, layout, steps))
    if at is not None:
        yield Finding(
            "problem",
            "determinism",
            f"an environment that was used before plays otherwise than a new one, from {at} on",
            "let reset(seed) set back everything that changes, counters and maps too",
        )
        return
    kept = _kept_state(env, layout, max(steps // STEPS_PER_PAIR, 2))
    if kept is not None:
        yield kept
        return
    together, pair = Play(), (env.open(0), env.open(1))
    turns = _stepped(together, pair[0], layout, steps, 0), _stepped(Play(), pair[1], layout, steps, 1)
    for _ in zip(*turns, strict=True):
        pass
    for running in pair:
        close(running.env)
    at = _first_difference(first, together)
    if at is not None:
        yield Finding(
            "problem",
            "determinism",
            f"two environments that run side by side disturb each other, from {at} on",
            "keep all state and the random generator in the object, none in the module or the class",
        )
        return
    disturbed = None if os.environ.get(THREADS) == "1" else _disturbed_by_threads(env, layout)
    if disturbed is not None:
        yield disturbed
        return
    yield Finding(
        "ok", "determinism", f"the same seeds and actions give the same {steps} steps, reused and side by side"
    )


def _kept_state(env: ForeignEnvironment, layout: Layout, pairs: int) -> Finding | None:
    """What a reset does not set back: episodes that are played twice, one right after the other, in one environment."""
    running = env.open(0)
    for seed in range(pairs):
        once, again = (_short_episode(running, layout, seed) for _ in range(2))
        at = _first_difference(once, again)
        if at is not None:
            close(running.env)
            return Finding(
                "problem",
                "determinism",
                f"reset(seed={seed}) twice in one environment gives two different episodes, from {at} on:"
                f" {_shown_difference(layout, once, again)}; something of the last episode is kept",
                "let reset(seed) set back all that an episode changes (positions, counters, maps), before it draws"
                " anything",
            )
    close(running.env)
    return None


def _disturbed_by_threads(env: ForeignEnvironment, layout: Layout) -> Finding | None:
    """Environments that are played in threads, as in a run; those that share a counter or a generator get it wrong."""

    def episodes(running: Running) -> list[Play]:
        return [_short_episode(running, layout, seed) for seed in range(EPISODES_PER_THREAD)]

    copies = [env.open(0) for _ in range(PLAYING_THREADS)]
    expected, interval = episodes(copies[0]), sys.getswitchinterval()
    sys.setswitchinterval(OFTEN)
    try:
        with ThreadPoolExecutor(PLAYING_THREADS) as pool:
            plays = [future.result() for future in [pool.submit(episodes, running) for running in copies]]
        same = all(_first_difference(*pair) is None for play in plays for pair in zip(expected, play, strict=True))
        what = "play otherwise than alone"
    except EnvironmentFault as fault:
        same, what = False, f"break ({fault})"
    finally:
        sys.setswitchinterval(interval)
        for running in copies:
            close(running.env)
    if same:
        return None
    return Finding(
        "problem",
        "determinism",
        f"{PLAYING_THREADS} environments that run in threads {what}",
        "keep all state and the random generator in the object, none in the module or the class; or set"
        f" {THREADS}=1, for this command and for every run",
    )


def _short_episode(running: Running, layout: Layout, seed: int) -> Play:
    """The first steps of one episode; the same arguments give the same actions."""
    play, random = Play(), np.random.default_rng(seed)
    play.rows.append(np.ravel(running.reset(seed)))
    play.moments.append("the reset")
    for step in range(SHORT):
        outcome = running.step(layout.random_action(random))
        play.rows.append(_row(outcome))
        play.moments.append(f"step {step + 1}")
        if outcome.terminated or outcome.truncated:
            break
    return play


def _shown_difference(layout: Layout, once: Play, again: Play) -> str:
    """Which number is not the same, in words."""
    for one, other in zip(once.rows, again.rows, strict=False):
        if one.shape != other.shape:
            break
        for index in np.flatnonzero(one != other)[:1]:
            agent, position = divmod(int(index), layout.obs_size)
            values = f"{one[index]:.4g}, then {other[index]:.4g}"
            if agent < len(layout.agents):
                return f"agent {layout.names[agent]!r} observes {values} at position {position}"
            return f"{('the reward', 'terminated', 'truncated')[position]} is {values}"
    return "one is longer than the other"


def _row(outcome: Outcome) -> np.ndarray:
    """A step as one vector."""
    return np.concatenate([outcome.obs.ravel(), [outcome.reward, outcome.terminated, outcome.truncated]])


def _not_repeatable(env: ForeignEnvironment, layout: Layout, at: str, steps: int) -> Iterator[Finding]:
    others = [play_randomly(env.open(0), layout, steps, episode_seed=1) for _ in range(2)]
    if _first_difference(*others) is None:
        yield Finding(
            "problem",
            "determinism",
            "reset(seed=0) does not repeat, reset(seed=1) does: seed 0 is taken for no seed",
            "write `if seed is not None`, not `if seed`",
        )
        return
    yield Finding(
        "problem",
        "determinism",
        f"the same seeds and actions give another play, from {at} on",
        "draw all chance from a generator that reset(seed) sets, such as Gymnasium's self.np_random, and the task from"
        " the factory's seed; neither from np.random or random",
    )


def _differences(env: ForeignEnvironment, layout: Layout, plays: list[Play], steps: int) -> Iterator[Finding]:
    """Seeds should make a difference."""
    other = play_randomly(env.open(0), layout, steps, episode_seed=1)
    first, others = plays[0], plays[1:]
    yield from about_seeds(
        not np.array_equal(first.rows[0], other.rows[0]),
        len(plays),
        any(_first_difference(first, play) is not None for play in others),
        any(not np.array_equal(first.rows[0], play.rows[0]) for play in others),
        "else draw the task from the factory's seed",
    )


def _episodes(env: ForeignEnvironment, plays: list[Play], steps: int, limit: int | None) -> Iterator[Finding]:
    """How long they are, and where a run would cut them; `limit` is what they may last, if the environment says so."""
    lengths = [length for play in plays for length in play.lengths]
    ends = sum((play.ends for play in plays), Counter[str]())
    text = f"none ended within {steps} steps"
    if lengths:
        how = " and ".join(f"{number} {name}" for name, number in sorted(ends.items()))
        text = f"{min(lengths)} to {max(lengths)} steps, {how}"
    try:
        horizon = length_of_a_cut(env.make) if limit is None else limit  # as `environment_of` does for a run
    except UsageError:
        yield Finding(
            "problem",
            "episodes",
            f"{text}; the length of an episode is unknown, and a run needs it",
            HOW_TO_GIVE_A_HORIZON,
        )
        return
    yield _length(text, lengths, ends, horizon, found=limit is None)
    layout = env.layout
    left = set().union(*(play.left_early for play in plays))
    if left:
        names = ", ".join(repr(agent.name) for agent in layout.agents if agent.name in left)
        yield Finding("ok", "leaving", f"{names} may leave before the end: zeros are seen in their place")


def _length(text: str, lengths: list[int], ends: Counter[str], horizon: int, found: bool) -> Finding:
    """About episodes that a run would cut after `horizon` steps; `found`: by playing."""
    by_playing = ", found by playing" if found else ""
    if not lengths:
        return Finding("ok", "episodes", f"{text}; a run cuts them after {horizon}{by_playing}")
    if horizon < max(lengths):
        return Finding(
            "note",
            "episodes",
            f"{text}; a run cuts them after {horizon}, before some of them end",
            "name mesax.ForeignEnvironment(make, horizon=...) with another horizon if that is too short",
        )
    if min(lengths) == max(lengths) and set(ends) == {"terminated"} and max(lengths) > 1 and len(lengths) > 2:
        return Finding(
            "note",
            "episodes",
            f"{text}: all terminate at the same step; horizon={horizon}{by_playing}",
            "if that is a limit of time, say truncated: learners then bootstrap from the last observation"
            + (f"; if not, {HOW_TO_GIVE_A_HORIZON}" if found else ""),
        )
    if ends["truncated"]:
        return Finding("ok", "episodes", f"{text}; horizon={horizon} holds them all")
    return Finding(
        "ok",
        "episodes",
        f"{text}; " + (f"horizon={horizon}{by_playing}" if found else f"none is longer than {horizon}"),
    )


def _team(plays: list[Play], team_reward: TeamReward) -> Iterator[Finding]:
    if not any(any(play.rewards) for play in plays):
        return
    if all(play.same_rewards for play in plays):
        yield Finding("ok", "team", "all agents are always paid the same: team_reward='shared' fits")
    elif team_reward != "mean":
        yield Finding("ok", "team", f"agents are paid apart; the team is paid their {team_reward}")
    else:
        yield Finding(
            "note", "team", "agents are paid apart; mesax learns one reward for the team", "team_reward 'mean' or 'sum'"
        )


def _bounds(layout: Layout, plays: list[Play]) -> Iterator[Finding]:
    outside = set().union(*(play.outside for play in plays))
    if outside:
        names = ", ".join(repr(agent.name) for agent in layout.agents if agent.name in outside)
        yield Finding(
            "note",
            "bounds",
            f"observations of {names} overstep their space",
            "mesax takes them as they are; widen the space",
        )
