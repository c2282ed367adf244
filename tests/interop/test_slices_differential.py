"""`get_slice(name)[key]` against the safetensors package, numpy and torch, over thousands of keys.

`weightstore.compat` gives what the package's mmap backend gives, or refuses what the package refuses. `weightstore.safe_open`
gives what torch and numpy give for the whole tensor. Both do so with either backend.
"""

from __future__ import annotations

import itertools
import operator
import random
import warnings
from typing import NamedTuple

import numpy as np
import pytest

import weightstore
from weightstore import compat

safetensors = pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

SHAPES = {"cube": (2, 3, 4), "row": (5,), "scalar": (), "empty": (0, 3), "one": (1, 1)}
DTYPES = {"cube": torch.float32, "row": torch.int64, "scalar": torch.float64, "empty": torch.int8, "one": torch.bool}

BOUNDS = [None, -7, -2, -1, 0, 1, 2, 3, 9]
SLICES = [slice(*parts) for parts in itertools.product(BOUNDS, BOUNDS, [None, 1, 2, 5, -1, 0])]
INTEGERS = [*range(-6, 7), 2**31, -(2**40), np.int64(1), np.uint8(0), np.array(1)]
LISTS = [[], [0], [1, 0], [-1], [0, 7], [True, False], [True], [False, True, True], [[0], [0]], [0.0]]
TENSORS = [
    *(torch.tensor(value) for value in (0, -1, 9, True, False, 1.0)),
    *(torch.tensor(value) for value in ([0], [-1], [0, 1], [9], [True, False], [False, True, True], [[0, 1], [1, 0]])),
    torch.tensor([1], dtype=torch.int32),
    torch.tensor([1, 0], dtype=torch.uint8),
    torch.tensor(1, dtype=torch.uint8),
    torch.tensor([], dtype=torch.int64),
]
ARRAYS = [
    np.array([0]),
    np.array([1, 0]),
    np.array([True, False]),
    np.array(True),
    np.array([0.5]),
    np.array([[0], [1]]),
]
OTHERS = [None, ..., True, False, 1.0, "x", range(2), slice(torch.tensor(0), torch.tensor(1)), slice(1.0, 2)]

FEW = [
    *(slice(None), slice(1, None), slice(None, -1), slice(0, 1), slice(None, None, 2), slice(0, 0, 2), slice(0, 9)),
    *(0, -1, 1, 5, True, None, ..., [0], [1, 0], [True, False], []),
    *(torch.tensor(0), torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([True, False])),
    *(np.array([0]), np.array([0, 1]), np.array(1), range(2)),
]


def all_keys() -> list:
    keys = [*SLICES, *INTEGERS, *LISTS, *TENSORS, *ARRAYS, *OTHERS, ()]
    keys += [(key,) for key in keys]
    keys += itertools.product(FEW, repeat=2)
    choose = random.Random(20260101)
    everything = [*choose.sample(SLICES, 40), *INTEGERS, *LISTS, *TENSORS, *ARRAYS, *OTHERS]
    keys += [tuple(choose.choices(FEW, k=choose.choice([3, 3, 4]))) for _ in range(1000)]
    keys += [tuple(choose.choices(everything, k=choose.choice([2, 3]))) for _ in range(1000)]
    return keys


KEYS = all_keys()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = {}
    for name, shape in SHAPES.items():
        made[name] = torch.arange(torch.Size(shape).numel()).reshape(shape).to(DTYPES[name])
    path = tmp_path_factory.mktemp("slices") / "m.safetensors"
    safetensors_torch.save_file(made, path)
    return path


class Outcome(NamedTuple):
    """What indexing gave: a value (its class, type, shape and bytes), or an error."""

    value: tuple | None = None
    error: BaseException | None = None


def outcome(indexed, key) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch on masks of bytes, and on sequences as indices
        try:
            found = indexed[key]
        except Exception as error:
            return Outcome(error=error)
    if not isinstance(found, torch.Tensor):
        found = np.asarray(found)  # numpy gives scalars where the package gives arrays without dimensions
    data = found.contiguous().numpy() if isinstance(found, torch.Tensor) else found
    return Outcome((type(found), found.dtype, tuple(found.shape), data.tobytes()))


def slices_of(key) -> list[slice]:
    return [item for item in (key if isinstance(key, tuple) else (key,)) if isinstance(item, slice)]


def has_step_below_zero(key) -> bool:
    return any(isinstance(item.step, int) and item.step < 0 for item in slices_of(key))


def check(ours: Outcome, expected: Outcome, *about) -> None:
    assert ours.value == expected.value, (*about, ours, expected)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("name", SHAPES)
def test_compat_torch(path, name, backend):
    stock = safetensors.safe_open(path, "pt").get_slice(name)
    ours = compat.safe_open(path, "pt", backend=backend).get_slice(name)
    answered = 0
    for key in KEYS:
        # Of two mistakes either may be told; without axes every key but () and ... is one.
        has_one_item = bool(SHAPES[name]) and not (isinstance(key, tuple) and len(key) > 1)
        expected, found = outcome(stock, key), outcome(ours, key)
        check(found, expected, name, key)
        if expected.error is not None and has_one_item:
            assert type(found.error) is type(expected.error), (name, key, found, expected)
        answered += expected.error is None
    assert answered > 20


def stock_cannot(key) -> bool:
    """Whether numpy can do it and the package cannot: it raises OverflowError for negative bounds, panics when a slice starts
    behind its stop (not asked for here: it computes with a length below zero), and gives other elements for an empty slice
    with a step."""
    for item in slices_of(key):
        bounds = [
            operator.index(part) for part in (item.start or 0, item.stop) if isinstance(part, (int, torch.Tensor))
        ]
        if any(bound < 0 for bound in bounds):
            return True
        if len(bounds) == 2 and (bounds[0] > bounds[1] or (bounds[0] == bounds[1] and item.step not in (None, 1))):
            return True
    return False


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("name", SHAPES)
def test_compat_numpy(path, name, backend):
    stock = safetensors.safe_open(path, "np").get_slice(name)
    ours = compat.safe_open(path, "np", backend=backend).get_slice(name)
    whole = safetensors.safe_open(path, "np").get_tensor(name)
    compared = 0
    for key in KEYS:
        found = outcome(ours, key)
        if stock_cannot(key):
            if found.error is None and not has_other_than_integers_and_slices(key):
                check(found, outcome(whole, key), name, key)
            continue
        expected = outcome(stock, key)
        check(found, expected, name, key)
        if isinstance(expected.error, safetensors.SafetensorError):
            assert isinstance(found.error, compat.SafetensorError)
            assert str(found.error) == str(expected.error), (name, key)
        compared += 1
    assert compared > 2000


def has_other_than_integers_and_slices(key) -> bool:
    """What the package takes for an integer, and numpy does not: True, and tensors of one element."""
    items = key if isinstance(key, tuple) else (key,)
    return not all(type(item) is int or isinstance(item, slice) or item is Ellipsis for item in items)


def test_compat_numpy_where_the_package_fails(path):
    part, whole = compat.safe_open(path, "np").get_slice("cube"), np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for key in (np.s_[-1:], np.s_[:-1], np.s_[:, 2:1], np.s_[..., -3:-1], np.s_[0:0:2], np.s_[1, -2:], np.s_[-9:1]):
        check(outcome(part, key), outcome(whole, key), key)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("name", SHAPES)
def test_safe_open_torch(path, name, backend):
    whole = safetensors_torch.load_file(path)[name]
    ours = weightstore.safe_open(path, "pt", backend=backend).get_slice(name)
    for key in KEYS:
        if has_step_below_zero(key):
            continue  # torch has no such slices; ours are tested below
        check(outcome(ours, key), outcome(whole, key), name, key)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("name", SHAPES)
def test_safe_open_numpy(path, name, backend):
    whole = safetensors.safe_open(path, "np").get_tensor(name)
    ours = weightstore.safe_open(path, "np", backend=backend).get_slice(name)

    def arrays(key):
        return tuple(map(arrays, key)) if type(key) is tuple else np.asarray(key) if torch.is_tensor(key) else key

    for key in KEYS:
        check(outcome(ours, key), outcome(whole, arrays(key)), name, key)


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_reversed_slices(path, framework, backend):
    part = weightstore.safe_open(path, framework, backend=backend).get_slice("cube")
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for key in (np.s_[::-1], np.s_[:, ::-2], np.s_[1, 2:0:-1, ::-1]):
        np.testing.assert_array_equal(np.asarray(part[key]), whole[key])
    refused = compat.safe_open(path, framework, backend=backend).get_slice("cube")
    with pytest.raises(ValueError if framework == "pt" else compat.SafetensorError, match="step must be"):
        refused[::-1]


def test_arrays_are_the_callers_own(path):
    part = weightstore.safe_open(path, "np").get_slice("cube")
    for key in ([0, 1], None, (..., None), True, np.array([True, False])):
        part[key][...] = -1
    np.testing.assert_array_equal(part[...], np.arange(24, dtype=np.float32).reshape(2, 3, 4))


HANDLE_KEYS = [torch.tensor([0]), torch.tensor([-1]), torch.tensor(1), torch.tensor([1], dtype=torch.int32)]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_tensors_of_one_element_index_handles_as_torch_does(path, backend):
    whole = safetensors_torch.load_file(path)["cube"]
    handle = weightstore.open(path, backend=backend)["cube"]
    keys = [*HANDLE_KEYS, *((key, 0) for key in HANDLE_KEYS), *((1, slice(None), key) for key in HANDLE_KEYS)]
    keys += [(..., key) for key in HANDLE_KEYS] + [(slice(0, 1), key) for key in HANDLE_KEYS]
    for key in keys:
        assert torch.equal(handle[key].torch(), whole[key]), key
        assert handle[key].shape == whole[key].shape
    with pytest.raises(IndexError):
        handle[torch.tensor([2])]
    for key in (
        torch.tensor(True),
        torch.tensor([True]),
        torch.tensor([1], dtype=torch.uint8),
        torch.tensor([1.0]),
        torch.tensor([[0]]),
        torch.tensor([0, 1]),
        (torch.tensor([0]), torch.tensor([1])),
    ):
        with pytest.raises(TypeError, match="index the result of .numpy()"):
            handle[key]
