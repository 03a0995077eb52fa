"""Every figure and table of the paper as a value: which runs it needs, what these cost, how it is drawn.

`mesax reproduce NAME` looks for the results among those stored, says which are missing and what to type for them, runs
them if asked, and draws from what there is. To add a figure or a table: one function, one entry of `PIECES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from mesax.errors import UsageError
from mesax.rendering.canvas import save
from mesax.results.drawing import world_figures
from mesax.results.evidence.kept import ELSEWHERE
from mesax.results.labels import OUTDATED
from mesax.results.profiles import profile_figure
from mesax.results.tables import Table, to_markdown
from mesax.store.reading import RunResults
from paper.ablation import ablation_figure
from paper.cells import SCRIPTED, Cell, Draw, Found, Piece, Sources
from paper.costs import break_even_table, cost_table
from paper.curves import curves_of_all
from paper.freshness import is_of_today
from paper.generalization import Reached, generalization_figure
from paper.rows import CLIMB, IN_THE_PAPER, ONE_STEP, PAPER_ROW, PARTICLES, RAW, SWIMMER, TABLE_2, TABLE_WIDE, YARDSTICK
from paper.side_by_side import side_by_side_figure, side_by_side_table
from paper.solved import tasks_solved
from paper.table import controls_table, gain_table, result_table
from paper.theory.shown import draw_theory, write_document
from paper.theory.study import study
from paper.zero_shot import UNIFORM, measured


def piece_named(name: str) -> Piece:
    """The figure or table of that name."""
    for piece in PIECES:
        if piece.name == name:
            return piece
    raise UsageError(f"unknown figure or table '{name}'; choose one of {', '.join(piece.name for piece in PIECES)}")


def _saved(figure: Figure, directory: Path, name: str) -> list[Path]:
    return list(save(figure, directory / name))


def _curves(name: str) -> Draw:
    """Learning curves of all runs, a panel per environment, seeds pooled."""

    def draw(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
        del sources
        return _saved(curves_of_all(found), directory, name)

    return draw


def _visits(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
    """Where uniform play and the explorers of each run go."""
    del sources
    paths = []
    for one in found:
        for seed, run in one.runs.items():
            for figure in world_figures(run):
                if figure.name == "explorer-coverage" and figure.applies(run):
                    paths += _saved(figure.draw(run), directory, f"figure-1-{one.cell.env}-seed{seed}")
    return paths


def _episodes(*policies: str) -> Draw:
    """Episodes of policies of each run, as a still and a GIF."""

    def draw(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
        runs = [run for one in found for run in one.runs.values()]
        return [path for run in runs[:1] for policy in policies for path in sources.render(run, policy, directory)]

    return draw


def _generalization(name: str, kind: str) -> Draw:
    """Left: what explorers of simpler worlds reach before anything is learned; right: learning curves."""

    def draw(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
        rows = [row for row in measured(sources.store) if row["env"] == f"{kind}-{HARD}" and is_of_today(row)]
        reached = [
            Reached(label, row["number"], row["ways"][way]["tasks"])
            for label, (simpler, way) in ZERO_SHOT.items()
            for row in rows
            if row["explorers"] == _lender(kind, simpler) and way in row["ways"]
        ]
        random = [Reached(UNIFORM, 0, row["ways"][UNIFORM]["tasks"]) for row in rows if UNIFORM in row["ways"]]
        curves = [run for one in found for run in one.pooled]
        return _saved(generalization_figure([*random, *reached], curves), directory, name)

    return draw


def _ablated(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
    """A row for each environment: learning curves of the paper's arms, final returns of all."""
    del sources
    return _saved(
        ablation_figure([(one.label, run) for one in found for run in one.pooled], PAPER_ARMS), directory, "figure-9"
    )


def _theory(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
    del found, sources
    document = study()
    return [write_document(document, directory), *draw_theory(document, directory)]


def _table_2(found: Sequence[Found]) -> list[Table]:
    return [
        result_table(found, YARDSTICK),
        side_by_side_table(found, IN_THE_PAPER, PAPER_ROW),
        gain_table(found),
        controls_table(found),
        cost_table(found),
        break_even_table(found),
    ]


def _table_wide(found: Sequence[Found]) -> list[Table]:
    return [result_table(found, {}), gain_table(found), controls_table(found)]


def _written(name: str, tables: Callable[[Sequence[Found]], list[Table]]) -> Draw:
    """The tables as a page, and how often each method reaches which share of the best return."""

    def draw(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
        del sources
        directory.mkdir(parents=True, exist_ok=True)
        page = directory / f"{name}.md"
        page.write_text("\n".join(to_markdown(table) for table in tables(found)), encoding="utf-8")
        return [page, *_saved(profile_figure(_by_row(found)), directory, f"{name}-profiles")]

    return draw


def _beside(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
    """Ours and the paper's, cell by cell."""
    pages = _written("table-2", _table_2)(found, directory, sources)
    return [*pages, *_saved(side_by_side_figure(found, IN_THE_PAPER, PAPER_ROW), directory, "table-2-side-by-side")]


def _solved(name: str) -> Draw:
    """How many tasks are solved in each world; a world of which nothing is stored has no panel."""

    def draw(found: Sequence[Found], directory: Path, sources: Sources) -> list[Path]:
        del sources
        return _saved(tasks_solved(found), directory, name)

    return draw


def _by_row(found: Sequence[Found]) -> dict[str, list[RunResults]]:
    """Results of every method, a run for each environment; methods that have some of them only would look too good."""
    envs = {one.cell.env for one in found}
    rows = {label: [one for one in found if one.label == label] for label in dict.fromkeys(one.label for one in found)}
    whole = {label: own for label, own in rows.items() if {one.cell.env for one in own if one.shown} == envs}
    return {
        _named(label, [one for one in own if one.shown]): [one.shown[0] for one in own if one.shown]
        for label, own in (whole or rows).items()
        if any(one.shown for one in own)
    }


def _named(label: str, shown: Sequence[Found]) -> str:
    """The label of a row, marked if some of it is to be rerun or lacks seeds."""
    label += "" if all(one.runs for one in shown) else OUTDATED
    return f"{label} (not all seeds)" if any(one.fewer_seeds for one in shown) else label


def _of(*envs: str) -> tuple[Cell, ...]:
    """The cells of the table in some environments; as published MESA has many more steps but in climb games."""
    cells = (cell for cell in TABLE_2 if cell.env in envs and cell.method not in SCRIPTED)
    return tuple(cell for cell in cells if cell.preset == "quick" or cell.env in CLIMB)


VISUALIZED = "wide-2a3l"
BORROWED = (("method.explorers-from", ELSEWHERE), ("method.turn", "true"))
HARD = "3a5l-hard"
"""Of the worlds of a kind, the one in which generalization is tried."""
TWO_TO_THREE, EASY_TO_HARD = "2 to 3 agents", "easy to hard"
ZERO_SHOT = {
    TWO_TO_THREE: ("2a5l", "sub-teams, rest tours, turned"),
    EASY_TO_HARD: ("3a5l", "same team, turned"),
    "2 agents drive all 3": ("2a5l", "whole team, turned"),
}
"""In which simpler world explorers were trained, and how they play; the last is the negative control."""


def _lender(kind: str, simpler: str) -> str:
    """What explorers of a simpler world are called."""
    return f"mesa {kind}-{simpler}, preset quick"


def _harder(name: str, title: str, kind: str) -> Piece:
    """MESA in the harder world with explorers that are measured there before anything is learned, and its controls."""
    env = f"{kind}-{HARD}"
    borrowing = (
        Cell("transfer", env, 8.0, label, (*BORROWED, *how), lender=_lender(kind, ZERO_SHOT[label][0]))
        for label, how in ((TWO_TO_THREE, (("method.transfer", "subteams"),)), (EASY_TO_HARD, ()))
    )
    cells = (*borrowing, Cell("uniform", env, 5.0), Cell("plain", env, 4.0))
    return Piece(name, title, cells, _generalization(name, kind))


# Explorers as MESA's learner of the test tasks would train them, with the net that PPO's have, for as many decisions.
OFF_POLICY = (
    ("method.explorer", "Maddpg"),
    ("method.explorer.actor-net", "Entities"),
    ("method.explorer.actor-net.told", "2"),
    ("method.explorer.critic-net.hidden", "128,128"),
    ("method.explorer.share-actors", "true"),
    ("method.explorer.actor-update", "ExpectedGradient"),
    ("method.explorer.trace", "0.8"),
    ("method.explorer.discount", "0.95"),
    ("method.explorer.target-rate", "0.02"),
    ("method.explorer.entropy-bonus", "0.01"),
    ("method.explorer.actor-optimizer.learning-rate", "0.002"),
    ("method.explorer.critic-optimizer.learning-rate", "0.002"),
    ("method.explore", "Schedule"),
    ("method.explore.warmup-steps", "25_600"),
    ("method.explore.updates-per-round", "8"),
    ("method.explore.batch-size", "16"),
    ("method.explore.replay-capacity", "12_500"),
)
UNTOLD = (
    ("method.reward.tell-demand", "false"),
    ("method.reward.wish-decay", "1"),
    ("method.explorer.actor-net.told", "0"),
    ("method.explorer.critic-net.told", "0"),
)
"""Explorers that are told nothing cannot know of wishes either."""
EQ_6 = (
    ("method.reward", "ToldCoverage"),
    ("method.reward.distance-threshold", "0.3"),
)
"""The published reward, with the same features, wishes and told demand."""
FILLED = {
    "filled, own labels": (("method.labels", "own"),),
    "filled, relabeled": (("method.labels", "test"),),
    "filled, own labels, a fifth": (("method.labels", "own"), ("method.share", "0.0064")),
}
"""The last: at most a fifth of what the replay holds when learning begins, 160 episodes against 640 random ones."""


OURS, ALONE = "MESA", "learner alone"
PAPER_ARMS = (OURS, ALONE, *FILLED)
"""Arms of Figure 9; the others say what each part that we added is worth."""


def _ablation() -> Iterator[Cell]:
    """Figure 9 and what each part that we added is worth, on a particle world; the paper's arms on a climb game too."""
    env, tasks = "wide-2a5l", 5
    yield Cell("mesa", env, 2.0, OURS, num_test_tasks=tasks, kind="ours")
    yield Cell("plain", env, 1.0, ALONE, num_test_tasks=tasks, kind="control")
    for label, settings in FILLED.items():
        yield Cell("filled", env, 1.3, label, settings, num_test_tasks=tasks)
    changed = {
        "without wishes": (("method.reward.wish-decay", "1"),),
        "told nothing": UNTOLD,
        "Eq. (6) for records": EQ_6,
        "MADDPG for PPO": OFF_POLICY,
        "raw positions": RAW,
        "two explorers": (("method.num-explorers", "2"),),
    }
    for label, settings in changed.items():
        yield Cell("mesa", env, 2.0, label, settings, num_test_tasks=tasks)
    env, tasks = "climb-multi-mixed", 10
    yield Cell("mesa", env, 1.7, OURS, num_test_tasks=tasks, kind="ours")
    yield Cell("plain", env, 1.0, ALONE, num_test_tasks=tasks, kind="control")
    for label, settings in tuple(FILLED.items())[:2]:
        yield Cell("filled", env, 1.5, label, settings, num_test_tasks=tasks)
    # Its explorers are four, trained by MADDPG with Eq. (6), without wishes and told demand: nothing else to leave out.
    yield Cell("mesa", env, 1.3, "one explorer", (("method.num-explorers", "1"),), num_test_tasks=tasks)


PIECES: tuple[Piece, ...] = (
    Piece(
        "figure-1",
        "Figure 1: structured and unstructured exploration",
        (Cell("mesa", ONE_STEP, 1.3, num_test_tasks=10),),  # as in Table 2, so that its runs will do
        _visits,
        shows_play=True,
    ),
    Piece("figure-3", "Figure 3: learning curves on the climb games", _of(*CLIMB), _curves("figure-3")),
    Piece(
        "figure-4",
        "Figure 4: learning curves on particle worlds and the swimmer",
        _of(*PARTICLES, SWIMMER),
        _curves("figure-4"),
    ),
    Piece(
        "figure-6",
        "Figure 6: an explorer visits all landmarks",
        (Cell("mesa", VISUALIZED, 6.0),),
        _episodes("explorer-1"),
        shows_play=True,
    ),
    _harder("figure-7", "Figure 7: explorers of simpler worlds in a harder one", "mpe"),
    _harder("figure-7-wide", "Figure 7 in wide worlds", "wide"),
    Piece(
        "figure-8",
        "Figure 8: two explorers in a particle world",
        (Cell("mesa", VISUALIZED, 9.0, overrides=(("method.num-explorers", "2"),)),),
        _episodes("explorer-1", "explorer-2"),
        shows_play=True,
    ),
    Piece(
        "figure-9",
        "Figure 9: explorers against a replay filled from M_*, and without each part",
        tuple(_ablation()),
        _ablated,
    ),
    Piece("table-2", "Table 2: final returns", TABLE_2, _beside, _table_2, takes_stale=True),
    Piece(
        "table-wide",
        "Final returns in worlds of our own",
        TABLE_WIDE,
        _written("table-wide", _table_wide),
        _table_wide,
        takes_stale=True,
    ),
    Piece(
        "solved",
        "Tasks solved in the paper's worlds: the chart of the front page",
        TABLE_2,
        _solved("solved"),
        takes_stale=True,
    ),
    Piece("solved-wide", "Tasks solved in worlds of our own", TABLE_WIDE, _solved("solved-wide"), takes_stale=True),
    Piece("theory", "Theorems 4.2 to 4.4 and 5.1", (), _theory),
)
"""Figures and tables of the paper, and two of ours; `figure-2` is a drawing, `figure-5` is `mesax render RUN_DIR`."""
