"""What a report says of one run by itself: tasks, explorers, dataset, differences from the paper, provenance."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape

import matplotlib

from mesax.experiments.names import OWN_PRESET
from mesax.formatting import format_number
from mesax.rendering import canvas
from mesax.results.drawing import Draw, world_figures
from mesax.results.figures import RUN_FIGURES
from mesax.results.labels import display_name
from mesax.results.safe_drawing import attempt
from mesax.results.summary import signs
from mesax.results.tables import Table, dataset_table, explorer_table, fit_table, leak_table, task_table, to_html
from mesax.store.json_values import flatten
from mesax.store.reading import RunResults
from mesax.suites.base import RunFigure
from mesax.suites.registry import is_of_the_paper

ELSEWHERE = (
    "{env} is no environment of the paper, so there is no paper configuration for it. Compared with the preset 'paper':"
    " for an environment of one's own that is the paper's networks, budgets and coverage reward, fitted to its sizes."
)


def run_section(label: str, run: RunResults) -> str:
    """A run in full."""
    parts = [f"<h2>{escape(label)}: {escape(str(run.run['env']))}</h2>"]
    parts += ["<h3>Test tasks</h3>", to_html(task_table(run)), *(note(f"Note: {sign}.") for sign in signs(run))]
    parts += _figures(run, world_figures(run))
    for table in (explorer_table(run), leak_table(run), fit_table(run)):
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
        parts += [note("The configuration is missing: run.json does not hold it.")]
    return "\n".join(parts)


def cell_section(label: str, run: RunResults, links: str) -> str:
    """A run, or several pooled ones, in short: one cell of a large table."""
    parts = [f"<h3>{escape(label)} on {escape(str(run.run['env']))}</h3>{links}"]
    parts += [f"<details><summary>{len(run.curves)} task runs</summary>{to_html(task_table(run))}</details>"]
    table = explorer_table(run)
    parts += [f"<details><summary>{escape(table.title)}</summary>{to_html(table)}</details>"] if table.rows else []
    parts += [f"<details><summary>Provenance</summary>{_pairs(_provenance(run))}</details>"]
    return "\n".join(parts)


def _dataset(run: RunResults) -> str:
    table = dataset_table(run)
    if not table.rows:
        return note(f"There is no high-reward dataset: {display_name(run.run)} logged no collection.")
    size, clusters = ((run.coverage or {}).get(key) for key in ("dataset_size", "clusters"))
    known = f"It holds {format_number(size)} pairs of observation and joint action" if size is not None else ""
    known += f" in {format_number(clusters)} clusters" if known and clusters is not None else ""
    return (note(f"{known}.") if known else "") + to_html(table)


def _paper_differences(run: RunResults) -> list[str]:
    """How the settings differ from the paper's, or from those of the preset that stands for them elsewhere."""
    rows = run.run.get("paper_diff")
    if run.run.get("preset") == OWN_PRESET:
        return [note("An experiment of the user's own: there is no paper configuration to compare it with.")]
    if rows is None:
        return [note("Not known: run.json does not say how the configuration differs from the paper's.")]
    ours = is_of_the_paper(run.run)
    where = [] if ours else [note(ELSEWHERE.format(env=run.run["env"]))]
    if not rows:
        return [*where, f"<p>None: this is {'the paper' if ours else 'that preset'}'s configuration.</p>"]
    cells = tuple((str(path), _text(paper), _text(this)) for path, paper, this in rows)
    column = "paper" if ours else "preset paper"
    return [*where, _text_table(Table("", ("setting", column, "this run"), cells))]


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


def note(sentence: str) -> str:
    """A sentence in small print."""
    return f'<p class="note">{escape(sentence)}</p>'


def _figures(run: RunResults, listed: Sequence[RunFigure]) -> list[str]:
    """What a run has of these figures, and under titles without any the sentence that says why."""
    parts: list[str] = []
    for title in dict.fromkeys(figure.title for figure in listed):
        alike = [figure for figure in listed if figure.title == title]
        shown = [
            picture(figure.name, partial(figure.draw, run), figure.caption) for figure in alike if figure.applies(run)
        ]
        reasons = [f"There is no figure: {display_name(run.run)} {figure.absent}." for figure in alike if figure.absent]
        if found := shown or [note(reason) for reason in reasons]:
            parts += [f"<h3>{escape(title)}</h3>", *found]
    return parts


def picture(name: str, draw: Draw, caption: str) -> str:
    """The figure as an embedded picture, or that there is none."""
    drawn = attempt(name, partial(_svg, draw))
    if drawn is None:
        return note("This figure could not be drawn.")
    encoded = base64.b64encode(drawn).decode("ascii")
    image = f'<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{encoded}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def _svg(draw: Draw) -> bytes:
    buffer = io.BytesIO()
    figure = draw()
    with matplotlib.rc_context(canvas.STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
