"""Annotations as facts: jaxtyping with beartype on every part of mesax that holds arrays."""

import os

import jaxtyping

PARTS = tuple(
    f"mesax.{name}"
    for name in (
        *("types", "policy", "replay", "moments", "nets", "algorithms", "rewards"),
        *(f"envs.{file}" for file in ("base", "climb", "host", "particles", "particle_climb", "simple_spread")),
        *("envs.swimmer_climb", "explorers.shared_latent"),
    )
)
"""What they take and give back is held to its annotations, shapes included.

Adapters are left out: they hold other people's objects, and check at every step what these really say. So are the
driver and the methods around it, where the same values are on the host and on the device by turns.
"""
ON = os.environ.get("MESAX_TYPECHECK") != "0"
"""Can be left out, to debug without it."""


def install() -> None:
    """Check all parts that are imported from here on."""
    if ON:
        # As everywhere in Python's typing, where a float is asked for an int will do.
        jaxtyping.install_import_hook(PARTS, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
