"""`mesax verify RUN_DIR`: the files of a run against their checksums."""

from __future__ import annotations

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import imported


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.run(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return imported("cli.looking").verify(options)
