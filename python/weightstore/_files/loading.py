"""Bulk reads: whole tensors into new memory, or into memory that is there already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from .. import _core, errors
from .._tensors import batches, dtypes, frameworks, shapes
from .handle import TensorHandle
from .progress import Meter, Progress, reporting
from .source import Backend, OpenSource, Verify, open_source

Description = tuple[str, str, tuple[int, ...], int]
"""The name, type, shape and bytes of a tensor, as the reader tells them."""


def load(reader: _core.Reader, numbers: list[int], framework: str, progress: Progress | None) -> dict[str, Any]:
    """New memory for each tensor, as numpy arrays or torch tensors."""
    library = _library(framework)
    exchange = batches.torch_exchange() if framework == "torch" else None
    if exchange is not None:

        def make(number: int, memory: Any) -> Any:
            return library.from_memory(memory, *reader.describe(number)[1:3])

        return _load_tensors(reader, numbers, library, exchange, make, views=False, progress=progress)
    described = _described(reader, numbers, library)
    memories = reader.load(numbers, progress)
    return {
        name: library.from_memory(memory, dtype, shape)
        for (name, dtype, shape, _), memory in zip(described, memories, strict=True)
    }


def view_all(source: OpenSource, numbers: list[int], framework: str) -> dict[str, Any]:
    """Views of a mapped file: numpy's read-only, torch's copy-on-write. What cannot be viewed is copied."""
    library = _library(framework)
    reader, is_torch = source.reader, framework == "torch"

    def make(number: int, memory: Any) -> Any:
        _, dtype, shape, _ = reader.describe(number)
        if memory is not None and library.can_view(memory, dtype):
            return library.from_memory(memory, dtype, shape)
        handle = TensorHandle(source, number)
        return handle.torch() if is_torch else handle.numpy()

    exchange = batches.torch_exchange() if is_torch else None
    if exchange is not None:
        return _load_tensors(reader, numbers, library, exchange, make, views=True, progress=None)
    described = _described(reader, numbers, library)
    views = reader.views(numbers, writable=is_torch)
    return {
        name: make(number, memory) for number, (name, _, _, _), memory in zip(numbers, described, views, strict=True)
    }


def _load_tensors(
    reader: _core.Reader,
    numbers: list[int],
    library: _Library,
    exchange: _core.TensorExchange,
    make: Callable[[int, Any], Any],
    *,
    views: bool,
    progress: Progress | None,
) -> dict[str, Any]:
    """Torch tensors, made in one call. `make` makes those that torch cannot show as they are stored."""

    def check(number: int) -> None:
        library.check_showable(*reader.describe(number)[:3])

    return _core.load_tensors(reader, numbers, exchange, check, make, views=views, progress=progress)


def load_file(
    filename: Any, framework: str, *, backend: Backend, verify: Verify, progress: Progress | bool | None
) -> dict[str, Any]:
    """The body of every `load_file`."""
    with open_source(filename, backend=backend, verify=verify) as source:
        numbers = source.reader.numbers()
        if backend == "mmap":
            return view_all(source, numbers, framework)
        with reporting(progress) as report:
            return load(source.reader, numbers, framework, report)


class _Library(Protocol):
    """What `arrays` and `torch_tensors` have in common."""

    def check_showable(self, name: str, dtype: str, shape: tuple[int, ...]) -> None: ...
    def check_target(self, value: Any, name: str) -> None: ...
    def can_view(self, memory: _core.Memory, dtype: str) -> bool: ...
    def from_memory(self, memory: _core.Memory, dtype: str, shape: tuple[int, ...]) -> Any: ...
    def shown_dtype(self, dtype: str) -> Any: ...


def _library(framework: str) -> _Library:
    if framework == "numpy":
        from .._tensors import arrays

        return arrays
    if framework == "torch":
        from .._tensors import torch_tensors

        return torch_tensors
    raise errors.make("invalid_argument", f"framework is {framework!r}; it is 'numpy' or 'torch'")


def _described(reader: _core.Reader, numbers: list[int], library: _Library) -> list[Description]:
    """Name, type, shape and size of tensors that the library can show. Raises TypeError (its type) or FormatError (its
    shape) naming one it cannot."""
    described = reader.describe_many(numbers)
    shown = set()
    for name, dtype, shape, nbytes in described:
        # Only a tensor without elements, or of many dimensions, can have a shape that nobody can show.
        if dtype in shown and nbytes and len(shape) <= shapes.NUMPY_DIMENSIONS:
            continue
        library.check_showable(name, dtype, shape)
        if dtypes.byte_packing(dtype) == 1:  # otherwise the shape matters too
            shown.add(dtype)
    return described


# ---- into memory that is there ---------------------------------------------------------------------------------------


class _Target(NamedTuple):
    """Where one tensor goes: an array or tensor, and its address when its memory is as the file's."""

    value: Any
    address: int | None
    number: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    library: _Library


def load_into(reader: _core.Reader, targets: Mapping[str, Any], progress: Progress | None) -> None:
    """Fills the arrays and tensors that are given by the names of what goes into them."""
    values = list(targets.values())
    if fill_batch(reader, list(targets), values, progress):
        return
    numbers = [reader.at(name) for name in targets]
    fill(reader, zip(numbers, reader.describe_many(numbers), targets.values(), strict=True), progress)


def fill_batch(reader: _core.Reader, names: list[str], values: list[Any], progress: Progress | None) -> bool:
    """Fills arrays and tensors if each can be read straight into its memory. Otherwise it does nothing and returns False."""
    batch = batches.look_at(values)
    numbers = _core.fitting(reader, names, batch)
    if numbers is None:
        return False
    _core.read_batch(reader, numbers, batch, progress)
    batches.note_written(values)
    return True


def fill(reader: _core.Reader, targets: Iterable[tuple[int, Description, Any]], progress: Progress | None) -> None:
    """Fills arrays and tensors, each with the tensor of a number. Checks all of them before it reads anything."""
    checked = [_check(number, described, value) for number, described, value in targets]
    meter = Meter(progress, sum(target.nbytes for target in checked))
    straight = [(t.number, t.address, t.nbytes) for t in checked if t.address is not None]
    # Meanwhile others can give a tensor another storage.
    storages = [t.value.untyped_storage() for t in checked if t.address is not None and frameworks.is_tensor(t.value)]
    reader.read_many(straight, meter.stage())
    del storages
    meter.advance(sum(nbytes for _, _, nbytes in straight))
    for target in checked:
        if target.address is not None:
            frameworks.note_written(target.value)
    for target in (target for target in checked if target.address is None):
        # One temporary at a time: the others' memory is given back before.
        memory = reader.load([target.number])[0]
        frameworks.copy_into(target.value, target.library.from_memory(memory, target.dtype, target.shape))
        meter.advance(target.nbytes)
        meter.tell(target.name)


def _check(number: int, described: Description, value: Any) -> _Target:
    name, dtype, shape, nbytes = described
    is_tensor = frameworks.is_tensor(value)
    library = _library("torch" if is_tensor else "numpy")
    library.check_target(value, name)
    library.check_showable(name, dtype, shape)
    shown, expected = library.shown_dtype(dtype), frameworks.shown_shape(dtype, shape, name)
    if (value.dtype if is_tensor else value.dtype.newbyteorder("=")) != shown:
        raise _mismatch(name, f"the file has {dtype} ({shown}), the target {value.dtype}")
    if tuple(value.shape) != expected:
        raise _mismatch(name, f"the file has shape {list(expected)}, the target {list(value.shape)}")
    address = None if dtype == dtypes.WIDE_BOOL else frameworks.plain_memory(value)
    return _Target(value, address, number, name, dtype, shape, nbytes, library)


def _mismatch(name: str, what: str) -> errors.StoreError:
    return errors.make("invalid_argument", f"cannot be read into the given target: {what}", tensor=name)
