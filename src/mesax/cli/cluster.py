"""The cluster of `--on ray`: what is asked for, and the connection to it."""

from __future__ import annotations

import argparse
import sys

from mesax.bridges.ray_cluster import connection
from mesax.bridges.ray_cluster.where import OnRay
from mesax.errors import UsageError


def cluster_of(options: argparse.Namespace) -> OnRay | None:
    """The cluster that is to do the jobs, if one is asked for and could be used."""
    on = cluster_asked_for(options)
    if on is not None:
        on.check()
    return on


def cluster_asked_for(options: argparse.Namespace) -> OnRay | None:
    """The same by its options alone: a plan is made where neither Ray nor the cluster is."""
    if options.on is None:
        given = ("--address", options.address), ("--shared", options.shared), ("--num-gpus", options.num_gpus)
        for name, value in given:
            if value:
                raise UsageError(f"{name} belongs to a cluster: say --on ray, too")
        return None
    return OnRay(options.address, options.shared, options.num_gpus or 0.0)


def join(on: OnRay | None, options: argparse.Namespace) -> None:
    """Connect to the cluster now: what is wrong with it is said before anything is begun."""
    if on is None:
        return
    if on.cluster is None and not options.quiet and connection.loaded() is None:
        print("starting Ray on this machine", file=sys.stderr, flush=True)
    connection.connect(on, options.workers)


def leave_cluster(on: OnRay | None) -> None:
    """Disconnect; a cluster that was started here ends."""
    if on is not None:
        connection.disconnect()
