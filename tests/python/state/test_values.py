"""What save_state() saves, load_state() returns: types, order and bits."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import weightstore
from support.state_equality import assert_same
from weightstore import InvalidArgument, load_state, register_state_type, save_state


@pytest.fixture
def trip(tmp_path):
    def there_and_back(state):
        save_state(tmp_path / "state.safetensors", state, durable=False)
        return load_state(tmp_path / "state.safetensors")

    return there_and_back


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    epoch: int
    seen: list
    where: Colour = Colour.RED


for each in (Colour, Access, Position):
    register_state_type(each, f"test.{each.__name__}")


SCALARS = [
    None, True, False, 0, -1, 2**53, 2**53 + 1, -(2**63), 2**64, -(2**4000), 10**5000,
    0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan"), float.fromhex("-0x1p-1074"),
    1j, complex("nan-infj"), "", "text", "\0\n\x1b[31m", "\ud800 alone", "naïve 😀", "&", b"", b"\0\xff",
    Colour.RED, Colour.BLUE, Access.READ, Access.READ | Access.WRITE, Access(0),
    np.float32(1.5), np.float64("nan"), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.complex128(1 - 2j),
    np.str_("né"), np.str_(""), np.bytes_(b"a"), np.datetime64("2026-11-18"), np.timedelta64(3, "ms"), np.float16(2),
    np.dtype("float32"), np.dtype(">i4"), np.dtype("U3"),
]  # fmt: skip


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_scalars(trip, value):
    assert_same(trip(value), value)
    assert_same(trip({"a": [value, (value,)]}), {"a": [value, (value,)]})


def test_containers(trip):
    state = {
        "dict": {
            1: "int",
            "1": "str",
            None: 0,
            (1, ("a", 2.5)): 1,
            2.5: [],
            b"k": (),
            Colour.RED: 1,
            frozenset({1}): 2,
        },
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
        "default": collections.defaultdict(list, {3: [4]}),
        "default of nothing": collections.defaultdict(None, {1: 2}),
        "counter": collections.Counter("mississippi"),
        "sets": [set(), {1, (2, 3)}, frozenset({"a", b"a", None})],
        "empty": [[], (), {}, "", b""],
        "dataclass": Position(3, [1, {"x": (2,)}], Colour.BLUE),
    }
    assert_same(trip(state), state)


def test_attributes_of_an_ordered_dict(trip):
    state = collections.OrderedDict(w=1)
    state._metadata = collections.OrderedDict({"": {"version": 2}})
    assert trip(state)._metadata == {"": {"version": 2}}


ARRAYS = [
    np.arange(6, dtype=np.int16).reshape(2, 3), np.zeros((0, 4)), np.array(3.0), np.arange(6.0)[::-2],
    np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([1 + 2j, 3]), np.array([1 + 2j], np.complex64),
    np.array(["a", "bcd"]), np.array([b"x", b"yz"]), np.array(["2026-01-01"], "M8[D]"), np.arange(3, dtype=">i4"),
    np.array([1.5], np.longdouble), np.array([True, False]), np.zeros((2, 0), "U1"), np.array([], "U"), np.array(["", ""]),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
def test_arrays(trip, array):
    found = trip([array])[0]
    assert_same(found, array)
    assert found.flags.f_contiguous == array.flags.f_contiguous or not array.flags.c_contiguous
    assert found.flags.writeable


KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=2),
    max_leaves=4,
)
VALUES = st.recursive(
    KEYS
    | st.complex_numbers()
    | hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4).map(collections.OrderedDict)
        | st.sets(KEYS, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_any_state(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    save_state(path, state, durable=False)
    assert_same(load_state(path), state)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
@pytest.mark.parametrize(
    "numbers", [range(-5, 2000), range(2**63 - 5, 2**63 + 2000), [x / 7 for x in range(3000)]], ids=["i", "u", "f"]
)
def test_many_numbers_are_a_tensor(tmp_path, kind, numbers):
    state = {"sampler": {"order": kind(numbers)}}
    save_state(tmp_path / "s", state)
    with weightstore.open(tmp_path / "s") as file:
        assert list(file) == ["sampler.order"]
        assert len(file["sampler.order"].shape) == 1
    assert_same(load_state(tmp_path / "s"), state)


def test_many_numbers_that_no_tensor_holds(trip):
    state = [[2**70] * 1001, [1, 2.5] * 600, [True] * 1001, [1, True] * 600, list(range(1000)), [None] * 1001]
    assert_same(trip(state), state)


def test_long_text_and_bytes_are_tensors(tmp_path):
    state = {"log": "é\ud800" * 5000, "blob": random.Random(0).randbytes(10_000), "short": "é"}
    save_state(tmp_path / "s", state)
    with weightstore.open(tmp_path / "s") as file:
        assert list(file) == ["blob", "log"]
    assert_same(load_state(tmp_path / "s"), state)


def test_any_depth(trip):
    state = leaf = []
    for i in range(20_000):
        inner = {"k": (i,)} if i % 2 else []
        leaf.append(inner) if isinstance(leaf, list) else leaf.update(next=inner)
        leaf = inner
    leaf.update(array=np.arange(3)) if isinstance(leaf, dict) else leaf.append(np.arange(3))
    assert_same(trip(state), state)


def test_shared_containers_stay_shared(trip):
    inner = [1]
    found = trip({"a": inner, "b": (inner, inner), "c": [inner]})
    assert found["a"] is found["b"][0] is found["b"][1] is found["c"][0]


def test_many_paths_to_one_value_cost_nothing(trip):
    state = [0]
    for _ in range(100):
        state = [state, state]
    assert trip(state)[0] is not None  # 2^100 paths


def test_names_of_tensors(tmp_path):
    ones = [np.full(1, i) for i in range(8)]
    state = {
        "optimizer": {"state": {0: {"exp_avg": ones[0]}, "0": {"exp_avg": ones[1]}}},
        "optimizer.state": {"0.exp_avg": ones[2]},
        "__metadata__": ones[3],
        "list": [ones[4], (ones[5],)],
        ("a", 1): ones[6],
        "x" * 5000: ones[7],
    }
    save_state(tmp_path / "s", state)
    names = [
        "optimizer.state.0.exp_avg",
        "optimizer.state.0.exp_avg~2",
        "optimizer.state.0.exp_avg~3",
        "__metadata__~2",
    ]
    names += ["list.0", "list.1.0", "('a', 1)", "~" + "x" * 200]
    with weightstore.open(tmp_path / "s") as file:
        assert {name: file[name].numpy()[0] for name in file} == {name: i for i, name in enumerate(names)}
    assert_same(load_state(tmp_path / "s"), state)


def test_stock_safetensors_reads_the_tensors(tmp_path):
    stock = pytest.importorskip("safetensors.numpy")
    save_state(tmp_path / "s", {"model": {"w": np.arange(3.0)}, "step": 7})
    assert stock.load_file(tmp_path / "s")["model.w"].tolist() == [0, 1, 2]


@dataclasses.dataclass
class Unregistered:
    x: int = 0


class Subclass(dict):
    pass


class Other(enum.Enum):
    A = 1


REFUSED = {
    "function": lambda: 0,
    "module": sys,
    "subclass": Subclass(),
    "generator": (x for x in ()),
    "object array": np.array([None, {}], dtype=object),
    "structured": np.zeros(2, "i4,f8"),
    "masked": np.ma.masked_array([1, 2], [0, 1]),
    "object": object(),
    "range": range(3),
    "bytearray": bytearray(b"x"),
    "lambda factory": collections.defaultdict(lambda: 0),
    "dataclass": Unregistered(),
    "enum": Other.A,
    "class": int,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_saved_is_named(tmp_path, kind):
    target = tmp_path / "s"
    with pytest.raises(InvalidArgument, match=r"'extra\.3\.deep' is a .*cannot hold"):
        save_state(target, {"extra": [1, 2, 3, {"deep": REFUSED[kind]}]})
    assert not target.exists()


@pytest.mark.parametrize("kind", ["dataclass", "enum"])
def test_the_remedy_for_types(tmp_path, kind):
    with pytest.raises(InvalidArgument, match="register_state_type"):
        save_state(tmp_path / "s", REFUSED[kind])


def test_keys_that_cannot_be_saved(tmp_path):
    with pytest.raises(InvalidArgument, match=r"'a\.\(key\)' is a object"):
        save_state(tmp_path / "s", {"a": {object(): 1}})
    deep = ()
    for _ in range(60):
        deep = (deep,)
    with pytest.raises(InvalidArgument, match="at most 50 levels"):
        save_state(tmp_path / "s", {deep: 1})


def test_cycles(tmp_path):
    state = {"a": []}
    state["a"].append({"b": state})
    with pytest.raises(InvalidArgument, match=r"contains itself at 'a\.0\.b'"):
        save_state(tmp_path / "s", state)


def test_registration():
    with pytest.raises(TypeError, match="an enum or a dataclass"):
        register_state_type(dict)
    register_state_type(Unregistered, "test.Renamed")
    with pytest.raises(ValueError, match=r"'test\.Renamed' is registered for"):
        register_state_type(Other, "test.Renamed")

    again = dataclasses.make_dataclass("Unregistered", ["x"])
    again.__module__, again.__qualname__ = Unregistered.__module__, Unregistered.__qualname__
    assert register_state_type(again, "test.Renamed") is again  # a notebook's cell, run twice


def test_a_dataclass_that_changed(tmp_path):
    register_state_type(dataclasses.make_dataclass("Old", ["x", "y"]), "test.Versioned")
    old = dataclasses.make_dataclass("Saved", ["x", "y"])
    register_state_type(old, "test.Saved")
    save_state(tmp_path / "s", {"p": old(1, 2)})
    text = weightstore.open(tmp_path / "s").metadata["weightstore.state"]
    assert json.loads(text)["nodes"][0][:2] == ["dataclass", "test.Saved"]
    new = dataclasses.make_dataclass("Saved", ["x", "z"])
    new.__module__, new.__qualname__ = old.__module__, old.__qualname__
    register_state_type(new, "test.Saved")
    with pytest.raises(weightstore.FormatError, match="fields of Saved have changed since it was saved: y, z"):
        load_state(tmp_path / "s")


def test_random_generators(trip):
    generator = random.Random(3)
    numpy_generators = [np.random.default_rng(1), np.random.Generator(np.random.MT19937(2))]
    legacy = np.random.RandomState(5)
    state = trip(
        {
            "python": generator.getstate(),
            "numpy": [each.bit_generator.state for each in numpy_generators],
            "legacy": legacy.get_state(),
        }
    )
    expected = [generator.random(), *(each.random() for each in numpy_generators), legacy.rand()]
    generator.setstate(state["python"])
    for each, saved in zip(numpy_generators, state["numpy"], strict=True):
        each.bit_generator.state = saved
    legacy.set_state(state["legacy"])
    assert [generator.random(), *(each.random() for each in numpy_generators), legacy.rand()] == expected


def test_torch_is_not_imported_for_a_state_without_it(tmp_path):
    code = (
        "import sys, weightstore\n"
        f"weightstore.save_state({str(tmp_path / 's')!r}, {{'a': list(range(2000)), 'b': 2.5}})\n"
        f"assert weightstore.load_state({str(tmp_path / 's')!r})['b'] == 2.5\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_overwriting(tmp_path):
    save_state(tmp_path / "s", 1)
    save_state(tmp_path / "s", 2)
    with pytest.raises(weightstore.ConflictError):
        save_state(tmp_path / "s", 3, overwrite=False)
    assert load_state(tmp_path / "s") == 2


def test_too_many_plain_values(tmp_path):
    with pytest.raises(weightstore.LimitError, match="plain values of the state are too many"):
        save_state(tmp_path / "s", ["x" * 4000] * 26_000)
    assert not (tmp_path / "s").exists()
