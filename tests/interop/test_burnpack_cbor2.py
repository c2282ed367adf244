"""Burnpack against a second writer and reader, made here from the format's description on top of cbor2."""

from __future__ import annotations

import hashlib
import math
import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weightstore

cbor2 = pytest.importorskip("cbor2")

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "Flex32": 32, "I64": 64, "I32": 32, "I16": 16, "I8": 8}
BITS |= {"U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8}
BOOLS = {"0.20": {"BOOL": "Bool"}, "0.21": {name: {"Bool": kind} for name, kind in
         (("BOOL", "Native"), ("BoolU8", "U8"), ("BoolU32", "U32"))}}  # fmt: skip
BOOLS["0.22"] = BOOLS["0.21"]


# ---- the second implementation ----------------------------------------------------------------------------------------


def dump(value: object) -> bytes:
    """Maps keep their order, floats are the shortest that hold the value."""
    if isinstance(value, dict):
        head = cbor2.dumps([0] * len(value))[: -len(value) or None]  # of an array; a map's differs in one bit
        return bytes([head[0] | 0x20]) + head[1:] + b"".join(dump(k) + dump(v) for k, v in value.items())
    return cbor2.dumps(value, canonical=isinstance(value, float))


def align(n: int) -> int:
    return -(-n // 256) * 256


def by_key(items: dict) -> dict:
    return dict(sorted(items.items(), key=lambda item: item[0].encode()))


def pack(tensors, *, metadata=None, scalars=None, ids=None, burn="0.20", aligned=True, root=None) -> bytes:
    """A file of ``{name: (dtype, shape, bytes)}``; a dtype that is no text is taken as the descriptor has it."""
    place = align if aligned else int
    index, data = {}, b""
    for name, (dtype, shape, payload) in tensors.items():
        data = data.ljust(place(len(data)), b"\0")
        stored = BOOLS[burn].get(dtype, dtype) if isinstance(dtype, str) else dtype
        index[name] = {"dtype": stored, "shape": list(shape), "data_offsets": [len(data), len(data) + len(payload)]}
        if name in (ids or {}):
            index[name]["param_id"] = ids[name]
        data += payload
    root = {"tensors": by_key(index)} if root is None else root
    if metadata:
        root["metadata"] = by_key(metadata)
    if scalars:
        root["scalars"] = by_key({name: {scalar_kind(value): value} for name, value in scalars.items()})
    encoded = dump(root)
    header = b"NRUB\x01\x00" + len(encoded).to_bytes(4, "little") + encoded
    return header.ljust(place(len(header)), b"\0") + data


def scalar_kind(value: object) -> str:
    if isinstance(value, (bool, float)):
        return type(value).__name__.title()
    return "Int" if value < 2**63 else "UInt"


def unpack(file: bytes) -> dict:
    size = int.from_bytes(file[6:10], "little")
    root = cbor2.loads(file[10 : 10 + size])
    start = align(10 + size)
    found = {}
    for name, entry in root["tensors"].items():
        begin, end = entry["data_offsets"]
        found[name] = (entry["dtype"], tuple(entry["shape"]), file[start + begin : start + end])
    return found


# ---- generated files --------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
SETS = st.dictionaries(
    TEXT,
    st.tuples(
        st.sampled_from(sorted(BITS)),
        st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=5),
        st.one_of(st.none(), st.sampled_from([0, 23, 24, 255, 2**16, 2**32, 2**64 - 1])),
    ),
    max_size=6,
)
FLOATS = st.one_of(st.floats(), st.floats(width=16)).map(lambda x: math.nan if x != x else x)
SCALARS = st.dictionaries(TEXT, st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), FLOATS), max_size=4)
MANY = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def fill(described: dict, seed: int) -> dict:
    rng = random.Random(seed)
    return {
        name: (dtype, tuple(shape), rng.randbytes(math.prod(shape) * BITS[dtype] // 8))
        for name, (dtype, shape, _) in described.items()
    }


@MANY
@given(SETS, st.dictionaries(TEXT, TEXT, max_size=4), SCALARS, st.sampled_from(sorted(BOOLS)), st.integers(0, 99))
def test_bytes_are_those_of_the_second_writer(write_raw, contents, described, metadata, scalars, burn, seed):
    tensors = fill(described, seed)
    ids = {name: number for name, (_, _, number) in described.items() if number is not None}
    expected = pack(tensors, metadata=metadata, scalars=scalars, ids=ids, burn=burn)
    ours = write_raw(tensors, "burnpack", metadata=metadata, scalars=scalars, ids=ids, burn=burn)
    assert ours == expected
    assert {n: t[1:] for n, t in unpack(ours).items()} == {n: t[1:] for n, t in tensors.items()}
    with weightstore.open(ours) as file:
        assert file.format == "burnpack"
        assert contents(file) == tensors
        assert {name: file[name].param_id for name in file if file[name].param_id is not None} == ids
        assert file.metadata == metadata
        assert repr(file.scalars) == repr(by_key(scalars))


@MANY
@given(SETS, st.integers(0, 99))
def test_packed_files_of_0_19_are_read_right(contents, described, seed):
    tensors = fill(described, seed)
    with weightstore.open(pack(tensors, metadata={"version": "0.19.1"}, aligned=False)) as file:
        assert contents(file) == tensors


# ---- golden vectors ---------------------------------------------------------------------------------------------------


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


SQUARE = ("F32", (2, 2), floats(1, 2, 3, 4))
GOLDEN = {
    "V1": ({}, {}, "d51cafc1a9901c1d26d289a9e29457bb4bb041f704ee783577e890d516927813"),
    "V2": ({"w": SQUARE}, {}, "314beaf2c3157567ec82f81b17c197a7beaadc7b1629beecbee96ef77b1ecd0f"),
    "V3": (
        {"weight": SQUARE},
        {"ids": {"weight": 7}},
        "b9fbbe259a878cd6ead568e05235861664e9bec96f55b116d42f8bdd1de9692d",
    ),
    "V4": (
        {
            "zebra": ("F32", (5,), floats(*range(100, 105))),
            "alpha": ("F32", (3,), floats(0, 1, 2)),
            "mango": ("F32", (7,), floats(*range(50, 57))),
        },
        {},
        "d18702f3b9f72d384752dfd47e85b9e346ccc241730d7e4659c4125e5371fc41",
    ),
    "V5": (
        {"tensor1": ("U8", (4,), bytes([1, 2, 3, 4])), "tensor2": ("U8", (4,), bytes([5, 6, 7, 8]))},
        {},
        "d882c6d35d5c9a3bd9b9228c31f7c06c63f2773b9115009d54834e3ec641dda0",
    ),
    "V6": (
        {"a": ("U8", (3,), bytes([1, 2, 3])), "z": ("F32", (0, 10), b"")},
        {},
        "f95626d9fdaf44f502745384729236056b7c13ec807d070ac25ceaf76df8449d",
    ),
    "V7": (
        {},
        {"metadata": {"format": "burnpack", "producer": "burn", "version": "0.20.0"}},
        "604efe90c903e0527505d0e057b0321bc9e26cfe442b97d7029cad93c0ccf30e",
    ),
    "V9a": (
        {"m": ("BOOL", (3,), b"\1\0\1")},
        {"burn": "0.20"},
        "3af97779e60ea8025ca2165a949e8d705ab2ae8807df984d21d9b575400cf570",
    ),
    "V9b": (
        {"m": ("BOOL", (3,), b"\1\0\1")},
        {"burn": "0.21"},
        "88615f4394efea905a7f1c122e2843716da75f256db0aa68ceb8e2bf3ad8a65f",
    ),
    "V10": ({"s": ("F32", (), floats(42))}, {}, "3fb39c0610e411fce5e81f981d374caa3ef59097f7515d3f6ea24e3006dc0d44"),
}


@pytest.mark.parametrize("vector", GOLDEN)
def test_golden_vector(write_raw, contents, vector):
    tensors, options, digest = GOLDEN[vector]
    ours = write_raw(tensors, "burnpack", **options)
    assert hashlib.sha256(ours).hexdigest() == digest
    with weightstore.open(ours) as file:
        assert contents(file) == tensors


def test_golden_vector_8_with_an_unsigned_scalar(tmp_path):
    """Python has one kind of integer, so the unsigned 42 comes out of a file."""
    root = {"tensors": {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}}
    root["scalars"] = {"flag": {"Bool": True}, "offset": {"Int": -3}, "step": {"UInt": 42}}
    data = pack({"w": ("F32", (1,), floats(1))}, root=root)
    assert hashlib.sha256(data).hexdigest() == "64c91b7c05b243f645f2ec2ea1838546da66b07316532099ef7fd72a5098a910"
    (tmp_path / "v8.bpk").write_bytes(data)
    weightstore.convert(tmp_path / "v8.bpk", tmp_path / "copy.bpk")
    assert (tmp_path / "copy.bpk").read_bytes() == data
    assert weightstore.open(data).scalars == {"flag": True, "offset": -3, "step": 42}


def test_a_real_file_is_reproduced(testdata, tmp_path):
    source = testdata / "fixtures/burnpack/mnist.bpk"
    data = source.read_bytes()
    assert hashlib.sha256(data).hexdigest() == "b63e660152b3865b1b630c97af6df1fcbc04206648d3a03b3636fcc795ecc472"
    weightstore.convert(source, tmp_path / "copy.bpk")
    assert (tmp_path / "copy.bpk").read_bytes() == data
    with weightstore.open(source) as file:
        assert {name: ("F32", t.shape, t.bytes()) for name, t in file.items()} == unpack(data)
        assert file["conv1.conv.bias"].param_id == 9505838338724798577
        assert struct.unpack("<2f", file["fc3.bias"].bytes()[:8]) == pytest.approx((0.51002616, -0.19103652))


def scheme_files() -> dict:
    old = {"value": "Q8S", "param": "F32", "store": "Native", "level": "Tensor", "mode": "Symmetric"}
    block = {"storage": [32, 1, 1, 1, 1], "len": 1}
    new = {"value": "Q4F", "store": {"PackedU32": 0}, "mode": "Symmetric", "tensor": None, "block": None}
    return {
        "0.20": (old, (2, 64), 132),
        "0.20 packed": (old | {"value": "Q8F", "store": {"PackedU32": 0}}, (4, 4), 20),
        "0.20 block": (old | {"level": {"Block": block}}, (2, 64), 144),
        "0.22": (new, (3, 3), 16),
        "0.22 block": (new | {"block": {"size": block, "dtype": "F16"}}, (4, 64), 144),
    }


@pytest.mark.parametrize("name", scheme_files())
def test_quantized_tensors_are_carried_as_they_are(tmp_path, name):
    scheme, shape, size = scheme_files()[name]
    payload = random.Random(name).randbytes(size)
    data = pack({"q": ({"QFloat": scheme}, shape, payload), "w": SQUARE})
    (tmp_path / "q.bpk").write_bytes(data)
    with weightstore.open(tmp_path / "q.bpk") as file:
        assert (file["q"].dtype, file["q"].shape, file["q"].bytes()) == ("QFloat", shape, payload)
    weightstore.convert(tmp_path / "q.bpk", tmp_path / "copy.bpk")
    assert (tmp_path / "copy.bpk").read_bytes() == data


def test_both_wide_booleans_of_0_21_are_read(contents):
    tensors = {"a": ("BoolU8", (2,), b"\0\1"), "b": ("BoolU32", (2,), bytes([1, 0, 0, 0] * 2))}
    with weightstore.open(pack(tensors, burn="0.21")) as file:
        assert contents(file) == tensors
        assert file["b"].numpy().tolist() == [True, True]
