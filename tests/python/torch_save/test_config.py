"""What a torch.save() file holds beside tensors."""

from __future__ import annotations

import collections
import dataclasses
import enum
import io
import json
import math
import pickle
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weightstore
from weightstore import InvalidArgument, LimitError, PytorchError, TensorNotFound, read_config

torch = pytest.importorskip("torch")


def save(value, protocol: int = 2, zipped: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


CHECKPOINT = {
    "config": {
        "name": "net",
        "layers": [{"kind": "conv", "size": (3, 3)}, {"kind": "linear", "size": (7,)}],
        "rate": 0.5,
        "debug": False,
        "limit": None,
        "by number": {0: "a", -3: "b"},
        "dotted.key": {"inner": 5},
    },
    "weights": {"w": torch.zeros(2)},
    "large": 2**63,
    "least": -(2**63),
    "bytes": b"\x00\x7f\x80\xff",
    "set": {1},
    "shape": torch.Size([2, 3]),
    "dtype": torch.bfloat16,
    "device": torch.device("cuda", 1),
    "ordered": collections.OrderedDict(z=1, a=2),
    "count": collections.Counter("aab"),
    "complex": 1 + 2j,
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("zipped", [True, False])
def test_everything_is_plain_data(protocol, zipped):
    value = read_config(save(CHECKPOINT, protocol, zipped))
    assert value["config"] == {
        **CHECKPOINT["config"],
        "layers": [{"kind": "conv", "size": [3, 3]}, {"kind": "linear", "size": [7]}],
    }
    assert value["weights"] == {"w": None}
    assert (value["large"], value["least"]) == (2**63, -(2**63))
    assert value["bytes"] == b"\x00\x7f\x80\xff"
    assert value["set"] == [1]
    assert value["shape"] == [2, 3]
    assert (value["dtype"], value["device"]) == ("torch.bfloat16", "cuda:1")
    assert list(value["ordered"].items()) == [("z", 1), ("a", 2)]
    assert value["count"] == {"a": 2, "b": 1}
    assert value["complex"] == [1.0, 2.0]


@pytest.mark.parametrize("protocol", [2, 4])
def test_tuples_are_keys(protocol):
    value = {(1, 2): "a", (1, ("x", b"y"), ()): "b", "list": [(1, 2)]}
    expected = {(1, 2): "a", (1, ("x", b"y"), ()): "b", "list": [[1, 2]]}
    assert read_config(save(value, protocol)) == expected


def test_frozensets_are_keys_and_elements():
    value = {frozenset([7]): "a", "set": {frozenset([3])}}
    assert read_config(save(value, 4)) == {(7,): "a", "set": [[3]]}


def test_keys_that_plain_data_cannot_tell_apart_are_refused():
    with pytest.raises(PytorchError, match=r"two keys .* \(1,\)"):
        read_config(save({(1,): 2, frozenset([1]): 3}, 4))


def test_a_million_numbers_are_plain_data():
    numbers = [i % 256 for i in range(1_000_000)]
    data = save({"numbers": numbers, "flags": [True, False] * 500_000})
    assert len(data) < 4_000_000
    value = read_config(data)
    assert value["numbers"] == numbers
    assert len(value["flags"]) == 1_000_000
    assert list(weightstore.open(data)) == []


def test_python_objects_far_larger_than_the_file_are_refused():
    data = save([[] for _ in range(1_000_000)], 4)
    assert list(weightstore.open(data)) == []
    with pytest.raises(LimitError, match=r"may take \d+. Read a part"):
        read_config(data)
    assert read_config(data, "999999") == []


def test_keys_pick_parts(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(CHECKPOINT, path)
    for key, expected in {
        "config.rate": 0.5,
        "config.layers.1.kind": "linear",
        "config.layers.0.size.1": 3,
        "config.by number.-3": "b",
        "config.dotted.key.inner": 5,
        "config.dotted.key": {"inner": 5},
        "ordered.a": 2,
        "config.limit": None,
    }.items():
        assert read_config(path, key) == expected
        assert read_config(str(path), key) == expected
    for key in ("nothing", "config.layers.2", "config.layers.x", "config.rate.0", "weights.w.0", "."):
        with pytest.raises(TensorNotFound, match="no key") as caught:
            read_config(path, key)
        assert isinstance(caught.value, PytorchError)
        assert caught.value.path == str(path)


class Kind(enum.Enum):
    CONV = "conv"
    LINEAR = "linear"


@dataclasses.dataclass
class Layer:
    kind: Kind
    size: tuple[int, ...]


@dataclasses.dataclass
class Config:
    name: str
    layers: list[Layer]
    rate: float
    limit: int | None
    missing: str = "default"
    by_number: dict[int, str] = dataclasses.field(default_factory=dict)


def test_into_a_dataclass():
    config = read_config(save(CHECKPOINT), "config", into=Config)
    assert config == Config("net", [Layer(Kind.CONV, (3, 3)), Layer(Kind.LINEAR, (7,))], 0.5, None)
    assert read_config(save({"name": "n", "layers": [], "rate": 2, "limit": 4}), into=Config).rate == 2.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"name": "n", "layers": [], "rate": 1.0}, "limit"),
        ({"name": 3, "layers": [], "rate": 1.0, "limit": None}, "name"),
        ({"name": "n", "layers": 5, "rate": 1.0, "limit": None}, "layers"),
        ({"name": "n", "layers": [], "rate": True, "limit": None}, "rate"),
        ({"name": "n", "layers": [], "rate": 1.0, "limit": "x"}, "limit"),
        ({"name": "n", "layers": [{"kind": "pool", "size": ()}], "rate": 1.0, "limit": 1}, r"layers\.0\.kind"),
        ([1, 2], "Config"),
    ],
)
def test_what_does_not_fit_is_named(value, text):
    with pytest.raises(InvalidArgument, match=text):
        read_config(save(value), into=Config)


def test_objects_are_refused_or_none():
    data = save({"a": 1, "object": collections.UserDict(k=1)})
    with pytest.raises(PytorchError, match="UserDict"):
        read_config(data, opaque="error")
    assert read_config(data) == {"a": 1, "object": None}
    with pytest.raises(InvalidArgument, match="opaque"):
        read_config(data, opaque="maybe")


def test_integers_beyond_64_bits_are_said_to_be():
    with pytest.raises(PytorchError, match="integer"):
        read_config(save({"n": 2**64}))
    assert read_config(save({"n": 2**64, "k": 1}), "k") == 1


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-(2**63), 2**63 - 1), inner),
    max_leaves=30,
)


def equal(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@settings(max_examples=300, deadline=None)
@given(plain, st.sampled_from([2, 3, 4, 5]))
def test_any_plain_data_comes_back(value, protocol):
    assert equal(read_config(archive(pickle.dumps(value, protocol))), value)


def archive(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/version", "3\n")
    return stream.getvalue()


def test_a_file_without_tensors_opens_empty():
    with weightstore.open(archive(pickle.dumps([1, 2]))) as file:
        assert len(file) == 0
        assert file.metadata == {}


@pytest.mark.parametrize(
    "value",
    [
        {"tags": [["O", "B-PER", "I-PER", "O"]] * 20_000},
        {"labels": ["cat", "dog"] * 30_000},
        [(0, 1)] * 50_000,
        [{"epoch": i, "ok": True} for i in range(20_000)],
    ],
    ids=["tags", "labels", "pairs", "records"],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_plain_data_that_repeats_itself(tmp_path, value, zipped):
    path = tmp_path / "c.pt"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    assert read_config(path) == json.loads(json.dumps(value))  # tuples become lists
