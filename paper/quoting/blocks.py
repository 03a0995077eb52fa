"""Blocks of pages that are written from the store: a name, a function, what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mesax.errors import UsageError
from mesax.formatting import NOTHING, format_interval, format_number
from mesax.results.evidence.kept import Kept, all_kept
from mesax.results.labels import OUTDATED, OUTDATED_NOTE
from mesax.results.summary import final_interval, solved_runs
from mesax.results.tables import Table, to_markdown
from mesax.store.json_files import read_json
from mesax.store.json_values import Json
from mesax.store.reading import ALL_EXPLORERS, UNIFORM_PLAY
from paper.cells import Found, cost_lines, results_for
from paper.costs import break_even_table, cost_table
from paper.freshness import Freshness, freshness, is_of_today, with_family
from paper.reproduce import piece_named
from paper.rows import IN_THE_PAPER, PAPER_ROW, YARDSTICK
from paper.side_by_side import side_by_side_table
from paper.table import (
    controls_table,
    gain_over,
    gain_table,
    mean_table,
    result_table,
)
from paper.theory.shown import tables as theory_tables
from paper.zero_shot import UNIFORM, measured

NO_RUNS = Path(".no-runs")
"""Pages quote the store alone, not what happens to be in somebody's directory of runs."""


@dataclass(frozen=True)
class Evidence:
    """What the blocks of all pages are written from."""

    store: Path

    @cached_property
    def kept(self) -> list[Kept]:
        """All results."""
        return all_kept(self.store)

    @cached_property
    def table_2(self) -> list[Found]:
        """The cells of the paper's table."""
        return results_for(piece_named("table-2"), NO_RUNS, self.store)

    @cached_property
    def table_wide(self) -> list[Found]:
        """The cells of the table of wide worlds."""
        return results_for(piece_named("table-wide"), NO_RUNS, self.store)

    def cells(self, words: Sequence[str]) -> list[Found]:
        """The cells that a block is written from: those of wide worlds if it says so."""
        return self.table_wide if "wide" in words else self.table_2

    @cached_property
    def states(self) -> dict[Path, Freshness]:
        """Whether each result is up to date."""
        return {one.path: freshness(one) for one in self.kept}

    def of(self, method: str, *envs: str) -> list[Kept]:
        """Results of a method as its presets have it; in some environments if these are named."""
        own = [one for one in self.kept if one.method == method and not one.overrides]
        found = [one for one in own if not envs or one.env in envs]
        if not found:
            raise UsageError(f"the store has no result of {method}{' in ' + ', '.join(envs) if envs else ''}")
        return found

    def mark(self, kept: Kept) -> str:
        """Mark of a result that is not up to date."""
        return "" if self.states[kept.path] == "fresh" else OUTDATED

    def write(self, words: str) -> str:
        """The text of a block."""
        name, *arguments = words.split()
        if name not in BLOCKS:
            raise UsageError(f"unknown block '{name}'; choose one of {', '.join(BLOCKS)}")
        return f"\n{BLOCKS[name](self, arguments)}\n"  # or Markdown takes the table for a part of the comment


Block = Callable[[Evidence, Sequence[str]], str]


def _table_2(evidence: Evidence, words: Sequence[str]) -> str:
    """The whole table; with `means`, without intervals, and without rows that were not run."""
    table = mean_table if "means" in words else result_table
    return to_markdown(table(evidence.cells(words), {} if "wide" in words else YARDSTICK))


def _side_by_side(evidence: Evidence, words: Sequence[str]) -> str:
    """Ours beside the paper's, cell by cell."""
    return to_markdown(side_by_side_table(evidence.cells(words), IN_THE_PAPER, PAPER_ROW))


def _gains(evidence: Evidence, words: Sequence[str]) -> str:
    """What MESA gains over the best baseline of each environment; with `controls`, over its controls."""
    return to_markdown((controls_table if "controls" in words else gain_table)(evidence.cells(words)))


def _costs(evidence: Evidence, words: Sequence[str]) -> str:
    """What the table costs, and how much of it is there; `rows`: row by row, `break-even`: when MESA has paid off."""
    if "rows" in words or "break-even" in words:
        return to_markdown((cost_table if "rows" in words else break_even_table)(evidence.cells(words)))
    return "".join(f"* {line}\n" for line in cost_lines(evidence.cells(words)))


def _labels(evidence: Evidence, words: Sequence[str]) -> str:
    """What `mesa` is in each environment: explorers differ."""
    labels: dict[str, list[str]] = {}
    for one in evidence.cells(words):
        if one.cell.kind == "ours" and one.runs:
            label = str(next(iter(one.runs.values())).run.get("label", one.cell.method))
            labels.setdefault(label, []).append(f"`{one.cell.env}`")
    return "".join(f"* {', '.join(envs)}: {label}\n" for label, envs in labels.items())


def _tasks(evidence: Evidence, words: Sequence[str]) -> str:
    """`tasks METHOD ENV...`: every result task by task."""
    method, *envs = words
    rows = tuple(
        (
            one.env,
            one.preset,
            str(one.seed),
            _mean(one) + evidence.mark(one),
            ", ".join(format_number(float(task["final_return"])) for task in one.facts["per_task"]),
        )
        for one in evidence.of(method, *envs)
    )
    columns = ("environment", "preset", "seed", "mean [95% interval]", "each task")
    return to_markdown(Table("", columns, rows, _note_of_one_seed(rows)))


def _results(evidence: Evidence, words: Sequence[str]) -> str:
    """`results ENV METHOD...`: results of several methods in one environment."""
    env, *methods = words
    found = [one for method in methods for one in evidence.of(method, env)]
    rows = tuple(
        (
            str(one.facts.get("label", one.method)),
            one.preset,
            str(one.seed),
            _mean(one) + evidence.mark(one),
            *(format_number(one.facts["by_group"].get(group)) for group in _groups(found)),
            f"{one.facts['optimal_fraction']:.0%}",
        )
        for one in found
    )
    columns = ("method", "preset", "seed", "mean [95% interval]", *_groups(found), "solved")
    return to_markdown(Table("", columns, rows, _note_of_one_seed(rows)))


def _note_of_one_seed(rows: Sequence[Sequence[str]]) -> str:
    """What an interval within one seed does not say, and what a mark means where there is one."""
    marked = any(OUTDATED in cell for row in rows for cell in row)
    return "Intervals are over the tasks of one seed, and say nothing of other seeds." + f" {OUTDATED_NOTE}" * marked


def _groups(found: Sequence[Kept]) -> list[str]:
    names = list(dict.fromkeys(name for one in found for name in one.facts["by_group"]))
    return names if len(names) > 1 else []


def _mean(kept: Kept) -> str:
    interval = final_interval(with_family(kept).results)
    return format_interval(interval.value, interval.low, interval.high)


def _explorers(evidence: Evidence, words: Sequence[str]) -> str:
    """`explorers METHOD ENV...`: what explorers reach on unseen tasks before anything is learned there."""
    method, *envs = words
    rows = []
    for one in evidence.of(method, *envs):
        visitors: Json = (one.facts.get("explorers") or {}).get("visitors") or {}
        for name in (UNIFORM_PLAY, ALL_EXPLORERS):
            if name in visitors:
                rows.append((one.env, one.preset, str(one.seed), name, *_reached(visitors[name])))
    columns = ("environment", "preset", "seed", "visitor", "distinct rewarding visits", "high-reward steps")
    note = (
        "Per episode, before anything is learned. Distinct rewarding visits: configurations that pay the highest reward"
        " in some training task. High-reward steps: steps that pay it on the unseen task itself. Left out most: of all"
        " pairs of an unseen task and a target, the one with the fewest steps."
    )
    return to_markdown(Table("", (*columns, "steps on the target left out most"), tuple(rows), note))


def _reached(visitor: Json) -> tuple[str, ...]:
    worst = (visitor.get("worst_target") or {}).get("steps")
    figures = (visitor["distinct_visits"], visitor["high_reward_steps"], worst)
    return tuple(NOTHING if figure is None else f"{figure:.2f}" for figure in figures)


def _arms(evidence: Evidence, words: Sequence[str]) -> str:
    """`arms FIGURE ENV`: every run of a figure in one environment, pooled over seeds, and what its explorers reach."""
    figure, env = words
    found = [one for one in results_for(piece_named(figure), NO_RUNS, evidence.store) if one.cell.env == env]
    arms = [one for one in found if one.runs]
    ours, rows = next((one for one in arms if one.cell.kind == "ours"), None), []
    for one in arms:
        run = one.pooled[0]
        interval = final_interval(run)
        # Results of the same run with older settings may lie next to them: overrides are named by their hash.
        used = {own.directory for own in one.runs.values()}
        rows.append(
            (
                one.label,
                ", ".join(str(seed) for seed in one.runs),
                format_interval(interval.value, interval.low, interval.high),
                *([NOTHING if one is ours else gain_over(ours, one)] if ours else []),
                f"{solved_runs(run)} of {len(run.final_returns)}",
                format_number(float(np.min(run.final_returns))),
                *_explored([kept for kept in evidence.kept if kept.path in used]),
            )
        )
    columns = ["run", "seeds", "mean [95% interval]", *(["MESA minus it"] if ours else [])]
    columns += ["solved", "worst task", "explorers: steps", "left out most"]
    note = (
        f"MESA minus it: on the same tasks, with its 95% interval. {NOTHING}: MESA itself, or no explorers. "
        if ours
        else ""
    )
    note += (
        "Steps per episode with the highest reward that explorers reach on unseen tasks before anything is learned, and"
        " on the pair of task and target that they leave out most; means over seeds."
    )
    return to_markdown(Table("", tuple(columns), tuple(rows), note))


def _explored(kept: Sequence[Kept]) -> tuple[str, str]:
    """Mean over seeds of what all explorers of a run reach together, and of what they leave out most."""
    visitors = [((one.facts.get("explorers") or {}).get("visitors") or {}).get(ALL_EXPLORERS) for one in kept]
    reached = [_reached(visitor)[1:] for visitor in visitors if visitor]
    return _mean_of([row[0] for row in reached]), _mean_of([row[1] for row in reached])


def _mean_of(figures: Sequence[str]) -> str:
    values = [float(figure) for figure in figures if figure != NOTHING]
    return f"{np.mean(values):.2f}" if values else NOTHING


def _zero_shot(evidence: Evidence, words: Sequence[str]) -> str:
    """`zero-shot ENV`: what borrowed explorers reach there before anything is learned, by seed of the test tasks."""
    (env,) = words
    cells: dict[tuple[str, str, str], dict[int, str]] = {}
    for row in (row for row in measured(evidence.store) if row["env"] == env):
        for way, found in row["ways"].items():
            # Uniform play has no explorers: however many were measured with it.
            place = (NOTHING, NOTHING, way) if way == UNIFORM else (str(row["explorers"]), str(row["number"]), way)
            mark = "" if is_of_today(row) or way == UNIFORM else OUTDATED
            text = f"{found['mean']:.3f}, worst {found['worst']:.2f}{mark}"
            cells.setdefault(place, {}).setdefault(int(row["seed"]), text)
    seeds = sorted({seed for own in cells.values() for seed in own})
    rows = tuple((*place, *(own.get(seed, "") for seed in seeds)) for place, own in sorted(cells.items()))
    columns = ("explorers of", "number", "how they play", *(f"seed {seed}" for seed in seeds))
    return to_markdown(Table("", columns, rows))


def _theory(evidence: Evidence, words: Sequence[str]) -> str:
    """`theory NUMBER U...`: a table of `mesax theory`; of rows with a number of actions, those that are named."""
    number, *actions = words
    table = theory_tables(read_json(evidence.store / "theory.json"))[int(number)]
    if actions:
        rows = tuple(row for row in table.rows if row[1] in (*actions, "any"))
        table = Table(table.title, table.columns, rows, table.note)
    return to_markdown(table)


def _proof(evidence: Evidence, words: Sequence[str]) -> str:
    """`proof GAME LEARNER...`: how the attempts at a proof ended."""
    game, *learners = words
    rows = []
    for learner in learners:
        one = read_json(evidence.store / f"proof-{game}-{learner}.json")
        ends = ", ".join(f"{attempt['final_return']:g}" for attempt in one["attempts"])
        seeds = [str(attempt["seed"]) for attempt in one["attempts"]]
        only = f"{seeds[0]}, {len(seeds)} copies" if len(set(seeds)) < len(seeds) else ", ".join(seeds)
        rows.append((learner, only, ends, f"{one['solved']} of {len(one['attempts'])}", str(one["asked"])))
    columns = ("learner", "seeds", "mean of the last five evaluations", "solved", "asked")
    return to_markdown(Table("", columns, tuple(rows)))


def _scaling(evidence: Evidence, words: Sequence[str]) -> str:
    """What benchmarks/scaling.py has measured; `scaling FILE`: in another file than scaling.json."""
    parts = read_json(evidence.store / f"{words[0] if words else 'scaling'}.json")["parts"]
    rows = []
    for part in parts.values():
        points = sorted(part["points"], key=lambda point: _product(point["size"]))
        sizes, seconds = [_product(point["size"]) for point in points], [point["seconds"] for point in points]
        mebibytes = [f"{point['bytes'] / 2**20:,.1f}" for point in (points[0], points[-1])]
        ends = [f"{value:#.2g}".removesuffix(".") for value in (seconds[0], seconds[-1])]
        cells = (f"{part['against']}, {sizes[0]} to {sizes[-1]}", " to ".join(ends))
        alone = ", ".join(f"{name} {value:.2f}" for name, value in part["slopes"].items())
        rows.append((part["what"], *cells, " to ".join(mebibytes), part["order"], f"{part['exponent']:.2f}", alone))
    return to_markdown(Table("", ("what", "against", "seconds", "MiB", "order", "exponent", "alone"), tuple(rows)))


def _product(size: Sequence[int] | int) -> int:
    """A size as one number: agents x landmarks for a world."""
    return size if isinstance(size, int) else math.prod(size)


BLOCKS: dict[str, Block] = {
    "table-2": _table_2,
    "side-by-side": _side_by_side,
    "gains": _gains,
    "costs": _costs,
    "labels": _labels,
    "tasks": _tasks,
    "results": _results,
    "explorers": _explorers,
    "zero-shot": _zero_shot,
    "arms": _arms,
    "theory": _theory,
    "proof": _proof,
    "scaling": _scaling,
}
"""To add one: a function, and a line here."""
