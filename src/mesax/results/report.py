"""The report of runs: one HTML page that carries its tables, figures, style and script, and loads nothing.

What a script draws on the page (curves, episodes) is embedded as JSON; without scripts, pictures stand in its place.
"""

import base64
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote

from mesax.errors import StoreError, UsageError
from mesax.experiments.names import METHODS, method_and_learner
from mesax.formatting import format_number, format_range
from mesax.rendering.recorded import read_episodes
from mesax.results.comparison import FamilyComparison, by_family, without_repetition
from mesax.results.figures import COMPARISON_FIGURES, run_colors
from mesax.results.labels import display_name, spoken
from mesax.results.page.data import coverage_data, embedded, end_intervals, family_data, player_data
from mesax.results.page.sections import cell_section, note, picture, run_section
from mesax.results.returns import named_levels
from mesax.results.summary import solved_runs
from mesax.results.tables import run_labels, to_html
from mesax.store.files import refuse_special, write_file
from mesax.store.json_values import Json
from mesax.store.reading import RunResults
from mesax.store.run_directory import RunDirectory, find_runs
from mesax.suites.renamed import load_run, names_of_before

REPORT = "report.html"
CONTROLS = '<nav id="controls" aria-label="View" hidden></nav>'
MOST_IN_FULL = 8
"""Up to so many runs, each is told of in full, with its own figures; of more, each cell of the table in short."""
MOST_NAMES = 4
"""Names in a title."""
MOST_EPISODE_BYTES = 3_000_000
"""Room for episodes on a page."""

PAGES = (".html", ".htm")


def write_report(run_dirs: Sequence[str | Path], path: str | Path) -> Path:
    """Write one self-contained HTML page about the runs and return its path; an old page is replaced.

    A directory that is no run stands for all evaluated runs below it.
    """
    if not run_dirs:
        raise UsageError("a report needs at least one run directory")
    target = Path(path)
    runs, left_out = load_evaluated(run_dirs)
    check_page(target)
    return write_page(runs, target, left_out)


def write_page(runs: Sequence[RunResults], target: Path, left_out: Sequence[str] = ()) -> Path:
    """The same of runs that are loaded; `left_out` says which others are not on the page, and why."""
    page = report_html(runs, target, left_out)
    write_file(target, page.encode(errors="backslashreplace"))  # names need not be valid Unicode
    return target


def check_page(target: Path) -> None:
    """Refuse what no page can be written to; to be said after the runs are read: a link inside one is damage."""
    if target.is_dir():
        raise UsageError(f"{target} is a directory; name the file to write")
    if target.suffix.lower() not in PAGES:  # a mistaken name must not cost anybody the results of a run
        raise UsageError(f"{target} is not the name of a file that ends in {' or '.join(PAGES)}")
    refuse_special(target)


def run_directories(paths: Sequence[str | Path]) -> tuple[list[Path], set[Path]]:
    """Run directories that are named, or below a directory that is; and those that were only found below one."""
    named: list[Path] = []
    found: set[Path] = set()
    for path in map(Path, paths):
        below = [] if (path / "run.json").exists() else [run.path for run in sorted(find_runs(path), key=_rank)]
        found.update(below)
        named += below or [path]
    return without_repetition(named), found


def _rank(run: RunDirectory) -> tuple[int, str]:
    """MESA first, then as methods are listed everywhere else."""
    try:
        method = str(run.run.get("method"))
    except StoreError:  # its reader says so
        method = ""
    names = list(METHODS)
    name = method_and_learner(method)[0]
    return names.index(name) if name in names else len(names), run.path.name


def load_evaluated(
    paths: Sequence[str | Path], load: Callable[[Path, bool], RunResults] = load_run
) -> tuple[list[RunResults], list[str]]:
    """The results of all these runs, as far as they go, each loaded once; and why others that were found are left out.

    `load` is told whether a run may be in part only.
    """
    directories, found = run_directories(paths)
    runs, left_out = [], []
    for directory in directories:
        try:
            runs.append(load(directory, directory not in found))
        except UsageError as error:
            if directory not in found:
                raise
            left_out.append(str(error))
    if not runs:
        raise UsageError(left_out[0])
    return runs, left_out


def shown_players(runs: Sequence[RunResults]) -> list[RunResults]:
    """The runs whose episodes a page shows: of several seeds the first one."""
    return [members[0] for family in by_family(runs) for members in family.members]


@dataclass
class _Page:
    """What is gathered while a page is written: blocks of data, by the names that its parts have for them."""

    target: Path | None
    """Where it will be, for links to other pages."""
    blocks: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, content: object) -> str:
        self.blocks[name] = embedded(content)
        return name

    def data(self) -> str:
        kind = 'type="application/json"'
        return "".join(f'<script {kind} id="{name}">{text}</script>\n' for name, text in self.blocks.items())


def report_html(runs: Sequence[RunResults], target: Path | None = None, left_out: Sequence[str] = ()) -> str:
    """The page as text: the comparison of all runs, then each run, or each cell of a large table, on its own."""
    page, families, in_full = _Page(target), by_family(runs), len(runs) <= MOST_IN_FULL
    methods = _listed([spoken([display_name(run.run)])[0] for run in runs], "methods")
    title = f"{methods} on {_listed([str(run.run['env']) for run in runs], 'environments')}"
    places = _places(runs, families, in_full)
    players = _players(page, families)
    body = [
        f"<h1>{escape(families[0].verdict if len(families) == 1 else title)}</h1>",
        *(f'<p class="lead">{escape(family.verdict)}</p>' for family in families if len(families) > 1),
        CONTROLS,
        _warnings(runs),
        *map(note, (*left_out, *names_of_before((run.directory, run.run) for run in runs))),
    ]
    if len(families) > 1:
        body.append(_overview(families, places))
    for number, family in enumerate(families):
        body.append(_family_section(page, number, family, places[number], players[number], in_full))
    if in_full:
        labelled = zip(run_labels(runs), runs, strict=True)
        body += [
            f'<section class="run" id="run-{number}">{run_section(label, run)}</section>'
            for number, (label, run) in enumerate(labelled)
        ]
    return _document(title, "\n".join(body), page)


def _listed(names: Sequence[str], kind: str) -> str:
    """Names; of many, only how many there are."""
    different = list(dict.fromkeys(names))
    return ", ".join(different) if len(different) <= MOST_NAMES else f"{len(different)} {kind}"


def _document(title: str, body: str, page: _Page) -> str:
    """Head, body and data; the browser is told to run this script only, and to load nothing."""
    style, script = _asset("report.css"), _asset("charts.js") + _asset("player.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>mesax: {escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'{body}\n<svg id="ink" hidden></svg>\n'
        f"{page.data()}<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return (files("mesax.results") / "page" / name).read_text(encoding="utf-8")


def _places(runs: Sequence[RunResults], families: Sequence[FamilyComparison], in_full: bool) -> list[list[str]]:
    """The anchor of every cell: its own section, or that of its first run."""
    numbers = {id(run): number for number, run in enumerate(runs)}
    return [
        [
            f"run-{numbers[id(members[0])]}" if in_full else f"cell-{column}-{row}"
            for row, members in enumerate(family.members)
        ]
        for column, family in enumerate(families)
    ]


def _overview(families: Sequence[FamilyComparison], places: Sequence[Sequence[str]]) -> str:
    """Methods x environments, every cell a link to what is behind it."""
    columns = [dict(zip(run_labels(family.runs), family.runs, strict=True)) for family in families]
    anchors = [dict(zip(column, own, strict=True)) for column, own in zip(columns, places, strict=True)]
    best = [max(float(run.final_returns.mean()) for run in column.values()) for column in columns]
    head = "".join(
        f'<th><a href="#family-{number}">{escape(family.title)}</a></th>' for number, family in enumerate(families)
    )
    rows = []
    for label in dict.fromkeys(label for column in columns for label in column):
        cells = []
        for column, own, top in zip(columns, anchors, best, strict=True):
            if label not in column:
                cells.append("<td>–</td>")
                continue
            chosen = "best" if float(column[label].final_returns.mean()) >= top - 1e-9 else ""
            cells.append(f'<td class="{chosen}"><a href="#{own[label]}">{_cell(column[label])}</a></td>')
        rows.append(f"<tr><td>{escape(label)}</td>{''.join(cells)}</tr>")
    explained = (
        "Return on unseen tasks after learning them, with its 95% interval; seeds pooled. Each cell leads to its runs."
    )
    table = f'<table class="cells"><thead><tr><th>method</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<h2 id="table">All methods, all environments</h2><div class="scroll">{table}</div>{note(explained)}'


def _cell(run: RunResults) -> str:
    """Its value and interval in every view that the page can be switched to."""
    optimal = float(run.family["optimal_return"])
    shown = []
    for name, interval in end_intervals(run).items():
        for scale, unit in (("raw", 1.0), ("normalized", optimal or 1.0)):
            value, low, high = (number / unit for number in (interval.value, interval.low, interval.high))
            text = f"{format_number(value)}<small>{format_range(low, high)}</small>"
            shown.append(f'<span class="of-{name} in-{scale}">{text}</span>')
    return "".join(shown)


def _family_section(
    page: _Page, number: int, family: FamilyComparison, places: Sequence[str], players: list[Json], in_full: bool
) -> str:
    members, source = family.runs, f"data-family-{number}"
    page.add(source, family_data(family, [f"#{place}" for place in places]))
    parts = [f"<h2>Results on {escape(family.title)}</h2>"]
    parts += [_cards(family), _sentences(family)]
    for figure in (figure for figure in COMPARISON_FIGURES if figure.chart):
        still = picture(figure.name, partial(figure.draw, members), figure.caption)
        parts += [
            f"<h3>{escape(figure.title)}</h3>",
            f'<div class="panel" data-{figure.chart}="{source}"></div><noscript>{still}</noscript>',
            note(figure.caption),
        ]
    parts += _explored(page, number, family)
    if players:
        parts += ["<h3>Episodes</h3>", _hosted("player", players)]
    for title, table in zip(("Comparison", "Differences"), family.tables, strict=False):
        parts += [f"<h3>{title}</h3>", to_html(table)]
    if not in_full:
        labelled = zip(run_labels(members), members, family.members, places, strict=True)
        parts += [
            f'<section class="run" id="{place}">{cell_section(label, run, _links(page, own))}</section>'
            for label, run, own, place in labelled
        ]
    return f'<section id="family-{number}">' + "\n".join(parts) + "</section>"


def _explored(page: _Page, number: int, family: FamilyComparison) -> list[str]:
    """What explorers reach on unseen tasks, target by target, where that was counted."""
    sources = []
    for row, (label, members) in enumerate(zip(run_labels(family.runs), family.members, strict=True)):
        found = coverage_data(members[0])
        if found is not None:
            sources.append({"label": label, "source": page.add(f"data-coverage-{number}-{row}", found)})
    return ["<h3>What explorers see of every target</h3>", _hosted("coverage", sources)] if sources else []


def _hosted(kind: str, sources: Sequence[Json]) -> str:
    """Where a script puts something that has no picture without it."""
    without = note("This part needs a script, which the page carries with it.")
    return f'<div class="panel" data-{kind}="{escape(embedded(sources))}"></div><noscript>{without}</noscript>'


def _players(page: _Page, families: Sequence[FamilyComparison]) -> list[list[Json]]:
    """Recorded episodes of the first seed of each cell, family by family, as far as there is room."""
    players: list[list[Json]] = [[] for _ in families]
    room = MOST_EPISODE_BYTES
    columns = [
        [(number, label, members[0]) for label, members in zip(run_labels(family.runs), family.members, strict=True)]
        for number, family in enumerate(families)
    ]
    for row in zip_longest(*columns):  # row by row, so that every family has some
        for number, label, run in filter(None, row):
            episodes = _episodes(run)
            if episodes is None:
                continue
            content = player_data(run, episodes)
            room -= len(embedded(content))
            if content["plays"] and room >= 0:
                source = page.add(f"data-episodes-{number}-{len(players[number])}", content)
                players[number].append({"label": label, "source": source})
    return players


def _episodes(run: RunResults) -> Json | None:
    """What a run has recorded; a file that cannot be shown is a line, and costs nothing else."""
    try:
        return read_episodes(run.directory)
    except StoreError as error:
        print(f"mesax: {error}; the report does without it", file=sys.stderr, flush=True)
        return None


def _links(page: _Page, members: Sequence[RunResults]) -> str:
    """To the pages of single runs, where there are any."""
    if page.target is None:
        return ""
    links = []
    for run in members:
        own = run.directory / REPORT
        if own.is_file() and own.resolve() != page.target.resolve():
            place = quote(os.path.relpath(own, page.target.parent))
            links.append(f'<a href="{escape(place)}">seed {escape(str(run.run["seed"]))}</a>')
    return f'<p class="note">Reports of its runs: {", ".join(links)}.</p>' if links else ""


def _warnings(runs: Sequence[RunResults]) -> str:
    return "".join(
        f'<p class="warning">{escape(run.directory.name)} has status “{escape(run.status)}”: '
        "its numbers cover what has been evaluated so far.</p>\n"
        for run in runs
        if run.status != "done"
    )


def _cards(family: FamilyComparison) -> str:
    cards = []
    listed = zip(run_labels(family.runs), family.runs, run_colors(family.runs), family.figures, strict=True)
    for label, run, color, figures in listed:
        cards.append(
            f'<div class="card" style="--c:{color}">{escape(label)}<b>{_cell(run)}</b>'
            f"{solved_runs(run)} of {len(run.curves)} {family.tasks} solved"
            f" [{figures['optimal_fraction_low']:.0%}, {figures['optimal_fraction_high']:.0%}]</div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _sentences(compared: FamilyComparison) -> str:
    """What the first run gains over each other one, in words; an interval that holds zero says so."""
    labels = run_labels(compared.runs)
    levels = [f"{name} {format_number(level)}" for name, level in named_levels(compared.runs[0].family)]
    text = [f"Returns: {', '.join(levels)}."]
    for label, comparison in zip(labels[1:], compared.differences, strict=True):
        gain = comparison.difference
        size = format_number(abs(gain.value))
        if size == format_number(0.0):
            text.append(f"{labels[0]} and {label} end with the same mean.")
            continue
        unclear = ", but the 95% interval includes no difference" if gain.low <= 0 <= gain.high else ""
        text.append(f"{labels[0]} is {size} {'better' if gain.value > 0 else 'worse'} than {label}{unclear}.")
    return f"<p>{escape(' '.join(text))}</p>"
