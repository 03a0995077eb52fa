"""`mesax compare`: several runs in one table."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import imported


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.runs(parser)
    text = "directory of the pictures (default: figures/ next to the first run)"
    parser.add_argument("--out", type=shared.directory, help=text)
    shared.json(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return imported("mesax.cli.looking").compare(options)
