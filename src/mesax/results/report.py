"""The report of runs: one HTML page that carries its tables, figures and style, and needs nothing else."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path

import matplotlib

from mesax.errors import UsageError
from mesax.experiments.names import OWN_PRESET
from mesax.formatting import format_number
from mesax.rendering import canvas
from mesax.results.comparison import by_family, without_repetition
from mesax.results.drawing import Draw, world_figures
from mesax.results.figures import COMPARISON_FIGURES, RUN_FIGURES
from mesax.results.safe_drawing import attempt
from mesax.results.summary import compare_runs, final_interval, solved_interval
from mesax.results.tables import Table, dataset_table, explorer_table, leak_table, run_labels, task_table, to_html
from mesax.store.files import write_file
from mesax.store.json_values import flatten
from mesax.store.reading import RunResults, load_run
from mesax.suites.base import RunFigure
from mesax.suites.registry import is_of_the_paper

ELSEWHERE = (
    "{env} is no environment of the paper, so there is no paper configuration for it. Compared with the preset 'paper':"
    " for an environment of one's own that is the paper's networks, budgets and coverage reward, fitted to its sizes."
)
STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #666; --line: #ddd; --page: #fff; --card: #f6f7f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --soft: #a5a5a5; --line: #3d4045; --page: #191b1e; --card: #24272b; }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 62rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.25rem; margin-top: 2.6rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: 1.02rem; margin: 1.6rem 0 .5rem; }
.note { color: var(--soft); font-size: .87rem; margin: .5rem 0 1rem; }
.warning { border-left: 4px solid #e69f00; background: var(--card); padding: .5rem .8rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem 1rem; }
.card b { display: block; font-size: 1.7rem; line-height: 1.25; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th, td { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child, .text th, .text td { text-align: left; }
.text td { white-space: normal; overflow-wrap: anywhere; font: .84rem/1.5 ui-monospace, monospace; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; padding: .5rem; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; }
figcaption { color: var(--soft); font-size: .87rem; }
details { margin: .5rem 0; }
summary { cursor: pointer; font-weight: 600; }
"""


PAGES = (".html", ".htm")


def write_report(run_dirs: Sequence[str | Path], path: str | Path) -> Path:
    """Write one self-contained HTML page about the runs and return its path; an old page is replaced."""
    if not run_dirs:
        raise UsageError("a report needs at least one run directory")
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a directory; name the file to write")
    if target.suffix.lower() not in PAGES:  # a mistaken name must not cost anybody the results of a run
        raise UsageError(f"{target} is not the name of a file that ends in {' or '.join(PAGES)}")
    runs = [load_run(run_dir) for run_dir in without_repetition(map(Path, run_dirs))]
    write_file(target, report_html(runs).encode(errors="backslashreplace"))  # names need not be valid Unicode
    return target


def report_html(runs: Sequence[RunResults]) -> str:
    """The page as text: the comparison of all runs, then each run on its own."""
    methods, environments = (", ".join(dict.fromkeys(str(run.run[key]) for run in runs)) for key in ("method", "env"))
    title = f"{methods} on {environments}"
    sections = [_warnings(runs), _results(runs)]
    sections += [_run_section(label, run) for label, run in zip(run_labels(runs), runs, strict=True)]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>mesax: {escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{''.join(sections)}\n</body>\n</html>\n"
    )


def _results(runs: Sequence[RunResults]) -> str:
    parts: list[str] = []
    for family in by_family(runs):
        members = family.runs
        parts += [f"<h2>Results on {escape(family.title)}</h2>", _cards(members), _sentences(members)]
        for title, table in zip(("Comparison", "Differences"), family.tables, strict=False):
            parts += [f"<h3>{title}</h3>", to_html(table)]
        for figure in COMPARISON_FIGURES:
            parts += [
                f"<h3>{escape(figure.title)}</h3>",
                _picture(figure.name, partial(figure.draw, members), figure.caption),
            ]
    return "\n".join(parts)


def _warnings(runs: Sequence[RunResults]) -> str:
    return "".join(
        f'<p class="warning">{escape(run.directory.name)} has status “{escape(run.status)}”: '
        "its numbers cover what has been evaluated so far.</p>\n"
        for run in runs
        if run.status != "done"
    )


def _cards(runs: Sequence[RunResults]) -> str:
    cards = []
    for label, run in zip(run_labels(runs), runs, strict=True):
        interval, solved = final_interval(run), solved_interval(run)
        cards.append(
            f'<div class="card">{escape(label)}<b>{format_number(interval.value)}</b>'
            f"[{format_number(interval.low)}, {format_number(interval.high)}]<br>"
            f"{solved.value:.0%} of {len(run.curves)} task runs solved ({solved.low:.0%} to {solved.high:.0%})</div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _sentences(runs: Sequence[RunResults]) -> str:
    """What the first run gains over each other one, in words; an interval that holds zero says so."""
    labels, family = run_labels(runs), runs[0].family
    text = [
        f"The optimal return is {format_number(float(family['optimal_return']))}, "
        f"the suboptimal one {format_number(float(family['suboptimal_return']))}."
    ]
    for label, run in zip(labels[1:], runs[1:], strict=True):
        comparison = compare_runs(runs[0], run)
        gain = comparison.difference
        size = format_number(abs(gain.value))
        if size == format_number(0.0):
            text.append(f"{labels[0]} and {label} end with the same mean.")
            continue
        unclear = ", but the 95% interval includes no difference" if gain.low <= 0 <= gain.high else ""
        text.append(f"{labels[0]} is {size} {'better' if gain.value > 0 else 'worse'} than {label}{unclear}.")
    return f"<p>{escape(' '.join(text))}</p>"


def _run_section(label: str, run: RunResults) -> str:
    parts = [f"<h2>{escape(label)}: {escape(str(run.run['env']))}</h2>"]
    parts += ["<h3>Test tasks</h3>", to_html(task_table(run))]
    parts += _figures(run, world_figures(run))
    for table in (explorer_table(run), leak_table(run)):
        parts += [f"<h3>{escape(table.title)}</h3>", to_html(table)] if table.rows else []
    parts += _figures(run, RUN_FIGURES)
    parts += ["<h3>High-reward dataset</h3>", _dataset(run)]
    parts += ["<h3>Differences from the paper</h3>", *_paper_differences(run)]
    parts += ["<h3>Provenance</h3>", _pairs(_provenance(run))]
    config = run.run.get("config")
    if config:
        details = _pairs(flatten(config))
        parts += [f"<details><summary>Configuration</summary>{details}</details>"]
    else:
        parts += [_note("The configuration is missing: run.json does not hold it.")]
    return "\n".join(parts)


def _dataset(run: RunResults) -> str:
    table = dataset_table(run)
    if not table.rows:
        return _note(f"There is no high-reward dataset: {run.run['method']} logged no collection.")
    size, clusters = ((run.coverage or {}).get(key) for key in ("dataset_size", "clusters"))
    known = f"It holds {format_number(size)} pairs of observation and joint action" if size is not None else ""
    known += f" in {format_number(clusters)} clusters" if known and clusters is not None else ""
    return (_note(f"{known}.") if known else "") + to_html(table)


def _paper_differences(run: RunResults) -> list[str]:
    """How the settings differ from the paper's, or from those of the preset that stands for them elsewhere."""
    rows = run.run.get("paper_diff")
    if run.run.get("preset") == OWN_PRESET:
        return [_note("An experiment of the user's own: there is no paper configuration to compare it with.")]
    if rows is None:
        return [_note("Not known: run.json does not say how the configuration differs from the paper's.")]
    ours = is_of_the_paper(run.run)
    note = [] if ours else [_note(ELSEWHERE.format(env=run.run["env"]))]
    if not rows:
        return [*note, f"<p>None: this is {'the paper' if ours else 'that preset'}'s configuration.</p>"]
    cells = tuple((str(path), _text(paper), _text(this)) for path, paper, this in rows)
    column = "paper" if ours else "preset paper"
    return [*note, _text_table(Table("", ("setting", column, "this run"), cells))]


def _provenance(run: RunResults) -> dict[str, object]:
    versions = run.run.get("versions") or {}
    keys = {"command": "command", "run": "id", "seed": "seed", "configuration hash": "config_hash"}
    keys |= {"commit": "git_commit", "machine": "machine"}
    known = {name: run.run.get(key) for name, key in keys.items()}
    known["versions"] = " ".join(f"{name} {version}" for name, version in versions.items()) or None
    known |= {"directory": str(run.directory), "status": run.status}
    return {name: "not recorded" if value is None else value for name, value in known.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _pairs(pairs: Mapping[str, object]) -> str:
    return _text_table(Table("", ("name", "value"), tuple((name, _text(value)) for name, value in pairs.items())))


def _text_table(table: Table) -> str:
    return f'<div class="text">{to_html(table)}</div>'


def _note(sentence: str) -> str:
    return f'<p class="note">{escape(sentence)}</p>'


def _figures(run: RunResults, listed: Sequence[RunFigure]) -> list[str]:
    """What a run has of these figures, and under titles without any the sentence that says why."""
    parts: list[str] = []
    for title in dict.fromkeys(figure.title for figure in listed):
        alike = [figure for figure in listed if figure.title == title]
        shown = [
            _picture(figure.name, partial(figure.draw, run), figure.caption) for figure in alike if figure.applies(run)
        ]
        reasons = [f"There is no figure: {run.run['method']} {figure.absent}." for figure in alike if figure.absent]
        if found := shown or [_note(reason) for reason in reasons]:
            parts += [f"<h3>{escape(title)}</h3>", *found]
    return parts


def _picture(name: str, draw: Draw, caption: str) -> str:
    """The figure as an embedded picture, or that there is none."""
    drawn = attempt(name, partial(_svg, draw))
    if drawn is None:
        return _note("This figure could not be drawn.")
    picture = base64.b64encode(drawn).decode("ascii")
    image = f'<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{picture}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def _svg(draw: Draw) -> bytes:
    buffer = io.BytesIO()
    figure = draw()
    with matplotlib.rc_context(canvas.STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
