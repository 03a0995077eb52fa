"""Which runs may be compared: seeds of one configuration are pooled, and each family of tasks stands by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from mesax.formatting import format_count
from mesax.results.evidence.kept import load_results
from mesax.results.labels import spoken
from mesax.results.safe_drawing import draw_comparison_safely
from mesax.results.summary import (
    OWN_LABEL,
    Comparison,
    compare_runs,
    finals_by_task,
    identity_of_tasks,
    run_figures,
    solved_runs,
)
from mesax.results.tables import (
    COMPARISON_NOTE,
    Table,
    comparison_table,
    difference_table,
    print_table,
    run_labels,
)
from mesax.store.json_values import Json
from mesax.store.reading import Curve, RunResults
from mesax.suites.renamed import names_of_before

NOT_THE_CONFIGURATION = ("seed", "num_test_tasks")
"""Settings in which runs may differ and still be samples of the same thing: which tasks, and how many."""
SAME_STEPS = 0.05
"""By how much environment steps on a test task may differ: rounds meet a budget to within so much."""


@dataclass(frozen=True)
class FamilyComparison:
    """Runs on tasks of one family, seeds pooled."""

    title: str
    runs: list[RunResults]
    members: Sequence[Sequence[RunResults]] = ()
    """What each of them was pooled from."""

    @cached_property
    def figures(self) -> list[Json]:
        """Every run in numbers."""
        return [run_figures(run) for run in self.runs]

    @cached_property
    def differences(self) -> list[Comparison]:
        """What the first run gains over each of the others."""
        return [compare_runs(self.runs[0], other) for other in self.runs[1:]]

    @property
    def tables(self) -> list[Table]:
        """Every run, and what the first one gains over the others."""
        table = comparison_table(self.runs, self.figures)
        if len(self.runs) < 2:
            return [table]
        return [replace(table, note=f"{table.note}{self.warning}"), difference_table(self.runs, self.differences)]

    @property
    def warning(self) -> str:
        """That rows are not over the same test tasks, or not of as many steps, if so; empty otherwise."""
        by = identity_of_tasks(self.runs)
        if len({frozenset(finals_by_task(run, by)) for run in self.runs}) == 1:
            return self.unequal
        tasks = "; ".join(
            f"{label} {len(finals_by_task(run))} of seed {', '.join(map(str, _seeds(run)))}"
            for label, run in zip(run_labels(self.runs), self.runs, strict=True)
        )
        found = f" The rows are over different test tasks ({tasks}): the table below compares what can be compared."
        return found + self.unequal

    @property
    def unequal(self) -> str:
        """That rows had more environment steps on a test task than others, if so; empty otherwise."""
        steps = [float(np.mean([curve.steps[-1] for curve in run.curves])) for run in self.runs]
        taken = [own for own in steps if own]  # scripted teams take none: they are floors and ceilings
        if not taken or max(taken) <= (1 + SAME_STEPS) * min(taken):
            return ""
        told = (f"{label} {format_count(own)}" for label, own in zip(run_labels(self.runs), steps, strict=True))
        return f" Environment steps on each test task differ ({', '.join(told)}): this is no fair comparison."

    @property
    def tasks(self) -> str:
        """What is counted as solved or not."""
        repeated = any(len(run.curves) > len(finals_by_task(run)) for run in self.runs)
        return "runs on unseen tasks" if repeated else "unseen tasks"

    @property
    def verdict(self) -> str:
        """How many tasks each run has solved, in one sentence."""
        first, *others = (
            (name, solved_runs(run), len(run.curves))
            for name, run in zip(spoken(run_labels(self.runs)), self.runs, strict=True)
        )
        told = [
            f", {name} {solved}" + ("" if number == first[2] else f" of {number}") for name, solved, number in others
        ]
        return f"{self.title}: {first[0]} solved {first[1]} of {first[2]} {self.tasks}{''.join(told)}.{self.unequal}"

    def as_json(self) -> Json:
        """The same as plain numbers."""
        labels = run_labels(self.runs)
        rows = [
            {"run": label, **{key: run.run[key] for key in ("method", "env", "preset")}, "seeds": _seeds(run)} | figures
            for label, run, figures in zip(labels, self.runs, self.figures, strict=True)
        ]
        differences = []
        for label, found in zip(labels[1:], self.differences, strict=True):
            facts = {"of": labels[0], "against": label, "shared_tasks": found.shared}
            differences.append(facts | vars(found.difference) | {"probability": found.probability})
        return {"family": self.title, "rows": rows, "differences": differences, "warning": self.warning.strip()}


def compare_directories(paths: Iterable[Path]) -> list[FamilyComparison]:
    """The runs of several directories, or files of a store, family by family."""
    return by_family([load_results(path) for path in without_repetition(paths)])


def without_repetition(paths: Iterable[Path]) -> list[Path]:
    """Directories in order, each once, under the first of its names."""
    return list({path.resolve(): path for path in reversed(list(paths))}.values())[::-1]


def show_comparison(families: Sequence[FamilyComparison], directory: Path) -> Json:
    """Print the tables of every family and draw their pictures; returns what `--json` prints."""
    for number, family in enumerate(families):
        for table in family.tables:  # what the columns mean is said once
            print_table(replace(table, note=table.note.replace(COMPARISON_NOTE, "").strip()) if number else table)
    note = nothing_comparable(families)
    runs = [(run.directory, run.run) for family in families for own in family.members for run in own]
    for line in (*names_of_before(runs), *([note] if note else [])):
        print(f"note     {line}")
    for picture in draw_comparison_safely(families, directory):
        print(f"drawn    {picture}")
    for family in families:
        if len(family.runs) > 1:
            print(family.verdict)
    return {"families": [family.as_json() for family in families], "note": note}


def by_family(runs: Sequence[RunResults]) -> list[FamilyComparison]:
    """Runs that had tasks of the same family, in order of appearance; two families may share an environment's name."""
    found: dict[str, list[RunResults]] = {}
    for run in runs:
        found.setdefault(_canonical(run.run["env"], _family(run)), []).append(run)
    names = [str(members[0].run["env"]) for members in found.values()]
    titles = [
        name if names.count(name) == 1 else f"{name} ({_own_settings(members[0]) or 'as it is'})"
        for name, members in zip(names, found.values(), strict=True)
    ]
    pools = [samples_of_one(own) for own in found.values()]
    return [
        FamilyComparison(title, [pooled(own) for own in members], members)
        for title, members in zip(titles, pools, strict=True)
    ]


def nothing_comparable(families: Sequence[FamilyComparison]) -> str | None:
    """Why several runs are no comparison, if they are not."""
    if len(families) < 2 or any(len(family.runs) > 1 for family in families):
        return None
    return f"nothing to compare: each run has a family of tasks of its own ({', '.join(f.title for f in families)})"


def samples_of_one(runs: Sequence[RunResults]) -> list[list[RunResults]]:
    """Runs that differ only in seed and number of test tasks stand together, others alone.

    The same seed twice would count tasks twice: such runs stay alone too.
    """
    alike: dict[str, list[RunResults]] = {}
    for run in runs:
        names = [run.run[key] for key in ("method", "env", "preset")]
        alike.setdefault(_canonical(*names, run.run.get("overrides") or {}, _configuration(run)), []).append(run)
    together: list[list[RunResults]] = []
    for members in alike.values():
        seeds = [member.run["seed"] for member in members]
        together += [members] if len(set(seeds)) == len(seeds) else [[member] for member in members]
    return together


def pooled(members: Sequence[RunResults]) -> RunResults:
    """Runs that are samples of the same thing as one, with the tasks of all; every task run counts the same."""
    return members[0] if len(members) == 1 else pool(members)


def pool(members: Sequence[RunResults]) -> RunResults:
    """Runs of several seeds as one, with the tasks of all."""
    curves: list[Curve] = []
    test_tasks: list[Json] = []
    for member in members:
        offset, seed = len(test_tasks), member.run["seed"]
        test_tasks += [
            {**task, "seed": seed, "label": f"seed {seed}: {task['label']}", OWN_LABEL: task["label"]}
            for task in member.run["test_tasks"]
        ]
        curves += [
            replace(curve, task=curve.task + offset, label=test_tasks[curve.task + offset]["label"])
            for curve in member.curves
        ]
    run = {**members[0].run, "test_tasks": test_tasks, "seed": [member.run["seed"] for member in members]}
    totals = ("wall_seconds", "env_steps", "meta_env_steps")
    complete = all(member.summary for member in members)
    summary = {key: sum(member.summary[key] for member in members) for key in totals} if complete else {}
    return replace(members[0], run=run, curves=tuple(curves), summary=summary)


def _seeds(run: RunResults) -> list[int]:
    seed = run.run["seed"]
    return list(seed) if isinstance(seed, list) else [seed]


def _configuration(run: RunResults) -> Json:
    """Every setting that must be equal for runs to be samples of the same thing."""
    return {name: value for name, value in (run.run.get("config") or {}).items() if name not in NOT_THE_CONFIGURATION}


def _family(run: RunResults) -> object:
    """What makes a family: all its settings, or what is known of it."""
    return (run.run.get("config") or {}).get("family") or run.family


def _own_settings(run: RunResults) -> str:
    changed = (run.run.get("overrides") or {}).items()
    return " ".join(f"{path}={value}" for path, value in sorted(changed) if path.startswith("family."))


def _canonical(*values: object) -> str:
    return json.dumps(values, sort_keys=True, default=str)
