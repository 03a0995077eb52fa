"""`mesax sweep`: methods x environments x seeds."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax

TAKES_SETTINGS = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes, settings of the runs aside."""
    parser.epilog = "Any other option is passed on to 'mesax run', for example --schedule.total-steps 20000."
    parser.add_argument("--methods", nargs="+", required=True, metavar="METHOD", help=shared.METHOD_HELP)
    parser.add_argument("--envs", nargs="+", required=True, metavar="ENV", help=shared.ENV_HELP)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED", help="default: 0")
    shared.preset(parser)
    shared.test_tasks(parser)
    text = "directory of the run directories (default runs/sweep)"
    parser.add_argument("--out", type=shared.directory, default="runs/sweep", help=text)
    parser.add_argument("--plan", action="store_true", help="a list of the runs, none of which is started")
    text = "store of results: runs whose result is there are skipped, those that finish are kept there"
    parser.add_argument("--results", type=shared.path, metavar="DIR", help=text)
    shared.track(parser)
    shared.json(parser)
    shared.quiet(parser)
    shared.at_once(parser)
    shared.jobs(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.sweeping").sweep_runs(options)
