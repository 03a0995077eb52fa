"""Verbs that study the paper: `theory`, `reproduce`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from mesax.cli.telling import prepare_jax
from mesax.errors import FAILED

if TYPE_CHECKING:
    from mesax.store.reading import RunResults


def theory(options: argparse.Namespace) -> int:
    """Check the paper's lemmas and theorems, and draw what they say."""
    from mesax.results.paper.theory import slips_text, tables, write_theory
    from mesax.results.safe_drawing import attempt
    from mesax.results.tables import print_table
    from mesax.theory.study import study

    document = study()
    for table in tables(document):
        print_table(table)
        print()
    print(slips_text(document), end="\n\n")
    for path in attempt("of the theory", lambda: write_theory(document, options.out)) or []:
        print(f"written  {path}")
    if options.json:
        print(json.dumps(document, ensure_ascii=False))
    return 0


def reproduce(options: argparse.Namespace) -> int:
    """Draw a figure of the paper from stored runs; say what is missing and what it costs."""
    from mesax.results.reproduce import find_runs, missing_commands, piece_named, status_table
    from mesax.results.safe_drawing import attempt
    from mesax.results.tables import print_table

    piece = piece_named(options.piece)
    found = find_runs(piece, options.runs)
    if piece.cells:
        print_table(status_table(piece, found))
    for command in missing_commands(found):
        print(f"missing  {command}")
    drawn: list[Path] = []
    if not piece.cells or any(one.runs for one in found):
        drawn = attempt(piece.name, lambda: piece.draw(found, options.out, _render)) or []
        for path in drawn:
            print(f"drawn    {path}")
    else:
        print(f"nothing is stored below {options.runs} that {piece.name} could be drawn from")
    if options.json:
        stored = [{"run": one.cell.name, "seeds": sorted(one.runs), "missing": one.missing} for one in found]
        print(json.dumps({"name": piece.name, "runs": stored, "drawn": [str(path) for path in drawn]}))
    return 0 if drawn else FAILED


def _render(run: RunResults, policy: str, directory: Path) -> list[Path]:
    """An episode of a saved policy on the first test task, into a directory of the figure."""
    from mesax.store.run_directory import RunDirectory

    prepare_jax()
    from mesax.execution.saved_policies import render_run
    from mesax.experiments.rebuild import experiment_of

    stored = RunDirectory.open(run.directory)
    directory.mkdir(parents=True, exist_ok=True)
    return render_run(stored, experiment_of(stored.run), 0, policy, directory / f"{policy}.gif")
