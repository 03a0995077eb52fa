"""The theory's tables and picture, from a document."""

import json

import pytest

from mesax.cli.parser import main
from mesax.results.tables import to_markdown
from paper.theory import study as study_file
from paper.theory.shown import slips_text, tables, thresholds_table


@pytest.fixture(scope="module", autouse=True)
def short_study():
    """Fewer draws and learners: the whole takes seconds, and is a benchmark's business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_file, "LEARNED_ACTIONS", (4,))
        patch.setattr(study_file, "MOST_STEPS", 500)
        patch.setattr(study_file, "PICTURE_ACTIONS", (4, 5, 6))
        patch.setattr(study_file._lemma, "__defaults__", (50,))
        yield


def test_the_verb_writes_prints_and_ends_with_json(tmp_path, capsys):
    assert main(["theory", "--out", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr().out
    document = json.loads(printed.splitlines()[-1])
    assert json.loads((tmp_path / "theory.json").read_text(encoding="utf-8")) == document
    assert (tmp_path / "theory-steps.png").stat().st_size > 10_000
    assert "0 of 50 differ" in printed
    assert "NO" not in to_markdown(tables(document)[1])
    markdown = to_markdown(thresholds_table(document))
    assert "| uniform | 10 | 140 | 780 | 4.94k |" in markdown
    assert "| ε-greedy per agent, ε = 1/t | 4 | never | never | never |" in markdown
    assert slips_text(document).count("correct:") == len(document["slips"]) == 9


def test_an_unexpected_argument_is_one_line(capsys):
    assert main(["theory", "--steps", "3"]) == 2
    assert (
        capsys.readouterr().err
        == "mesax: unexpected argument '--steps'; did you mean --help? see mesax theory --help\n"
    )
