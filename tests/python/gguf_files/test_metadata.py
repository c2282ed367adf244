"""Typed metadata, as the gguf package writes and reads them."""

from __future__ import annotations

import copy
import pickle
import struct

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weightstore
import weightstore.numpy
from support.gguf_files import VALUE, array, entry, file, text
from weightstore import GgufValue

INTEGERS = {name: (f"{name}", *limits) for name, limits in {
    "UINT8": (0, 2**8 - 1), "INT8": (-(2**7), 2**7 - 1), "UINT16": (0, 2**16 - 1), "INT16": (-(2**15), 2**15 - 1),
    "UINT32": (0, 2**32 - 1), "INT32": (-(2**31), 2**31 - 1), "UINT64": (0, 2**64 - 1), "INT64": (-(2**63), 2**63 - 1),
}.items()}  # fmt: skip
KINDS = {
    **{name: st.integers(low, high) for name, low, high in INTEGERS.values()},
    "FLOAT32": st.floats(width=32),
    "FLOAT64": st.floats(),
    "BOOL": st.booleans(),
    "STRING": st.text(max_size=20),
}
SCALARS = st.one_of(*(st.tuples(values, st.just(name)) for name, values in KINDS.items()))
ARRAYS = st.one_of(
    *(st.tuples(st.lists(values, min_size=1, max_size=4), st.just(f"ARRAY[{name}]")) for name, values in KINDS.items())
)
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def same(a, b):
    return repr(a) == repr(b)


def saved(metadata):
    return weightstore.open(_bytes({}, metadata))


def _bytes(tensors, metadata):
    from weightstore import _core
    from weightstore._files.entries.metadata import core_metadata

    writer = _core.Writer()
    writer.set_typed_metadata(core_metadata(metadata))
    return writer.write_bytes("gguf")


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(KEYS, SCALARS | ARRAYS, max_size=5))
def test_what_is_written_is_read(tmp_path_factory, values):
    metadata = {key: GgufValue(*value) for key, value in values.items()}
    found = saved(metadata).metadata
    assert list(found) == list(metadata)
    for key, value in metadata.items():
        assert found.type_of(key) == value.type
        assert same(found[key], value.value)
    # The gguf package reads the same.
    path = tmp_path_factory.getbasetemp() / "metadata.gguf"
    path.write_bytes(_bytes({}, metadata) + bytes(32))
    fields = gguf.GGUFReader(path).fields
    assert same({key: fields[key].contents() for key in metadata}, {key: v.value for key, v in metadata.items()})
    # And a copy keeps the types.
    assert saved(found).metadata.typed() == found.typed() or "nan" in repr(found.typed())
    assert same(pickle.loads(pickle.dumps(found)).typed(), found.typed())


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("text", "STRING"), (True, "BOOL"), (1.5, "FLOAT32"), (0, "UINT32"), (2**32 - 1, "UINT32"), (-1, "INT32"),
        (2**32, "INT64"), (-(2**31) - 1, "INT64"), (2**63, "UINT64"), ([1, -1], "ARRAY[INT32]"),
        ([2**31], "ARRAY[UINT32]"), ([2**32, -1], "ARRAY[INT64]"), ([2**63], "ARRAY[UINT64]"), ([1.0], "ARRAY[FLOAT32]"),
        (["a"], "ARRAY[STRING]"), ([True], "ARRAY[BOOL]"), ([[1], ["a"]], "ARRAY[ARRAY[INT32]]"),
        (np.uint8(3), "UINT8"), (np.float64(3), "FLOAT64"), (np.bool_(True), "BOOL"),
        (np.arange(3, dtype=np.int16), "ARRAY[INT16]"), (("a", "b"), "ARRAY[STRING]"),
    ],
)  # fmt: skip
def test_values_tell_their_types(value, type):
    found = saved({"key": value}).metadata
    assert found.type_of("key") == type
    expected = value.tolist() if hasattr(value, "tolist") else list(value) if isinstance(value, tuple) else value
    assert found["key"] == expected


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([], weightstore.InvalidArgument, "an empty list does not tell its type"),
        ([1, "a"], TypeError, "the items of a list have one type"),
        ([True, 1], TypeError, "the items of a list have one type"),
        (2**64, weightstore.InvalidArgument, "does not fit 64 bits"),
        (1e300, weightstore.InvalidArgument, "FLOAT32 cannot represent 1e[+]300"),
        (None, TypeError, "NoneType is neither text"),
        ({"a": 1}, TypeError, "dict is neither text"),
        (GgufValue(256, "UINT8"), weightstore.InvalidArgument, "UINT8 cannot represent 256"),
        (GgufValue(-1, "UINT64"), weightstore.InvalidArgument, "UINT64 cannot represent -1"),
        (GgufValue(1, "INT128"), weightstore.InvalidArgument, "there is no type 'INT128'"),
        (GgufValue("a", "UINT8"), TypeError, "str is neither text"),
        (GgufValue([1, 300], "ARRAY[UINT8]"), weightstore.InvalidArgument, "UINT8 cannot represent 300"),
        (np.zeros((2, 2)), weightstore.InvalidArgument, "with 2 dimensions"),
        (np.complex64(1), weightstore.InvalidArgument, "complex64"),
    ],
)
def test_values_that_cannot_be_written(value, error, message):
    with pytest.raises(error, match=message):
        saved({"key": value})


def test_keys_that_cannot_be_written():
    for key, message in (("a\0b", "NUL"), ("k" * 65_536, "65535")):
        with pytest.raises(weightstore.InvalidArgument, match=message):
            saved({key: 1})
    with pytest.raises(TypeError, match="keys of metadata are str"):
        saved({1: 1})


def test_a_vocabulary_is_complete_and_lazy():
    tokens = [f"token {i} ä" for i in range(128_000)]
    scores = np.arange(128_000, dtype=np.float32)
    found = saved({"tokens": tokens, "scores": scores, "last": 7}).metadata
    assert found["tokens"] == tokens
    assert found["scores"] == scores.tolist()
    assert (found["last"], len(found), "tokens" in found, "none" in found) == (7, 3, True, False)
    assert repr(found) == "<Metadata of 3 entries>"
    with pytest.raises(KeyError):
        found["none"]


def test_text_that_is_not_utf8_keeps_its_bytes():
    data = file([entry("t", VALUE.STRING, text(b"a\xffb")), entry("n", VALUE.INT8, struct.pack("b", -3))])
    found = weightstore.open(data).metadata
    assert found["t"].encode("utf-8", "surrogateescape") == b"a\xffb"
    assert _bytes({}, found)[:24] + _bytes({}, dict(found))[:24] == data[:24] * 2
    assert weightstore.open(_bytes({}, dict(found))).metadata["t"] == found["t"]


def test_nested_arrays():
    inner = [array(VALUE.STRING, 2, text("a") + text("b")), array(VALUE.INT8, 1, b"\x05"), array(VALUE.INT8, 0, b"")]
    found = weightstore.open(file([entry("n", VALUE.ARRAY, array(VALUE.ARRAY, 3, b"".join(inner)))])).metadata
    assert found["n"] == [["a", "b"], [5], []]
    assert found.type_of("n") == "ARRAY[ARRAY[STRING]]"
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), copy.copy(found)):
        assert again == found
        assert _bytes({}, again) == _bytes({}, found)


def test_inspect_shows_metadata(capsys, tmp_path):
    from weightstore._cli.main import main

    path = tmp_path / "m.gguf"
    path.write_bytes(_bytes({}, {"general.name": "tiny", "tokens": [f"t{i}" for i in range(1000)], "n": 5}))
    assert main(["inspect", str(path)]) == 0
    shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    for row in (["general.name", "tiny"], ["n", "5"], ["tokens", "ARRAY[STRING] of 1000"]):
        assert row in [[cell.strip() for cell in line] for line in shown]
