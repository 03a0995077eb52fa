"""Explorers leave a run as a bundle that loads without it; verify names what is damaged in a run."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from execution.test_runner import command_line, finished_run, only_line
from mesax import load_explorers
from mesax.errors import IO_ERROR, USAGE
from mesax.store import trees as checkpoint


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory)


def test_a_bundle_has_a_card_and_plays_as_the_run_does(finished, tmp_path, capsys):
    bundle = tmp_path / "bundle"
    assert command_line("export", finished, "--out", bundle) == 0
    assert f"written  {bundle}" in capsys.readouterr().out
    assert sorted(path.name for path in bundle.iterdir()) == ["README.md", "arrays.safetensors", "manifest.json"]
    assert checkpoint.verify(bundle) == []
    card = (bundle / "README.md").read_text()
    expected = [
        "climb-one",
        "| agents | 2 |",
        "one of 10 actions",
        "normalization",
        "Training tasks: k=",
        "| uniform |",
    ]
    expected += [
        "all explorers",
        "load_explorers",
        checkpoint.read_manifest(bundle)["files"]["arrays.safetensors"]["sha256"],
    ]
    assert [words for words in expected if words not in card] == []

    exported, own = load_explorers(bundle), load_explorers(finished)
    assert len(exported) == len(own) and exported.about["env"] == "climb-one"
    obs = np.zeros((exported.spec.num_agents, exported.spec.obs_size))
    assert np.array_equal(exported.start(3).act(obs), own.start(3).act(obs))
    assert command_line("export", finished, "--out", bundle) == USAGE
    assert "exists already" in only_line(capsys)


@pytest.mark.parametrize(
    "name", ["eval.jsonl", "summary.json", "policies/explorers/arrays.safetensors", "jobs/adapt/000/metrics.jsonl"]
)
def test_verify_names_the_file_that_is_damaged(finished, tmp_path, capsys, name):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    assert command_line("verify", run) == 0
    assert "state 'done'" in capsys.readouterr().out
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    assert command_line("verify", run) == IO_ERROR
    assert str(run / name) in capsys.readouterr().out
