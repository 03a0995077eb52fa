"""Annotations as facts: jaxtyping with beartype on every part of mesax that holds arrays."""

import importlib.util
import os
from pathlib import Path

import jaxtyping

SOURCE = Path(str(importlib.util.find_spec("mesax").origin)).parent
PARTS = (
    *("mesax.types", "mesax.policy", "mesax.replay", "mesax.moments", "mesax.nets", "mesax.algorithms"),
    *("mesax.rewards", "mesax.explorers", "mesax.training", "mesax.methods"),
    *(f"mesax.envs.{path.stem}" for path in sorted((SOURCE / "envs").glob("[a-z]*.py"))),
    "mesax.envs.proofs",
)
"""What they take and give back is held to its annotations, shapes included.

Adapters are left out: they hold other people's objects, and check at every step what these really say.
"""
ON = os.environ.get("MESAX_TYPECHECK") != "0"
"""Can be left out, to debug without it."""


def install() -> None:
    """Check all parts that are imported from here on."""
    if ON:
        # As everywhere in Python's typing, where a float is asked for an int will do.
        jaxtyping.install_import_hook(PARTS, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
