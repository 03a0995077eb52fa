"""The paper's theory for people: tables and the picture of steps needed, from the document of `study.py`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mesax.formatting import NOTHING, format_count
from mesax.rendering.canvas import INK, PALETTE, SOFT, new_figure, save, styled
from mesax.results.tables import Table
from mesax.store.files import write_file
from mesax.store.json_values import Json

COLORS = {
    "structured": PALETTE[0],
    "uniform": PALETTE[2],
    "ε-greedy, ε = 0.1": PALETTE[1],
    "ε-greedy, ε = 1/t": PALETTE[3],
}
HIGHEST = 1e9
"""Top of the picture; what needs more leaves through it."""
NEVER = "never"


def tables(document: Json) -> list[Table]:
    """Everything that was checked, but for the slips."""
    return [
        checks_table(document),
        orders_table(document),
        thresholds_table(document),
        goals_table(document),
    ]


def checks_table(document: Json) -> Table:
    """The yes-or-no questions."""
    lemma, least = document["lemma"], document["lemma_a3"]
    errors = [row["error"] for row in document["thresholds"] if "error" in row]
    lead = min(row["lead"] for row in document["structured"])
    lead_one = min(row["lead"] for row in document["delta_one"])
    rows = (
        ("Lemma A.1: criterion against the exact maximizer", f"{lemma['disagreements']} of {lemma['draws']:,} differ"),
        ("the same, as printed", f"{lemma['printed_disagreements']} of {lemma['draws']:,} differ"),
        ("log T* of the criterion against bisection on the maximizer", f"largest error {max(errors):.0e}"),
        ("Theorem 4.4: lead of the optimum after one structured step", f"{lead:+.4f} at least"),
        ("Theorem 4.2, δ = 1: lead after one uniform step", f"{lead_one:+.4f} at least"),
        ("Lemma A.3: least slack", f"{least['least_slack']:+.4f} on {least['points']:,} points"),
    )
    return Table("Checks", ("what", "found"), rows)


def orders_table(document: Json) -> Table:
    """How T* grows against what the theorems say."""
    rows = tuple(
        (
            f"{row['exploration']}" + (f" (Theorem {row['theorem']})" if row["theorem"] != "ours" else ""),
            f"{row['quantity']} / ({row['formula']})",
            f"{row['num_actions'][0]}{NOTHING}{row['num_actions'][1]}",
            f"1/{round(1 / row['largest_delta'])}",
            f"{row['lowest']:.2f}{NOTHING}{row['highest']:.2f}",
            NOTHING if row["stated"] is None else f"{row['stated']:.3f}",
            "yes" if row["holds"] else "NO",
        )
        for row in document["orders"]
    )
    columns = ("exploration", "ratio", "U", "largest δ", "found", "least, as proven", "holds")
    return Table("Orders of Theorems 4.2 and 4.3", columns, rows, "Holds: above the proven constant, and below 2.")


def thresholds_table(document: Json) -> Table:
    """T* over U and delta."""
    deltas = sorted({row["delta"] for row in document["thresholds"]}, reverse=True)
    keys = dict.fromkeys((row["exploration"], row["num_actions"]) for row in document["thresholds"])
    found = {(row["exploration"], row["num_actions"], row["delta"]): row["log_steps"] for row in document["thresholds"]}
    rows = [(name, str(number), *(_steps(found[name, number, delta]) for delta in deltas)) for name, number in keys]
    rows += [("structured", "any", *("1" for _ in deltas))]
    columns = ("exploration", "U", *(f"δ = 1/{round(1 / delta)}" for delta in deltas))
    note = "Steps until Q is equivalently optimal, in expectation, for σ_w = σ_e."
    return Table("T*", columns, tuple(rows), note)


def _steps(log_steps: float | None) -> str:
    if log_steps is None:
        return NEVER
    return format_count(math.exp(log_steps)) if log_steps < 25 else f"e^{log_steps:,.0f}"


def goals_table(document: Json) -> Table:
    """Theorem 5.1."""
    rows = tuple(
        (
            row["training_goals"],
            f"{row['samples']:,}",
            f"{row['cross_entropy']:.2f}",
            f"{row['failure']:.3g}",
            NOTHING if row["simulated"] is None else f"{row['simulated']:.3g}",
            f"{row['approximation']:.3g}",
            f"{row['finite_bound']:.2f}",
            f"{row['bound']:.1f}",
        )
        for row in document["goals"]
    )
    columns = ("training goals from", "N", "KL + H", "P_fail", "simulated", "Eq. (7)", "bound", "with its 16")
    note = (
        "Test goals are 30 of the 900 on a ring, an explorer reaches 3 around each training goal. The bound holds and"
        " is loose: it falls with 1/log N, P_fail exponentially."
    )
    return Table("Theorem 5.1: a test goal stays unexplored", columns, rows, note)


def slips_text(document: Json) -> str:
    """The printed proofs, corrected: too long for a table."""
    lines = ["Slips of the printed proofs"]
    for row in document["slips"]:
        lines += ["", f"{row['where']}: {row['printed']}", f"  correct: {row['correct']}", f"  seen: {row['evidence']}"]
    return "\n".join(lines)


@styled
def steps_figure(document: Json) -> Figure:
    """The paper in one look: steps needed against the number of actions, for four ways to explore."""
    picture = document["picture"]
    figure = new_figure(6.6, 4.0)
    axes: Axes = figure.subplots()
    for line in picture["lines"]:
        _draw_line(axes, line["name"], np.array(line["num_actions"]), np.exp(np.minimum(line["log_steps"], 80.0)))
    numbers = np.array(picture["lines"][0]["num_actions"])
    _draw_line(axes, "structured", numbers, np.ones(len(numbers)))
    for order, name in enumerate(COLORS):
        rows = [row for row in picture["learners"] if row["name"] == name]
        _draw_learners(axes, name, rows, 1 + 0.02 * (order - 1.5), picture["most_steps"])
    axes.set(yscale="log", xscale="log", ylim=(0.7, HIGHEST), xlim=(numbers[0] * 0.92, numbers[-1] * 1.06))
    ticks = [4, 6, 8, 10, 15, 20, 30]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("actions of each agent, U")
    axes.set_ylabel("steps until the optimum is learned")
    axes.plot([], [], color=INK, linewidth=1.6, label="theory: exact, in expectation")
    axes.plot([], [], "o", color=INK, markersize=4, alpha=0.5, label="learners that play (line: median of 9)")
    axes.plot([], [], "^", color=INK, markersize=4, label=f"not within {format_count(picture['most_steps'])} steps")
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    axes.set_title(f"Two agents must both play the one right action of U (climb game, δ = {picture['delta']:g})")
    return figure


def _draw_line(axes: Axes, name: str, numbers: np.ndarray, steps: np.ndarray) -> None:
    """Theory's line, with its name where there is room."""
    color = COLORS[name]
    axes.plot(numbers, steps, color=color, linewidth=1.8, zorder=2)
    if steps[-1] < HIGHEST:
        place, offset, align, text = (numbers[-1], steps[-1]), (-4, 6), "right", name
    else:
        place, offset, align, text = (numbers[0], steps[0]), (30, 34), "left", f"{name}: exp(U²/δ)"
    axes.annotate(text, place, offset, textcoords="offset points", color=color, ha=align, va="bottom", weight="bold")


def _draw_learners(axes: Axes, name: str, rows: list[Json], shift: float, most_steps: float) -> None:
    """Every sampled learner as a dot, those that did not get there as triangles, the median as a bar."""
    for row in rows:
        done = np.array([steps for steps in row["steps"] if steps is not None])
        x = row["num_actions"] * shift
        spread = x * (1 + 0.01 * np.linspace(-1, 1, max(len(done), 1)))
        axes.plot(spread[: len(done)], done, "o", color=COLORS[name], markersize=3.5, alpha=0.45, markeredgewidth=0)
        if len(done) < len(row["steps"]):
            axes.plot(
                [x], [most_steps], "^", color=COLORS[name], markersize=5, markeredgecolor=SOFT, markeredgewidth=0.4
            )
        median = np.median([np.inf if steps is None else steps for steps in row["steps"]])
        if np.isfinite(median):
            axes.plot([x * 0.965, x * 1.035], [median] * 2, color=COLORS[name], linewidth=2.2, zorder=4)


def write_document(document: Json, directory: Path) -> Path:
    """All that was found, as a file."""
    path = directory / "theory.json"
    write_file(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
    return path


def draw_theory(document: Json, directory: Path) -> list[Path]:
    """The picture of it."""
    return list(save(steps_figure(document), directory / "theory-steps"))
