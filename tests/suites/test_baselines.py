"""Baselines, from the command line to saved policies that play again; each on another kind of game."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mesax.algorithms.actor_updates import GumbelGradient
from mesax.cli.parser import main
from mesax.errors import USAGE
from mesax.experiments.catalogue import experiment
from mesax.suites.registry import suite_of

RUNS = [
    (["mappo-rnd", "wide-2a3l"], {"entropy", "learnt_return"}),
    (["qmix", "swimmer-wide"], {"q_mean", "target_mean"}),
    pytest.param(["mappo", "climb-one"], {"entropy", "clipped"}, marks=pytest.mark.slow),
    pytest.param(["mesa", "climb-one", "--learner", "qplex"], {"q_mean", "explorer_share"}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("arguments, logged", RUNS, ids=lambda value: "-".join(value) if type(value) is list else None)
def test_a_run_learns_saves_and_plays_again(arguments, logged, tmp_path: Path, capsys):
    out = tmp_path / "run"
    assert main(["run", *arguments, "--preset", "smoke", "--workers", "1", "--quiet", "--json", "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["method"] == "+".join([arguments[0], *arguments[3:]]) and len(summary["per_task"]) == 2
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    learnt = [row for row in rows if row["phase"] == "adapt" and row["step"] > 0][-1]
    assert logged <= set(learnt)
    if arguments[0] == "mappo-rnd":  # the bonus is learnt from, and judged by nobody
        assert learnt["learnt_return"] > learnt["train_return"]
    assert main(["eval", str(out), "--episodes", "3", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["per_task"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plain", "swimmer-wide", "--algorithm.algorithm.actor-update", "ExpectedGradient"], "needs discrete actions"),
        (["mappo", "swimmer-wide", "--schedule.num-envs", "2"], "4 minibatches need at least as many pieces"),
        (["mesa", "wide-2a5l", "--method.explore.num-envs", "7"], "8 minibatches need at least as many pieces"),
        (["mappo", "climb-one", "--learner", "qmix"], "is a learner itself"),
        (["plain", "climb-one", "--learner", "nobody"], "unknown learner 'nobody'"),
        (["mesa", "climb-one", "--learner", "mappo-rnd"], "'mappo-rnd' learns on-policy"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_built(arguments, message, tmp_path: Path, capsys):
    out = tmp_path / "run"
    assert main(["run", *arguments, "--out", str(out)]) == USAGE
    assert message in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize("env", ["wide-2a5l", "wide-3a5l", "swimmer-wide"])
def test_maddpg_is_as_published_in_every_preset(env: str):
    """Presets choose nets and numbers; what is computed stays: policy gradient, one-step targets, one joint critic."""
    for name in ("paper", "quick", "smoke"):
        learner = suite_of(env).preset(env, name).learners["maddpg"].algorithm
        assert learner.actor_update == GumbelGradient("policy")
        assert (learner.trace, learner.num_critics, learner.additive_critic) == (0.0, 1, False)
        assert (learner.entropy_bonus, learner.share_actors) == (0.0, False)


@pytest.mark.parametrize("env", ["wide-2a5l", "wide-3a5l"])
def test_controls_learn_as_mesa_does(env: str):
    """What one is tuned to, all have; but three agents whom nobody shows what pays have a learner of their own."""
    mesa, *controls = (experiment(method, env, "quick").algorithm for method in ("mesa", "uniform", "plain"))
    assert (mesa.critic_head_gain, mesa.entropy_bonus) == (1.0, 0.05)
    pair = experiment("mesa", "wide-2a5l", "quick").algorithm
    assert controls == [mesa if env == "wide-2a5l" else replace(pair, share_actors=True, entropy_bonus=0.005)] * 2
