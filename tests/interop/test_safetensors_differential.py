"""Generated tensor sets, both ways against the safetensors package: its bytes are ours, and each reads the other's."""

from __future__ import annotations

import ctypes
import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

safetensors = pytest.importorskip("safetensors")

import weightstore  # noqa: E402
from weightstore import compat  # noqa: E402

# The file's name of a type, the name that serialize() takes, and the bits of an element. None: the reference reads the
# type, but has no name to write it by.
TYPES = {
    "BOOL": ("bool", 8),
    "F4": ("float4_e2m1fn_x2", 4),
    "F6_E2M3": (None, 6),
    "F6_E3M2": (None, 6),
    "U8": ("uint8", 8),
    "I8": ("int8", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "I16": ("int16", 16),
    "U16": ("uint16", 16),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "I32": ("int32", 32),
    "U32": ("uint32", 32),
    "F32": ("float32", 32),
    "C64": ("complex64", 64),
    "F64": ("float64", 64),
    "I64": ("int64", 64),
    "U64": ("uint64", 64),
}
WRITABLE = [dtype for dtype, (name, _) in TYPES.items() if name]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.one_of(
    TEXT,
    st.sampled_from(
        ["", "\0", '"', "\\", "/", "\x7f", "a\nb", "\u2028", "é", "\U0001f600", "__metadata_", "weight", "a.b"]
    ),
).filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.sampled_from([0, 1, 1, 2, 3]), max_size=8)


def tensor_sets(dtypes: list[str]) -> st.SearchStrategy:
    return st.dictionaries(NAMES, st.tuples(st.sampled_from(dtypes), SHAPES), max_size=6)


def fill(described: dict, seed: int) -> dict:
    """``{name: (dtype, shape, bytes)}``, with shapes that end on a whole byte."""
    rng = random.Random(seed)
    tensors = {}
    for name, (dtype, dims) in described.items():
        bits = TYPES[dtype][1]
        shape = [*dims, math.lcm(bits, 8) // bits] if bits < 8 else list(dims)
        tensors[name] = (dtype, tuple(shape), rng.randbytes(math.prod(shape) * bits // 8))
    return tensors


def specs(module, tensors: dict, keep: list) -> dict:
    """The arguments of serialize(): raw memory, which `keep` keeps alive."""
    result = {}
    for name, (dtype, shape, data) in tensors.items():
        buffer = ctypes.create_string_buffer(data, max(len(data), 1))
        keep.append(buffer)
        if dtype == "F4":  # given as pairs
            shape = (*shape[:-1], shape[-1] // 2)
        result[name] = module.TensorSpec(
            dtype=TYPES[dtype][0], shape=list(shape), data_ptr=ctypes.addressof(buffer), data_len=len(data)
        )
    return result


def by_reference(data: bytes) -> dict:
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in safetensors.deserialize(data)}


def by_us(data: bytes) -> dict:
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in compat.deserialize(data)}


METADATA = st.one_of(st.none(), st.dictionaries(TEXT, TEXT, max_size=1))
THOROUGH = settings(
    max_examples=1200, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
BRIEF = settings(THOROUGH, max_examples=280)


@THOROUGH
@given(tensor_sets(WRITABLE), METADATA, st.integers(0, 2**32))
def test_bytes_are_those_of_the_reference(described, metadata, seed):
    tensors = fill(described, seed)
    keep: list = []
    theirs = bytes(safetensors.serialize(specs(safetensors, tensors, keep), metadata))
    ours = bytes(compat.serialize(specs(compat, tensors, keep), metadata))
    if not tensors and metadata == {}:
        return  # see test_nothing_at_all_is_readable
    assert ours == theirs
    assert by_us(theirs) == tensors
    assert by_reference(ours) == tensors


@BRIEF
@given(tensor_sets(list(TYPES)), st.one_of(st.none(), st.dictionaries(TEXT, TEXT, max_size=5)), st.integers(0, 2**32))
def test_reference_reads_every_type_and_any_metadata(write_raw, described, metadata, seed):
    tensors = fill(described, seed)
    data = write_raw(tensors, metadata=metadata)
    assert by_reference(data) == tensors
    assert by_us(data) == tensors
    assert write_raw(dict(reversed(tensors.items())), metadata=metadata) == data, "the order of additions shows"


@BRIEF
@given(tensor_sets(WRITABLE), st.one_of(st.none(), st.dictionaries(TEXT, TEXT, max_size=5)), st.integers(0, 2**32))
def test_files_of_the_reference_read_the_same_on_every_backend(tmp_path_factory, contents, described, metadata, seed):
    path = tmp_path_factory.getbasetemp() / "reference.safetensors"
    tensors = fill(described, seed)
    keep: list = []
    safetensors.serialize_file(specs(safetensors, tensors, keep), path, metadata or None)
    for backend in ("mmap", "pread"):
        with weightstore.open(path, backend=backend) as file:
            assert list(file) == sorted(tensors, key=str.encode)
            assert contents(file) == tensors
            with safetensors.safe_open(path, "np") as reference:
                assert (file.metadata or None) == (reference.metadata() or None)
                assert list(file.keys()) == list(reference.keys())


@BRIEF
@given(tensor_sets(WRITABLE), st.one_of(st.none(), st.dictionaries(TEXT, TEXT, max_size=5)), st.integers(0, 2**32))
def test_the_reference_opens_our_files(tmp_path_factory, write_raw, described, metadata, seed):
    path = tmp_path_factory.getbasetemp() / "ours.safetensors"
    tensors = fill(described, seed)
    assert by_reference(write_raw(tensors, metadata=metadata, path=path, durable=False)) == tensors
    with safetensors.safe_open(path, "np") as reference:
        assert list(reference.keys()) == sorted(tensors, key=str.encode)
        assert reference.metadata() == metadata
        for name, (dtype, shape, _) in tensors.items():
            piece = reference.get_slice(name)
            assert (piece.get_dtype(), tuple(piece.get_shape())) == (dtype, shape)


def test_golden_bytes_of_the_reference(write_raw):
    header = b'{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    '
    assert write_raw({"test": ("I32", (2, 2), bytes(16))}) == len(header).to_bytes(8, "little") + header + bytes(16)
    assert write_raw({}) == (8).to_bytes(8, "little") + b"{}      "
    assert write_raw({}, metadata={}) == (24).to_bytes(8, "little") + b'{"__metadata__":{}}     '


def test_nothing_at_all_is_readable():
    """The reference writes text that is no JSON when there are neither tensors nor entries in the metadata."""
    with pytest.raises(safetensors.SafetensorError, match="trailing characters"):
        safetensors.deserialize(bytes(safetensors.serialize({}, {})))
    assert safetensors.deserialize(bytes(compat.serialize({}, {}))) == []


def test_metadata_keys_are_sorted_by_their_bytes(write_raw):
    data = write_raw({}, metadata={"b": "1", "a": "2", "é": "3", "a.10": "4", "a.2": "5"})
    assert '{"a":"2","a.10":"4","a.2":"5","b":"1","é":"3"}'.encode() in data


def test_a_tensor_named_like_the_metadata_is_refused(write_raw):
    with pytest.raises(weightstore.StoreError, match="__metadata__"):
        write_raw({"__metadata__": ("U8", (1,), b"x")})


@pytest.mark.parametrize("verbs", ["numpy", "torch"])
def test_the_verbs_write_the_bytes_of_the_reference(verbs):
    pytest.importorskip(verbs)
    np = pytest.importorskip("numpy")
    theirs = pytest.importorskip(f"safetensors.{verbs}")
    ours = __import__(f"weightstore.{verbs}", fromlist=["save"])
    arrays = {
        f"{kind}.{rank}": np.arange(math.prod(range(1, rank + 2))).astype(kind).reshape(range(1, rank + 2))
        for rank in range(4)
        for kind in ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8")
    }
    arrays["empty"] = np.empty((0, 3), "f4")
    arrays["scalar"] = np.asarray(7.0)
    if verbs == "torch":
        import torch

        arrays = {name: torch.from_numpy(array) for name, array in arrays.items()}
    for metadata in (None, {}, {"format": "pt"}):
        assert bytes(ours.save(arrays, metadata)) == bytes(theirs.save(arrays, metadata))
