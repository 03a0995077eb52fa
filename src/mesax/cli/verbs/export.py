"""`mesax export`: what a run has, for other programs."""

import argparse

from mesax.bridges.tracking.sinks import TRACKERS
from mesax.cli import arguments as shared
from mesax.cli.telling import imported, with_jax

BUNDLE = "bundle"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    shared.run(parser)
    text = "a bundle of the explorers, or the rows for a tool (default bundle)"
    parser.add_argument("--to", choices=[BUNDLE, *TRACKERS], default=BUNDLE, help=text)
    text = "directory of the bundle or the rows (default: bundle/ or tracking/ in the run)"
    parser.add_argument("--out", type=shared.path, help=text)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    if options.to == BUNDLE:
        return with_jax("mesax.cli.playing").export_bundle(options)
    return imported("mesax.cli.looking").export_rows(options)
