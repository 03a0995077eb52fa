"""Saved trees: what comes back, what damage is noticed, what a crash or a full disk leaves behind."""

import errno
import itertools
import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import equinox as eqx
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from mesax.algorithms.maddpg import Maddpg
from mesax.errors import StoreError
from mesax.store import trees as checkpoint
from mesax.store.trees import load_tree, read_manifest, save_tree, verify
from mesax.types import Discrete, EnvSpec

SOURCE = Path(checkpoint.__file__).parents[2]


class Pair(eqx.Module):
    left: jax.Array
    right: object


def sample_tree(scale: float = 1.0) -> dict:
    return {
        "nets": (Pair(jnp.arange(6.0).reshape(2, 3) * scale, None), [jnp.zeros((0, 4)), jnp.ones((), bool)]),
        "half": jnp.asarray([1.5, -2.0], jnp.bfloat16),
        "host": np.arange(4, dtype=np.int64),
        "steps": 7,
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4), 3),
    }


def same(left, right) -> bool:
    if type(left) is not type(right) and not (isinstance(left, jax.Array) and isinstance(right, jax.Array)):
        return False
    if isinstance(left, jax.Array) and jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
        return left.dtype == right.dtype and same(jax.random.key_data(left), jax.random.key_data(right))
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def assert_same(left, right) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    assert all(map(same, jax.tree.leaves(left), jax.tree.leaves(right)))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoints" / "100"
    save_tree(directory, sample_tree(), {"step": 100})
    return directory


def test_tree_and_facts_come_back(saved: Path):
    assert_same(load_tree(saved, sample_tree(0.0)), sample_tree())
    assert read_manifest(saved)["facts"] == {"step": 100}
    assert verify(saved) == []
    assert sorted(path.name for path in saved.iterdir()) == ["arrays.safetensors", "manifest.json"]


def test_shapes_alone_say_what_is_wanted(saved: Path):
    tree = sample_tree()
    del tree["host"], tree["steps"]
    save_tree(saved, tree, {})
    like = jax.eval_shape(lambda: {key: value for key, value in sample_tree().items() if key in tree})
    assert_same(load_tree(saved, like), tree)


def test_a_learner_comes_back(tmp_path: Path):
    like = jax.eval_shape(lambda key: Maddpg().init(EnvSpec(2, 3, Discrete(4), 1), key), jax.random.key(0))
    numbers = itertools.count()
    state = jax.tree.map(lambda leaf: jnp.asarray(np.full(leaf.shape, next(numbers), leaf.dtype)), like)
    save_tree(tmp_path / "learner", state, {})
    assert_same(load_tree(tmp_path / "learner", like), state)


@pytest.mark.parametrize("tree", [None, (), {"a": ()}], ids=str)
def test_a_tree_without_leaves(tmp_path: Path, tree):
    save_tree(tmp_path / "empty", tree, {"x": 1})
    assert load_tree(tmp_path / "empty", tree) == tree
    assert verify(tmp_path / "empty") == []


def test_a_single_leaf(tmp_path: Path):
    save_tree(tmp_path / "leaf", jnp.arange(3), {})
    assert_same(load_tree(tmp_path / "leaf", jnp.zeros(3, int)), jnp.arange(3))


def test_memory_order_does_not_matter(tmp_path: Path):
    tree = [np.arange(6.0).reshape(2, 3).T, np.arange(8)[::-2], np.arange(3, dtype=">f4")]
    save_tree(tmp_path / "odd", tree, {})
    for found, expected in zip(load_tree(tmp_path / "odd", tree), tree, strict=True):
        np.testing.assert_array_equal(found, expected)


DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
LEAVES = st.one_of(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=3))
    ),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.integers(0, 9).map(jax.random.key),
    st.just(np.float32(0.1)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.none(),
    ),
    max_leaves=6,
)


@settings(max_examples=40)
@given(
    tree=TREES,
    facts=st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)),
)
def test_any_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, tree, facts):
    directory = tmp_path_factory.getbasetemp() / "any" / "tree"
    save_tree(directory, tree, facts)
    assert_same(load_tree(directory, tree), tree)
    assert repr(read_manifest(directory)["facts"]) == repr(dict(sorted(facts.items())))
    assert [path.name for path in directory.parent.iterdir()] == ["tree"]


@pytest.mark.parametrize(
    "leaf",
    ["text", object(), np.array(["a"]), np.array(["2020"], "datetime64[Y]")],
    ids=["text", "object", "text array", "dates"],
)
def test_only_numbers_are_saved(tmp_path: Path, leaf):
    with pytest.raises(TypeError, match=r"leaf \['a'\] is a .*; only arrays, keys and numbers can be saved"):
        save_tree(tmp_path / "tree", {"a": leaf}, {})
    assert list(tmp_path.iterdir()) == []


def test_facts_become_plain(saved: Path):
    facts = {"sizes": np.arange(2), "mean": np.float32(0.5), "by": {10: jnp.ones(()), 9: (1, 2)}}
    save_tree(saved, sample_tree(), facts)
    assert read_manifest(saved)["facts"] == {"sizes": [0, 1], "mean": 0.5, "by": {"10": 1.0, "9": [1, 2]}}


def test_facts_that_json_cannot_hold_lose_nothing(saved: Path):
    with pytest.raises(TypeError, match="a object cannot be a fact: it is not JSON"):
        save_tree(saved, sample_tree(2.0), {"x": object()})
    assert_same(load_tree(saved, sample_tree()), sample_tree())
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors"])
def test_a_flipped_bit_in_any_byte_is_noticed(tmp_path: Path, name: str):
    directory = tmp_path / "small"
    save_tree(directory, {"a": jnp.arange(3.0), "é": np.int8(1)}, {"step": 1e5, "note": "é\n"})
    path = directory / name
    intact = path.read_bytes()
    for position in range(len(intact)):
        # Bit 5 turns letters into their other case, which JSON and hexadecimal numbers may not tell apart.
        bit = 5 if chr(intact[position]).isalpha() else position % 8
        damaged = bytearray(intact)
        damaged[position] ^= 1 << bit
        path.write_bytes(damaged)
        problems = verify(directory)
        assert len(problems) == 1 and name in problems[0] and "\n" not in problems[0], (position, bit)
    path.write_bytes(intact)
    assert verify(directory) == []


@pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors"])
def test_every_truncation_is_noticed(tmp_path: Path, name: str):
    directory = tmp_path / "small"
    save_tree(directory, jnp.arange(3.0), {})
    path = directory / name
    intact = path.read_bytes()
    for length in range(len(intact)):
        path.write_bytes(intact[:length])
        with pytest.raises(StoreError, match=name):
            load_tree(directory, jnp.zeros(3))
    path.write_bytes(intact + b"\n")
    assert len(verify(directory)) == 1
    path.unlink()
    with pytest.raises(StoreError, match=f"{name} is missing"):
        load_tree(directory, jnp.zeros(3))


def changed(**changes) -> dict:
    return {**sample_tree(), **changes}


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (changed(host=np.zeros(5, np.int64)), "leaf ['host'] with shape [4], but [5] is expected"),
        (changed(host=np.zeros(4, np.int32)), "leaf ['host'] with dtype int64, but int32 is expected"),
        (changed(half=jnp.zeros(2)), "leaf ['half'] with dtype bfloat16, but float32 is expected"),
        (changed(steps=7.0), "leaf ['steps'] with dtype int64, but float64 is expected"),
        (changed(key=jnp.zeros(2, jnp.uint32)), "leaf ['key'] with shape [], but [2] is expected"),
        (
            changed(key=jax.random.key(0, impl="rbg")),
            "leaf ['key'] with dtype key<fry>, but key<rbg> is expected",
        ),
        (changed(keys=jax.random.key(0)), "leaf ['keys'] with shape [3], but [] is expected"),
        (changed(extra=1), "lacks leaf ['extra'] (1 in all)"),
        (changed(steps=None), "has an unexpected leaf ['steps'] (1 in all)"),
        (changed(nets=()), "has an unexpected leaf ['nets'][0].left (3 in all)"),
    ],
)
def test_another_structure_is_refused(saved: Path, like, message: str):
    with pytest.raises(StoreError) as caught:
        load_tree(saved, like)
    assert str(caught.value).startswith(str(saved)) and str(caught.value).endswith(message)


def test_links_pipes_and_folders_are_refused(saved: Path):
    path = saved / "arrays.safetensors"
    path.rename(saved / "elsewhere")
    path.symlink_to(saved / "elsewhere")
    with pytest.raises(StoreError, match=r"arrays\.safetensors is not a regular file"):
        load_tree(saved, sample_tree())
    path.unlink()
    os.mkfifo(path)
    assert verify(saved) == [f"{path} is not a regular file"]
    path.unlink()
    path.mkdir()
    assert verify(saved) == [f"{path} is not a regular file"]


def test_other_files_in_the_directory_do_not_matter(saved: Path):
    (saved / "note.txt").write_text("mine")
    assert verify(saved) == []
    assert_same(load_tree(saved, sample_tree()), sample_tree())


def forge(directory: Path, change) -> None:
    """A manifest that is wrong although its checksum is right."""
    manifest = json.loads((directory / "manifest.json").read_text())
    change(manifest)
    (directory / "manifest.json").write_bytes(checkpoint._manifest_bytes(manifest))


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.update(format=2),
        lambda manifest: manifest.update(files={}),
        lambda manifest: manifest.update(files={"arrays.safetensors": {"bytes": -1, "sha256": ""}}),
        lambda manifest: manifest.update(leaves=5),
        lambda manifest: manifest.update(leaves=[{}]),
        lambda manifest: manifest["leaves"].pop(),
        lambda manifest: manifest["leaves"][0].update(shape=[1, -1]),
        lambda manifest: manifest["leaves"][0].update(shape=[10**9]),
        lambda manifest: manifest["leaves"][0].update(dtype="object"),
        lambda manifest: manifest["leaves"][0].update(dtype="os.system"),
        lambda manifest: manifest["leaves"][0].update(stored="pickle"),
        lambda manifest: manifest["leaves"][2].update(generator="unheard-of"),
        lambda manifest: manifest["leaves"][2].update(generator=7),
    ],
)
def test_forged_manifests_are_refused(saved: Path, change):
    forge(saved, change)
    problems = verify(saved)
    assert len(problems) == 1 and str(saved) in problems[0] and "\n" not in problems[0]
    with pytest.raises(StoreError):
        load_tree(saved, sample_tree())


@given(
    data=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["format", "files", "leaves", "facts", "checksum"]), inner, max_size=5)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_manifest_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    directory = tmp_path_factory.getbasetemp() / "fuzz"
    directory.mkdir(exist_ok=True)
    (directory / "manifest.json").write_bytes(data)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        read_manifest(directory)


def test_a_missing_directory(tmp_path: Path):
    assert not (tmp_path / "none").exists()
    with pytest.raises(StoreError, match="is missing"):
        read_manifest(tmp_path / "none")


def test_nothing_but_a_saved_tree_is_replaced(tmp_path: Path):
    folder, file, link = tmp_path / "folder", tmp_path / "file", tmp_path / "link"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    file.write_text("precious")
    link.symlink_to(folder)
    for path in (folder, file, link):
        with pytest.raises(StoreError, match=f"{path} cannot be written"):
            save_tree(path, sample_tree(), {})
    assert (folder / "thesis.txt").read_text() == file.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link"]


CALLS = [
    (os, "replace"),
    (os, "fsync"),
    (checkpoint.safetensors_numpy, "save_file"),
    (checkpoint, "_manifest_bytes"),
]


@pytest.mark.parametrize(("module", "name"), CALLS, ids=[name for _, name in CALLS])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()], ids=repr)
def test_a_failure_at_any_call_keeps_a_complete_tree(saved: Path, monkeypatch, module, name: str, failure):
    original = getattr(module, name)
    for fails_at in itertools.count():
        calls = itertools.count()

        def faulty(*arguments, calls=calls, fails_at=fails_at):
            if next(calls) == fails_at:
                raise failure
            return original(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, faulty)
            try:
                save_tree(saved, sample_tree(2.0 + fails_at), {"step": 2 + fails_at})
            except (StoreError, KeyboardInterrupt) as error:
                if isinstance(failure, OSError):
                    assert str(error) == f"{saved} cannot be written: No space left on device"
            else:
                break
        assert saved.is_dir() and verify(saved) == []
        tree = load_tree(saved, sample_tree())
        assert float(tree["nets"][0].left[0, 1]) in {1.0, 2.0 + fails_at}
        assert not list(saved.parent.glob(".tmp-*"))
    assert fails_at > 0
    assert read_manifest(saved)["facts"] == {"step": 2 + fails_at}
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_full_disk_keeps_the_old_tree(saved: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StoreError, match=f"{saved} cannot be written: .*File too large"):
            save_tree(saved, np.zeros(10_000), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_same(load_tree(saved, sample_tree()), sample_tree())
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


CRASH = """
import itertools, os, shutil, sys
from pathlib import Path
import numpy as np
from mesax.store import trees as checkpoint

directory = Path(sys.argv[1])
names = [(os, name) for name in ("replace", "fsync", "open", "mkdir", "unlink", "rmdir")]
names += [(shutil, "rmtree")]
originals = [(module, name, getattr(module, name)) for module, name in names]

def crash_at(point):
    calls = itertools.count()
    def wrap(original):
        def call(*arguments, **options):
            if next(calls) == point:
                os._exit(9)
            return original(*arguments, **options)
        return call
    for module, name, original in originals:
        setattr(module, name, wrap(original))
    checkpoint.save_tree(directory, np.full(4, point), {"step": point})
    os._exit(0)

steps = [-1]
checkpoint.save_tree(directory, np.full(4, -1), {"step": -1})
for point in itertools.count():
    process = os.fork()
    if process == 0:
        crash_at(point)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert checkpoint.verify(directory) == [], point
    step = checkpoint.read_manifest(directory)["facts"]["step"]
    assert step in (steps[-1], point), (step, steps[-1], point)
    assert (checkpoint.load_tree(directory, np.zeros(4, int)) == step).all()
    steps.append(step)
    if code == 0:
        break
assert step == point and os.listdir(directory.parent) == [directory.name], os.listdir(directory.parent)
print(point)
"""


def test_a_crash_at_any_moment_leaves_a_complete_tree(tmp_path: Path):
    """The process is ended, without any clean-up, before each call that touches the disk."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", textwrap.dedent(CRASH), str(tmp_path / "all" / "tree")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 10
