"""`mesax list`: names, the settings of a run, or the deviations from the paper."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import imported, with_jax


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("method", metavar="METHOD", nargs="?", help="method of a run whose settings are wanted")
    parser.add_argument("env", metavar="ENV", nargs="?", help="its environment")
    shared.preset(parser)
    parser.add_argument("--learner", help="its learner, as for 'mesax run'")
    parser.add_argument("--all", action="store_true", help="every setting, not only those that matter most")
    parser.add_argument("--grep", metavar="WORD", help="settings whose name or meaning has a word")
    parser.add_argument("--deviations", action="store_true", help="every difference from the paper, in a line each")


def main(options: argparse.Namespace) -> int:
    """Do it; only the settings of a run need JAX."""
    listing = imported("mesax.cli.listing")
    if options.deviations:
        return listing.list_deviations()
    if options.method is None:
        return listing.list_names()
    listing.check_names(options)
    return with_jax("mesax.cli.running").list_settings(options)
