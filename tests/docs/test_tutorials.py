"""The tutorials' scripts and commands, as a reader would use them: the short ones always, whole tutorials if slow."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mesax.cli.parser import main
from mesax.errors import USAGE

DOCS = Path(__file__).resolve().parents[2] / "docs"


def scripts_of(page: str, folder: Path) -> list[str]:
    """Write the scripts of a page, which are titled `name.py`, into a folder; their names."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"`(\w+\.py)`[^\n]*\n\n```python\n(.*?)```", text, re.DOTALL)
    for name, source in found:
        (folder / name).write_text(source, encoding="utf-8")
    return [name for name, _ in found]


def commands_of(page: str) -> list[list[str]]:
    """The commands of a page, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    program = {"mesax": [sys.executable, "-m", "mesax.cli"], "python": [sys.executable]}[words[0]]
    return subprocess.run([*program, *words[1:]], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def corridor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert scripts_of("tutorial-environment.md", tmp_path) == ["corridor.py", "other_loop.py"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.delitem(sys.modules, "corridor", raising=False)
    return tmp_path


def test_the_environment_fits_as_the_page_shows(corridor: Path, capsys: pytest.CaptureFixture):
    page = (DOCS / "tutorial-environment.md").read_text(encoding="utf-8")
    shown = re.search(r"\$ mesax env check corridor:make\n(.*?)```", page, re.DOTALL)[1]
    assert main(["env", "check", "corridor:make"]) == 0

    def without_speed(text: str) -> list[str]:
        return [line for line in text.splitlines() if " speed " not in line]

    assert without_speed(capsys.readouterr().out) == without_speed(shown)


def test_the_command_line_knows_every_option_of_the_pages(corridor: Path):
    """Parsed only; wrong words would be a UsageError."""
    from mesax.cli.parser import parse

    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    commands = [words for page in [*pages, "../README.md"] for words in commands_of(page) if words[:1] == ["mesax"]]
    assert len(commands) > 50
    for words in commands:
        parse(words[1:])


def test_the_page_on_a_rare_reward_shows_its_world():
    """What it quotes of the example stands there."""
    page = (DOCS / "tutorial-rare-reward.md").read_text(encoding="utf-8")
    source = (DOCS.parent / "examples" / "beacons.py").read_text(encoding="utf-8")
    flat = " ".join(source.split())
    quoted = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(quoted) == 2
    assert [part for part in quoted if " ".join(part.split()) not in flat] == []


def test_a_sweep_and_a_family_of_the_page(corridor: Path, capsys: pytest.CaptureFixture):
    sweep = next(words for words in commands_of("tutorial-environment.md") if words[1] == "sweep")
    assert main([*sweep[1:], "--plan"]) == 0
    assert "6 runs: 6 new" in capsys.readouterr().out
    page = (DOCS / "tutorial-environment.md").read_text(encoding="utf-8")
    family = re.search(r"```python\n(import mesax\n\nFAMILY = .*?)```", page, re.DOTALL)[1]
    source = (corridor / "corridor.py").read_text(encoding="utf-8")
    (corridor / "with_family.py").write_text(f"{source}\n{family}", encoding="utf-8")
    assert main(["list", "mesa", "with_family:FAMILY", "--preset", "smoke"]) == 0
    assert re.search(r"--num-test-tasks +1 +Unseen tasks to learn", capsys.readouterr().out)


def test_the_learner_passes_its_probe(tmp_path: Path):
    names = scripts_of("tutorial-learner.md", tmp_path)
    assert names == ["joint_q.py", "test_joint_q.py", "run_joint_q.py"]
    result = run(["python", "test_joint_q.py"], tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_learner_that_does_not_learn_fails_the_probe(tmp_path: Path):
    scripts_of("tutorial-learner.md", tmp_path)
    source = (tmp_path / "joint_q.py").read_text(encoding="utf-8")
    (tmp_path / "joint_q.py").write_text(source.replace("mesax.Adam(3e-3)", "mesax.Adam(0.0)"), encoding="utf-8")
    result = run(["python", "test_joint_q.py"], tmp_path)
    assert result.returncode != 0 and "AssertionError" in result.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_learner_alone_and_inside_mesa(tmp_path: Path):
    scripts_of("tutorial-learner.md", tmp_path)
    for words in commands_of("tutorial-learner.md"):
        result = run(words, tmp_path)
        assert result.returncode == 0, result.stderr
    for method in ("mesa", "plain"):
        stored = json.loads((tmp_path / "runs" / f"joint-q-{method}" / "run.json").read_text())
        assert stored["config"]["algorithm"]["type"] == "joint_q:JointQ" and stored["modules"] == ["joint_q"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_verb_on_the_environment(corridor: Path):
    for words in commands_of("tutorial-environment.md"):
        result = run([*words, "--plan"] if words[1] == "sweep" else words, corridor)
        assert result.returncode == 0, result.stderr
    assert run(["mesax", "eval", "runs/corridor"], corridor).returncode == USAGE
    result = run(["python", "other_loop.py"], corridor)
    assert result.returncode == 0 and result.stdout.count("rewards each") == 2, result.stderr
    assert (corridor / "runs" / "corridor" / "figures" / "episode-task-00-explorer-1-environment.gif").exists()
    assert os.path.getsize(corridor / "runs" / "corridor" / "report.html") > 1_000
