"""Settings: how they are named, read, refused, compared, hashed and explained."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Optional, Protocol, TypeAlias

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from mesax.algorithms.actor_updates import ExpectedGradient, GumbelGradient
from mesax.algorithms.base import Learner
from mesax.algorithms.coordinated import JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.algorithms.mappo import Mappo
from mesax.envs.climb import ClimbFamily
from mesax.envs.particle_climb import JammedFamily
from mesax.errors import StoreError, UsageError
from mesax.experiments.overrides import (
    apply_all,
    check_path,
    difference,
    digest,
    digest_of_plain,
    documented,
    parse_arguments,
    to_text,
)
from mesax.nets import Gru, Mlp
from mesax.store.settings import added, from_plain, nameless, to_plain
from mesax.training.schedule import Schedule
from mesax.types import Linear


def apply(value: Any, path: str, text: str) -> Any:
    return apply_all(value, [(path, text)])


Color: TypeAlias = Literal["red", "dark blue", 3]


@dataclass(frozen=True)
class Mixed:
    closed: Literal["red"] | None = None
    open: Literal["red"] | int = 3


class Shape(Protocol):
    def area(self) -> float: ...


@dataclass(frozen=True)
class Circle:
    radius: float = 1.0
    """In meters."""

    def area(self) -> float:
        return math.pi * self.radius**2


@dataclass(frozen=True)
class Square:
    """Four equal sides."""

    side: float = 2.0

    "Length of each,\n    in meters.\n\n    More that nobody asked for."
    corners: tuple[int, int] = (0, 0)

    def area(self) -> float:
        return self.side**2


@dataclass(frozen=True)
class Needy:
    size: int


@dataclass(frozen=True)
class Everything:
    flag: bool = False
    number: int = 3
    """How many."""
    real: float = 0.5
    text: str = "word"
    name: str | None = "x"
    color: Color = "red"
    maybe: int | None = None
    old_maybe: Optional[float] = 1.0  # noqa: UP045
    row: tuple[int, ...] = (1, 2)
    words: tuple[str, ...] = ()
    pair: tuple[int, float] = (1, 2.0)
    either: int | float | Literal["auto"] = 1
    shape: Circle | Square = Circle()
    """What it looks like."""
    any_shape: Shape = Square()
    perhaps: Square | None = None
    schedule: Linear = Linear(1.0, 0.0, 0.5)
    needy: Needy | float = Needy(3)
    anything: Any = 4
    function: Any = math.sqrt
    derived: int = field(default=0, init=False)


def refusal(value, path: str, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        apply(value, path, text)
    return str(caught.value)


def values(settings) -> dict:
    return {setting.path: setting.value for setting in documented(settings)}


def test_every_setting_has_a_path():
    assert values(Everything()) == {
        "flag": False,
        "number": 3,
        "real": 0.5,
        "text": "word",
        "name": "x",
        "color": "red",
        "maybe": None,
        "old-maybe": 1.0,
        "row": (1, 2),
        "words": (),
        "pair": (1, 2.0),
        "either": 1,
        "shape": "Circle",
        "shape.radius": 1.0,
        "any-shape": "Square",
        "any-shape.side": 2.0,
        "any-shape.corners": (0, 0),
        "perhaps": None,
        "schedule.start": 1.0,
        "schedule.end": 0.0,
        "schedule.fraction": 0.5,
        "needy": "Needy",
        "needy.size": 3,
        "anything": 4,
        "function": "math:sqrt",
    }


def test_settings_of_a_learner():
    flat = values(Maddpg(actor_update=JointImprovement(margin=0.2)))
    assert flat["actor-update"] == "JointImprovement"
    assert flat["actor-update.margin"] == 0.2
    assert flat["actor-net.hidden"] == (64, 64)
    assert "actor-optimizer" not in flat and flat["actor-optimizer.learning-rate"] == 5e-4


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("flag", "true", True),
        ("flag", "False", False),
        ("number", "50_000", 50_000),
        ("number", "5e4", 50_000),
        ("number", "-7", -7),
        ("number", "9007199254740993", 2**53 + 1),
        ("real", "1", 1.0),
        ("real", "1e-3", 1e-3),
        ("real", "inf", math.inf),
        ("text", "none", "none"),
        ("text", "a=b", "a=b"),
        ("name", "none", None),
        ("name", "5", "5"),
        ("color", "dark blue", "dark blue"),
        ("color", "3", 3),
        ("maybe", "none", None),
        ("maybe", "5", 5),
        ("old-maybe", "None", None),
        ("old-maybe", "2", 2.0),
        ("old_maybe", "2", 2.0),
        ("--old-maybe", "2", 2.0),
        ("row", "64,64", (64, 64)),
        ("row", "(64, 32,)", (64, 32)),
        ("row", "7", (7,)),
        ("row", "", ()),
        ("words", "a, b", ("a", "b")),
        ("pair", "2,3", (2, 3.0)),
        ("either", "2", 2),
        ("either", "2.5", 2.5),
        ("either", "auto", "auto"),
        ("shape", "Square", Square()),
        ("shape", "square", Square()),
        ("shape.radius", "3", Circle(3.0)),
        ("any-shape.side", "3", Square(3.0)),
        ("perhaps", "Square", Square()),
        ("schedule.end", "0.25", Linear(1.0, 0.25, 0.5)),
        ("needy", "0.5", 0.5),
        ("needy.size", "5", Needy(5)),
        ("anything", "5", 5),
    ],
)
def test_apply(path: str, text: str, expected):
    before = Everything()
    after = apply(before, path, text)
    name = path.removeprefix("--").split(".")[0].replace("-", "_")
    found = getattr(after, name)
    assert found == expected and type(found) is type(expected)
    assert after == dataclasses.replace(before, **{name: expected})
    assert before == Everything()


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("flag", "1", "--flag: cannot use '1'; expected true or false"),
        ("number", "two", "--number: cannot use 'two'; expected an integer"),
        ("number", "2.5", "--number: cannot use '2.5'; expected an integer"),
        ("number", "1e400", "--number: cannot use '1e400'; expected an integer"),
        ("number", "NaN", "--number: cannot use 'NaN'; expected an integer"),
        ("number", "", "--number: cannot use ''; expected an integer"),
        ("real", "nan", "--real: cannot use 'nan'; expected a number"),
        ("real", "a\nb", r"--real: cannot use 'a\nb'; expected a number"),
        ("color", "blue", "--color: cannot use 'blue'; expected red, dark blue or 3"),
        ("maybe", "x", "--maybe: cannot use 'x'; expected an integer or none"),
        ("row", "1,x", "--row: cannot use '1,x'; expected values separated by commas, each an integer"),
        ("row", "1,,2", "--row: cannot use '1,,2'; expected values separated by commas, each an integer"),
        (
            "pair",
            "1",
            "--pair: cannot use '1'; expected 2 values separated by commas, each an integer or a number",
        ),
        ("shape", "Cube", "--shape: cannot use 'Cube'; expected Circle or Square"),
        ("perhaps", "Circle", "--perhaps: cannot use 'Circle'; expected Square or none"),
        ("needy", "Needy", "--needy: cannot use 'Needy'; expected a number"),
        (
            "any-shape",
            "Circle",
            "--any-shape cannot be set as a whole; set its parts: --any-shape.side, --any-shape.corners",
        ),
        (
            "schedule",
            "1",
            "--schedule cannot be set as a whole; set its parts: --schedule.start, --schedule.end, --schedule.fraction",
        ),
        ("function", "cbrt", "--function cannot be set as a whole"),
        (
            "shape.radus",
            "1",
            "unknown setting --shape.radus; closest: --shape.radius, --shape",
        ),
        (
            "shape.side",
            "1",
            "unknown setting --shape.side: --shape is Circle; choose --shape Square first",
        ),
        (
            "perhaps.side",
            "1",
            "unknown setting --perhaps.side: --perhaps is none; choose --perhaps Square first",
        ),
        ("radius", "1", "unknown setting --radius; closest: --shape.radius"),
        ("numbr", "1", "unknown setting --numbr; closest: --number"),
        ("number.x", "1", "unknown setting --number.x; closest: --number"),
    ],
)
def test_refusals(path: str, text: str, message: str):
    assert refusal(Everything(), path, text) == message


def test_a_path_like_no_other_names_where_settings_begin():
    assert refusal(Square(), "zzz", "1") == "unknown setting --zzz; settings begin with --side, --corners"
    assert refusal(Square(), "", "1") == "unknown setting --; settings begin with --side, --corners"


@pytest.mark.parametrize("path", ["derived", "__class__", "shape.area", "flag.real", "shape..radius", ".", "a\nb"])
def test_only_fields_are_settings(path: str):
    message = refusal(Everything(), path, "1")
    assert message.startswith("unknown setting --") and message.isprintable()


def test_what_a_class_refuses_is_passed_on():
    assert refusal(ClimbFamily(), "counts", "3") == "k must lie between 1 and the number of agents 2, not 3"
    assert refusal(ClimbFamily(), "delta", "1") == "delta must lie strictly between 0 and 1, not 1.0"


def test_another_error_of_a_class_names_the_setting():
    @dataclass(frozen=True)
    class Picky:
        size: int = 1

        def __post_init__(self) -> None:
            if self.size > 2:
                raise ValueError("too large")

    assert refusal(Picky(), "size", "3") == "--size: cannot use '3': too large"


def test_a_variant_keeps_nothing_of_the_old():
    value = Maddpg(actor_update=GumbelGradient(temperature=3.0), actor_net=Mlp((8,)))
    value = apply(value, "actor-update", "JointImprovement")
    assert value.actor_update == JointImprovement() and value.actor_net == Mlp((8,))
    assert apply(value, "actor-update", "GumbelGradient").actor_update == GumbelGradient()


def test_many_at_once():
    pairs = [("actor-net.hidden", "32"), ("discount", "0.5"), ("actor-net", "Gru"), ("discount", "0.9")]
    value = apply_all(Maddpg(), pairs)
    assert value == Maddpg(actor_net=Gru(hidden=32), discount=0.9)
    message = "unknown setting --actor-net.num-layer; closest: --actor-net.num-layers"
    with pytest.raises(UsageError, match=message):
        apply_all(Maddpg(), [("actor-net", "Gru"), ("actor-net.num-layer", "1")])
    assert apply_all(Maddpg(), []) == Maddpg()


def test_only_the_outcome_need_be_valid():
    pairs = [("num-envs", "100_000"), ("replay-capacity", "200_000")]
    assert refusal(Schedule(), *pairs[0]) == "replay-capacity 50000 is less than num-envs 100000"
    for order in (pairs, pairs[::-1]):
        assert apply_all(Schedule(), order) == Schedule(num_envs=100_000, replay_capacity=200_000)


def test_parse_arguments():
    words = ["--a.b", "1", "--c-d=x=y", "--e", "-3", "--f="]
    assert parse_arguments(words) == [("a.b", "1"), ("c-d", "x=y"), ("e", "-3"), ("f", "")]
    assert parse_arguments([]) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stray"], "unexpected argument 'stray'; settings are written --name value"),
        (["--a", "1", "2"], "unexpected argument '2'; settings are written --name value"),
        (["-a", "1"], "unexpected argument '-a'; settings are written --name value"),
        (["--", "1"], "unexpected argument '--'; settings are written --name value"),
        (["--=1"], "unexpected argument '--=1'; settings are written --name value"),
        (["--a"], "--a needs a value: --a value"),
        (["--a", "--b", "1"], "--a needs a value: --a value"),
    ],
)
def test_stray_arguments(words: list[str], message: str):
    with pytest.raises(UsageError) as caught:
        parse_arguments(words)
    assert str(caught.value) == message


def test_a_path_that_is_not_there_is_refused_whatever_its_value():
    for path in ("actor-net", "actor_net.hidden", "discount"):
        check_path(Maddpg(), path)
    with pytest.raises(UsageError, match=r"unknown setting --actor-net\.hiden; closest: --actor-net\.hidden"):
        check_path(Maddpg(), "actor-net.hiden")


def test_difference():
    left = Maddpg(discount=0.9)
    right = Maddpg(actor_net=Gru(hidden=8), discount=0.95)
    assert difference(left, left) == []
    assert difference(left, right) == [
        ("actor-net", "Mlp", "Gru"),
        ("actor-net.hidden", [64, 64], 8),
        ("actor-net.octaves", 0, None),
        ("discount", 0.9, 0.95),
        ("actor-net.num-layers", None, 2),
        ("actor-net.products", None, "float32"),
    ]
    assert difference(right, left) == [(path, b, a) for path, a, b in _reordered(difference(left, right))]


def _reordered(rows):
    return [rows[index] for index in (0, 1, 4, 5, 3, 2)]


def test_digest():
    assert digest(Maddpg()) == digest(Maddpg())
    assert len(digest(Maddpg())) == 12 and int(digest(Maddpg()), 16) >= 0
    others = [apply(Maddpg(), path, text) for path, text in [("discount", "1"), ("actor-update", "JointImprovement")]]
    assert len({digest(value) for value in [Maddpg(), *others]}) == 3
    assert digest(Circle(2.0)) != digest(Square(2.0))
    assert digest({"b": 1, "a": (1, 2)}) == digest({"a": [1, 2], "b": 1})
    assert digest(Linear(0.8, 0.0, 0.6)) == "68b0c3fd8b2d", "a digest names results on disk: it must never change"


@dataclass(frozen=True)
class Ball:
    """It was a shape of one setting once."""

    radius: float = 1.0
    color: str = added("red")


def test_what_was_added_is_left_out_where_all_is_as_before():
    before = {"type": f"{__name__}:Ball", "radius": 1.0}
    assert to_plain(Ball()) == before and to_plain([Ball()], whole=True) == [before | {"color": "red"}]
    assert to_plain(Ball(color="blue")) == before | {"color": "blue"}
    kinds = {f"{__name__}:Ball": Ball}
    for ball in (Ball(), Ball(color="blue")):
        assert from_plain(to_plain(ball), kinds) == ball
    assert digest(Ball()) == digest_of_plain(before) != digest(Ball(color="blue"))
    assert difference(Ball(), Ball(color="blue")) == [("color", "red", "blue")]
    assert [setting.path for setting in documented(Ball())] == ["radius", "color"]
    assert apply(Ball(), "color", "blue") == Ball(color="blue")


@dataclass(frozen=True)
class Cube:
    """It had a color once, which was always red."""

    RETIRED: ClassVar = {"color": "red"}

    side: float = 1.0


def test_what_is_gone_stays_in_digests():
    before = {"type": f"{__name__}:Cube", "color": "red", "side": 2.0}
    kinds = {f"{__name__}:Cube": Cube}
    assert to_plain(Cube(2.0)) == before and from_plain(before, kinds) == Cube(2.0)
    with pytest.raises(StoreError, match="Cube has no setting 'color'"):
        from_plain(before | {"color": "blue"}, kinds)
    assert [setting.path for setting in documented(Cube())] == ["side"]


def test_to_plain():
    value = {
        "shape": Square(),
        "inf": -math.inf,
        "array": np.arange(2, dtype=np.float32),
        "set": {3, 1},
        "function": math.sqrt,
        2: None,
    }
    plain = to_plain(value)
    assert plain == {
        "shape": {"type": f"{__name__}:Square", "side": 2.0, "corners": [0, 0]},
        "inf": "-inf",
        "array": [0.0, 1.0],
        "set": [1, 3],
        "function": "math:sqrt",
        "2": None,
    }
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    with pytest.raises(TypeError, match="a object cannot be a setting"):
        to_plain(object())


class Mode(Enum):
    FAST = 1


class Named(StrEnum):
    SLOW = "slow"


@dataclass(frozen=True)
class Holder:
    """Anything at all."""

    held: Any


@pytest.mark.parametrize(
    "held",
    [Mode.FAST, Named.SLOW, Path("here"), frozenset({1}), {"a": 1}, np.arange(2), (1, (Mode.FAST,)), Circle(Mode.FAST)],
    ids=str,
)
def test_what_could_not_be_read_back_is_no_setting(held):
    """It would be written down, and a run done, that nobody could look at afterwards."""
    place = "Circle.radius" if isinstance(held, Circle) else "Holder.held"
    with pytest.raises(TypeError, match=rf"^a \w+ cannot be a setting \({place}\)$"):
        to_plain(Holder(held))


@pytest.mark.parametrize("held", [None, True, 3, "text", 0.5, np.float32(0.5), (1, (2, "x")), math.sqrt, Circle(2.0)])
def test_what_can_be_read_back_is_a_setting(held):
    kinds = {f"{__name__}:{kind.__name__}": kind for kind in (Holder, Circle)} | {"math:sqrt": math.sqrt}
    assert from_plain(json.loads(json.dumps(to_plain(Holder(held)))), kinds).held == held


def factory(number):
    def make(seed):
        return number

    return make


def decorated(function):
    @functools.wraps(function)
    def around(seed):
        return function(seed)

    return around


@decorated
def plainly_named(seed):
    return seed


def test_names_that_others_may_have():
    """A name must tell a function or a class from all others, or equal digests mean nothing."""
    assert digest(Holder(factory(1))) == digest(Holder(factory(2)))
    local = dataclasses.make_dataclass("Local", [("size", int, 3)], frozen=True)
    local.__qualname__ = "somewhere.<locals>.Local"
    for held in (factory(1), lambda seed: seed, Circle(1.0).__eq__, local(), (1, factory(1)), decorated(plainly_named)):
        assert list(nameless(Holder(held))) == ["Holder.held"], held
    assert list(nameless(Circle(factory(1)))) == ["Circle.radius"]
    for held in (math.sqrt, plainly_named, Circle, dict.fromkeys, np.float32, 3, Circle(1.0)):
        assert not list(nameless(Holder(held))), held
    assert to_plain(Holder(np.float32))["held"] == "numpy:float32"


def test_documented():
    settings = {setting.path: setting for setting in documented(Everything())}
    assert list(settings) == list(values(Everything()))
    expected = {
        "number": (3, "int", "How many."),
        "real": (0.5, "float", ""),
        "color": ("red", "red | dark blue | 3", ""),
        "maybe": (None, "int | none", ""),
        "row": ((1, 2), "int,...", ""),
        "pair": ((1, 2.0), "int,float", ""),
        "shape": ("Circle", "Circle | Square", "What it looks like."),
        "shape.radius": (1.0, "float", "In meters."),
        "any-shape": ("Square", "Shape", ""),
        "any-shape.side": (2.0, "float", "Length of each, in meters."),
    }
    for path, facts in expected.items():
        setting = settings[path]
        assert (setting.value, setting.type, setting.doc) == facts, path


def test_choices_are_those_of_settings_that_take_nothing_else():
    choices = {setting.path: setting.choices for setting in documented(Everything()) if setting.choices}
    assert choices == {"color": ("red", "dark blue", "3")}
    found = {setting.path: setting.choices for setting in documented(Mixed())}
    assert found == {"closed": ("red", "none"), "open": ()}


def test_parts_of_a_field_without_a_line_of_its_own_inherit_its_words():
    docs = {setting.path: setting.doc for setting in documented(JammedFamily())}
    assert docs["world.num-agents"].startswith("Where the tasks take place")
    docs = {setting.path: setting.doc for setting in documented(Maddpg())}
    assert docs["exploration"].startswith("Chance of a random action per agent")  # a choice of classes has its own line
    assert docs["target-rate"] == "Polyak step of the target nets per update."
    assert docs["actor-net.hidden"] == "Widths of the ReLU layers."


def test_fields_of_a_base_class_are_documented():
    @dataclass(frozen=True)
    class Disk(Circle):
        height: float = 1.0
        """Up."""

    assert [(setting.path, setting.doc) for setting in documented(Disk())] == [
        ("radius", "In meters."),
        ("height", "Up."),
    ]


def test_classes_without_source_are_merely_undocumented():
    made = dataclasses.make_dataclass("Made", [("size", int, 3)], frozen=True)
    assert [(setting.path, setting.doc) for setting in documented(made())] == [("size", "")]
    assert apply(made(), "size", "4").size == 4


REALS = st.floats(allow_nan=False)
WORDS = st.text("abc ", max_size=4).map(str.strip).filter(lambda word: word.lower() not in {"none", "null"})
INTEGERS = st.integers(-(10**25), 10**25)
SHAPES = st.builds(Circle, REALS) | st.builds(Square, REALS, st.tuples(INTEGERS, INTEGERS))
EVERYTHING = st.builds(
    Everything,
    flag=st.booleans(),
    number=INTEGERS,
    real=REALS,
    text=WORDS,
    name=st.none() | WORDS,
    color=st.sampled_from(["red", "dark blue", 3]),
    maybe=st.none() | st.integers(-9, 9),
    old_maybe=st.none() | REALS,
    row=st.lists(st.integers(-9, 9), max_size=3).map(tuple),
    words=st.lists(WORDS.filter(bool), max_size=3).map(tuple),
    pair=st.tuples(st.integers(-9, 9), REALS),
    either=st.integers(-9, 9) | st.just(0.5) | st.just("auto"),
    shape=SHAPES,
    any_shape=st.just(Square()),
    perhaps=st.none() | st.builds(Square, REALS),
    schedule=st.builds(Linear, REALS, REALS, REALS),
    needy=st.builds(Needy, st.integers(-9, 9)) | REALS,
)


@given(value=EVERYTHING)
def test_any_settings_can_be_written_down_and_read_back(value: Everything):
    frozen = ("any-shape", "function") if isinstance(value.needy, float) else ("any-shape", "function", "needy")
    start = Everything() if isinstance(value.needy, Needy) else Everything(needy=0.0)
    written = {path: to_text(entry) for path, entry in values(value).items() if path not in frozen}
    arguments = [f"--{path}={text}" for path, text in written.items()]
    read = apply_all(start, parse_arguments(arguments))
    assert read == value
    assert digest(read) == digest(value) and difference(read, value) == []
    assert json.loads(json.dumps(to_plain(read), allow_nan=False)) == to_plain(value)


@given(path=st.text(max_size=12), text=st.text(max_size=12))
def test_refusals_are_one_line(path: str, text: str):
    try:
        apply(Everything(), path, text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1


@dataclass(frozen=True)
class Trained:
    """Settings with a learner that only its contract describes."""

    learner: Learner = Mappo()


def test_a_learner_is_chosen_by_the_name_of_its_class():
    chosen = apply_all(Trained(), [("learner.trace", "0.5"), ("learner", "Maddpg")]).learner
    assert chosen == Maddpg(trace=0.5)
    with pytest.raises(
        UsageError, match=r"cannot use 'Circle'; expected .*Maddpg.*ValueDecomposition.*Maven or MODULE:CLASS"
    ):
        apply_all(Trained(), [("learner", "Circle")])


@dataclass(frozen=True)
class OwnNet:
    """Settings of a net that mesax does not know."""

    width: int = 3

    def build(self, inputs: int, outputs: int, key: object, head_gain: float = 1.0) -> object:
        """As wide as it is."""
        return Mlp((self.width,)).build(inputs, outputs, key, head_gain)


class Loose(OwnNet):
    """Not a setting."""

    def __init__(self, width: int):
        pass


def test_a_net_of_ones_own_is_named_by_its_module():
    changed = apply_all(Maddpg(), [("actor-net.width", "5"), ("actor-net", f"{__name__}:OwnNet")])
    assert changed == Maddpg(actor_net=OwnNet(5))
    assert apply(Maddpg(), "actor-update", "expected-gradient").actor_update == ExpectedGradient()


@pytest.mark.parametrize(
    "name, message",
    [
        ("Ball", f"'{__name__}:Ball' is no NetConfig: it has no build"),
        ("Loose", "cannot be built by its name: .*width"),
        ("Nothing", "has no 'Nothing'"),
    ],
)
def test_what_cannot_be_a_net_is_refused_in_one_line(name: str, message: str):
    with pytest.raises(UsageError, match=message):
        apply(Maddpg(), "actor-net", f"{__name__}:{name}")
