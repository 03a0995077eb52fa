"""Learners that really play: sampled joint actions instead of expectations, and the exact maximizer of J at every look.

repeat:  act for a block of steps, each at random with the exploration's probability, else greedily for the present Q
         Q = maximizer of J on the counts so far
until the maximum of Q is at (0, 0) and stays there

Blocks grow with the number of steps, so a million steps cost a hundred solves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from paper.theory.quadratic import maximizer, reward_matrix

Chance = Callable[[int], float]
"""The probability that step t is random."""
STAYS = 3
"""A learner has settled once the optimum has led until this many times as many steps, and at least this many per joint
action: a first lucky step proves nothing."""
GROWTH = 1.1


@dataclass(frozen=True)
class SampledLearner:
    """A learner that acts at random with a probability that may fall, and greedily otherwise."""

    name: str
    chance: Chance
    same_action: bool = False
    """Whether random joint actions are those in which both agents play the same."""

    def steps_needed(self, num_actions: int, delta: float, most_steps: int, seed: int) -> float:
        """Steps until Q is equivalently optimal, and stays so; infinite if that takes more than `most_steps`."""
        random = np.random.default_rng((seed, num_actions))
        rewards = reward_matrix(num_actions, delta)
        counts = np.zeros_like(rewards)
        greedy: tuple[int, int] | None = None
        since: int | None = None
        for first, last in _blocks(STAYS * max(most_steps, num_actions**2)):
            counts += self._block(random, num_actions, first, last, greedy)
            values = maximizer(counts, rewards).values
            best = np.argwhere(values >= values.max() - 1e-9)
            greedy = tuple(random.choice(best))
            if len(best) > 1 or greedy != (0, 0):
                since = None
            elif since is None:
                since = last
            elif last >= STAYS * max(since, num_actions**2):
                return float(since)
        return np.inf

    def _block(
        self, random: np.random.Generator, num_actions: int, first: int, last: int, greedy: tuple[int, int] | None
    ) -> np.ndarray:
        """Counts of the steps first to last; within a long block the chance is that of its middle."""
        number = last - first + 1
        chance = 1.0 if greedy is None else self.chance((first + last + 1) // 2)
        explored = random.binomial(number, chance)
        shares = np.eye(num_actions) / num_actions if self.same_action else np.full((num_actions,) * 2, num_actions**-2)
        counts = random.multinomial(explored, shares.ravel()).reshape(num_actions, num_actions).astype(float)
        if greedy is not None:
            counts[greedy] += number - explored
        return counts


LEARNERS = (
    SampledLearner("structured", lambda step: 1.0, same_action=True),
    SampledLearner("uniform", lambda step: 1.0),
    SampledLearner("ε-greedy, ε = 0.1", lambda step: 0.1),
    SampledLearner("ε-greedy, ε = 1/t", lambda step: 1.0 / step),
)


def _blocks(most_steps: int) -> Iterator[tuple[int, int]]:
    """First and last steps of blocks that grow."""
    last = 0
    while last < most_steps:
        first, last = last + 1, max(last + 1, int(last * GROWTH))
        yield first, last
