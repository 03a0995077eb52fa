"""`mesax render`: a picture of an episode."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.run(parser)
    shared.load(parser)
    parser.add_argument("--task", type=int, default=0, help="number of the test task (default 0)")
    text = "final, best, uniform, or explorer-1, explorer-2, ... (default final)"
    parser.add_argument("--policy", default="final", help=text)
    parser.add_argument("--gif", type=shared.path, help="file of the GIF (default: in figures/ of the run)")


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.playing").render(options)
