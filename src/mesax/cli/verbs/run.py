"""`mesax run`: one run from its names and settings."""

import argparse

from mesax.cli import arguments as shared
from mesax.cli.telling import with_jax
from mesax.experiments.names import AROUND_ANY, LEARNERS

TAKES_SETTINGS = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes, settings aside."""
    parser.epilog = (
        "Any other setting is given as --path value, for example --schedule.total-steps 20000 or"
        " --algorithm.actor-update.margin 0.2; 'mesax list METHOD ENV --all' shows all of them."
        " --reward-model rnd pays the learner of the test tasks by a model of that name, or by one of your own as"
        " MODULE:CLASS."
    )
    parser.add_argument("method", metavar="METHOD", help=shared.METHOD_HELP)
    parser.add_argument("env", metavar="ENV", help=shared.ENV_HELP)
    shared.preset(parser)
    parser.add_argument(
        "--learner",
        help=f"learner inside {', '.join(AROUND_ANY)}: {', '.join(LEARNERS)}; mappo and mappo-rnd learn from their own"
        " episodes only and go with plain, pretrain, goal and cbet; or one of your own as MODULE:CLASS",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of tasks, nets and all chance")
    shared.test_tasks(parser)
    parser.add_argument("--out", type=shared.path, help="run directory (default runs/<id>)")
    shared.json(parser)
    shared.quiet(parser)
    parser.add_argument("--reuse", action="store_true", help="use or continue a directory that holds this very run")
    text = "every setting that differs from preset paper, before the run begins"
    parser.add_argument("--explain", action="store_true", help=text)
    shared.track(parser)
    shared.jobs(parser)


def main(options: argparse.Namespace) -> int:
    """Do it."""
    return with_jax("mesax.cli.running").run(options)
