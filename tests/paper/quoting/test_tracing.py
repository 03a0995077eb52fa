"""Pages that quote results: a changed digit, on the page or in a file, is found."""

import json
from pathlib import Path

import pytest

from fake_store import FakeRun, write_run
from mesax.cli.parser import main
from mesax.errors import UsageError
from mesax.experiments.overrides import digest_of_plain
from mesax.results.evidence.kept import is_store, keep, read_kept
from mesax.store.settings import to_plain
from paper.cells import Cell
from paper.quoting.blocks import Evidence
from paper.quoting.checking import contradictions, verify_store, write_pages
from paper.quoting.tracing import check_page, rewrite_page
from paper.reproduce import piece_named


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "results"
    for method in ("mesa", "plain"):
        path = keep(write_run(tmp_path / "runs" / method, FakeRun(method, evaluations=8)), store)
        facts = json.loads(path.read_text())
        facts["made_with"]["config_hash"] = digest_of_plain(facts["config"])
        facts["explorers"] = {"visitors": {"all explorers": {"distinct_visits": 3.5, "high_reward_steps": None}}}
        path.write_text(json.dumps(facts))
    (store / "other.json").write_text(
        json.dumps({"rows": [{"share": 0.9073, "value": -3.25, "name": "x"}], "steps": 1234})
    )
    return store


def reasons(text: str, store: Path) -> list[str]:
    page = store.parent / "README.md"
    page.write_text(text)
    return [finding.reason for finding in check_page(page, store, lambda words: f"{words}\n").findings]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-3.25<!--= other rows/0/value -->", ""),
        ("**-3.2**<!--= other rows/0/value -->", ""),
        ("91%<!--= other rows/0/share -->, .907<!--= other rows/0/share -->, 0.91<!--= other rows/0/share -->", ""),
        ("1,234.0<!--= other steps -->, 1234<!--= other steps -->", ""),
        ("1,235<!--= other steps -->", "1,235 is 1,234 in other.json (steps)"),
        ("92%<!--= other rows/0/share -->", "92% is 91% in other.json (rows/0/share)"),
        ("-3.26<!--= other rows/0/value -->", "-3.26 is -3.25 in other.json (rows/0/value)"),
        ("1<!--= other rows/1/value -->", "other.json has no entry rows/1/value: '1' is not there"),
        ("1<!--= other rows/0/name -->", "other.json: rows/0/name is not a number"),
        ("much <!--= other rows/0/value -->", "<!--= other rows/0/value --> follows no number"),
    ],
)
def test_a_number_is_what_its_source_says(text: str, problem: str, store: Path):
    assert reasons(text, store) == ([problem] if problem else [])


def test_every_figure_of_a_traced_part_needs_a_source(store: Path):
    text = """0.5 here does not matter
<!-- traced -->
Ten tasks, about 34 of 80, seed 0, `0.5 in code`, [a link](page.html#a-1.5), v2
```sh
mesax run --x 0.5
```
-3.25<!--= other rows/0/value -->
<!-- results: block -->
block
<!-- end of results -->
now 12% and 0.5, then 997
<!-- end of traced -->
"""
    page = store.parent / "README.md"
    page.write_text(text)
    found = check_page(page, store, lambda words: f"{words}\n")
    assert (found.blocks, found.numbers) == (1, 1)
    assert [(one.line, one.reason.split(" names")[0]) for one in found.findings] == [
        (11, "12%"),
        (11, "0.5"),
        (11, "997"),
    ]


def test_a_block_is_compared_to_the_letter(store: Path):
    good = "<!-- results: one two -->\none two\n<!-- end of results -->\n"
    assert reasons(good, store) == []
    bad = good.replace("\none two", "\none tw0")
    assert reasons(bad, store) == ["the block 'one two' is not what the store says from this line on"]
    assert rewrite_page(store.parent / "README.md", store, lambda words: f"{words}\n")
    assert (store.parent / "README.md").read_text() == good
    assert reasons("<!-- results: one -->\n", store) == ["1 blocks of results begin and 0 end"]


def test_numbers_are_rewritten_too(store: Path):
    page = store.parent / "README.md"
    page.write_text("**92%**<!--= other rows/0/share --> and 1.10<!--= other rows/0/value -->\n")
    rewrite_page(page, store, str)
    assert page.read_text() == "**91%**<!--= other rows/0/share --> and -3.25<!--= other rows/0/value -->\n"


def test_the_verb_checks_and_writes_a_store(store: Path, capsys):
    page = store.parent / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "<!-- results: tasks mesa -->\n<!-- end of results -->\n<!-- results: nonsense -->\n<!-- end of results -->\n"
    )
    assert is_store(store) and not is_store(store.parent / "runs" / "mesa") and not is_store(page.parent)
    assert main(["verify", str(store)]) != 0
    printed = capsys.readouterr()
    assert "differs" in printed.out and "unknown block 'nonsense'; choose one of table-2" in printed.out
    assert "2 problems with" in printed.err
    page.write_text(page.read_text().replace("nonsense", "explorers mesa"))
    assert main(["verify", str(store), "--write"]) == 0
    assert "checked  2 results (0 fresh, 2 stale, 0 unverified)" in capsys.readouterr().out
    assert "| climb-one | quick | 0 | 1.00" in page.read_text()
    assert main(["verify", str(store.parent / "runs" / "mesa"), "--write"]) == 2


def test_a_changed_digit_in_a_file_is_found(store: Path):
    path = store / "mesa-climb-one-quick-seed0.json"
    facts = json.loads(path.read_text())
    facts["made_with"]["config_hash"] = "0"
    first = facts["per_task"][0]["final_return"]
    facts["per_task"][0]["final_return"] = first - 0.1
    path.write_text(json.dumps(facts))
    told = list(contradictions(read_kept(path)))
    assert [one.split(" is ")[0].split(" ends ")[0] for one in told[:2]] == ["mean_return", "task 0"]
    assert told[2] == "its settings do not have the hash 0"
    assert any("task 0 ends at" in one for one in verify_store(store).damaged)


def test_pages_follow_the_store(store: Path):
    page = store.parent / "README.md"
    page.write_text(
        "".join(f"<!-- results: {name} -->\n<!-- end of results -->\n" for name in ("tasks plain", "table-2"))
    )
    assert write_pages(store) == [page.resolve()] and write_pages(store) == []
    path = store / "plain-climb-one-quick-seed0.json"
    path.write_text(path.read_text().replace('"final_return": 0.5', '"final_return": 0.6', 1))
    found = verify_store(store)
    assert [one.reason.split("'")[1] for one in found.findings] == ["tasks plain"]
    assert len(found.damaged) == 2, "neither its mean nor its curve says so"


def test_blocks_of_runs_say_something(store: Path):
    evidence = Evidence(store)
    for words in (
        "table-2",
        "table-2 means",
        "table-2 wide",
        "side-by-side",
        "gains",
        "costs",
        "costs rows",
        "labels",
        "tasks mesa",
        "results climb-one mesa plain",
    ):
        assert evidence.write(words).startswith("\n"), words
    assert "| climb-one | quick | 0 | all explorers | 3.50 | – | – |" in evidence.write("explorers mesa")
    with pytest.raises(UsageError, match="the store has no result of qmix in climb-one"):
        evidence.write("results climb-one qmix")


def test_costs_that_were_measured_become_rows(tmp_path: Path):
    points = [{"size": [16, 5], "seconds": 0.2, "bytes": 2**21}, {"size": [2, 5], "seconds": 0.01, "bytes": 2**20}]
    part = {
        "what": "update",
        "against": "agents x landmarks",
        "order": "n U",
        "exponent": 1.44,
        "slopes": {"agents": 1.4},
    }
    (tmp_path / "scaling.json").write_text(json.dumps({"parts": {"update": {**part, "points": points}}}))
    row = "| update | agents x landmarks, 10 to 80 | 0.010 to 0.20 | 1.0 to 2.0 | n U | 1.44 | agents 1.40 |"
    assert row in Evidence(tmp_path).write("scaling")


def kept_of(cell: Cell, seed: int, returns: list[float], steps: float | None = None) -> dict[str, object]:
    """What the store would hold of a run of today's settings."""
    experiment = cell.request(seed).experiment()
    tasks = [
        {"task": task, "label": str(task), "repeat": 0, "final_return": value, "groups": {"k=2": value}}
        for task, value in enumerate(returns)
    ]
    reached = {"distinct_visits": 1.0, "high_reward_steps": steps, "worst_target": {"steps": steps}}
    return {
        **{name: getattr(cell, name) for name in ("method", "env", "preset")},
        **{"seed": seed, "mean_return": 1.0, "per_task": tasks, "optimal_fraction": 1.0, "by_group": {}},
        **{"env_steps": 40, "meta_env_steps": 0, "wall_seconds": 2.0, "overrides": dict(cell.overrides)},
        "family": {"optimal_return": 80.0, "suboptimal_return": 40.0, "optimal_threshold": 60.0, "groups": ["k=2"]},
        "config": to_plain(experiment),
        "made_with": {"config_hash": digest_of_plain(to_plain(experiment))},
        "explorers": {"visitors": {"all explorers": reached}},
    }


def test_arms_of_a_figure_are_pooled_and_do_not_stand_for_their_method(tmp_path: Path):
    cells = {cell.label: cell for cell in piece_named("figure-9").cells if cell.env == "wide-2a5l"}
    arms = (("MESA", 0, 70.0), ("MESA", 1, 66.0), ("without wishes", 0, 40.0), ("learner alone", 0, 34.0))
    for number, (label, seed, value) in enumerate(arms):
        facts = kept_of(cells[label], seed, [value] * 5, None if label == "learner alone" else value / 10)
        (tmp_path / f"{number}.json").write_text(json.dumps(facts))
    older = kept_of(cells["without wishes"], 0, [10.0] * 5, 1.0) | {"config": {}, "made_with": {"config_hash": "0"}}
    (tmp_path / "older.json").write_text(json.dumps(older))  # what the same run was with other settings
    evidence = Evidence(tmp_path)
    rows = [line.split(" | ") for line in evidence.write("arms figure-9 wide-2a5l").splitlines() if " of " in line]
    assert [(row[0], row[1], row[4], *row[6:]) for row in rows[:3]] == [
        ("| MESA", "0, 1", "10 of 10", "6.80", "6.80 |"),
        ("| learner alone", "0", "0 of 5", "–", "– |"),
        ("| without wishes", "0", "0 of 5", "4.00", "4.00 |"),
    ]
    assert rows[0][2].startswith("68.00 [") and rows[0][5] == "66.00"
    assert [row[3].partition(" (")[0] for row in rows[:3]] == ["–", "+36.00", "+30.00"], "on the tasks of both: seed 0"
    assert all(row[3].endswith(" (5 tasks) (1 seed)") for row in rows[1:3])
    assert "40.00" not in evidence.write("tasks mesa"), "an arm is not what the preset has"
