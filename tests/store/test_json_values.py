"""JSON values: what can be written, what is accepted, and nested settings on one level."""

import pytest

from mesax.algorithms.coordinated import JointImprovement
from mesax.algorithms.maddpg import Maddpg
from mesax.store.json_values import flatten, parse_object
from mesax.store.settings import to_plain


def test_nested_settings_on_one_level():
    net = {"type": "Mlp", "hidden": [8, 8]}
    settings = {"type": "Learner", "discount": 0.9, "actor_net": net, "none": None, "deep_er": {"a": {"b_c": 1}}}
    assert flatten(settings) == {
        "type": "Learner",
        "discount": 0.9,
        "actor-net": "Mlp",
        "actor-net.hidden": [8, 8],
        "none": None,
        "deep-er.a.b-c": 1,
    }
    assert flatten({}) == {}


def test_paths_are_those_of_the_command_line():
    flat = flatten(to_plain(Maddpg(actor_update=JointImprovement(margin=0.2))))
    assert (flat["actor-update"], flat["actor-update.margin"]) == ("JointImprovement", 0.2)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1} x', b"{'a': 1}"])
def test_what_is_no_json(data: bytes):
    with pytest.raises(ValueError, match=r"^is not valid JSON: "):
        parse_object(data)


@pytest.mark.parametrize("data", [b"[]", b"3", b"null", b'"text"'])
def test_what_is_no_object(data: bytes):
    with pytest.raises(ValueError, match=r"^is not a JSON object$"):
        parse_object(data)


@pytest.mark.parametrize(("left", "right", "levels"), [(b'{"a":', b"}", 64), (b'{"a":[', b"]}", 32)])
def test_nesting_is_bounded(left: bytes, right: bytes, levels: int):
    assert parse_object(left * levels + b"1" + right * levels)
    for more in (levels + 1, 1_000, 200_000):
        with pytest.raises(ValueError, match=r"^is not accepted: it is nested more than 64 deep$"):
            parse_object(left * more + b"1" + right * more)


def test_many_values_side_by_side_are_not_deep():
    assert len(parse_object(b'{"a": [' + b",".join([b"[1]"] * 1_000) + b"]}")["a"]) == 1_000
