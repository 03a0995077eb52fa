"""`mesax status`: a table of the runs of a directory."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import imported


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    text = "directory of runs (default runs)"
    parser.add_argument("directory", metavar="DIR", type=shared.path, nargs="?", default="runs", help=text)
    parser.add_argument("--watch", action="store_true", help="a table that is kept up to date until no run is at work")
    shared.json(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return imported("mesax.cli.looking").status(options)
