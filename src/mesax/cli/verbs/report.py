"""`mesax report`: a page about runs."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import imported


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.runs(parser)
    shared.load(parser)
    text = "file of the page (default: report.html in the first directory)"
    parser.add_argument("--out", type=shared.path, help=text)
    text = "no episodes of runs that have not recorded any"
    parser.add_argument("--no-episodes", dest="episodes", action="store_false", help=text)
    shared.quiet(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return imported("mesax.cli.looking").report(options)
