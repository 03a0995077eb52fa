"""`mesax reproduce`: figures and tables of the paper."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax
from mesax.experiments.names import PRESETS


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument(
        "piece",
        metavar="NAME",
        help="figure-1, figure-3, figure-4, figure-6 to figure-9, table-2, table-wide, theory, all",
    )
    one_of = parser.add_mutually_exclusive_group()
    text = "a list of what is stored, what is missing and what that costs; with --methods or --envs, all commands"
    one_of.add_argument("--plan", action="store_true", help=text)
    one_of.add_argument("--run", action="store_true", help="run what is missing, and keep it in the store")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="only these methods (default: all)")
    parser.add_argument("--envs", nargs="+", metavar="ENV", help="only these environments (default: all)")
    text = "only runs of this preset (default: all, but --run runs those of quick: paper takes up to hours)"
    parser.add_argument("--preset", choices=list(PRESETS), help=text)
    parser.add_argument("--all", action="store_true", help="complete rows too, not only those that lack runs")
    parser.add_argument("--runs", type=shared.path, default="runs", help="directory of runs (default runs)")
    text = "store of results (default results)"
    parser.add_argument("--results", type=shared.path, metavar="DIR", default="results", help=text)
    text = "directory of the pictures (default runs/paper)"
    parser.add_argument("--out", type=shared.directory, default="runs/paper", help=text)
    shared.quiet(parser)
    shared.json(parser)
    shared.at_once(parser)
    shared.jobs(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("paper.cli.reproducing").reproduce(options)
