"""Worlds that have other names now: runs and results of before are told by their settings, and renamed as they are."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from mesax.experiments.names import ENVIRONMENTS
from mesax.results.evidence.kept import load_results, read_kept
from mesax.store.json_values import Json
from mesax.suites.renamed import RENAMED_FROM, name_today, named_today, names_of_before
from paper.quoting.checking import damage
from paper.zero_shot import FILE

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
CARRIED_FROM = "carried_from"
TODAY = {
    "climb-multi": "climb-multi-mixed",
    "swimmer": "swimmer-wide",
    **{
        f"mpe-{size}": f"wide-{size}"
        for size in ("2a3l", "2a5l", "2a6l", "3a5l", "3a6l", "2a5l-hard", "3a5l-hard", "3a5l-hard-k3", "16a40l")
    },
}
BORROWER = "transfer-wide-3a5l-hard-quick-seed0-f3b1e165d123"
WITHOUT_SETTINGS = "uniform-climb-multi-mixed-paper-seed0"
STORED = (
    "mesa-climb-multi-mixed-quick-seed0",
    "mesa-wide-2a5l-quick-seed0",
    "mesa-swimmer-wide-quick-seed0",
    BORROWER,
    WITHOUT_SETTINGS,
)


def stored(name: str) -> Json:
    return json.loads((RESULTS / f"{name}.json").read_text())


def of_before(name: str) -> Json:
    """A result as it was before its world had another name."""
    text = (RESULTS / f"{name}.json").read_text()
    for before, now in TODAY.items():
        text = text.replace(f'"{now}"', f'"{before}"').replace(f" {now} ", f" {before} ")
    facts = json.loads(text)
    del facts["made_with"][RENAMED_FROM]
    if CARRIED_FROM in facts["made_with"]:  # what was said of it earlier stays as it is
        facts["made_with"][CARRIED_FROM] = stored(name)["made_with"][CARRIED_FROM]
    return facts if facts["made_with"] else {entry: value for entry, value in facts.items() if entry != "made_with"}


def run_of(env: str, family: Json, **overrides: str) -> Json:
    asked = {path.replace("__", "."): value for path, value in overrides.items()}
    return {"env": env, "config": {"family": family}, "overrides": asked}


def particles(**settings: object) -> Json:
    world = {"type": "ParticleClimb", "horizon": 75, "radius": 0.1, "integration": "velocity-first"} | settings
    return {"type": "ParticleClimbFamily", "world": world}


def test_every_name_of_before_has_another_now():
    assert {name: name_today(name) for name in TODAY} == TODAY
    assert set(TODAY.values()) - {"wide-16a40l"} <= ENVIRONMENTS.keys()
    for name in (*TODAY.values(), "climb-one", "climb-wide", "climb-stages", "my_worlds:climb"):
        assert name_today(name) == name


@pytest.mark.parametrize(
    ("run", "env"),
    [
        (run_of("mpe-2a5l", particles(horizon=80)), "wide-2a5l"),
        (run_of("mpe-2a5l", particles()), "mpe-2a5l"),
        (run_of("mpe-2a5l", particles(horizon=80), family__world__horizon="80"), "mpe-2a5l"),
        (run_of("mpe-2a5l", particles(radius=0.2), family__world__horizon="75"), "wide-2a5l"),
        (run_of("mpe-2a5l", {"type": "my_worlds:Family", "world": {"horizon": 80}}), "mpe-2a5l"),
        (run_of("wide-2a5l", particles(horizon=80)), "wide-2a5l"),
        (run_of("climb-multi", {"type": "ClimbFamily", "counts": None}), "climb-multi-mixed"),
        (run_of("climb-multi", {"type": "ClimbFamily", "counts": [2]}), "climb-multi"),
        (run_of("climb-one", {"type": "ClimbFamily", "counts": None}), "climb-one"),
        (run_of("swimmer", {"type": "SwimmerFamily", "world": {"band_degrees": 3.0}}), "swimmer-wide"),
        (run_of("swimmer", {"type": "SwimmerFamily", "world": {"band_degrees": 1.1459}}), "swimmer"),
        ({"env": "swimmer"}, "swimmer-wide"),
        ({"env": "swimmer", "config": "damaged"}, "swimmer-wide"),
        ({"env": "swimmer", "config": {"family": "damaged"}, "overrides": 3}, "swimmer"),
    ],
)
def test_settings_tell_which_world_a_name_meant(run: Json, env: str):
    assert named_today(run)["env"] == env
    assert named_today(run).get(RENAMED_FROM) == (run["env"] if env != run["env"] else None)


@pytest.mark.parametrize("name", STORED)
def test_a_result_of_before_reads_as_it_does_under_its_name_of_today(name: str, tmp_path: Path):
    before, now = of_before(name), stored(name)
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(before))
    facts = dict(read_kept(path).facts)
    assert facts.pop(RENAMED_FROM) == before["env"] == now["made_with"].pop(RENAMED_FROM)
    assert facts | {"made_with": facts.get("made_with", {})} == now
    (told,) = damage(path)
    assert told.endswith(f"{before['env']} is called {now['env']} now: type python tools/carry_results.py {tmp_path}")


def test_which_world_it_is_of_is_one_line(tmp_path: Path):
    paths = [tmp_path / f"{method}.json" for method in ("mesa", "plain")]
    for path in paths:
        path.write_text(json.dumps(of_before(f"{path.stem}-wide-2a5l-quick-seed0")))
    runs = [*map(load_results, paths), load_results(RESULTS / "maddpg-wide-2a5l-quick-seed0.json")]
    assert {run.run["env"] for run in runs} == {"wide-2a5l"}
    first, second = paths
    assert list(names_of_before((run.directory, run.run) for run in runs)) == [
        f"{first}, {second} were made when mpe-2a5l was the name of wide-2a5l; they are read as wide-2a5l"
    ]


def rename(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("carry_results", ROOT / "tools" / "carry_results.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["carry_results.py", str(store)])
    module.main()


def test_stored_results_are_renamed_to_the_byte_and_once(tmp_path: Path, monkeypatch, capsys):
    for name in STORED:
        old = name.replace("climb-multi-mixed", "climb-multi").replace("wide-", "mpe-").replace("-mpe-quick", "-quick")
        (tmp_path / f"{old.replace('swimmer-mpe', 'swimmer')}.json").write_text(json.dumps(of_before(name)))
    rows = json.loads((RESULTS / FILE).read_text())["rows"][:3]
    (tmp_path / FILE).write_text(json.dumps({"rows": [rows[0], {**rows[1], **rows[1].pop(RENAMED_FROM)}]}))
    other = {**rows[2], **rows[2].pop(RENAMED_FROM), "trained_with": "settings of the world that has the name now"}
    before = {path.name for path in tmp_path.iterdir()}
    rename(tmp_path, monkeypatch)
    assert f"{tmp_path / FILE}: 1 rows" in capsys.readouterr().out
    for name in STORED:
        assert (tmp_path / f"{name}.json").read_bytes() == (RESULTS / f"{name}.json").read_bytes()
        assert list(damage(tmp_path / f"{name}.json")) == []
    assert {path.name for path in tmp_path.iterdir()} == {FILE, *(f"{name}.json" for name in STORED)} != before
    assert json.loads((tmp_path / FILE).read_text())["rows"] == json.loads((RESULTS / FILE).read_text())["rows"][:2]

    (tmp_path / FILE).write_text(json.dumps({"rows": [other]}))
    after = {path: path.read_bytes() for path in tmp_path.iterdir()}
    rename(tmp_path, monkeypatch)
    assert (capsys.readouterr().out, {path: path.read_bytes() for path in tmp_path.iterdir()}) == ("", after)


def test_a_result_that_is_in_the_way_is_kept(tmp_path: Path, monkeypatch):
    name = STORED[1]
    old, new = tmp_path / "mesa-mpe-2a5l-quick-seed0.json", tmp_path / f"{name}.json"
    old.write_text(json.dumps(of_before(name)))
    new.write_text(json.dumps(stored(name) | {"wall_seconds": 1.0}))
    with pytest.raises(SystemExit, match="is another result"):
        rename(tmp_path, monkeypatch)
    new.write_text(json.dumps(stored(name)))  # as if it had been stopped between the two
    rename(tmp_path, monkeypatch)
    assert not old.exists() and new.read_bytes() == (RESULTS / new.name).read_bytes()


def test_a_world_keeps_no_name_that_it_never_had(tmp_path: Path):
    facts = stored(STORED[1])
    facts["made_with"][RENAMED_FROM] = "swimmer"
    path = tmp_path / f"{STORED[1]}.json"
    path.write_text(json.dumps(facts))
    assert [one.partition(": ")[2] for one in damage(path)] == [
        "its world is wide-2a5l, which was never called swimmer"
    ]
    facts["made_with"][RENAMED_FROM] = 3
    path.write_text(json.dumps(facts))
    (told,) = damage(path)
    assert told.endswith("made_with is not an object or null, with the name that its world had then as text")
