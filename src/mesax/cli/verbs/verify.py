"""`mesax verify RUN_DIR`: the files of a run against their checksums."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.run(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.checking").verify(options)
