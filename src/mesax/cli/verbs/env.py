"""`mesax env check`: whether an environment of the user's fits."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax

MOST_SEEDS, MOST_STEPS = 1_000, 100_000
"""All that is played is held in memory."""
MOST_VERDICT_STEPS = 1_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    text = "random play in an environment of PettingZoo, Gymnasium or JaxMARL, or a task family, and what does not fit"
    check = actions.add_parser(
        "check", help=text, description=text, allow_abbrev=False, formatter_class=parser.formatter_class
    )
    check.add_argument(
        "factory", metavar="MODULE:ATTRIBUTE", help="a function from a seed to an environment, or a task family"
    )
    seeds, steps = shared.number("--seeds", 1, MOST_SEEDS), shared.number("--steps", 2, MOST_STEPS)
    check.add_argument("--seeds", type=seeds, default=3, help="tasks to play (default 3)")
    check.add_argument("--steps", type=steps, default=500, help="steps on each (default 500)")
    check.add_argument(
        "--verdict",
        metavar="STEPS",
        type=shared.number("--verdict", 1, MOST_VERDICT_STEPS),
        help="also say whether explorers will help, from so many random steps on each training task of a run",
    )
    shared.json(check)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.env.check").check(
        options.factory, options.seeds, options.steps, options.json, options.verdict
    )
