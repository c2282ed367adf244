"""Many tensors that cross into the core together: what the core takes, what it leaves to Python, and that both ways agree."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import weightstore  # noqa: E402
import weightstore.numpy as wn  # noqa: E402
import weightstore.torch as wt  # noqa: E402
from weightstore import DeferredTensor, _core, errors  # noqa: E402
from weightstore._tensors import batches  # noqa: E402

pytestmark = pytest.mark.skipif(batches.torch_exchange() is None, reason="this torch has no DLPack exchange API")

FLOATS = torch.arange(24.0).reshape(4, 6)


class Subclass(torch.Tensor):
    pass


def shrunk() -> torch.Tensor:
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(16)
    return tensor


def freed(offset: int) -> torch.Tensor:
    tensor = torch.ones(8)[offset:]
    tensor.untyped_storage().resize_(0)
    return tensor


def warned(make):
    """What torch makes of types that it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


TAKEN = {
    "plain": FLOATS,
    "transposed": FLOATS.t(),
    "strided": FLOATS[::2, 1::2],
    "expanded": FLOATS[:1].expand(5, 6),
    "parameter": torch.nn.Parameter(torch.ones(3)),
    "requires grad": torch.ones(3, requires_grad=True),
    "0-d": torch.tensor(1.5),
    "empty": torch.zeros(0, 3),
    "bfloat16": torch.ones(3, dtype=torch.bfloat16),
    "float8": torch.ones(3).to(torch.float8_e4m3fn),
    "uint64": torch.ones(3, dtype=torch.uint64),
    "bool": torch.tensor([True, False]),
    "complex64": torch.ones(2, dtype=torch.complex64),
    "array": np.arange(6.0),
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "backwards": np.arange(6)[::-1],
    "bool array": np.array([True, False]),
    "complex array": np.ones(3, np.complex64),
}
LEFT = {
    "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
    "negated": torch._neg_view(torch.ones(2)),
    "imaginary part": torch.ones(2, dtype=torch.complex64).conj().imag,
    "subclass": torch.ones(3).as_subclass(Subclass),
    "meta": torch.ones(3, device="meta"),
    "sparse": torch.ones(3).to_sparse(),
    "nested": warned(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "quantized": warned(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)),
    "shrunk": shrunk(),
    "freed": freed(0),
    "freed, with an offset": freed(3),
    "complex128": torch.ones(2, dtype=torch.complex128),
    "big endian": np.arange(3, dtype=">f4"),
    "text": np.array(["a"]),
    "structured": np.zeros(2, [("a", "f4")]),
    "matrix": np.ones((2, 2)).view(np.matrix),
    "scalar": np.float32(1),
    "list": [1.0],
    "none": None,
    "deferred": DeferredTensor("F32", (1,), lambda: bytes(4)),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_simple_memory_is_taken(kind):
    assert batches.look_at([TAKEN[kind]]).others() == []


@pytest.mark.parametrize("kind", LEFT)
def test_everything_else_is_left_to_python(kind):
    assert batches.look_at([FLOATS, LEFT[kind], FLOATS]).others() == [1]


def test_a_tensor_inside_vmap_is_left_to_python():
    seen = []

    def look(tensor):
        seen.append(batches.look_at([tensor]).others())
        return tensor

    torch.vmap(look)(FLOATS)
    assert seen == [[0]]


def test_each_verb_takes_its_own_framework():
    values = [FLOATS, np.ones(3)]
    assert batches.look_at(values, "torch").others() == [1]
    assert batches.look_at(values, "numpy").others() == [0]


def test_without_the_exchange_all_is_left_to_python(monkeypatch):
    monkeypatch.setattr(batches, "leaves_all_to_python", True)
    assert batches.torch_exchange() is None
    assert batches.look_at([FLOATS, np.ones(3)]).others() == [0, 1]


def test_another_capsule_is_refused():
    with pytest.raises(TypeError, match="exchange API"):
        _core.TensorExchange(torch.ones(1).__dlpack__(), (torch.Tensor,))
    with pytest.raises(TypeError, match="exchange API"):
        _core.TensorExchange(7, (torch.Tensor,))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(1, 3)), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_overlap_is_what_the_ranges_say(parts):
    base = torch.zeros(100)
    tensors = [base[begin : begin + count * step : step] for begin, count, step in parts]
    ranges = [(b, b + (c - 1) * s + 1) for b, c, s in parts if c]
    expected = any(one[0] < other[1] and other[0] < one[1] for one, other in itertools.combinations(ranges, 2))
    assert batches.look_at(tensors).has_overlap() == expected


def test_negative_strides_reach_down():
    base = np.zeros(10)
    assert batches.look_at([base[5::-1], base[:2]]).has_overlap()
    assert not batches.look_at([base[5:2:-1], base[:2]]).has_overlap()


def test_the_same_tensor_is_found_again():
    empty = torch.zeros(0)
    values = [FLOATS, FLOATS.view(-1), FLOATS.detach(), FLOATS.t(), empty, torch.zeros(0), empty, FLOATS]
    assert batches.look_at(values).same_as_earlier() == {2: 0, 6: 4, 7: 0}
    array = np.ones(3)
    assert batches.look_at([array, array]).same_as_earlier() == {}


# ---- both ways -------------------------------------------------------------------------------------------------------


def one_by_one(call, *args, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "leaves_all_to_python", True)
        return call(*args, **options)


def outcome(call, *args, **options):
    """What a call returns; or the class, the text and the tensor of the error."""
    try:
        return call(*args, **options)
    except Exception as error:
        return type(error), str(error), getattr(error, "tensor", None)


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


# ---- lifetimes -------------------------------------------------------------------------------------------------------


def test_a_writer_keeps_the_tensors():
    tensors = [torch.full((1000,), float(i)) for i in range(50)]
    writer = _core.Writer()
    writer.add_batch([str(i) for i in range(50)], batches.look_at(list(tensors)))
    alive = weakref.ref(tensors[0])
    del tensors
    gc.collect()
    loaded = wt.load(writer.write_bytes("safetensors"))
    assert all(loaded[str(i)][0] == i for i in range(50))
    del writer
    gc.collect()
    assert alive() is None


def mapped(path) -> bool:
    with open("/proc/self/maps") as file:
        return str(path) in file.read()


def test_loaded_tensors_keep_the_mapping_until_the_last_is_gone(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({"a": torch.ones(5000), "b": torch.zeros(5000)}, path)
    loaded = wt.load_file(path)
    kept = loaded["a"].view(-1)[10:]
    del loaded
    gc.collect()
    assert mapped(path)
    assert kept.sum() == 4990
    kept += 1  # a copy-on-write view: the file stays as it is
    # The memory may be given back on any thread.
    holder = [kept]
    del kept
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert not mapped(path)
    assert wt.load_file(path)["a"].sum() == 5000


def test_loaded_tensors_are_ordinary(tmp_path):
    data = wt.save({"a": torch.ones(4, 3)})
    for tensor in (wt.load(data)["a"], one_by_one(wt.load, data)["a"]):
        assert type(tensor) is torch.Tensor
        assert tensor.is_leaf
        assert tensor._base is None
        assert not tensor.requires_grad
        assert tensor.untyped_storage().nbytes() == 48
        assert tensor.data_ptr() % 64 == 0
        tensor.requires_grad_()
        (tensor * 2).sum().backward()
    with torch.inference_mode():
        assert wt.load(data)["a"].is_inference() == one_by_one(wt.load, data)["a"].is_inference()


def test_a_read_into_tensors_is_noted_by_autograd():
    data = wt.save({"a": torch.ones(3)})
    target = torch.zeros(3, requires_grad=True)
    product = (target * target).sum()
    with weightstore.open(data) as file:
        file.load_into({"a": target})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        inside = torch.zeros(3)
    with weightstore.open(data) as file:
        file.load_into({"a": inside})
    assert inside.tolist() == [1, 1, 1]


# ---- work per tensor -------------------------------------------------------------------------------------------------


def calls_of(work) -> int:
    """How many functions a call runs, of Python or built in."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # otherwise finalizers and callbacks of the collector count
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def flat(count: int) -> torch.nn.Module:
    module = torch.nn.Module()
    for number in range(count):
        module.register_parameter(f"p{number}", torch.nn.Parameter(torch.full((3,), float(number))))
    return module.eval()


def test_work_per_tensor_is_not_pythons(tmp_path):
    """Looking up a parameter appends its name, its value and its owner to lists, and asks whether it is a tensor."""
    counts = {}
    for size in (100, 1100):
        path = tmp_path / f"{size}.safetensors"
        module, tensors = flat(size), {f"p{i}": torch.ones(3) for i in range(size)}
        store = weightstore.SafetensorsStore.from_file(path).durable(False).overwrite(True)
        counts[size] = [
            calls_of(lambda store=store, module=module: weightstore.save_into(module, store)),
            calls_of(lambda module=module, path=path: weightstore.load_from(module, path)),
            calls_of(lambda tensors=tensors, path=path: wt.save_file(tensors, path, durable=False)),
            calls_of(lambda path=path: wt.load_file(path)),
        ]
    each = [(many - few) / 1000 for many, few in zip(counts[1100], counts[100], strict=True)]
    assert each[0] <= 3.01
    assert each[1] <= 4.01
    assert each[2] <= 0.01
    assert each[3] <= 0.01
