"""`mesax verify RESULTS`: a store of results, and the pages that quote it; a run directory is left to the other one."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("run", metavar="RUN_DIR|RESULTS", type=shared.path)
    text = "rewrite what the README and docs/ next to a store of results quote from it"
    parser.add_argument("--write", action="store_true", help=text)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("paper.cli.quotes").verify(options)
