"""`mesax render`: the right family draws the right policy, files appear whole or not at all, mistakes are one line."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from execution.test_runner import command_line, finished_run, run_tiny
from mesax.cli.parser import USAGE
from mesax.envs.particle_climb import ParticleClimb, ParticleClimbFamily
from mesax.errors import StoreError, UsageError
from mesax.execution import saved_policies as render
from mesax.execution.saved_policies import play_policy, record_episodes
from mesax.experiments.rebuild import experiment_of
from mesax.methods.base import Experiment
from mesax.rendering import painter
from mesax.rendering.episode import draw_scene, write_gif
from mesax.rendering.painter import BOARD_SECONDS, FIRST_SECONDS, LAST_SECONDS, Moment, draw_still, frames
from mesax.rendering.recorded import has_episodes, read_episodes
from mesax.rendering.scene import Scene
from mesax.store.json_values import signed
from mesax.store.run_directory import RunDirectory
from mesax.suites.registry import suite_of
from suites.test_climb_render import climb_scene


def test_a_gif_holds_all_frames_at_one_size(tmp_path):
    scene = climb_scene(1, 2, 4, episodes=5)
    write_gif(frames(scene, ""), tmp_path / "new" / "play.gif")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["play.gif"]
    with Image.open(tmp_path / "new" / "play.gif") as image:
        assert image.info["loop"] == 0
        shown = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(image)]
    assert len(shown) == 5, "an episode each; the last, which looks the same twice, is one long frame"
    assert sum(duration for _, duration in shown) == 1_000 * (FIRST_SECONDS + 4 * BOARD_SECONDS + LAST_SECONDS)
    assert len({frame.size for frame, _ in shown}) == 1
    assert {frame.getpixel((1, 1)) for frame, _ in shown} == {(255, 255, 255)}


def test_a_gif_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"play\.gif cannot be written"):
        write_gif([(draw_still(climb_scene(1, 2, 2), ""), 1.0)], tmp_path / "file" / "play.gif")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("render") / "run"
    shutil.copytree(finished_run(tmp_path_factory), path)
    return path


def test_render_draws_the_final_policy(run, tmp_path, capsys):
    gif = tmp_path / "final.gif"
    assert command_line("render", run, "--task", 1, "--gif", gif) == 0
    drawn = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    base = run / "figures" / "episode-task-01-final"
    assert drawn == [f"{base}.png", f"{base}.svg", str(gif)]
    assert all(Path(path).stat().st_size > 1_000 for path in drawn)
    before = Path(drawn[0]).read_bytes()
    assert command_line("render", run, "--task", 1, "--gif", gif) == 0
    assert Path(drawn[0]).read_bytes() == before, "the same episode every time"


def test_render_draws_the_policy_of_the_best_evaluation(run):
    directory = RunDirectory.open(run)
    scene = play_policy(directory, experiment_of(directory.run), 0, "best", episodes=2)
    best = max(row["return"] for row in directory.read_rows("eval.jsonl") if row["task"] == 0)
    assert np.mean([scene.return_of(take) for take in scene.takes]) == pytest.approx(best)


def test_render_draws_what_an_explorer_visits(run, monkeypatch):
    monkeypatch.setattr(painter, "walk", lambda scene: [Moment(0, 1)])
    assert command_line("render", run, "--policy", "explorer-1") == 0
    assert (run / "figures" / "episode-task-00-explorer-1.gif").is_file()


def test_uniform_play_earns_what_chance_earns(run):
    directory = RunDirectory.open(run)
    experiment = experiment_of(directory.run)
    scene = play_policy(directory, experiment, 0, "uniform")
    ((count, special),) = directory.run["test_tasks"][0]["target"]
    actions = np.array([take.points[1, 0] for take in scene.takes]) * (1, -1)
    hits = np.sum(actions == special, axis=-1)
    expected = np.where(hits == count, 1.0, np.where(hits == 0, 0.5, 0.0))
    np.testing.assert_array_equal([take.rewards[1] for take in scene.takes], expected)
    assert len(scene.takes) == render.EPISODES and len(np.unique(actions)) == experiment.family.num_actions


@pytest.mark.parametrize(
    "arguments, needles",
    [
        (["--task", "2"], ["no test task 2", "0 to 1"]),
        (["--task", "-1"], ["no test task -1", "0 to 1"]),
        (["--policy", "worst"], ["'worst'", "final, best, uniform, explorer-1"]),
        (["--policy", "../x"], ["'../x'", "final, best, uniform, explorer-1"]),
        (["--gif", "movie.mp4"], ["movie.mp4", ".gif"]),
        (["--gif", "."], ["--gif .", ".gif"]),
    ],
)
def test_bad_requests_are_one_line_and_draw_nothing(run, tmp_path, capsys, monkeypatch, arguments, needles):
    monkeypatch.chdir(tmp_path)
    before = sorted((run / "figures").iterdir())
    assert command_line("render", run, *arguments) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert all(needle in line for needle in needles), line
    assert sorted((run / "figures").iterdir()) == before and not list(tmp_path.iterdir())


def as_if_about(run: Path, copy: Path, environment: str, family) -> tuple[RunDirectory, Experiment]:
    """The run as if it had been about another world; only uniform play needs nothing that the run has saved."""
    shutil.copytree(run, copy)
    known = RunDirectory(copy).run
    RunDirectory(copy).set_status("failed")
    RunDirectory(copy).unseal()
    about = {"env": environment, "suite": suite_of(environment).name}
    RunDirectory(copy).write_json("run.json", signed(known | about))
    return RunDirectory.open(copy), replace(experiment_of(known), family=family)


def test_render_draws_particle_worlds(run, tmp_path, monkeypatch):
    family = ParticleClimbFamily(ParticleClimb(horizon=3))
    directory, experiment = as_if_about(run, tmp_path / "copy", "wide-2a5l", family)
    drawn: list[tuple[Scene, str]] = []
    monkeypatch.setattr(render, "draw_scene", lambda *parts: drawn.append(parts[:2]) or draw_scene(*parts))
    paths = render.render_run(directory, experiment, 1, "uniform", tmp_path / "play.gif")
    assert [path.name for path in paths] == ["episode-task-01-uniform.png", "episode-task-01-uniform.svg", "play.gif"]
    assert all(path.stat().st_size > 1_000 for path in paths)
    ((scene, title),) = drawn
    assert title == "mesa on wide-2a5l, test task 1: policy uniform"
    tasks = family.split(experiment.seed, experiment.num_train_tasks, experiment.num_test_tasks).test
    discs = [shape for shape in scene.shapes if shape.kind == "disc"]
    np.testing.assert_allclose([disc.center for disc in discs], tasks.landmarks[1])
    assert discs[int(tasks.target[1])].role == "target"
    assert len(scene.takes) == render.EPISODES and scene.takes[0].steps[-1] == 3


def test_a_world_that_nobody_can_draw_is_one_line(run, tmp_path):
    family = ParticleClimbFamily(ParticleClimb(horizon=3))
    for environment, message in (("climb-one", "made of ClimbFamily, not ParticleClimbFamily"),):
        directory, experiment = as_if_about(run, tmp_path / environment, environment, family)
        with pytest.raises(UsageError, match=message):
            render.render_run(directory, experiment, 0, "uniform", tmp_path / "play.gif")
    assert not (tmp_path / "play.gif").exists()


def test_episodes_are_recorded_once_for_the_report(run, tmp_path, monkeypatch, capsys):
    """Every policy on every task, as it plays; a report plays what a finished run has not recorded, and only that."""
    path = tmp_path / "run"
    shutil.copytree(run, path)
    stored = RunDirectory.open(path)
    assert record_episodes(stored, experiment_of(stored.run, ())) == path / "episodes.json"
    recorded = read_episodes(path)
    explorers = [name for name in {play["policy"]: None for play in recorded["plays"]} if name.startswith("explorer-")]
    tasks = len(stored.run["test_tasks"])
    assert explorers and len(recorded["plays"]) == tasks * (2 + len(explorers))
    assert len(recorded["stages"]) == tasks, "what all policies of a task share is kept once"
    final = next(play for play in recorded["plays"] if (play["policy"], play["task"]) == ("final", 1))
    seen = play_policy(stored, experiment_of(stored.run, ()), 1, "final", episodes=40)
    assert final["takes"] == seen.episodes()
    assert command_line("verify", path) == 0 and "unknown" not in capsys.readouterr().out

    played = []
    monkeypatch.setattr("mesax.execution.saved_policies.record_episodes", lambda run, *more: played.append(run.path))
    assert command_line("report", path) == 0 and played == []
    assert "data-player=" in (path / "report.html").read_text()
    (path / "episodes.json").unlink()
    assert command_line("report", path, "--no-episodes") == 0 and played == []
    assert command_line("report", path) == 0 and played == [path]
    assert not has_episodes(path)


def test_episodes_are_played_for_a_report_alone_which_goes_on_if_that_fails(tmp_path, monkeypatch, capsys):
    def fail(run, *more):
        raise ValueError("no policy")

    monkeypatch.setattr("mesax.execution.saved_policies.record_episodes", fail)
    assert run_tiny(tmp_path / "run") == 0
    assert "of episodes" not in capsys.readouterr().err
    assert command_line("report", tmp_path / "run") == 0
    line = f"mesax: the picture of episodes of {tmp_path / 'run'} cannot be drawn: ValueError: no policy"
    assert line in capsys.readouterr().err.splitlines()
