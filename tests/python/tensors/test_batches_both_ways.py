"""Tensors are saved and loaded alike whether they cross into the core together or one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import weightstore  # noqa: E402
import weightstore.numpy as wn  # noqa: E402
import weightstore.torch as wt  # noqa: E402
from support.batch_ways import one_by_one, outcome  # noqa: E402
from support.freed_tensors import freed  # noqa: E402
from weightstore import DeferredTensor, errors  # noqa: E402
from weightstore._tensors import batches  # noqa: E402

pytestmark = pytest.mark.skipif(batches.torch_exchange() is None, reason="this torch has no DLPack exchange API")

FLOATS = torch.arange(24.0).reshape(4, 6)
DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2]


@st.composite
def layouts(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    tensor = torch.arange(draw(st.integers(0, 9)), draw(st.integers(10, 300)), dtype=torch.int32)
    tensor = tensor.repeat(2)[: max(1, int(np.prod(shape)))].to(draw(st.sampled_from(DTYPES)))
    tensor = torch.zeros(shape, dtype=tensor.dtype) if tensor.numel() != np.prod(shape) else tensor.reshape(shape)
    if tensor.dim() > 1:
        tensor = tensor.permute(draw(st.permutations(range(tensor.dim()))))
    for dim in range(tensor.dim()):
        step = draw(st.integers(1, 2))
        tensor = tensor[(slice(None),) * dim + (slice(draw(st.integers(0, 2)), None, step),)]
    if tensor.dtype.is_complex and draw(st.booleans()):
        tensor = tensor.conj()
    return tensor.clone() if draw(st.booleans()) else tensor


@given(st.dictionaries(st.text("ab.é\n", max_size=4), layouts(), max_size=6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_both_ways_save_and_load_the_same(tensors, checksums):
    data = outcome(wt.save, tensors, checksums=checksums)
    assert data == outcome(one_by_one, wt.save, tensors, checksums=checksums)
    if isinstance(data, bytes):
        one, other = wt.load(data), one_by_one(wt.load, data)
        assert list(one) == list(other)
        for name, tensor in one.items():
            found = other[name]
            assert (tensor.dtype, tensor.shape, tensor.stride()) == (found.dtype, found.shape, found.stride())
            assert tensor.reshape(-1).view(torch.uint8).tolist() == found.reshape(-1).view(torch.uint8).tolist()


@given(
    st.dictionaries(
        st.text("abc", max_size=3),
        st.builds(
            lambda dtype, shape, step: np.ones(shape, dtype)[..., ::step] if shape else np.ones(shape, dtype),
            st.sampled_from(["<f4", ">f4", "?", "u1", "<i8", "<c8", "<f2", "<c16", "<U2", ">i2"]),
            st.lists(st.integers(0, 3), max_size=3),
            st.sampled_from([1, 2, -1]),
        ),
        max_size=5,
    )
)
@settings(max_examples=150, deadline=None)
def test_both_ways_save_the_same_arrays(arrays):
    assert outcome(wn.save, arrays) == outcome(one_by_one, wn.save, arrays)


base = torch.zeros(8)
BAD = {
    "shared": {"a": base, "b": base[2:]},
    "shared, one of them left to Python": {"a": base, "b": torch._neg_view(base)},
    "no tensor": {"a": FLOATS, "b": [1]},
    "no text": {"a": FLOATS, 3: FLOATS},
    "surrogate": {"a": FLOATS, "\ud800": base},
    "freed": {"a": FLOATS, "b": freed(3)},
    "meta": {"a": torch.ones(2, device="meta")},
    "sparse": {"a": torch.ones(2).to_sparse()},
    "no such type": {"a": FLOATS, "b": torch.ones(2, dtype=torch.complex128)},
    "reserved name": {"__metadata__": FLOATS},
    "array": {"a": np.ones(3)},
    "deferred, wrong size": {"a": FLOATS, "b": DeferredTensor("F32", (2,), lambda: b"")},
}


@pytest.mark.parametrize("case", BAD)
def test_both_ways_raise_the_same(case):
    found = outcome(wt.save, BAD[case])
    assert isinstance(found, tuple)
    assert found == outcome(one_by_one, wt.save, BAD[case])


def test_storages_over_the_same_memory_are_not_shared():
    """As before there were batches: only the ranges of one storage count."""
    array = np.ones(4, np.float32)
    tensors = {"a": torch.from_numpy(array), "b": torch.from_numpy(array)}
    tensors["b"] = torch.frombuffer(memoryview(array)[1:], dtype=torch.float32)
    assert outcome(wt.save, tensors) == outcome(one_by_one, wt.save, tensors)


def test_param_ids_go_with_their_tensors(tmp_path):
    tensors = {"b": torch.ones(2), "a": torch.ones(3, dtype=torch.complex64).real, "c": torch.ones(1)}
    path = tmp_path / "m.bpk"
    wt.save_file(tensors, path, param_ids={"a": 7, "b": 9})
    with weightstore.open(path) as file:
        assert (file["a"].param_id, file["b"].param_id) == (7, 9)
    with pytest.raises(errors.InvalidArgument, match="not saved: x"):
        wt.save_file(tensors, path, param_ids={"x": 1})


@pytest.mark.parametrize("views", [False, True])
def test_tensors_that_torch_cannot_make_are_made_in_python(write_raw, tmp_path, views):
    """Wide booleans, tensors without elements, and views of memory that is not aligned."""
    path = tmp_path / "m.bpk"
    raw = {
        "a": ("F32", (2,), np.ones(2, np.float32).tobytes()),
        "b": ("BoolU32", (3,), np.array([0, 1, 2], np.uint32).tobytes()),
        "c": ("F32", (0, 3), b""),
        "d": ("BoolU8", (2,), b"\1\0"),
        "e": ("Flex32", (1,), np.ones(1, np.float32).tobytes()),
    }
    write_raw(raw, "burnpack", path=path)
    loaded = wt.load_file(path, backend="mmap" if views else "pread")
    assert list(loaded) == list("abcde")
    assert loaded["b"].tolist() == [False, True, True]
    assert loaded["d"].tolist() == [True, False]
    assert loaded["c"].shape == (0, 3)
    assert loaded["a"].tolist() == [1, 1]
    assert loaded["e"].dtype == torch.float32


def test_what_cannot_be_shown_is_said_before_anything_is_read(write_raw):
    raw = {"a": ("F32", (1,), bytes(4)), "b": ("F6_E2M3", (4,), bytes(3))}
    found = outcome(wt.load, write_raw(raw))
    assert found[0] is TypeError
    assert found == outcome(one_by_one, wt.load, write_raw(raw))
