"""`mesax eval`: new episodes of saved policies."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax

MOST_EPISODES = 100_000
"""All of them are held in memory: more would ask for more than there is before they tell more."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.run(parser)
    shared.load(parser)
    kind = shared.number("--episodes", 1, MOST_EPISODES)
    parser.add_argument("--episodes", type=kind, default=100, help="episodes of each policy (default 100)")
    kind = shared.number("--seed", 0, 2**32 - 1)
    parser.add_argument("--seed", type=kind, default=0, help="seed of these episodes, not of the run")
    text = "policy at the end of the run, or at its best evaluation (default final)"
    parser.add_argument("--policy", choices=["final", "best"], default="final", help=text)
    shared.json(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.playing").evaluate(options)
