"""Every verb through the real entry point, and every kind of bad input: one line, exit code 2, nothing written."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mesax
from execution.test_runner import SMOKE, command_line, finished_run
from mesax import __version__
from mesax.cli.parser import main, parse
from mesax.cli.running import _print_difference, request_of
from mesax.errors import IO_ERROR, USAGE, UsageError
from mesax.experiments.names import ENVIRONMENTS, METHODS, PRESETS
from mesax.experiments.overrides import digest_of_plain
from mesax.experiments.rebuild import experiment_of
from mesax.results import drawing
from mesax.store.json_values import signed
from mesax.store.run_directory import RunDirectory
from mesax.types import tree_index

VERBS = ("list", "run", "resume", "eval", "render", "compare", "report", "doctor", "env", "status", "sweep")
HEAVY = ("jax", "equinox", "optax", "sklearn", "scipy", "numpy", "matplotlib", "rich")
SCRIPT = Path(sys.executable).with_name("mesax")
CONTRACT = {
    *("method", "env", "preset", "seed", "env_steps", "meta_env_steps", "mean_return", "std_return", "per_task"),
    *("normalized_return", "wall_seconds", "env_steps_per_second", "run_dir"),
    *("iqm", "ci_low", "ci_high", "by_group", "area_under_curve"),
    *("optimal_fraction", "optimal_fraction_low", "optimal_fraction_high"),
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The finished run, to write into."""
    shutil.copytree(finished, tmp_path / "copied")
    return tmp_path / "copied"


def listing(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below a directory with its size and time."""
    found = [path for path in root.rglob("*") if path.is_file()]
    facts = {str(path): path.stat() for path in found}
    return {path: (fact.st_size, fact.st_mtime_ns) for path, fact in facts.items()}


def last_json(output: str) -> dict:
    return json.loads(output.splitlines()[-1])


def script(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    command = [str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_help_of_every_verb_imports_nothing_heavy():
    code = f"""
import sys
from mesax.cli.parser import main
for arguments in ([], ["--help"], ["--version"], *([verb, "--help"] for verb in {VERBS})):
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    assert code == (0 if arguments else {USAGE}), arguments
print("LOADED", *set({HEAVY}) & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    *helps, loaded = result.stdout.splitlines()
    assert loaded.split() == ["LOADED"]
    text = "\n".join(helps)
    assert all(name in text for name in (*VERBS, *METHODS, *ENVIRONMENTS, *PRESETS, f"mesax {__version__}"))


@pytest.mark.skipif(not SCRIPT.exists(), reason="mesax is not installed beside this Python")
def test_help_answers_at_once():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = [script("--help"), script("run", "--help")]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert all(result.returncode == 0 and "usage: mesax" in result.stdout for result in results)
    assert after.ru_utime - before.ru_utime < 2.0, "seconds of computing for two helps"


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    assert all(f"  {name}" in output for name in (*METHODS, *ENVIRONMENTS, *PRESETS))
    assert "\nLearners (also methods by themselves)\n" in output


def test_list_shows_every_setting_of_a_run(capsys):
    assert main(["list", "mesa", "climb-multi-mixed", "--preset", "paper", "--all"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header == "Settings of mesa on climb-multi-mixed, preset paper"
    settings = {line.split()[0]: line for line in lines}
    assert settings["--method.global-count"].endswith(" One of: probability, mean, none.")
    assert "100000" in settings["--schedule.total-steps"] and "Budget" in settings["--schedule.total-steps"]
    assert {"--family.delta", "--algorithm.actor-update", "--method.num-explorers"} <= set(settings)
    assert len(settings) == len(lines)


def test_a_learner_may_be_named_with_its_method():
    named = request_of(parse(["run", "mesa+qmix", "wide-2a5l"]))
    assert named == request_of(parse(["run", "mesa", "wide-2a5l", "--learner", "qmix"]))
    assert (named.method, named.learner, named.label) == ("mesa", "qmix", "mesa+qmix")


def test_a_run_prints_a_table_and_ends_with_the_json_of_the_contract(finished):
    output = Path(f"{finished}.txt").read_text()
    summary = last_json(output)
    assert set(summary) == CONTRACT | {"explorers"}
    assert {"uniform", "explorer 1", "all explorers"} <= set(summary["explorers"]["visitors"])
    assert 0.0 <= summary["explorers"]["leaks"]["precision"] <= 1.0
    assert (summary["method"], summary["env"], summary["preset"], summary["seed"]) == (*SMOKE[:2], SMOKE[3], 0)
    assert summary == RunDirectory(finished).read_json("summary.json") and summary["run_dir"] == str(finished)
    run = RunDirectory(finished).run
    assert [task["label"] for task in summary["per_task"]] == [task["label"] for task in run["test_tasks"]]
    for task in summary["per_task"]:
        assert set(task) == {"task", "label", "repeat", "final_return", "steps_to_optimal", "groups"}
    assert summary["mean_return"] == pytest.approx(sum(task["final_return"] for task in summary["per_task"]) / 2)
    rows = RunDirectory(finished).read_rows("timing.jsonl")
    steps = {phase: sum(row["env_steps"] for row in rows if row["phase"] == phase) for phase in ("collect", "explore")}
    assert summary["meta_env_steps"] == sum(steps.values()) > 0
    assert "test tasks" in output and f"saved    {finished}" in output


def test_a_run_directory_holds_what_the_design_says(finished):
    run = RunDirectory(finished).run
    keys = {"id", "config", "config_hash", "command", "seed", "versions", "git_commit", "machine", "paper_diff"}
    assert keys <= set(run) and {"jax", "mesax"} <= set(run["versions"])
    files = {path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()}
    names = ["run.json", "metrics.jsonl", "eval.jsonl", "timing.jsonl", "summary.json", "coverage.json", "STATUS"]
    for folder in ("explorers", "task-00-run-00", "task-01-run-00"):
        names += [f"policies/{folder}/arrays.safetensors", f"policies/{folder}/manifest.json"]
    for figure in ("learning-curves", "explorer-coverage", "meta-training"):
        names += [f"figures/{figure}.png", f"figures/{figure}.svg"]
    assert set(names) <= files
    train, test = ({str(task["target"]) for task in run[f"{kind}_tasks"]} for kind in ("train", "test"))
    assert not train & test


def test_settings_may_stand_before_method_and_environment(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--schedule.total-steps", "0", "plain", "--preset", "smoke", "climb-one", "--family.delta=0.2"]
    assert main(["run", *words]) == USAGE
    assert "total-steps must be at least 1, not 0" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("resume",), ("run", *SMOKE, "--reuse", "--quiet", "--out")])
def test_a_finished_run_is_shown_and_not_repeated(copied, capsys, monkeypatch, verb):
    monkeypatch.setattr(drawing, "draw_run", lambda directory: [])
    before = listing(copied / "jobs"), (copied / "eval.jsonl").stat().st_mtime_ns
    assert command_line(*verb, copied, "--json") == 0
    assert (
        last_json(capsys.readouterr().out)["mean_return"]
        == RunDirectory(copied).read_json("summary.json")["mean_return"]
    )
    assert before == (listing(copied / "jobs"), (copied / "eval.jsonl").stat().st_mtime_ns)


def test_eval_plays_the_saved_policies_again(finished, capsys):
    before = listing(finished)
    assert command_line("eval", finished, "--episodes", 5, "--json") == 0
    output = capsys.readouterr().out
    result = last_json(output)
    assert set(result) == {"mean_return", "episodes", "per_task"} and result["episodes"] == 5
    rows = RunDirectory(finished).read_rows("eval.jsonl")
    for played in result["per_task"]:
        *_, last = (row for row in rows if row["task"] == played["task"])
        assert played["return"] == pytest.approx(last["return"]), "a greedy policy on a game without chance"
        assert played["groups"] == pytest.approx(last["groups"])
    assert f"mean return {result['mean_return']:.4f} over 2 policies" in output
    assert command_line("eval", finished, "--episodes", 2, "--policy", "best", "--json") == 0
    for played in last_json(capsys.readouterr().out)["per_task"]:
        best = max(row["return"] for row in rows if row["task"] == played["task"])
        assert played["return"] == pytest.approx(best)
    assert listing(finished) == before


def test_learned_policies_play_anywhere(finished):
    """NumPy in and out, in steps of our own making: the return is that of the last evaluation."""
    run = RunDirectory(finished)
    experiment = experiment_of(run.run)
    env, tasks = experiment.family.env, experiment.family.split(experiment.seed, experiment.num_train_tasks, 2).test
    for number in range(2):
        task = tree_index(tasks, number)
        learned = mesax.load_policy(finished, number)
        assert learned.spec == env.spec
        player, key = learned.start(), jax.random.key(0)
        (state, obs), total = env.reset(task, key), 0.0
        for _ in range(env.spec.horizon):
            action = player.act(np.asarray(obs))
            assert isinstance(action, np.ndarray) and action.shape == (env.spec.num_agents,)
            state, outcome = env.step(task, state, jnp.asarray(action), key)
            obs, total = outcome.obs, total + float(outcome.reward)
        *_, last = (row for row in run.read_rows("eval.jsonl") if row["task"] == number)
        assert total == pytest.approx(last["return"])
        several = learned.start(seed=3, copies=5).act(np.stack([np.asarray(obs)] * 5))
        assert several.shape == (5, env.spec.num_agents)
    with pytest.raises(UsageError, match="has no policy for task 2, run 0"):
        mesax.load_policy(finished, 2)
    with pytest.raises(UsageError, match="has no best policy for task 2, run 0"):
        mesax.load_policy(finished, 2, best=True)


def test_compare_draws_and_tabulates_several_runs(finished, copied, capsys):
    out = copied.parent / "pictures"
    assert command_line("compare", finished, copied, "--out", out, "--json") == 0
    output = capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {
        f"compare-{name}.{kind}" for name in ("curves", "profiles", "returns") for kind in ("png", "svg")
    }
    (family,) = last_json(output)["families"]
    assert [row["task_runs"] for row in family["rows"]] == [2, 2] and family["differences"][0]["value"] == 0
    assert f"drawn    {out}" in output


def test_report_writes_one_page(copied, capsys):
    assert command_line("report", copied) == 0
    assert f"written  {copied / 'report.html'}" in capsys.readouterr().out
    page = (copied / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "MESA on climb-one" in page and "paper" in page


def test_doctor_examines_and_really_computes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command_line("doctor", "--json") == 0
    *lines, verdict, _ = (output := capsys.readouterr().out).splitlines()
    result = last_json(output)
    assert result["ok"] and verdict.startswith("all is well")
    assert [line.split()[:2] for line in lines] == [[check["state"], check["name"]] for check in result["checks"]]
    details = {check["name"]: check["detail"] for check in result["checks"]}
    assert {"python", "mesax", "jax", "devices", "threads", "cache", "cores", "memory", "disk"} <= set(details)
    assert "compiled and ran" in details["self-test"] and os.environ["MESAX_CACHE_DIR"] in details["cache"]
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_what_fails(capsys, monkeypatch):
    from mesax.cli import doctor

    def broken():
        raise RuntimeError("no\ncompiler")

    monkeypatch.setattr(doctor, "_learn_a_little", broken)
    monkeypatch.setattr(doctor, "_can_write", lambda directory: False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=true")
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    states = {line.split()[1]: line.split()[0] for line in output.splitlines()[:-1]}
    assert (states["self-test"], states["cache"], states["disk"], states["threads"]) == ("fail", "warn", "warn", "warn")
    assert "RuntimeError: no compiler" in output and "1 of" in output.splitlines()[-1]


def test_doctor_says_whether_rounded_products_are_worth_it():
    from mesax.cli.doctor import _advice

    gains = "bfloat16 matrix products are 1.75 times as fast as float32: wide recurrent nets may gain"
    assert _advice(1.75) == f"{gains} (setting: products bfloat16)"
    assert _advice(1.1).endswith(" 1.10 times as fast as float32: leave the setting products at float32")


def test_list_shows_what_matters_and_what_is_looked_for(capsys):
    assert main(["list", "mesa", "climb-one"]) == 0
    _, *lines, last = capsys.readouterr().out.splitlines()
    assert {"--schedule.total-steps", "--method.num-explorers", "--seed"} <= {line.split()[0] for line in lines}
    assert 8 <= len(lines) <= 20 and last.startswith(f"{len(lines)} of ")
    assert main(["list", "mesa", "climb-one", "--grep", "BATCH"]) == 0
    _, *lines, _ = capsys.readouterr().out.splitlines()
    assert lines and all("batch" in line.lower() for line in lines)


TYPOS = {
    "rnu": "run",
    "staus": "status",
    "docter": "doctor",
    "run meza climb-one": "mesa",
    "run pretrian climb-one": "pretrain",
    "run Unifrom climb-one": "uniform",
    "list quixm climb-one": "qmix",
    "run mesa climb-oen": "climb-one",
    "run mesa climb_multi": "climb-multi",
    "run mesa wide-2a5": "wide-2a5l",
    "run mesa swimer": "swimmer",
    "run climb-one mesa": "mesa climb-one",
    "run mesa climb-one --preset quik": "quick",
    "list mesa climb-one --preset papr": "paper",
    "run mesa+quix climb-one": "qmix",
    "run plain climb-one --learner mapppo": "mappo",
    "run plain climb-one --schedule.total-step 9": "--schedule.total-steps",
    "run plain climb-one --batch-size 9": "--schedule.batch-size",
    "run plain climb-one --worker 1": "--workers",
    "eval runs --polcy best": "--policy",
}


@pytest.mark.parametrize("typed", TYPOS)
def test_a_typo_names_what_was_meant(typed, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(typed.split()) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert TYPOS[typed] in line.partition("choose one of")[0]  # all names come after
    assert not list(tmp_path.iterdir())


def test_what_differs_from_the_paper_is_told(capsys):
    differences = [["method.label", None, "own"], ["schedule.total-steps", 100_000, None]]
    _print_difference(differences, explains=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("2 settings differ from preset paper; --explain shows them (")
    _print_difference(differences, explains=True)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first.startswith("2 settings differ from preset paper (")
    assert lines == ["  method.label: own (paper preset: none)", "  schedule.total-steps: none (paper preset: 100000)"]


def test_doctor_says_how_to_empty_the_cache(tmp_path, monkeypatch):
    """It grows without bound: from some size on, that is something to look at."""
    from mesax.cli import doctor

    monkeypatch.setenv("MESAX_CACHE_DIR", str(tmp_path / "my cache"))
    (tmp_path / "my cache" / "xla").mkdir(parents=True)
    (tmp_path / "my cache" / "xla" / "program").write_bytes(bytes(2000))
    found = []
    for limit in (2001, 2000):
        monkeypatch.setattr(doctor, "LARGE_CACHE", limit)
        found += doctor._cache()
    assert [check.state for check in found] == ["ok", "warn"]
    assert all("(1 files, 2.0 kB)" in one.detail and f"rm -r '{tmp_path}/my cache/xla'" in one.detail for one in found)


RUN = ("run", "plain", "climb-one", "--preset", "smoke")
SWEEP = ("sweep", "--methods", "plain", "--envs", "climb-one", "--preset", "smoke")
BAD_INPUT = {
    "no such verb": (["lurn"], ["'lurn'", "run", "doctor"]),
    "no such method": (["run", "meza", "climb-one"], ["'meza'", *METHODS]),
    "no such environment": (["run", "mesa", "climb"], ["'climb'", *ENVIRONMENTS]),
    "no such preset": (["run", "mesa", "climb-one", "--preset", "fast"], ["'fast'", *PRESETS]),
    "no such setting": ([*RUN, "--schedule.total-step", "9"], ["--schedule.total-step;", "--schedule.total-steps"]),
    "no such part": ([*RUN, "--learner.rate", "9"], ["--learner.rate", "--algorithm", "--schedule"]),
    "setting without value": ([*RUN, "--schedule.total-steps"], ["--schedule.total-steps needs a value"]),
    "no such setting, nor value": ([*RUN, "--schedule.total-step"], ["unknown setting --schedule.total-step;"]),
    "setting without value of a class that is chosen": (
        [*RUN, "--algorithm.actor-update", "GumbelGradient", "--algorithm.actor-update.partners"],
        ["--algorithm.actor-update.partners needs a value"],
    ),
    "flag of other verbs": ([*RUN, "--plan"], ["--plan belongs to sweep and reproduce", "mesax run --help"]),
    "flag of another verb": (["resume", "broken", "--reuse"], ["--reuse belongs to run"]),
    "flag of another verb in a sweep": ([*SWEEP, "--episodes", "3"], ["--episodes belongs to eval"]),
    "two learners": (["run", "mesa+qmix", "climb-one", "--learner", "vdn"], ["'mesa+qmix' names a learner already"]),
    "no such learner": (["run", "mesa+quix", "climb-one"], ["unknown learner 'quix'", "qmix"]),
    "no such method with a learner": (["list", "meza+qmix", "climb-one"], ["'meza'", *METHODS]),
    "a learner for a whole sweep": (
        [*SWEEP, "--", "--learner", "qmix"],
        ["--learner cannot be passed on", "--methods plain+qmix"],
    ),
    "setting of another class": ([*RUN, "--algorithm.actor-update.partners", "replay"], ["JointImprovement", "first"]),
    "not a number": ([*RUN, "--schedule.total-steps", "many"], ["'many'", "an integer"]),
    "no such choice": ([*RUN, "--algorithm.actor-update", "Best"], ["'Best'", "GumbelGradient", "JointImprovement"]),
    "theory into a file": (["theory", "--out", "file"], ["--out file is not a directory"]),
    "figures into a file": (["reproduce", "theory", "--out", "file"], ["--out file is not a directory"]),
    "k > n": ([*RUN, "--family.counts", "1,3"], ["not 3", "between 1 and the number of agents 2"]),
    "k < 1": ([*RUN, "--family.counts", "0"], ["not 0", "between 1"]),
    "no k": ([*RUN, "--family.counts", ""], ["counts", "1 to 2"]),
    "U < 2": ([*RUN, "--family.num-actions", "1"], ["num-actions", "at least 2", "not 1"]),
    "delta = 0": ([*RUN, "--family.delta", "0"], ["delta", "between 0 and 1", "not 0.0"]),
    "delta = 1": ([*RUN, "--family.delta", "1.0"], ["delta", "between 0 and 1", "not 1.0"]),
    "delta < 0": ([*RUN, "--family.delta", "-0.5"], ["delta", "between 0 and 1", "not -0.5"]),
    "no agents": ([*RUN, "--family.num-agents", "0"], ["num-agents must be at least 1, not 0"]),
    "too many test tasks": ([*RUN, "--num-test-tasks", "17"], ["20 tasks", "4 for training", "17 for testing"]),
    "too many training tasks": ([*RUN, "--num-train-tasks", "30"], ["20 tasks", "30 for training"]),
    "no test tasks": ([*RUN, "--num-test-tasks", "0"], ["num-test-tasks", "at least 1", "not 0"]),
    "no budget": ([*RUN, "--schedule.total-steps", "0"], ["total-steps", "at least 1", "not 0"]),
    "negative seed": ([*RUN, "--seed", "-1"], ["seed", "not -1"]),
    "enormous seed": ([*RUN, "--seed", str(2**32)], ["seed", f"at most {2**32 - 1}", str(2**32)]),
    "seed in words": ([*RUN, "--seed", "one"], ["--seed", "'one'"]),
    "no workers": ([*RUN, "--workers", "0"], ["--workers", "at least 1", "not 0"]),
    "stray word": ([*RUN, "more"], ["'more'"]),
    "stray word after a flag": ([*RUN, "--json", "more"], ["'more'"]),
    "stray option": (["resume", "broken", "--fast"], ["'--fast'", "mesax resume --help"]),
    "half a run": (["run", "plain"], ["ENV"]),
    "list half": (["list", "mesa"], [*ENVIRONMENTS]),
    "list of nothing": (["list", "meza"], ["'meza'", *METHODS]),
    "directory exists": ([*RUN, "--out", "empty"], ["empty exists already", "--out"]),
    "file exists": ([*RUN, "--out", "file"], ["file exists already", "--out"]),
    "reuse of no run": ([*RUN, "--out", "empty", "--reuse"], ["no run directory at empty"]),
    "reuse of something else": ([*RUN, "--out", "broken", "--reuse"], ["broken holds another configuration", "--out"]),
    "resume of broken": (["resume", "broken"], ["run.json", "describes no run"]),
    "eval of broken": (["eval", "broken"], ["run.json", "describes no run"]),
    "render of broken": (["render", "broken"], ["run.json", "describes no run"]),
    "no such store of results": ([*SWEEP, "--results", "resluts"], ["no store of results at resluts"]),
    "a store that is a file": ([*SWEEP, "--plan", "--results", "file"], ["no store of results at file"]),
    "a name that a terminal obeys": (["resume", "\x1b[31mred"], ["'\\x1b[31mred' is not the name"]),
    "half a sweep": (["sweep", "--methods", "mesa"], ["--envs", "mesax sweep --help"]),
    "no such method to sweep": (["sweep", "--methods", "plain", "meza", "--envs", "climb-one"], ["'meza'", *METHODS]),
    "no such setting to sweep": ([*SWEEP, "--schedule.total-step", "9"], ["--schedule.total-step;"]),
    "stray word in a sweep": ([*SWEEP, "--json", "more"], ["'more'"]),
    "one seed for a whole sweep": ([*SWEEP, "--", "--seed", "3"], ["--seed cannot be passed on", "--seeds"]),
    "no workers to sweep": ([*SWEEP, "--workers", "0"], ["--workers", "not 0"]),
    "a cluster's option alone to plan": (
        [*SWEEP, "--plan", "--shared"],
        ["--shared belongs to a cluster: say --on ray"],
    ),
    "no address to plan with": ([*SWEEP, "--plan", "--on", "ray", "--address", "here"], ["'here'", "HOST:PORT"]),
    "no workers to resume": (["resume", "broken", "--workers", "-2"], ["--workers", "not -2"]),
    "no episodes": (["eval", "broken", "--episodes", "0"], ["--episodes", "not 0"]),
    "negative seed of episodes": (["eval", "broken", "--seed", "-1"], ["--seed", "not -1"]),
    **{f"{verb} nothing": ([verb], ["RUN_DIR", f"mesax {verb} --help"]) for verb in VERBS[2:-4]},
    **{f"{verb} of a missing directory": ([verb, "missing"], ["missing"]) for verb in VERBS[2:-4]},
    **{f"{verb} of a file": ([verb, "file"], ["file"]) for verb in VERBS[2:-4]},
    **{f"{verb} of no run": ([verb, "empty"], ["empty", "run.json"]) for verb in VERBS[2:-4]},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with an empty directory, a file, and a directory whose run.json says nothing."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{}")
    (tmp_path / "file").write_text("text")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("arguments, needles", BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_line_and_writes_nothing(place, capsys, arguments, needles):
    before = sorted(place.rglob("*")), listing(place)
    code = main(arguments)
    output = capsys.readouterr()
    assert (code, output.out) == (USAGE, "")
    (line,) = output.err.splitlines()
    assert line.startswith("mesax: ")
    assert [needle for needle in needles if needle not in line] == [], line
    assert (sorted(place.rglob("*")), listing(place)) == before


TYPED = {
    "resume": ("resume", "run", "--workers", "3", "--load", "json"),
    "render": ("render", "run", "--policy", "explorer-1", "--task", "1"),
    "eval": ("eval", "run", "--episodes", "7"),
}


@pytest.mark.parametrize("words", TYPED.values(), ids=TYPED)
def test_what_to_type_is_what_was_typed_and_the_missing_module(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    config = {"type": "corridor:Thing"}
    facts = {"id": "run", "config": config, "config_hash": digest_of_plain(config), "modules": ["json", "corridor"]}
    RunDirectory.create(tmp_path / "run", facts).set_status("preempted")
    assert main(list(words)) == USAGE
    missing = [] if "json" in words else ["--load", "json"]
    expected = " ".join(("mesax", *words, *missing, "--load", "corridor"))
    assert capsys.readouterr().err.endswith(f"; type: {expected}\n")


def test_a_reader_who_leaves_a_table_is_no_mistake_of_the_users(monkeypatch, capfd):
    """rich ends a program whose pipe was closed; modules of a user may want to end it, too."""

    def left(options):
        from rich.console import Console

        try:
            raise BrokenPipeError
        except BrokenPipeError:
            Console(file=sys.stdout).on_broken_pipe()

    def ended(options):
        raise SystemExit(3)

    monkeypatch.setattr(os, "dup2", lambda *files: None)
    answers = []
    for verb in (left, ended):
        monkeypatch.setattr("mesax.cli.parser.module_of", lambda name, verb=verb: SimpleNamespace(main=verb))
        monkeypatch.setattr("mesax.cli.parser.parse", lambda arguments: SimpleNamespace(verb="compare"))
        answers.append((main(["compare"]), capfd.readouterr().err))
    assert answers == [(0, ""), (USAGE, "mesax: a module or environment of yours called sys.exit(3)\n")]


def test_a_run_of_another_configuration_is_not_touched(copied, capsys):
    run = RunDirectory(copied).run
    before = listing(copied)
    assert command_line("run", *SMOKE, "--seed", 1, "--out", copied, "--reuse") == USAGE
    error = capsys.readouterr().err
    assert f"{copied} holds another configuration ({run['id']}: " in error and len(error.splitlines()) == 1
    assert command_line("run", *SMOKE, "--out", copied) == USAGE
    assert "exists already" in capsys.readouterr().err
    assert listing(copied) == before

    unfinished(copied).write_json("run.json", signed(run | {"config_hash": "0" * 12}))
    before = listing(copied)
    for verb in ("resume", "eval", "render"):
        assert command_line(verb, copied) == IO_ERROR
        (line,) = capsys.readouterr().err.splitlines()
        assert run["id"] in line and "its config_hash 000000000000 does not belong to its config" in line
    assert listing(copied) == before


def unfinished(path: Path) -> RunDirectory:
    """As if the run had been stopped before its end."""
    run = RunDirectory(path)
    run.unseal()
    run.set_status("preempted")
    return run


def test_a_run_that_is_not_finished_says_so(copied, capsys):
    shutil.rmtree(copied / "policies")
    (copied / "eval.jsonl").unlink()
    unfinished(copied)
    verbs = [["eval", copied], ["render", copied], ["render", copied, "--policy", "explorer-1"]]
    for arguments in [*verbs, ["compare", copied]]:
        assert command_line(*arguments) == USAGE
        (line,) = capsys.readouterr().err.splitlines()
        assert str(copied) in line and ("preempted" in line or "stopped and saved" in line)
    assert line.endswith(f"'mesax report {copied}' shows the evaluations so far")


def test_a_report_of_a_run_that_is_not_finished_shows_what_its_jobs_have(copied, capsys):
    (job,) = (copied / "jobs" / "adapt").iterdir()
    (copied / "eval.jsonl").unlink()
    rows = (job / "eval.jsonl").read_text().splitlines(keepends=True)
    (job / "eval.jsonl").write_text("".join(row for row in rows if '"task": 1' not in row))
    unfinished(copied)
    assert command_line("report", copied) == 0
    page = (copied / "report.html").read_text()
    assert "has status “preempted”" in page and "MESA on climb-one" in page
    shutil.rmtree(copied / "jobs")
    assert command_line("report", copied) == USAGE
    assert "has no evaluations of test tasks yet: it was stopped and saved" in capsys.readouterr().err


def test_a_run_that_was_killed_is_said_to_be(copied, capsys):
    """Though its last word is that it runs."""
    shutil.rmtree(copied / "policies")
    (copied / "eval.jsonl").unlink()
    unfinished(copied).set_status("running")
    told = {
        "eval": "its state is 'killed'",
        "export": "its state is 'killed'",
        "compare": "it was killed, and can go on (mesax resume)",
        "report": "it was killed, and can go on (mesax resume)",
        "verify": "state 'killed'",
        "status": "1 killed",
    }
    for verb, words in told.items():
        command_line(verb, copied)
        shown = capsys.readouterr()
        assert words in shown.out + shown.err, verb


def test_a_directory_may_be_called_like_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("vdn", "climb-one", "--preset", "smoke", "--lanes", 1, "--num-test-tasks", 1, "--quiet")
    assert command_line("run", *words, "--out=-d2", "--workers", 2) == 0
    assert (tmp_path / "-d2" / "summary.json").is_file()


def test_a_picture_makes_no_directories(copied, tmp_path, capsys):
    assert command_line("render", copied, "--gif", tmp_path / "figrues" / "a.gif") == USAGE
    assert f"there is no directory {tmp_path / 'figrues'}" in capsys.readouterr().err
    assert not (tmp_path / "figrues").exists()


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&-"])
def test_a_closed_stream_is_none_of_a_runs_files(copied, closed):
    """Python lets the next file that is opened take its place."""
    for words in (("list",), ("compare", copied, "--json"), ("status", copied)):
        command = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "mesax.cli", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), words


def test_nothing_on_the_terminal_is_obeyed(copied, capsys, monkeypatch):
    red = "\x1b[31mred\x07"
    here = copied.rename(copied.with_name(red))
    (here / f"notes{red}").touch()
    monkeypatch.chdir(here.parent)
    for words in (["status", "."], ["verify", "."], ["compare", "."], ["resume", "nowhere"], ["eval", here]):
        command_line(*words)
        shown = capsys.readouterr()
        assert not set("\x1b\x07") & set(shown.out + shown.err), words
    monkeypatch.chdir(here)
    command_line("verify", ".")
    assert r"unknown  notes\x1b[31mred\x07" in capsys.readouterr().out


def test_a_directory_that_cannot_be_made_is_an_error_of_its_own(place, capsys):
    assert main([*RUN, "--out", "file/run"]) == IO_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mesax: file/run cannot be created")
    assert sorted(path.name for path in place.iterdir()) == ["broken", "empty", "file"]


@pytest.mark.skipif(not SCRIPT.exists(), reason="mesax is not installed beside this Python")
def test_the_installed_command_passes_exit_codes_on(place):
    result = script("run", "mesa", "climb-one", "--workers", "0")
    assert (result.returncode, result.stdout) == (USAGE, "")
    assert result.stderr.splitlines() == ["mesax: --workers must be at least 1, not 0"]


@pytest.mark.skipif(not SCRIPT.exists(), reason="mesax is not installed beside this Python")
def test_a_reader_who_leaves_early_is_no_error():
    process = subprocess.Popen([SCRIPT, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stderr
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["mesax", "re"], ["resume", "render", "report", "reproduce"]),
        (["mesax", "run", "me"], ["mesa"]),
        (["mesax", "run", "mesa", "climb-o"], ["climb-one"]),
        (["mesax", "sweep", "--preset", "q"], ["quick"]),
        (["mesax", "eval", "runs", "--epi"], ["--episodes"]),
    ],
)
def test_bash_completes_verbs_names_and_options(typed, expected, capsys):
    assert main(["completion", "bash"]) == 0
    words = " ".join(f"'{word}'" for word in typed)
    code = (
        f'{capsys.readouterr().out}COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _mesax; echo "${{COMPREPLY[@]}}"'
    )
    answer = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == expected


def test_every_shell_has_a_script(capsys):
    for shell, line in (("zsh", "autoload"), ("fish", "complete -c mesax")):
        assert main(["completion", shell]) == 0
        assert capsys.readouterr().out.startswith(line)
