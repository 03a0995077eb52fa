"""A small world whose code does what it should not, at one step of one process: named by what it does."""

import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ELSEWHERE = "MESAX_TEST_ELSEWHERE"
AT = "MESAX_TEST_AT"
COUNT = [0]
RED = "\x1b[31mred\x1b]0;title\x07"


def leave() -> None:
    os._exit(0)


def move() -> None:
    os.chdir(os.environ[ELSEWHERE])


def fork_and_return() -> None:
    """The child goes on as if it were the run."""
    os.fork()


def fork_and_stay() -> None:
    """The child outlives the run, and holds what it inherited."""
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "20"])


def shout() -> None:
    raise RuntimeError(RED)


class World(gymnasium.Env[Any, Any]):
    """Two agents that are paid for one action, for five steps."""

    max_steps = 5

    def __init__(self, seed: int, trick: Callable[[], None]):
        self.observation_space = spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32),) * 2)
        self.action_space = spaces.Tuple((spaces.Discrete(3),) * 2)
        self.paid, self.trick = seed % 3, trick

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return (np.full(2, self.time / 10, np.float32),) * 2

    def step(self, action: Any) -> Any:
        self.time += 1
        COUNT[0] += 1
        if COUNT[0] == int(os.environ.get(AT, "0")):
            self.trick()
        return self.seen(), float(action[0] == self.paid), False, self.time >= self.max_steps, {}


def leaves(seed: int) -> World:
    return World(seed, leave)


def moves(seed: int) -> World:
    return World(seed, move)


def forks(seed: int) -> World:
    return World(seed, fork_and_return)


def stays(seed: int) -> World:
    return World(seed, fork_and_stay)


def shouts(seed: int) -> World:
    return World(seed, shout)
