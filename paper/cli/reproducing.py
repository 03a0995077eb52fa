"""`mesax reproduce`: figures and tables of the paper, what they lack, and the runs that are missing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from mesax.cli.cluster import cluster_asked_for, cluster_of, leave_cluster
from mesax.cli.sweeping import digest_of_what_fits, how_to_do
from mesax.errors import FAILED, PREEMPTED, Preempted, UsageError
from mesax.execution.saved_policies import render_run
from mesax.execution.sweep import planned_cells, sweep
from mesax.experiments.rebuild import experiment_of
from mesax.results.safe_drawing import attempt
from mesax.results.tables import print_table
from mesax.store.reading import RunResults
from mesax.suites.renamed import open_run
from paper.cells import (
    Found,
    Piece,
    Sources,
    cost_lines,
    missing,
    missing_commands,
    results_for,
    status_table,
)
from paper.reproduce import PIECES, piece_named


def reproduce(options: argparse.Namespace) -> int:
    """Draw figures and tables of the paper from stored results; say what is missing and what it costs, or run it."""
    if options.plan:
        cluster_asked_for(options)
    else:
        cluster_of(options)  # what cannot be used is refused before anything is drawn
    pieces = PIECES if options.piece == "all" else (piece_named(options.piece),)
    if options.methods or options.envs:
        pieces = _some_cells(pieces, options.methods, options.envs)
    _check_preset(pieces, options.preset)
    told = [_reproduce(piece, options) for piece in pieces]
    if options.json:
        print(json.dumps(told[0] if options.piece != "all" else {"pieces": told}))
    return 0 if options.plan or any(one["drawn"] for one in told) else FAILED


def _some_cells(
    pieces: Sequence[Piece], methods: Sequence[str] | None, envs: Sequence[str] | None
) -> tuple[Piece, ...]:
    """What is left of figures and tables; names that none of them has are refused."""
    cells = [cell for piece in pieces for cell in piece.cells]
    for asked, known in ((methods, [cell.method for cell in cells]), (envs, [cell.env for cell in cells])):
        for name in asked or ():
            if name not in known:
                there = ", ".join(dict.fromkeys(known)) or "no runs at all"
                raise UsageError(f"'{name}' is no part of this; it has {there}")
    left = tuple(piece.only(methods, envs) for piece in pieces if piece.only(methods, envs).cells)
    if not left:
        raise UsageError("these methods are no part of this in these environments")
    return left


def _check_preset(pieces: Sequence[Piece], preset: str | None) -> None:
    """Refuse a preset that no cell has: nothing would be said, or run."""
    known = list(dict.fromkeys(cell.preset for piece in pieces for cell in piece.cells))
    if preset is not None and preset not in known:
        raise UsageError(f"no run of preset {preset} is part of this; it has {', '.join(known) or 'no runs at all'}")


def _reproduce(piece: Piece, options: argparse.Namespace) -> dict[str, object]:

    damaged: list[str] = []
    found = results_for(piece, options.runs, options.results, damaged.append)
    if options.run and missing(found):
        _run_missing(piece, found, options)
        found = results_for(piece, options.runs, options.results, damaged.append)
    asked = [one for one in found if options.preset in (None, one.cell.preset)]
    for problem in dict.fromkeys(damaged):  # several cells may have met the same run
        print(f"note     left out: {problem}")
    if piece.cells and not options.results.is_dir():
        print(f"note     there is no store of results at {options.results}: go to where it is, or say --results")
    is_drawn = not options.plan and piece.can_be_drawn(found)
    if not options.plan and not is_drawn and not options.run and options.piece != "all":
        raise UsageError(_nothing_to_draw(piece, options))
    if asked:
        _print_status(piece, asked, options)
    drawn: list[Path] = []
    if is_drawn:
        for table in piece.tables(found):
            print_table(table)
        sources = Sources(_render, options.results)
        drawn = attempt(piece.name, lambda: piece.draw(found, options.out, sources)) or []
        for path in drawn:
            print(f"drawn    {path}")
    elif not options.plan:
        print(f"note     {_nothing_to_draw(piece, options)}")
    stored = [
        {"run": one.cell.name, "seeds": sorted(one.runs), "stale": sorted(one.stale), "missing": one.missing}
        for one in asked
    ]
    return {"name": piece.name, "runs": stored, "costs": cost_lines(asked), "drawn": [str(path) for path in drawn]}


def _print_status(piece: Piece, found: Sequence[Found], options: argparse.Namespace) -> None:
    """What is missing, what to type for it and what it costs; of single methods or environments, all there is."""
    is_part = bool(options.methods or options.envs)
    shown = found if options.all or is_part else [one for one in found if one.missing]
    if shown:
        print_table(status_table(piece, shown))
    if hidden := len(found) - len(shown):
        print(f"{hidden} complete row{'s' * (hidden != 1)} not shown (--all shows {'them' if hidden > 1 else 'it'})")
    if options.plan and is_part:  # of all there would be hundreds
        for command in (one.cell.command(seed) for one in found for seed in one.runs):
            print(f"stored   {command}")
    for command in missing_commands(found):
        print(f"missing  {command}")
    for one in (one for one in found if one.missing and not one.cell.stands_alone):
        print(f"note     RUN_DIR of {one.cell.name}: a finished run of {one.cell.lender}; type the command with it")
    for line in cost_lines(found):
        print(f"costs    {line}")


def _nothing_to_draw(piece: Piece, options: argparse.Namespace) -> str:
    """What a figure or table lacks altogether; with --run, after its runs have failed or were none of its preset."""
    lacking = f"run directories and {options.runs}/ has none"
    if not piece.shows_play:
        lacking = f"results and neither {options.runs}/ nor {options.results}/ has any"
    return f"{piece.name} needs {lacking}{'' if options.run else '; add --run to create them'}"


def _run_missing(piece: Piece, found: Sequence[Found], options: argparse.Namespace) -> None:
    """Do what is missing, here or on a cluster, and keep it; what fails is said, and the others go on.

    What a piece that shows play needs are directories: results of the same runs may be kept already, and stay.
    """
    preset = options.preset or "quick"
    wanted = [one for one in found if one.missing and one.cell.preset == preset]
    cells = [
        (one.cell.method, one.cell.env, one.cell.arguments(seed))
        for one in wanted
        if one.cell.stands_alone
        for seed in one.missing
    ]
    if not wanted:
        elsewhere = {one.cell.preset for one in found if one.missing} - {preset}
        more = "".join(f"; of preset {other} there is: --preset {other}" for other in sorted(elsewhere))
        print(f"note     nothing of preset {preset} is missing{more}")
    if not cells:
        return
    planned = planned_cells(cells, options.runs / "reproduce", digest_of_what_fits())
    store = None if piece.shows_play else options.results
    on = cluster_of(options)
    try:
        code = sweep(planned, how_to_do(on, options), options.quiet, False, store)
    finally:
        leave_cluster(on)
    if code == PREEMPTED:
        raise Preempted


def _render(run: RunResults, policy: str, directory: Path) -> list[Path]:
    """An episode of a saved policy on the first test task, into a directory of the figure."""

    stored = open_run(run.directory)
    directory.mkdir(parents=True, exist_ok=True)
    return render_run(stored, experiment_of(stored.run), 0, policy, directory / f"{policy}.gif")
