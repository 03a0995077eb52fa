"""A Ray cluster of one node on this machine, as a process: says where it is on stdout, ends when its stdin closes.

A process of its own, because Ray forks others, which a process that computes with JAX must not; and because the cluster
then ends with the process that started it, however that ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys

from mesax.runtime import available_cores


def main() -> None:
    """Start Ray with as many CPUs as the argument says, or as there are."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they may reach the whole group; the run decides what they mean
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints goes to the log
    # A worker on this machine is as important as it would be without Ray, whose default is a niceness of 15.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray  # noqa: PLC0415  (it takes a second)

    cpus = int(sys.argv[1]) if len(sys.argv) > 1 else available_cores()
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    for number in (signal.SIGINT, signal.SIGTERM):  # Ray has set its own
        signal.signal(number, signal.SIG_IGN)
    # Ray lets in only who has its token, which it keeps with the user's files, and says so in this variable.
    found = {name: os.environ[name] for name in os.environ if name == "RAY_AUTH_MODE"}
    answers.write(json.dumps({"address": ray.get_runtime_context().gcs_address, "environment": found}) + "\n")
    answers.flush()
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main()
