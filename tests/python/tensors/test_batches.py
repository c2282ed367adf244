"""Many tensors that cross into the core together: what the core takes, and what it leaves to Python."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from support.freed_tensors import freed, shrunk  # noqa: E402
from weightstore import DeferredTensor, _core  # noqa: E402
from weightstore._tensors import batches  # noqa: E402

pytestmark = pytest.mark.skipif(batches.torch_exchange() is None, reason="this torch has no DLPack exchange API")

FLOATS = torch.arange(24.0).reshape(4, 6)


class Subclass(torch.Tensor):
    pass


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
