"""The ring of `tiny_meeting.py`, which writes down who opens and closes it; with $RING_MEETS, one of two breaks."""

import os
import time
from pathlib import Path
from typing import ClassVar

import tiny_meeting

LOG, MEETS = "RING_LOG", "RING_MEETS"
"""Environment variables: a file, and a directory that two workers meet in."""
STEPS_BEFORE = 100
"""More than a worker takes to look at an environment, and fewer than its first job takes."""


class Logged(tiny_meeting.Ring):
    steps: ClassVar = 0

    def __init__(self, task: int):
        super().__init__(task)
        self.say("open")

    def say(self, word: str) -> None:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{os.getpid()} {word}\n")

    def step(self, actions):
        Logged.steps += 1
        if Logged.steps > STEPS_BEFORE and MEETS in os.environ:
            self.meet(Path(os.environ[MEETS]))
        return super().step(actions)

    def meet(self, place: Path) -> None:
        """Who comes first breaks as soon as the other is here, which stays in the middle of its step."""
        other = place / "other"
        try:
            (place / "first").touch(exist_ok=False)
        except FileExistsError:
            other.touch()
            time.sleep(120)
        while not other.exists():
            time.sleep(0.01)
        self.places = self.places[[7]]

    def close(self):
        self.say("close")


def make(seed: int) -> Logged:
    """One task."""
    return Logged(seed)
