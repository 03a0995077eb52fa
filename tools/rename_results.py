"""Gives results of worlds that have other names now these names: in the files, and the files themselves.

    python tools/rename_results.py results

What a world was called when a result was made stays under `made_with`. Settings and their hashes stay what they are, so
what was fresh is fresh. Files that have today's names are left alone. What explorers of such worlds reach
(`zero-shot.json`) follows them, if they would be trained with the same settings today.
"""

import argparse
import re
from pathlib import Path

from mesax.results.evidence.kept import Kept, all_kept, file_names
from mesax.runtime import configure
from mesax.store.files import write_file
from mesax.store.json_files import read_json
from mesax.store.json_values import Json, json_ready, json_text
from mesax.suites.renamed import RENAMED_FROM, name_today
from paper.freshness import trained_today
from paper.zero_shot import COMMAND, FILE, measured


def main() -> None:
    """Rename what has to be, with a line about each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path)
    store = parser.parse_args().store
    configure()
    for kept in all_kept(store, print):
        if RENAMED_FROM in kept.facts:
            print(f"{kept.path} -> {renamed(kept)}")
    if (rows := measured(store)) != (today := [renamed_row(row) for row in rows]):
        write_file(store / FILE, json_text({"command": COMMAND, "rows": today}).encode())
        print(f"{store / FILE}: {sum(RENAMED_FROM in row for row in today)} rows")


def renamed(kept: Kept) -> Path:
    """Write a result that was read under another name than it has to a file of that name; the old file goes last."""
    before, today = read_json(kept.path), dict(kept.facts)
    name = today.pop(RENAMED_FROM)
    today["made_with"] = (today.get("made_with") or {}) | {RENAMED_FROM: name}
    place = file_names(before).index(kept.path.stem)  # two requests may share the first name
    path = kept.path.with_name(f"{file_names(today)[place]}.json")
    if path.exists() and read_json(path) != json_ready(today):  # or it was written before this was stopped
        raise SystemExit(f"{path} is another result: {kept.path} cannot take its place")
    write_file(path, json_text(today).encode())
    kept.path.unlink()
    return path


def renamed_row(row: Json) -> Json:
    """What explorers of another world reach: the same, if they are those of the name that their world has now."""
    explorers = re.sub(r"[^ ,]+", lambda word: name_today(word[0]), row["explorers"])
    if explorers == row["explorers"] or row.get("trained_with") != trained_today(explorers):
        return row
    before = {name: row[name] for name in ("explorers", "env")}
    return row | {"explorers": explorers, "env": name_today(row["env"]), RENAMED_FROM: before}


if __name__ == "__main__":
    main()
