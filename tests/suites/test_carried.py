"""Settings of stored results as they are today: moved, replaced, removed where they had the value that is fixed now."""

import importlib.util
import json
from pathlib import Path

import pytest

from mesax.errors import UsageError
from mesax.results.evidence.kept import read_kept
from mesax.store.json_values import Json
from paper.freshness import freshness

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
spec = importlib.util.spec_from_file_location("carry_results", ROOT / "tools" / "carry_results.py")
assert spec is not None and spec.loader is not None
carry = importlib.util.module_from_spec(spec)
spec.loader.exec_module(carry)

REWARD = {"type": "CoverageReward", "decay_power": 5.0, "tell_demand": False, "wish_decay": 1.0, "normalize": True}
BEFORE: Json = {
    "type": "Mesa",
    "action_repeat": 1,
    "threshold": {"type": "Threshold", "reward": 1.0, "percentile": None},
    "relabel_discount": 0.05,
    "least_value": 0.1,
    "capacity": 256,
    "num_clusters": 64,
    "reward": REWARD,
    "num_explorers": 4,
    "snapshot": "last",
    "enough_steps": None,
    "keep_trajectories": 200,
    "mixing": {"type": "Mixing"},
    "explorers_from": None,
    "transfer": "same",
    "rest": "tour",
    "turn": False,
}
TODAY: Json = {
    "type": "Mesa",
    "threshold": {"type": "Threshold", "reward": 1.0},
    "relabel_discount": 0.0,
    "reward": {
        **{"type": "CoverageReward", "decay_power": 5.0, "normalize": True},
        **{"capacity": 256, "num_clusters": 64},
    },
    "num_explorers": 4,
    "mixing": {"type": "Mixing"},
}


def test_what_was_at_its_default_is_gone_and_the_rest_is_where_it_belongs():
    assert carry.today(BEFORE) == TODAY
    assert carry.today(TODAY) == TODAY, "once"


def test_classes_follow_from_what_was_asked_of_them():
    told = {"tell_demand": True, "wish_decay": 0.5}
    steady = carry.today(BEFORE | {"snapshot": "fairest", "placement": "spread", "reward": REWARD | told})
    reward = {**TODAY["reward"], **told, "type": "ToldCoverage", "placement": "spread"}
    del reward["normalize"]
    assert steady == TODAY | {"type": "SteadyMesa", "action_repeat": 1, "snapshot": "fairest", "reward": reward}
    relative = carry.today(BEFORE | {"threshold": {"type": "Threshold", "reward": 1.0, "percentile": 99.0}})
    assert relative["threshold"] == {"type": "RelativeThreshold", "reward": 1.0, "percentile": 99.0}
    borrowed = carry.today(BEFORE | {"explorers_from": "RUN_DIR", "turn": True})
    assert borrowed == {
        "type": "Borrowed",
        "explorers_from": "RUN_DIR",
        "num_explorers": 4,
        "transfer": "subteams",
        "rest": "tour",
        "turn": True,
        "mixing": {"type": "Mixing"},
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enough_steps": 2.0}, "Mesa has enough_steps 2.0, which is None for all today"),
        ({"snapshot": "best"}, "Mesa has snapshot 'best', which is 'last' for all today"),
        ({"least_value": 0.01}, "Mesa has least_value 0.01"),
        ({"reward": REWARD | {"wish_decay": 0.5}}, "CoverageReward has wish_decay 0.5"),
    ],
)
def test_what_nothing_stands_for_today_is_refused(settings: Json, message: str):
    with pytest.raises(UsageError, match=message):
        carry.today(BEFORE | settings)


def test_settings_that_were_asked_for_are_asked_for_today():
    told = {"method": TODAY | {"reward": {"type": "ToldCoverage"}}}
    asked = [("method.reward", "CoverageReward"), ("method.reward.normalize", "true"), ("method.capacity", "64")]
    assert carry.asked_today(asked, told) == [("method.reward", "ToldCoverage"), ("method.reward.capacity", "64")]
    assert carry.asked_today([("method.transfer", "same")], {"method": {}}) == []


def test_a_result_says_what_it_was_carried_from():
    path = next(RESULTS.glob("transfer-wide-3a5l-hard-quick-seed0-*.json"))
    kept = read_kept(path)
    assert freshness(kept) == "fresh"
    assert (kept.method, kept.facts["request"]["method"]) == ("transfer", "transfer")
    then = kept.facts["made_with"]["carried_from"]
    assert then["command"].startswith("mesax run mesa wide-3a5l-hard ") and then["config_hash"] not in path.name


def test_a_store_of_today_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    for name in ("mesa-wide-2a5l-quick-seed0", "filled-wide-2a5l-quick-seed0"):
        for path in RESULTS.glob(f"{name}*.json"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    rows = json.loads((RESULTS / "zero-shot.json").read_text())
    (tmp_path / "zero-shot.json").write_text(json.dumps(rows))
    monkeypatch.setattr("sys.argv", ["carry_results.py", str(tmp_path)])
    assert carry.main() == 0
    assert capsys.readouterr().out == ""
