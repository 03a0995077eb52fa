"""The store of results: what is written can be read like the run, and is known to be stale when settings change."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fake_store import FakeRun, seal, write_run
from mesax.cli.parser import main
from mesax.errors import DamageError, UsageError
from mesax.execution.sweep import How, Planned, skip_stored, sweep
from mesax.experiments.overrides import digest
from mesax.experiments.request import Request
from mesax.results.comparison import compare_directories
from mesax.results.evidence.kept import Kept, all_kept, command_of, keep, load_results, read_kept
from mesax.results.evidence.same_settings import changes, is_of
from mesax.results.labels import method_label
from mesax.results.summary import run_figures
from mesax.store.reading import load_run
from mesax.store.settings import to_plain
from paper.freshness import freshness, request_of, requested, trained_today, with_family
from paper.quoting.contradictions import contradictions

FAKE = FakeRun("mesa", num_stages=3, evaluations=12)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", FAKE)


def test_a_result_reads_like_its_run(run: Path, tmp_path: Path):
    path = keep(run, tmp_path / "store")
    assert path.name == "mesa-climb-one-quick-seed0.json"
    kept, whole = load_results(path), load_run(run)
    np.testing.assert_allclose(kept.final_returns, whole.final_returns, atol=1e-4)
    for ours, theirs in zip(kept.curves, whole.curves, strict=True):
        np.testing.assert_array_equal(ours.steps, theirs.steps)
        assert set(ours.groups) == set(theirs.groups) and ours.label == theirs.label
    figures, wanted = run_figures(kept), run_figures(whole)
    assert figures["by_group"] == pytest.approx(wanted["by_group"], abs=1e-4)
    assert figures["steps_to_optimum"] == wanted["steps_to_optimum"]
    assert compare_directories([path])[0].tables[0].rows == compare_directories([run])[0].tables[0].rows


def test_the_summary_of_a_run_is_no_stored_result(run: Path):
    for name in ("summary.json", "run.json"):
        with pytest.raises(UsageError) as caught:
            load_results(run / name)
        assert str(caught.value) == f"{run / name} is not a stored result; name the run directory: {run}"


def test_a_result_says_what_made_it(run: Path, tmp_path: Path):
    facts = read_kept(keep(run, tmp_path)).facts
    assert facts["made_with"]["config_hash"] == json.loads((run / "run.json").read_text())["config_hash"]
    assert facts["clocks"] == {"wall_seconds": 83.0, "job_seconds": 12.5, "cpu_seconds": 11.5}
    assert facts["made_with"]["command"].startswith("mesax run mesa climb-one --preset quick --seed 0")
    assert len(facts["curves"]) == len(facts["per_task"]) == FAKE.num_tasks


def test_a_command_can_be_typed():
    """Values that a shell would take apart or fill in are quoted."""
    overrides = [["method.label", "two words"], ["env.sizes", "(3, 4)"], ["seed", 5]]
    run = {"method": "mesa", "env": "my.games:make", "preset": "quick", "seed": 0, "test_tasks": [{}, {}]}
    command = command_of(run | {"request": {"method": "mesa", "overrides": overrides}})
    assert command == (
        "mesax run mesa my.games:make --preset quick --seed 0 --num-test-tasks 2"
        " --method.label 'two words' --env.sizes '(3, 4)' --seed 5"
    )


def test_files_of_other_kinds_are_left_out_and_refused(run: Path, tmp_path: Path):
    store = tmp_path / "store"
    keep(run, store)
    (store / "theory.json").write_text('{"lemma": 1}')
    (store / "broken.json").write_text("{")
    assert [one.path.name for one in all_kept(store)] == ["mesa-climb-one-quick-seed0.json"]
    with pytest.raises(DamageError, match="is no result of a run: it lacks method"):
        read_kept(store / "theory.json")


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"seed": None}, "seed is not a whole number"),
        ({"seed": "x"}, "seed is not a whole number"),
        ({"seed": True}, "seed is not a whole number"),
        ({"env": 3}, "env is not text"),
        ({"env_steps": 1.5}, "env_steps is not a whole number"),
        ({"mean_return": "high"}, "mean_return is not a number"),
        ({"per_task": [{}]}, "per_task is not a list of task runs"),
        ({"overrides": []}, "overrides is not an object or null"),
        ({"clocks": {"job_seconds": "long"}}, "clocks is not an object of numbers"),
        ({"family": {}}, "family is not an object with numbers optimal_return, suboptimal_return, optimal_threshold"),
        ({"curves": [{"task": 0, "repeat": 0, "steps": [1], "returns": []}]}, "curves is not a list of evaluations"),
        ({"explorers": {"visitors": {"all explorers": {}}}}, "explorers is not what visitors reach"),
        ({"borrowed": [{"method": "mesa"}]}, "borrowed is not a list of runs"),
    ],
)
def test_an_entry_of_another_kind_is_damage(entry: dict[str, object], kind: str, run: Path, tmp_path: Path):
    path, told = keep(run, tmp_path / "store"), []
    path.write_text(json.dumps(json.loads(path.read_text()) | entry))
    with pytest.raises(DamageError) as error:
        read_kept(path)
    assert str(error.value).startswith(f"{path}: {kind}")
    assert all_kept(path.parent, told.append) == [] and told == [str(error.value)]


def test_a_result_of_another_request_is_not_replaced(run: Path, tmp_path: Path):
    first = keep(run, tmp_path)
    facts = json.loads(first.read_text())
    first.write_text(json.dumps(facts | {"request": {"method": "mesa", "num_test_tasks": 99}}))
    described = json.loads((run / "run.json").read_text()) | {"request": {"method": "mesa", "num_test_tasks": 4}}
    (run / "run.json").write_text(json.dumps(described))
    seal(run)
    second = keep(run, tmp_path)
    assert second != first and second.name.startswith("mesa-climb-one-quick-seed0-")
    assert keep(run, tmp_path) == second


def borrowing(run: Path, lender: Path) -> Path:
    """The same run, as if its explorers were those of the lender."""
    request = Request("transfer", "climb-one", "quick", 0, 4, (("method.explorers-from", str(lender)),))
    experiment = request.experiment()
    return described(
        run,
        method=request.method,
        request=asdict(request),
        overrides=dict(request.overrides),
        config=to_plain(experiment),
        config_hash=digest(experiment),
    )


def described(run: Path, **facts: object) -> Path:
    """The same run, of which run.json says something else."""
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | facts))
    return seal(run)


def test_a_result_of_borrowed_explorers_names_no_place(run: Path, tmp_path: Path):
    lender = write_run(tmp_path / "a lender's", FakeRun("mesa", seed=7, evaluations=8))
    kept = read_kept(keep(borrowing(run, lender), tmp_path / "store"))
    assert str(tmp_path) not in kept.path.read_text()
    assert kept.overrides == {"method.explorers-from": "RUN_DIR"}
    assert kept.facts["made_with"]["command"].endswith("--method.explorers-from RUN_DIR")
    assert (kept.facts["borrowed"][0]["env"], kept.facts["borrowed"][0]["seed"]) == ("climb-one", 7)
    anywhere = Request("transfer", "climb-one", "quick", 0, 4, (("method.explorers-from", "RUN_DIR"),))
    assert kept.config_hash == digest(anywhere.experiment())
    assert freshness(kept) == "fresh", "wherever the explorers lay"


def test_a_result_of_another_lender_is_not_replaced(run: Path, tmp_path: Path):
    """Settings are the same but for a place, which is not kept: the lenders are."""
    store, places = tmp_path / "store", [tmp_path / name for name in ("first", "second", "third", "gone")]
    for seed, place in enumerate(places[:3]):
        write_run(place, FakeRun("mesa", seed=seed, evaluations=8))
    kept = [keep(borrowing(run, place), store) for place in places]
    assert len(all_kept(store)) == len(set(kept)) == 4
    assert not [problem for one in kept for problem in contradictions(read_kept(one)) if "name" in problem]
    described(places[1], config_hash="of other settings")
    assert [keep(borrowing(run, place), store) for place in places] == kept, "with its lender as it is today"
    assert read_kept(kept[1]).facts["borrowed"][0]["config_hash"] == "of other settings"


@pytest.mark.parametrize(
    ("overrides", "then", "state"),
    [
        ((), (), "fresh"),
        ((("method.num-explorers", "2"), ("schedule.total-steps", "51200")), (), "fresh"),
        ((("num-train-tasks", "3"),), (("num-train-tasks", "3"),), "fresh"),
        ((), (("num-train-tasks", "3"),), "stale"),
        ((), (("method.explore.total-steps", "12345"),), "stale"),
        ((("method.no-more", "1"),), (), "stale"),
    ],
)
def test_borrowed_explorers_would_be_trained_alike_today(overrides, then, state: str, run: Path, tmp_path: Path):
    """`then`: settings that the lender's command had when it was run."""
    lender = write_run(tmp_path / "lender", FakeRun("mesa", evaluations=8, overrides=overrides))
    described(lender, config=to_plain(Request("mesa", "climb-one", overrides=then).experiment()))
    assert freshness(read_kept(keep(borrowing(run, lender), tmp_path / "store"))) == state


def test_nobody_can_tell_about_explorers_whose_run_is_gone(run: Path, tmp_path: Path):
    kept = read_kept(keep(borrowing(run, tmp_path / "gone"), tmp_path / "store"))
    assert kept.lenders == [None] and freshness(kept) == "unverified"


@dataclass(frozen=True)
class Inner:
    """Settings of a part."""

    rate: float
    added: int = 3


@dataclass(frozen=True)
class Outer:
    """Settings."""

    part: Inner
    names: tuple[str, ...] = ("a",)


def test_settings_added_since_must_have_their_defaults():
    now = Outer(Inner(0.5))
    stored = to_plain(now)
    assert list(changes(now, stored)) == []
    del stored["part"]["added"]
    assert list(changes(now, stored)) == []
    assert list(changes(Outer(Inner(0.5, added=4)), stored)) == [".part.added"]
    assert list(changes(Outer(Inner(0.6)), stored)) == [".part.rate"]
    assert list(changes(now, {**stored, "gone": 1})) == [".gone"]
    assert list(changes(now, {**stored, "part": {**stored["part"], "type": "Other"}})) == [".part"]


def of_catalogue(request: Request, **facts: object) -> Kept:
    experiment = request.experiment()
    figures = {name: getattr(request, name) for name in ("method", "env", "preset", "seed")}
    tasks = [
        {"task": task, "label": str(task), "repeat": 0, "final_return": 1.0, "groups": {"k=1": 1.0}}
        for task in range(request.num_test_tasks or 0)
    ]
    made_with = {"config_hash": digest(experiment)}
    costs = {"env_steps": 40, "meta_env_steps": 0, "wall_seconds": 2.0}
    whole = {**figures, "per_task": tasks, "made_with": made_with, "config": to_plain(experiment), **costs, **facts}
    return Kept(Path("none.json"), whole)


def test_a_result_is_fresh_until_its_settings_change():
    request = Request("plain", "climb-one", "quick", 1, 10)
    kept = of_catalogue(request)
    assert freshness(kept) == "fresh"
    other = replace(request, overrides=(("schedule.total-steps", "20000"),)).experiment()
    assert freshness(of_catalogue(request, config=to_plain(other), made_with={"config_hash": digest(other)})) == "stale"
    assert freshness(of_catalogue(request, made_with=None)) == "unverified"
    assert freshness(of_catalogue(request, method="nobody")) == "stale"
    assert not is_of(kept, replace(request, num_test_tasks=5).experiment())
    assert with_family(kept).facts["family"]["optimal_return"] == 1.0
    assert kept.core_seconds is None
    assert of_catalogue(request, clocks={}).core_seconds is None
    assert of_catalogue(request, clocks={"cpu_seconds": 2.5}).core_seconds == 2.5
    assert of_catalogue(request, clocks={"job_seconds": 3.5}).core_seconds == 3.5
    assert of_catalogue(request, clocks={"job_seconds": 3.5, "cpu_seconds": 3.0}).core_seconds == 3.0


@pytest.mark.parametrize("named", [{"env": "stranger:make"}, {"method": "plain+stranger:Learner"}])
def test_nothing_that_a_result_names_is_imported(named: dict[str, str], tmp_path: Path, monkeypatch):
    (tmp_path / "stranger.py").write_text("import pathlib\npathlib.Path('imported').touch()", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    kept = of_catalogue(Request("plain", "climb-one", "quick", 1, 10), **named)
    assert freshness(kept) == "unverified"
    lender = {"method": "mesa", "env": "climb-one", "preset": "quick", "trained_with": "0"} | named
    borrower = kept.facts | {"env": "climb-one", "method": "plain", "borrowed": [lender]}
    assert freshness(replace(kept, facts=borrower)) == "unverified"
    assert trained_today(f"mesa {named.get('env', 'x:y')}, preset quick") is None
    with pytest.raises(UsageError, match="a user's own module"):
        requested(request_of(kept))
    if "env" in named:
        with pytest.raises(UsageError, match="a user's own module"):
            with_family(kept)
    assert not Path("imported").exists()


def test_a_sweep_skips_what_is_kept_and_keeps_what_is_finished(run: Path, tmp_path: Path, capsys):
    store, arguments = tmp_path / "store", ("mesa", "climb-one")
    planned = [
        Planned("mesa", "climb-one", tmp_path / "mesa-climb-one-quick-seed0", arguments, "new"),
        Planned("plain", "climb-one", tmp_path / "plain-climb-one-quick-seed0", arguments, "new"),
    ]
    kept = keep(run, store)
    first, second = skip_stored(planned, store, lambda one, asked: True)
    assert (first.state, first.path, second.state, second.stale) == ("stored", kept, "new", None)
    (stale, _) = skip_stored(planned, store, lambda one, asked: False)
    assert (stale.state, stale.stale) == ("new", kept)
    there = replace(planned[0], path=run, state="finished")
    assert sweep([first, there], How(), quiet=True, as_json=True, store=tmp_path / "other") == 0
    assert [one.path.name for one in all_kept(tmp_path / "other")] == [kept.name]
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["runs"][0]["mean_return"] == pytest.approx(result["runs"][1]["mean_return"])


def test_the_plan_of_a_sweep_names_what_is_stale(tmp_path: Path, capsys):
    request = Request("plain", "climb-one", "smoke", 0, 2)
    for seed, facts in ((0, {}), (1, {"config": {}, "made_with": {"config_hash": "0"}})):
        kept = of_catalogue(replace(request, seed=seed), **facts)
        name = f"plain-climb-one-smoke-seed{seed}.json"
        (tmp_path / name).write_text(json.dumps({**kept.facts, "mean_return": 1.0}))
    words = ["--methods", "plain", "--envs", "climb-one", "--seeds", "0", "1", "--preset", "smoke", "--plan"]
    out = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path), "--num-test-tasks", "2"]
    assert main(["sweep", *words, *out]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["stored", str(tmp_path / "plain-climb-one-smoke-seed0.json")]
    assert second.startswith("new") and "seed1.json is stale: it was made with other settings" in second
    assert last == "2 runs: 1 new, 1 stored"


@pytest.mark.parametrize(
    ("preset", "env", "changes_", "label"),
    [
        ("paper", "wide-2a5l", [], "MESA as published"),
        ("quick", "wide-2a5l", [["x", 1, 2]], "MESA (record explorers, wishes)"),
        ("quick", "climb-one", [["x", 1, 2]], "MESA (coverage explorers)"),
        ("paper", "climb-one", [["x", 1, 2]], "MESA (coverage explorers)"),
    ],
)
def test_labels_come_from_settings(preset: str, env: str, changes_: list, label: str):
    config = to_plain(Request("mesa", env, preset).experiment())
    run = {"method": "mesa", "preset": preset, "config": config, "paper_diff": changes_}
    assert method_label(run) == label
    assert method_label(run | {"method": "mesa+qmix"}) == f"{label} around qmix"


def test_other_methods_are_called_by_their_names():
    assert method_label({"method": "plain", "preset": "paper", "config": {"method": {"type": "Plain"}}}) == "plain"
    assert method_label({"method": "goal", "privileged": True}) == "goal (privileged)"
    assert method_label({"method": "goal", "label": "goal (privileged)", "privileged": True}) == "goal (privileged)"
