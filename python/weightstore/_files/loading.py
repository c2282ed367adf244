"""Bulk reads: whole tensors into new memory, or into memory that is there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import _core, errors
from .._tensors import dtypes, frameworks, shapes
from .handle import TensorHandle
from .progress import Progress, reporting, tell
from .source import Backend, OpenSource, open_source


def load(reader: _core.Reader, numbers: list[int], framework: str, progress: Progress | None) -> dict[str, Any]:
    """New memory for each tensor, as numpy arrays or torch tensors."""
    wrap = _wrapper(framework)
    described = _described(reader, numbers, framework)
    memories = reader.load(numbers, progress)
    return {
        name: wrap(memory, dtype, shape) for (name, dtype, shape, _), memory in zip(described, memories, strict=True)
    }


def view_all(source: OpenSource, numbers: list[int], framework: str) -> dict[str, Any]:
    """Views of a mapped file: numpy's read-only, torch's copy-on-write. What cannot be viewed is copied."""
    wrap = _wrapper(framework)
    described = _described(source.reader, numbers, framework)
    result = {}
    torch_items = framework == "torch"
    views = source.reader.views(numbers, writable=torch_items)
    for number, (name, dtype, shape, _), memory in zip(numbers, described, views, strict=True):
        if memory is not None and not (torch_items and memory.address % (dtypes.bits(dtype) // 8 or 1)):
            result[name] = wrap(memory, dtype, shape)
        else:
            handle = TensorHandle(source, number)
            result[name] = handle.torch() if torch_items else handle.numpy()
    return result


def load_file(filename: Any, backend: Backend, framework: str, progress: Progress | bool | None) -> dict[str, Any]:
    """The body of every `load_file`."""
    with open_source(filename, backend=backend) as source:
        numbers = source.reader.numbers()
        if backend == "mmap":
            return view_all(source, numbers, framework)
        with reporting(progress) as report:
            return load(source.reader, numbers, framework, report)


def _wrapper(framework: str) -> Callable[[_core.Memory, str, tuple[int, ...]], Any]:
    if framework == "numpy":
        from .._tensors import arrays

        return arrays.from_memory
    if framework == "torch":
        from .._tensors import torch_tensors

        return torch_tensors.from_memory
    raise errors.make("invalid_argument", f"framework is {framework!r}; it is 'numpy' or 'torch'")


def _described(reader: _core.Reader, numbers: list[int], framework: str) -> list[tuple[str, str, tuple[int, ...], int]]:
    """Name, type, shape and size of tensors that the framework can show. Raises TypeError (its type) or FormatError (its
    shape) naming one it cannot."""
    described = reader.describe_many(numbers)
    shown = set()
    for name, dtype, shape, nbytes in described:
        # Only a tensor without elements, or of many dimensions, can have a shape that nobody can show.
        if dtype in shown and nbytes and len(shape) <= shapes.NUMPY_DIMENSIONS:
            continue
        if framework == "torch":
            from .._tensors import torch_tensors

            torch_tensors.check_showable(name, dtype, shape)
        else:
            from .._tensors import arrays

            arrays.check_showable(name, dtype, shape)
        if dtypes.byte_packing(dtype) == 1:  # otherwise the shape matters too
            shown.add(dtype)
    return described


class _Target:
    """Where one tensor goes: an address when its memory is as the file's, else a way to copy into it."""

    def __init__(
        self,
        number: int,
        nbytes: int,
        address: int | None,
        copy: Callable[[_core.Memory], None],
        filled: Callable[[], None] = lambda: None,
    ) -> None:
        self.number = number
        self.nbytes = nbytes
        self.address = address
        self.copy = copy
        self.filled = filled


def load_into(reader: _core.Reader, targets: Mapping[str, Any], progress: Progress | None) -> None:
    checked = [_check(reader, name, target) for name, target in targets.items()]
    direct = [target for target in checked if target.address is not None]
    through = [target for target in checked if target.address is None]
    total = sum(target.nbytes for target in checked)
    done = sum(target.nbytes for target in direct)

    def partial(so_far: int, _: int, name: str) -> object:
        assert progress is not None
        return progress(so_far, total, name)

    report = None if progress is None else partial if through else progress
    reader.read_many([(t.number, t.address, t.nbytes) for t in direct if t.address is not None], report)
    for target in direct:
        target.filled()
    for target in through:
        # One temporary at a time: the others' memory is given back before.
        target.copy(reader.load([target.number])[0])
        done += target.nbytes
        tell(progress, done, total, reader.describe(target.number)[0])


def _check(reader: _core.Reader, name: str, target: Any) -> _Target:
    number = reader.at(name)
    _, dtype, shape, nbytes = reader.describe(number)
    if frameworks.is_tensor(target):
        return _check_tensor(number, name, dtype, shape, nbytes, target)
    return _check_array(number, name, dtype, shape, nbytes, target)


def _mismatch(name: str, what: str) -> errors.StoreError:
    return errors.make("invalid_argument", f"cannot be read into the given target: {what}", tensor=name)


def _check_array(number: int, name: str, dtype: str, shape: tuple[int, ...], nbytes: int, target: Any) -> _Target:
    import numpy as np

    from .._tensors import arrays

    if not isinstance(target, np.ndarray):
        raise TypeError(f"tensor '{name}': a target is a numpy array or a torch tensor, not {type(target).__name__}")
    shown = np.dtype(bool) if dtype == dtypes.WIDE_BOOL else dtypes.numpy_dtype(dtype)
    if target.dtype.newbyteorder("=") != shown:
        raise _mismatch(name, f"the file has {dtype} ({shown}), the target {target.dtype}")
    if target.shape != shape:
        raise _mismatch(name, f"the file has shape {list(shape)}, the target {list(target.shape)}")
    if not target.flags.writeable:
        raise _mismatch(name, "the target is read-only")
    address = None if dtype == dtypes.WIDE_BOOL else frameworks.plain_memory(target)

    def copy(memory: _core.Memory) -> None:
        target[...] = arrays.from_memory(memory, dtype, shape)

    return _Target(number, nbytes, address, copy)


def _check_tensor(number: int, name: str, dtype: str, shape: tuple[int, ...], nbytes: int, target: Any) -> _Target:
    import torch

    from .._tensors import torch_memory, torch_tensors

    torch_memory.require_memory(target, name)
    torch_tensors.check_showable(name, dtype, shape)
    shown = torch.bool if dtype == dtypes.WIDE_BOOL else dtypes.torch_dtype(dtype)
    expected = frameworks.shown_shape(dtype, shape, name)
    if target.dtype != shown:
        raise _mismatch(name, f"the file has {dtype} ({shown}), the target {target.dtype}")
    if tuple(target.shape) != expected:
        raise _mismatch(name, f"the file has shape {list(expected)}, the target {list(target.shape)}")
    address = None if dtype == dtypes.WIDE_BOOL else frameworks.plain_memory(target)

    def filled() -> None:
        # Written behind autograd's back: tell it, so that a backward pass over the old values fails instead of lying.
        torch.autograd.graph.increment_version(target)

    def copy(memory: _core.Memory) -> None:
        with torch.no_grad():
            target.copy_(torch_tensors.from_memory(memory, dtype, shape))

    return _Target(number, nbytes, address, copy, filled)
