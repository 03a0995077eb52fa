"""`mesax theory`: the paper's lemmas and theorems."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import imported


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    text = "directory of the tables and the picture (default runs/theory)"
    parser.add_argument("--out", type=shared.directory, default="runs/theory", help=text)
    shared.json(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return imported("paper.cli.theorems").theory(options)
