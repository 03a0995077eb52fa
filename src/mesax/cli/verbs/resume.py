"""`mesax resume`: the rest of a run that was stopped."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.run(parser)
    shared.load(parser)
    shared.track(parser)
    shared.json(parser)
    shared.quiet(parser)
    shared.jobs(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.running").resume(options)
