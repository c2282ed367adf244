"""The tasks of small.py: what weightstore does, and what users do without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from benchmarks.python import model
from benchmarks.python.contestants.base import address, as_bytes
from benchmarks.python.limits import Limits, extents

import weightstore
import weightstore.torch

MANY = 50_000
BLOCKS = 100
Tensors = dict[str, torch.Tensor]


class Setting(NamedTuple):
    directory: Path
    limits: Limits


@dataclass
class Pair:
    """Two ways to do a task."""

    title: str
    count: int  # tensors
    ours: Callable[[], object]
    theirs: Callable[[], object]
    check: Callable[[], None]  # runs both, and compares what they did
    goal: float = 0  # theirs / ours
    clean: Callable[[], None] = lambda: None  # before each


# ---- models ----------------------------------------------------------------------------------------------------------


def many_tensors(count: int = MANY) -> Tensors:
    """2 KB each."""
    return {f"model.layers.{i // 100}.experts.{i % 100}.weight": torch.randn(16, 32) for i in range(count)}


class Block(torch.nn.Module):
    """Nine parameters of 1 to 16 KB; or all of the same size."""

    def __init__(self, kilobytes: int | None) -> None:
        super().__init__()
        sizes = [1, 2, 4, 8, 16, 1, 2, 4, 8] if kilobytes is None else [kilobytes] * 9
        for number, size in enumerate(sizes):
            self.register_parameter(f"weight_{number}", torch.nn.Parameter(torch.randn(size, 256)))


def blocks(kilobytes: int | None = None, count: int = BLOCKS) -> torch.nn.Module:
    return torch.nn.ModuleDict({"layers": torch.nn.ModuleList(Block(kilobytes) for _ in range(count))}).eval()


def module_of(shapes: model.Shapes) -> torch.nn.Module:
    """A module with tensors of these names."""
    root = torch.nn.Module()
    for name, (dtype, shape) in shapes.items():
        *parents, last = name.split(".")
        owner = root
        for parent in parents:
            if parent not in owner._modules:
                owner.add_module(parent, torch.nn.Module())
            owner = owner._modules[parent]  # type: ignore[assignment]
        kind = getattr(torch, model.TORCH_DTYPES[dtype])
        if kind.is_floating_point:
            owner.register_parameter(last, torch.nn.Parameter(torch.randn(shape).to(kind)))
        else:
            owner.register_buffer(last, torch.ones(shape, dtype=kind))
    return root.eval()


def many_parameters() -> torch.nn.Module:
    return module_of(dict.fromkeys(many_tensors(), ("F32", (16, 32))))


# ---- comparisons -----------------------------------------------------------------------------------------------------


def require_equal(found: Tensors, expected: Tensors) -> None:
    if sorted(found) != sorted(expected):
        raise AssertionError("the names differ")
    for name, tensor in expected.items():
        if not torch.equal(found[name], tensor):
            raise AssertionError(f"tensor {name} differs")


def _fill(module: torch.nn.Module, value: float) -> None:
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.fill_(value)


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def save_many(setting: Setting) -> Pair:
    tensors = many_tensors()
    mine, other = setting.directory / "a.safetensors", setting.directory / "b.safetensors"

    def ours() -> None:
        weightstore.torch.save_file(tensors, mine, durable=False)

    def theirs() -> None:
        safetensors.torch.save_file(tensors, other)

    def check() -> None:
        ours(), theirs()
        if mine.read_bytes() != other.read_bytes():
            raise AssertionError("the files differ")

    title = f"save_file, {MANY} x 2 KB"
    return Pair(title, MANY, ours, theirs, check, 6, partial(_remove, mine, other))


def load_many(setting: Setting) -> Pair:
    path = setting.directory / "many.safetensors"
    tensors = many_tensors()
    safetensors.torch.save_file(tensors, path)

    def check() -> None:
        require_equal(weightstore.torch.load_file(path), tensors)
        require_equal(safetensors.torch.load_file(path), tensors)

    return Pair(
        f"load_file, {MANY} x 2 KB",
        MANY,
        lambda: weightstore.torch.load_file(path),
        lambda: safetensors.torch.load_file(path),
        check,
        5,
    )


def _load_module(title: str, make: Callable[[], torch.nn.Module], goal: float, setting: Setting) -> Pair:
    module = make()
    path = setting.directory / "module.safetensors"
    expected = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    safetensors.torch.save_file(expected, path)

    def ours() -> object:
        return weightstore.load_from(module, path)

    def theirs() -> object:
        return module.load_state_dict(safetensors.torch.load_file(path))

    def check() -> None:
        for work in (ours, theirs):
            _fill(module, 0)
            work()
            require_equal(module.state_dict(), expected)

    return Pair(title, len(expected), ours, theirs, check, goal)


def load_megabytes(setting: Setting) -> Pair:
    """Beside plain reads of the same file into the same memory, on all processors."""
    module = blocks(1024)
    path = setting.directory / "module.safetensors"
    safetensors.torch.save_file(module.state_dict(), path)
    names = list(model.mapped(path))
    tensors = module.state_dict()
    memory = extents(address(as_bytes(tensors[name])) for name in names)
    offset = model.header_bytes(path)
    expected = {name: tensor.clone() for name, tensor in tensors.items()}

    def ours() -> object:
        return weightstore.load_from(module, path)

    def theirs() -> None:
        setting.limits.read_ready(path, offset, memory, threads=2)

    def check() -> None:
        for work in (ours, theirs):
            _fill(module, 0)
            work()
            require_equal(module.state_dict(), expected)
        expected.clear()

    return Pair("load_from, 900 x 1 MB, beside pread", len(names), ours, theirs, check, 0.8)


def save_module(setting: Setting) -> Pair:
    module = blocks()
    mine, other = setting.directory / "a.safetensors", setting.directory / "b.safetensors"

    def ours() -> None:
        weightstore.save_into(module, weightstore.SafetensorsStore.from_file(mine).durable(False))

    def theirs() -> None:
        safetensors.torch.save_file(module.state_dict(), other)

    def check() -> None:
        ours(), theirs()
        require_equal(safetensors.torch.load_file(mine), safetensors.torch.load_file(other))

    title = f"save_into, {BLOCKS} blocks x 9"
    return Pair(title, 9 * BLOCKS, ours, theirs, check, 4, partial(_remove, mine, other))


def save_bytes(_: Setting) -> Pair:
    tensors = {f"layer.{i}": torch.randn(4 << 20) for i in range(16)}

    def check() -> None:
        if weightstore.torch.save(tensors) != safetensors.torch.save(tensors):
            raise AssertionError("the bytes differ")

    return Pair(
        "save to bytes, 16 x 16 MB",
        16,
        lambda: weightstore.torch.save(tensors),
        lambda: safetensors.torch.save(tensors),
        check,
        4,
    )


def insert_rows(_: Setting) -> Pair:
    """The rows of a call, and the call: a call with one row costs little but the call itself."""
    table: Any = torch.classes.store.HashTable("bench", [16], torch.float32)
    ids, rows = torch.arange(4096), torch.randn(4096, 16)
    one, row = ids[:1].clone(), rows[:1].clone()
    calls = 200

    def repeat(ids: torch.Tensor, rows: torch.Tensor) -> None:
        for _ in range(calls):
            table.insert(ids, rows)

    def check() -> None:
        repeat(ids, rows)
        if not torch.equal(table.lookup(ids, False)[1], rows):
            raise AssertionError("the rows differ")

    title = "insert, 4096 rows a call, beside 1 row"
    return Pair(title, calls, lambda: repeat(ids, rows), lambda: repeat(one, row), check)


def _module(title: str, make: Callable[[], torch.nn.Module], goal: float) -> Callable[[Setting], Pair]:
    return partial(_load_module, title, make, goal)


#: By name. Tasks with a goal of 1 must never be slower than what users write today.
TASKS: dict[str, Callable[[Setting], Pair]] = {
    "save": save_many,
    "load": load_many,
    "module": _module(f"load_from, {BLOCKS} blocks x 9", blocks, 3),
    "megabytes": load_megabytes,
    "one": _module("load_from, one tensor", lambda: module_of({"weight": ("F32", (16, 32))}), 1),
    "resnet18": _module("load_from, ResNet-18", lambda: module_of(model.resnet18_shapes()), 1),
    "decoder": _module("load_from, decoder of 291", lambda: module_of(model.decoder_shapes(200 << 20)), 1),
    "many": _module(f"load_from, {MANY} x 2 KB", many_parameters, 1),
    "save-module": save_module,
    "bytes": save_bytes,
    "insert": insert_rows,
}
