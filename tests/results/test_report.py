"""Tables and the HTML report: the right numbers, whole without a network, safe with hostile labels."""

import base64
import hashlib
import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fake_store import FakeRun, write_episodes, write_run
from mesax.errors import DamageError, UsageError
from mesax.formatting import format_count
from mesax.rendering.recorded import read_episodes
from mesax.results import tables
from mesax.results.comparison import by_family
from mesax.results.curves import mean_steps_to_optimal
from mesax.results.page.data import MOST_POINTS, thinned
from mesax.results.report import report_html, write_report
from mesax.results.summary import final_interval, run_figures, solved_interval
from mesax.store.json_values import signed
from mesax.store.reading import RunResults, load_run
from mesax.store.run_directory import RunDirectory
from mesax.store.verify import verify_run

SMALL = FakeRun(num_tasks=4, evaluations=12, num_actions=4, num_explorers=2)
NAMES = {"mesa": "MESA", "plain": "learner alone", "uniform": "learner and random episodes"}
METHODS = tuple(NAMES)
VOID = {"meta", "img", "br"}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    return {method: write_run(root / method, replace(SMALL, method=method)) for method in METHODS}


@pytest.fixture(scope="module")
def page(store, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    assert write_report([store["mesa"], store["plain"]], path) == path
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def runs_of(store) -> list[RunResults]:
    return [load_run(store[method]) for method in METHODS]


def cells_of(table: tables.Table, row: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[row], strict=True))


# Tables


def test_comparison_table_holds_the_numbers_of_each_run(store):
    runs = runs_of(store)
    table = tables.comparison_table(runs)
    assert [row[0] for row in table.rows] == list(NAMES.values())
    for index, run in enumerate(runs):
        cells = cells_of(table, index)
        interval, solved = final_interval(run), solved_interval(run)
        assert cells["mean"] == f"{run.final_returns.mean():.2f}"
        assert cells["95% interval"] == f"[{interval.low:.2f}, {interval.high:.2f}]"
        assert cells["k=1"] == "1.00" and cells["k=2"] == f"{run.summary['by_group']['k=2']:.2f}"
        ends = f"[{100 * solved.low:.0f}, {100 * solved.high:.0f}]"
        assert cells["solved"] == f"{np.mean(run.final_returns >= 0.99):.0%} {ends}"
        assert cells["steps to optimum"] == format_count(mean_steps_to_optimal(run.curves, 0.99))
        assert cells["time"] == "1m23s"
    assert [cells_of(table, index)["env steps"] for index in range(3)] == ["48k"] * 3
    assert "time: of all stages of their runs." in table.note
    assert table.note.endswith("On training tasks before, in the time but not in the env steps: MESA 300k steps.")
    assert table.title == "climb-one, preset quick, 4 task runs each"


def test_steps_to_optimum_are_those_of_the_mean_over_all_task_runs(store):
    run = load_run(store["mesa"])
    steps = np.array([100, 300, 800, 900, 1_000, 1_100, 1_200])
    curves = [
        replace(curve, steps=steps, returns=(steps >= solved_at) * 1.0)
        for curve, solved_at in zip(run.curves, [100, 300, 300, 800], strict=True)
    ]
    assert cells_of(tables.comparison_table([replace(run, curves=tuple(curves))]), 0)["steps to optimum"] == "800"
    assert cells_of(tables.comparison_table([replace(run, curves=tuple(curves[:3]))]), 0)["steps to optimum"] == "300"
    never = replace(run, curves=(replace(curves[0], returns=0.0 * steps),))
    assert cells_of(tables.comparison_table([never]), 0)["steps to optimum"] == tables.NOTHING


def test_no_steps_are_told_of_what_is_not_solved(store):
    """A single evaluation at the optimum, or the last one only, leaves the final return below it."""
    run = load_run(store["mesa"])
    curves = [
        replace(run.curves[number], steps=np.arange(7), returns=np.array(returns))
        for number, returns in enumerate(([0.5, 1.0, 0.5, 0.5, 0.5, 0.5, 1.0], [0.5] * 6 + [1.0]))
    ]
    once = replace(run, curves=tuple(curves))
    cells = cells_of(tables.comparison_table([once]), 0)
    assert cells["solved"].startswith("0%") and cells["steps to optimum"] == tables.NOTHING
    assert [row[-1] for row in tables.task_table(once).rows] == [tables.NOTHING] * 2
    assert run_figures(once)["steps_to_solve"] is None


def test_task_table_has_a_row_for_each_task_run(store):
    table = tables.task_table(load_run(store["plain"]))
    assert table.columns == ("test task", "final return", "k=1", "k=2", "steps to solve")
    assert table.rows[0][:4] == ("k=1 u=0", "1.00", "1.00", tables.NOTHING)
    assert table.rows[1][-1] == tables.NOTHING


def test_repeats_are_told_apart(tmp_path):
    table = tables.task_table(load_run(write_run(tmp_path / "run", replace(SMALL, repeats=2))))
    assert [row[:2] for row in table.rows[:3]] == [("k=1 u=0", "0"), ("k=1 u=0", "1"), ("k=2 u=0", "0")]


def test_dataset_table_takes_the_last_row_of_each_training_task(store):
    run = load_run(store["mesa"])
    later = {"phase": "collect", "task": 0, "step": 60_000, "high_reward_pairs": 7, "distinct_pairs": 3}
    table = tables.dataset_table(replace(run, metrics=(*run.metrics, later)))
    assert table.columns == ("training task", "steps", "high reward pairs", "distinct pairs")
    assert table.rows[0] == (run.run["train_tasks"][0]["label"], "60k", "7", "3")
    assert len(table.rows) == 10
    assert tables.dataset_table(load_run(store["plain"])).rows == ()


def test_difference_table_compares_with_the_first_run(store):
    (family,) = by_family(runs := runs_of(store))
    table = family.tables[1]
    assert [row[0] for row in table.rows] == ["MESA against learner alone", "MESA against learner and random episodes"]
    gain = runs[0].final_returns.mean() - runs[1].final_returns.mean()
    assert table.rows[0][1].startswith(f"+{gain:.2f} [") and table.rows[0][3] == "same test tasks"


def test_labels_name_what_differs(store):
    mesa, plain, _ = runs_of(store)
    assert tables.run_labels([mesa, plain]) == ["MESA", "learner alone"]
    other_seed = replace(mesa, run={**mesa.run, "seed": 7})
    assert tables.run_labels([mesa, other_seed]) == ["MESA seed 0", "MESA seed 7"]
    changed = replace(mesa, run={**mesa.run, "overrides": {"algorithm.hidden": "32"}})
    assert tables.run_labels([mesa, changed]) == ["MESA", "MESA algorithm.hidden=32"]
    assert tables.run_labels([changed, plain]) == ["MESA algorithm.hidden=32", "learner alone"], (
        "also where methods differ"
    )
    smaller = replace(mesa, run={**other_seed.run, "overrides": {"algorithm.hidden": "16", "lanes": "1"}})
    both = replace(mesa, run={**changed.run, "overrides": {"algorithm.hidden": "32", "lanes": "1"}})
    assert tables.run_labels([both, smaller]) == ["MESA algorithm.hidden=32", "MESA algorithm.hidden=16"]
    smoke = replace(plain, run={**plain.run, "preset": "smoke"})
    assert tables.run_labels([mesa, smoke]) == ["MESA quick", "learner alone smoke"]
    copy = replace(mesa, directory=mesa.directory.with_name("copy"))
    assert tables.run_labels([mesa, copy]) == ["MESA mesa", "MESA copy"]


def test_markdown_cells_cannot_break_the_table():
    text = tables.to_markdown(tables.Table("t", ("a", "b"), (("x|y", "<b>\n2"),), note="why"))
    assert text == "| a | b |\n|---|---:|\n| x\\|y | &lt;b> 2 |\n\nwhy\n"


def test_terminal_table_fits_eighty_columns_and_prints_markup_literally(store):
    console = Console(width=80, record=True, file=io.StringIO())
    run = load_run(store["mesa"])
    console.print(tables.to_rich(tables.comparison_table(runs_of(store))))
    odd = replace(run, curves=tuple(replace(curve, label="[red]x[/red]") for curve in run.curves))
    console.print(tables.to_rich(tables.task_table(odd)))
    text = console.export_text()
    assert "…" not in text and "[red]x[/red]" in text
    assert re.search(r"learner +0\.\d\d +\[0\.\d\d, 1", text)


# The report


class Balance(HTMLParser):
    """Checks that elements close in order, and collects the attributes that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self.scripts: list[str | None] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.scripts += [dict(attrs).get("type")] if tag == "script" else []
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parse(page: str) -> Balance:
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    return parser


def test_report_is_whole_and_loads_nothing(page):
    parser = parse(page)
    assert not re.search(r"https?://|url\(|@import", page)
    assert "link" not in parser.tags
    pictures = [source for source in parser.sources if not source.startswith("#")]
    assert len(pictures) == 4, "curves, dots, explorers and their training"
    for source in pictures:
        kind, _, data = source.partition(",")
        assert kind == "data:image/svg+xml;base64" and b"<svg" in base64.b64decode(data)


def test_only_the_script_of_the_page_may_run(page):
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page


def data_of(page: str, name: str) -> object:
    return json.loads(page.partition(f'id="{name}">')[2].partition("</script>")[0])


def test_curves_are_embedded_as_they_are(page, store):
    family = data_of(page, "data-family-0")
    assert (family["optimal"], family["groups"]) == (1.0, ["", "k=1", "k=2"])
    assert family["levels"] == [["optimum", 1.0], ["safe equilibrium", 0.5]]
    run = load_run(store["plain"])
    plain = family["methods"][1]
    assert plain["label"] == "learner alone" and plain["href"] == "#run-1"
    first = plain["runs"][0]
    assert first["label"] == "k=1 u=0" and first["returns"][""] == run.curves[0].returns.tolist()
    assert plain["steps"][first["steps"]] == run.curves[0].steps.tolist()
    band = plain["bands"][""]
    last = np.sort([curve.returns[-1] for curve in run.curves])
    assert band["meanEnd"][0] == run.final_returns.mean() and band["mean"][0][-1] == pytest.approx(last.mean())
    assert band["iqm"][0][-1] == pytest.approx(last[1:3].mean()), "the middle half of four"
    assert band["mean"][1][-1] < last.mean() < band["mean"][2][-1]


def test_long_curves_are_thinned_to_their_ends():
    kept = thinned(1_000)
    assert len(kept) == MOST_POINTS and (kept[0], kept[-1]) == (0, 999)
    assert thinned(MOST_POINTS).tolist() == list(range(MOST_POINTS))


@pytest.mark.usefixtures("unpainted")
def test_recorded_episodes_that_nobody_could_play_are_left_out(store, tmp_path, capsys):
    source = write_episodes(write_run(tmp_path / "run", SMALL))
    assert "data-player=" in report_html([load_run(source)])
    recorded = json.loads((source / "episodes.json").read_text())
    for spoil in (
        lambda it: it["plays"][0].update(stage=7),
        lambda it: it["plays"][0]["takes"][0]["points"].pop(),
        lambda it: it["plays"][0]["takes"][0].update(steps=[]),
        lambda it: it["plays"][0]["takes"][0]["rewards"].append("1"),
        lambda it: it["plays"][0]["takes"][0].update(visits=[[1, 2, 3]]),
        lambda it: it["stages"][0]["shapes"][0].update(kind="script"),
        lambda it: it["stages"][0].update(chains=["body"]),
        lambda it: it.pop("plays"),
    ):
        spoiled = json.loads(json.dumps(recorded))
        spoil(spoiled)
        (source / "episodes.json").write_text(json.dumps(signed(spoiled)))
        with pytest.raises(DamageError, match="is no record of episodes"):
            read_episodes(source)
    assert "data-player=" not in report_html([load_run(source)])
    assert "episodes.json is no record of episodes" in capsys.readouterr().err
    (source / "episodes.json").write_text(json.dumps(signed(recorded | {"version": 99})))
    assert read_episodes(source) is None, "of a later version"


def test_report_holds_the_numbers(page, store):
    for method in ("mesa", "plain"):
        summary = json.loads((store[method] / "summary.json").read_text())
        interval = f"<small>[{summary['ci_low']:.2f}, {summary['ci_high']:.2f}]</small>"
        assert f'{NAMES[method]}<b><span class="of-mean in-raw">{summary["mean_return"]:.2f}{interval}</span>' in page
    gain = [load_run(store[method]).final_returns.mean() for method in ("mesa", "plain")]
    assert f"MESA is {gain[0] - gain[1]:.2f} better than learner alone" in page
    for expected in ("<td>k=2 u=0</td>", "<td>MESA against learner alone</td>", "<th>high reward pairs</th>"):
        assert expected in page


def test_report_says_where_the_run_came_from_and_how_it_differs(page):
    for expected in (
        "mesax run mesa climb-one --preset quick --seed 0",
        "5f3a9c0d1e2b4a68",
        "0123456789abcdef0123456789abcdef01234567",
        "jax 0.7.0",
        "<td>algorithm.actor_update</td><td>gumbel</td><td>coordinated</td>",
        "<td>method.mixing.start</td><td>0.8</td>",
        "<details><summary>Configuration</summary>",
    ):
        assert expected in page


def test_report_says_why_something_is_missing(page):
    assert (
        "There is no figure: learner alone recorded no visits of joint actions, or too many to be shown as maps."
        in page
    )
    assert "learner alone logged no training of explorers." in page
    assert "There is no high-reward dataset: learner alone logged no collection." in page


@pytest.mark.usefixtures("unpainted")
def test_report_of_an_old_or_unfinished_run_says_what_it_lacks(store):
    run = load_run(store["plain"])
    kept = ("method", "env", "preset", "seed", "family", "test_tasks")
    bare = replace(run, run={key: run.run[key] for key in kept}, summary={}, status="running")
    page = report_html([bare])
    parse(page)
    assert "status “running”" in page and "not recorded" in page
    assert "The configuration is missing" in page and "Not known: run.json" in page
    same = report_html([replace(run, run={**run.run, "paper_diff": []})])
    assert "None: this is the paper's configuration." in same


def test_report_escapes_everything_that_comes_from_outside(tmp_path):
    attack = "<script>alert('x')</script>\"&"
    fake = replace(SMALL, label_prefix=attack, overrides=((attack, attack),))
    source = write_run(tmp_path / "source", fake)
    run = json.loads((source / "run.json").read_text())
    run |= {"command": attack, "git_commit": attack, "preset": attack, "method": attack, "env": attack}
    run |= {
        "config": {attack: attack},
        "paper_diff": [[attack, attack, [attack]]],
        "versions": {attack: attack},
    }
    (source / "run.json").write_text(json.dumps(run))
    (source / "STATUS").write_text(attack)
    (source / "checksums.json").unlink()
    other = tmp_path / "other"
    shutil.copytree(source, other)
    (other / "coverage.json").unlink()  # so that sentences about what is missing name the method
    (other / "metrics.jsonl").unlink()
    page = write_report([source, other], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page and "&lt;script&gt;" in page and "\\u003cscript\\u003e" in page
    kinds = parse(page).scripts
    assert kinds.pop() is None and set(kinds) == {"application/json"}, "one script, which is ours, after the data"


@pytest.mark.usefixtures("unpainted")
def test_several_seeds_are_pooled_in_the_results_and_apart_below(store, tmp_path):
    second = write_run(tmp_path / "second", replace(SMALL, seed=1))
    page = report_html([load_run(store["mesa"]), load_run(second)])
    assert "of 8 unseen tasks solved" in page
    assert "<h2>MESA seed 0: climb-one</h2>" in page and "<h2>MESA seed 1: climb-one</h2>" in page


def test_a_failed_report_leaves_the_old_page(store, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(UsageError, match="no run directory at"):
        write_report([store["mesa"], tmp_path / "missing"], path)
    with pytest.raises(UsageError, match="at least one run directory"):
        write_report([], path)
    assert path.read_text() == "old"


@pytest.mark.usefixtures("unpainted")
def test_report_of_an_environment_that_is_not_the_papers(store):
    run = load_run(store["plain"])
    own = {**run.run, "env": "rooms:make", "suite": "foreign"}
    same = report_html([replace(run, run={**own, "paper_diff": []})])
    assert "rooms:make is no environment of the paper, so there is no paper configuration for it" in same
    assert "None: this is that preset's configuration." in same and "the paper's configuration" not in same
    assert "<th>preset paper</th>" in report_html([replace(run, run=own)])
    built = report_html([replace(run, run={**own, "env": "own", "preset": "own", "paper_diff": None})])
    assert "there is no paper configuration to compare it with" in built


def test_what_final_returns_are_the_mean_of(store):
    run = load_run(store["plain"])

    def evaluated(*numbers: int):
        curves = [replace(run.curves[0], returns=run.curves[0].returns[:number]) for number in numbers]
        return replace(run, curves=tuple(curves))

    assert tables.final_words([evaluated(9, 9)]) == "mean of the last 3 evaluations"
    assert tables.final_words([evaluated(2, 2)]) == "its last evaluation"
    assert tables.final_words([evaluated(2), evaluated(9)]) == "mean of the last 1 or 3 evaluations"
    assert tables.final_words([evaluated(1)]) == "its only evaluation"


def test_what_was_not_measured_is_not_zero(store):
    run = load_run(store["mesa"])
    visitors = [visitor | {"distinct_visits": None} for visitor in run.coverage["visitors"]]
    names = ("precision", "recall", "rewarding_steps")
    unknown = run.coverage | {"visitors": visitors, "leaks": {"threshold": 0.2, "steps": 40} | dict.fromkeys(names)}
    without = replace(run, coverage=unknown)
    assert {row[1] for row in tables.explorer_table(without).rows} == {"not measured"}
    shown = dict(tables.leak_table(without).rows)
    assert shown["precision at the threshold"] == shown["truly rewarding steps"] == "not measured"
    assert (shown["distance threshold"], shown["steps checked"]) == ("0.20", "40")
    metrics = tuple(row | ({"distinct_visits": None} if "distinct_visits" in row else {}) for row in run.metrics)
    parse(report_html([replace(without, metrics=metrics)]))


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("how", ["another run's", "changed"])
def test_episodes_of_another_run_are_not_shown_and_found_out(tmp_path, capsys, how):
    source = write_episodes(write_run(tmp_path / "run", SMALL))
    own = (source / "episodes.json").read_text()
    other = write_episodes(write_run(tmp_path / "other", replace(SMALL, config_hash="0123456789abcdef")))
    strange = (other / "episodes.json").read_text() if how == "another run's" else own.replace('"task": 1', '"task": 0')
    (source / "episodes.json").write_text(strange)
    assert "data-player=" not in report_html([load_run(source)])
    told = "was not recorded by this run" if how == "another run's" else "its checksum of itself does not match"
    assert f"episodes.json {'is damaged: ' * (how == 'changed')}{told}; the report does" in capsys.readouterr().err
    assert any(told in problem for problem in verify_run(RunDirectory(source)).problems)
