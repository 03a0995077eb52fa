"""Bundles from strangers are refused with one line, whatever they hold; nothing they name is run or imported."""

import json
import os
import random
import shutil
import struct
import sys
from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from explorers.test_foreign_loop import RECIPE, policies_of
from mesax.errors import StoreError, UsageError
from mesax.explorers.foreign_loop import Explorers, load_explorers
from mesax.explorers.recipe import save_explorers
from mesax.store import trees as checkpoint
from mesax.store.trees import open_tree, save_again

ARRAYS, MANIFEST, CARD = "arrays.safetensors", "manifest.json", "README.md"


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("bundles")
    save_explorers(RECIPE, policies_of(RECIPE)[:2], base / "explorers")
    saved = open_tree(base / "explorers")
    save_again(base / "bundle", saved, saved.facts | {"about": {}}, {CARD: "# A card\n"})
    assert len(load_explorers(base / "bundle")) == 2
    return base / "bundle"


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "bundle"))


def forge(bundle: Path, change) -> None:
    """Another manifest whose checksum is right."""
    manifest = json.loads((bundle / MANIFEST).read_text())
    manifest = change(manifest) or manifest
    (bundle / MANIFEST).write_bytes(checkpoint._manifest_bytes(manifest))


def rewrite_arrays(bundle: Path, data: bytes) -> None:
    """Other arrays, and a manifest that swears by them."""
    import hashlib

    (bundle / ARRAYS).write_bytes(data)
    sums = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    forge(bundle, lambda manifest: manifest["files"].update({ARRAYS: sums}))


def header(bundle: Path, change) -> bytes:
    """The arrays with another safetensors header."""
    data = (bundle / ARRAYS).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + size])
    text = json.dumps(change(entries) or entries).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def weights(bundle: Path, number: bytes) -> bytes:
    """The arrays with another first number."""
    data = (bundle / ARRAYS).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    return data[:start] + number + data[start + 4 :]


def first(entries: dict) -> dict:
    return next(entry for name, entry in entries.items() if name != "__metadata__")


def recipe(change):
    return lambda bundle: forge(bundle, lambda manifest: change(manifest["facts"]["recipe"]))


def facts(**given):
    return lambda bundle: forge(bundle, lambda manifest: manifest["facts"].update(given))


def files(given: dict):
    return lambda bundle: forge(bundle, lambda manifest: manifest["files"].update(given))


def raw(old: bytes, new: bytes):
    def change(bundle: Path) -> None:
        data = (bundle / MANIFEST).read_bytes()
        assert old in data
        (bundle / MANIFEST).write_bytes(data.replace(old, new, 1))

    return change


def linked(name: str):
    def change(bundle: Path) -> None:
        (bundle / name).rename(bundle.parent / name)
        (bundle / name).symlink_to(bundle.parent / name)

    return change


def deep(bundle: Path) -> None:
    (bundle / MANIFEST).write_bytes(b'{"facts":' * 100_000 + b"1" + b"}" * 100_000)


def large_file(bundle: Path, size: int) -> None:
    """A sparse file that the manifest names."""
    with (bundle / "more.txt").open("wb") as file:
        file.truncate(size)
    forge(bundle, lambda manifest: manifest["files"].update({"more.txt": {"bytes": size, "sha256": "0" * 64}}))


def nest(depth: int):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


SUM = {"bytes": 9, "sha256": "0" * 64}
HOSTILE = {
    "a card without end": files({CARD: {"bytes": 2**60, "sha256": "0" * 64}}),
    "a card beyond any size": files({CARD: {"bytes": 2**63, "sha256": "0" * 64}}),
    "a large file beside": lambda bundle: large_file(bundle, 2**30 + 1),
    "a large manifest": lambda bundle: forge(bundle, lambda manifest: manifest["facts"].update(more="x" * 9_000_000)),
    "a setting of 400 digits": recipe(lambda plain: plain["reward"].update(capacity=10**400)),
    "a setting that is no number": recipe(lambda plain: plain["algorithm"].update(discount="nan")),
    "a file outside": files({"../../etc/passwd": SUM}),
    "an absolute file": files({"/etc/passwd": SUM}),
    "a hidden file": files({".bashrc": SUM}),
    "a file that is missing": files({"more.txt": SUM}),
    "the manifest lists itself": files({MANIFEST: SUM}),
    "a linked manifest": linked(MANIFEST),
    "linked arrays": linked(ARRAYS),
    "a linked card": linked(CARD),
    "a pipe for arrays": lambda bundle: ((bundle / ARRAYS).unlink(), os.mkfifo(bundle / ARRAYS)),
    "a folder for arrays": lambda bundle: ((bundle / ARRAYS).unlink(), (bundle / ARRAYS).mkdir()),
    "no arrays": lambda bundle: (bundle / ARRAYS).unlink(),
    "no card": lambda bundle: (bundle / CARD).unlink(),
    "an edited card": lambda bundle: (bundle / CARD).write_text("# Trust me\n"),
    "truncated arrays": lambda bundle: os.truncate(bundle / ARRAYS, 100),
    "a truncated manifest": lambda bundle: os.truncate(bundle / MANIFEST, 100),
    "an empty manifest": lambda bundle: os.truncate(bundle / MANIFEST, 0),
    "a duplicate key": raw(b'"format": 1,', b'"format": 1,\n "format": 1,'),
    "NaN in the manifest": raw(b'"format": 1,', b'"format": NaN,'),
    "infinity in the manifest": raw(b'"format": 1,', b'"format": Infinity,'),
    "a manifest without end": deep,
    "a number of a million digits": raw(b'"format": 1,', b'"format": ' + b"1" * 1_000_000 + b","),
    "another format": lambda bundle: forge(bundle, lambda manifest: manifest.update(format=99)),
    "a manifest that is a list": lambda bundle: (bundle / MANIFEST).write_text("[]\n"),
    "a pickle": lambda bundle: (bundle / MANIFEST).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR."),
    "pickled arrays": lambda bundle: rewrite_arrays(bundle, b"cos\nsystem\n(S'touch pwned'\ntR."),
    "arrays without end": lambda bundle: forge(bundle, lambda m: m["files"][ARRAYS].update(bytes=2**60)),
    "a huge header": lambda bundle: rewrite_arrays(bundle, struct.pack("<Q", 2**62) + b"{}"),
    "a huge stored shape": lambda bundle: rewrite_arrays(
        bundle, header(bundle, lambda entries: first(entries).update(shape=[2**40]))
    ),
    "stored bytes out of range": lambda bundle: rewrite_arrays(
        bundle, header(bundle, lambda entries: first(entries).update(data_offsets=[0, 2**40]))
    ),
    "an unknown stored dtype": lambda bundle: rewrite_arrays(
        bundle, header(bundle, lambda entries: first(entries).update(dtype="PICKLE"))
    ),
    "weights that are no numbers": lambda bundle: rewrite_arrays(bundle, weights(bundle, b"\0\0\xc0\x7f")),
    "infinite weights": lambda bundle: rewrite_arrays(bundle, weights(bundle, b"\0\0\x80\x7f")),
    "a huge shape": lambda bundle: forge(bundle, lambda m: m["leaves"][0].update(shape=[2**40])),
    "a wrong dtype": lambda bundle: forge(bundle, lambda m: m["leaves"][0].update(dtype="float64")),
    "a dtype with code": lambda bundle: forge(bundle, lambda m: m["leaves"][0].update(dtype="os.system")),
    "a leaf too many": lambda bundle: forge(bundle, lambda m: m["leaves"].append(m["leaves"][0] | {"path": ".x"})),
    "a leaf too few": lambda bundle: forge(bundle, lambda m: m["leaves"].pop()),
    "an unknown class": recipe(lambda plain: plain["algorithm"].update(type="Popen")),
    "a class by its path": recipe(lambda plain: plain["algorithm"].update(type="antigravity.geohash")),
    "a class that is a list": recipe(lambda plain: plain["algorithm"].update(type=["Mappo"])),
    "an unknown setting": recipe(lambda plain: plain["algorithm"].update(__reduce__=1)),
    "text for a number": recipe(lambda plain: plain["algorithm"].update(epochs="2")),
    "a class for a number": recipe(lambda plain: plain["algorithm"].update(epochs={"type": "Adam"})),
    "the wrong class": recipe(lambda plain: plain.update(spec={"type": "Adam"})),
    "no recipe for a reward": recipe(lambda plain: plain.update(reward=3)),
    "an algorithm that is a number": recipe(lambda plain: plain.update(algorithm=3)),
    "billions of agents": recipe(lambda plain: plain["spec"].update(num_agents=10**9)),
    "too many agents": recipe(lambda plain: plain["spec"].update(num_agents=2**16)),
    "a negative size": recipe(lambda plain: plain["spec"].update(obs_size=-3)),
    "huge nets": recipe(lambda plain: plain["algorithm"]["actor_net"].update(hidden=[2**19, 2**19])),
    "very deep nets": recipe(lambda plain: plain["algorithm"]["actor_net"].update(hidden=[8] * 10_000)),
    "deep settings": recipe(lambda plain: plain["algorithm"].update(epochs=nest(200))),
    "billions of explorers": facts(num_explorers=10**10),
    "explorers by name": facts(num_explorers="all"),
    "true explorers": facts(num_explorers=True),
    "no recipe": facts(recipe=None),
    "another recipe": facts(recipe=[1, 2]),
    "facts that are a list": lambda bundle: forge(bundle, lambda manifest: manifest.update(facts=[])),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bundles_are_refused(bundle: Path, name: str, monkeypatch):
    monkeypatch.chdir(bundle.parent)
    before = set(sys.modules)
    HOSTILE[name](bundle)
    with pytest.raises((StoreError, UsageError)) as error:
        load_explorers(bundle)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1_000
    assert not Path("pwned").exists() and "antigravity" not in set(sys.modules) - before


def test_a_linked_directory_of_explorers_is_refused(bundle: Path, tmp_path: Path):
    run = tmp_path / "run" / "policies"
    run.mkdir(parents=True)
    (run / "explorers").symlink_to(bundle)
    with pytest.raises(StoreError, match="is a link"):
        load_explorers(run.parent)


def test_a_flipped_bit_in_any_file_is_noticed(bundle: Path):
    """100 bits at random: of weights, manifest and card."""
    draw, noticed = random.Random(0), 0
    for _ in range(100):
        path = bundle / draw.choice((ARRAYS, MANIFEST, CARD))
        data = path.read_bytes()
        place, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
        path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        with pytest.raises(StoreError):
            load_explorers(bundle)
        noticed += 1
        path.write_bytes(data)
    assert noticed == 100 and len(load_explorers(bundle)) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*path, key))


def put(value, path: tuple, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_manifest_forged_anywhere_is_refused_or_harmless(whole: Path, tmp_path_factory, data):
    """Any value anywhere, under a right checksum: either one line, or the same weights (a rate no longer matters)."""
    target = tmp_path_factory.getbasetemp() / "forged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(whole, target)
    manifest = json.loads((whole / MANIFEST).read_text())
    path = data.draw(st.sampled_from([path for path in places(manifest) if path]))
    new = data.draw(JSON)
    forge(target, lambda manifest: put(manifest, path, new))
    try:
        explorers = load_explorers(target)
    except (StoreError, UsageError) as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(explorers, Explorers) and len(explorers) == 2
        same = jax.tree.map(np.array_equal, explorers.policies, load_explorers(whole).policies)
        assert all(jax.tree.leaves(same))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([ARRAYS, MANIFEST]), start=st.integers(0, 5_000), cut=st.integers(0, 50), new=st.binary())
def test_files_with_other_bytes_are_refused(whole: Path, tmp_path_factory, name, start, cut, new):
    """Arrays are refused although the manifest swears by them, unless they are whole again."""
    target = tmp_path_factory.getbasetemp() / "other"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(whole, target)
    old = (whole / name).read_bytes()
    start = min(start, len(old))
    changed = old[:start] + new + old[start + cut :]
    if changed == old:
        return
    if name == ARRAYS:
        rewrite_arrays(target, changed)
    else:
        (target / name).write_bytes(changed)
    try:
        explorers = load_explorers(target)
    except (StoreError, UsageError):
        return
    # Other weights under a right checksum are other explorers, and as good as any.
    assert name == ARRAYS and len(changed) == len(old) and isinstance(explorers, Explorers)
