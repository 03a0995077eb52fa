"""`mesax doctor`: an examination of this machine."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.json(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.doctor").examine(as_json=options.json)
