"""What explorers of another world reach before anything is learned: `zero-shot.json` of the store.

rows   one for each run that explorers are of, world they play in, seed of its tasks and number of explorers:
       for every way to transfer them, steps per episode with the highest reward on each unseen task
"""

from __future__ import annotations

from pathlib import Path

from mesax.errors import DamageError
from mesax.store.files import write_file
from mesax.store.json_files import read_json
from mesax.store.json_values import Json, json_text

FILE = "zero-shot.json"
COMMAND = "python benchmarks/zero_shot.py RUN_DIR --env ENV --keep"
UNIFORM = "uniform play"
"""The way without explorers."""
PLACE = ("explorers", "explorer_seed", "number", "env", "seed")
"""What a row is of; another measurement of the same takes its place, and keeps ways that it has not."""


def measured(store: Path) -> list[Json]:
    """All rows; none if nothing was ever measured."""
    path = store / FILE
    if not path.is_file():
        return []
    rows = read_json(path).get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "ways" in row for row in rows):
        raise DamageError(f"{path} holds no rows of what explorers reach")
    return rows


def keep_row(store: Path, row: Json) -> Path:
    """Put a row into the store, in place of one of the same; ways that were measured with other explorers go."""
    rows, ways = [], row["ways"]
    for one in measured(store):
        if any(one.get(name) != row[name] for name in PLACE):
            rows.append(one)
        elif (one.get("trained_with"), one.get("episodes")) == (row["trained_with"], row["episodes"]):
            ways = one["ways"] | ways
    rows.append(row | {"ways": ways})
    rows.sort(key=lambda one: [str(one.get(name)) for name in PLACE])
    write_file(store / FILE, json_text({"command": COMMAND, "rows": rows}).encode())
    return store / FILE


def name_of(run: Json) -> str:
    """What the explorers of a run are called."""
    return f"{run['method']} {run['env']}, preset {run['preset']}"
