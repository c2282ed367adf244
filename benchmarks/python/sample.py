"""One sample in a process of its own: python -m benchmarks.python.sample TASK WHO FILE SCRATCH LIBRARY

FILE is what is loaded or, without its suffix, the name that is saved; prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.python import cache, model
from benchmarks.python.contestants import CONTESTANTS
from benchmarks.python.contestants.base import Lists, Loads, LoadsInto, ReadsOne, Saves, Transforms, address, as_bytes
from benchmarks.python.contestants.limit import Limit, Memcpy
from benchmarks.python.limits import Limits, extents
from benchmarks.python.memory import PeakMemory
from benchmarks.python.task import Operation
from benchmarks.python.tasks import TASKS


def measure(work: Callable[[], Any]) -> tuple[Any, float, int]:
    """The result, the seconds and the extra memory of a call."""
    gc.collect()
    gc.disable()
    peak = PeakMemory()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    extra = peak.extra_bytes()
    gc.enable()
    return result, seconds, extra


def tensors_of(path: Path, *, fill: bool) -> dict[str, Any]:
    """The model as torch tensors, each in memory of its own that has been touched."""
    import torch

    tensors = {}
    with path.open("rb", buffering=0) as file:
        file.seek(model.header_bytes(path))
        for name, (dtype, shape, _) in model.mapped(path).items():
            tensor = torch.empty(shape, dtype=getattr(torch, model.TORCH_DTYPES[dtype]))
            view = as_bytes(tensor)
            if fill:
                file.readinto(memoryview(view))
            else:
                view.fill(0x55)
            tensors[name] = tensor
    return tensors


def require_equal(found: dict[str, Any], expected: dict[str, np.ndarray]) -> None:
    missing = expected.keys() - found.keys()
    if missing:
        raise AssertionError(f"{len(missing)} tensors are missing, {min(missing)} among them")
    for name, data in expected.items():
        if not np.array_equal(as_bytes(found[name]), data):
            raise AssertionError(f"tensor {name} differs")


def model_bytes(path: Path) -> dict[str, np.ndarray]:
    return {name: data for name, (_, _, data) in model.mapped(path).items()}


def save(who: Saves, source: Path, scratch: Path, limits: Limits, *, durable: bool) -> tuple[float, int]:
    tensors = tensors_of(source, fill=True)
    accepted = who.accept(tensors)
    target = scratch / f"saved{who.suffix}"
    try:
        _, seconds, extra = measure(lambda: who.save(accepted, target, durable=durable))
        expected = accepted if isinstance(accepted, dict) else tensors
        require_equal(who.saved(target, list(tensors)), {name: as_bytes(each) for name, each in expected.items()})
    finally:
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    return seconds, extra


def load(who: Loads, source: Path, file: Path, limits: Limits, *, cold: bool) -> tuple[float, int]:
    expected = who.expect({name: (dtype, shape) for name, (dtype, shape, _) in model.mapped(source).items()})

    def work() -> Any:
        result = who.load(file, expected)
        limits.touch(extents(address(buffer) for buffer in result.values()))
        return result

    cache.chill(file) if cold else cache.warm(file)
    result, seconds, extra = measure(work)
    require_equal(who.loaded(result, file), model_bytes(source))
    return seconds, extra


def load_into(who: LoadsInto, source: Path, file: Path) -> tuple[float, int]:
    tensors = tensors_of(source, fill=False)
    accepted = who.accept(tensors)
    cache.warm(file)
    _, seconds, extra = measure(lambda: who.load_into(file, accepted))
    if not isinstance(who, Memcpy):
        require_equal(who.filled(accepted, tensors), model_bytes(source))
    return seconds, extra


def list_names(who: Lists, source: Path, file: Path) -> tuple[float, int]:
    cache.warm(file)
    names, seconds, extra = measure(lambda: who.list_names(file))
    if sorted(names) != sorted(model.mapped(source)):
        raise AssertionError("the names differ")
    return seconds, extra


def read_one(who: ReadsOne, source: Path, file: Path) -> tuple[float, int]:
    contents = model_bytes(source)
    name = list(contents)[len(contents) // 2]
    cache.warm(file)
    tensor, seconds, extra = measure(lambda: who.read_one(file, name))
    require_equal({name: tensor}, {name: contents[name]})
    return seconds, extra


def matrix_for(source: Path) -> np.ndarray:
    """An F32 matrix of about half the bytes of the model. Its rows are whole cache lines, as those of models are."""
    side = math.isqrt(source.stat().st_size // 8) // 64 * 64
    return np.random.Generator(np.random.PCG64(20)).random((side, side), np.float32)


def transform(who: Transforms, source: Path, operation: Operation) -> tuple[float, int, int]:
    """Also the traffic: bytes read or written, on average."""
    import torch

    matrix = matrix_for(source)
    accepted = who.accept_matrix(matrix)
    if operation == Operation.TRANSPOSE:
        result, seconds, extra = measure(lambda: who.transpose(accepted))
        expected = as_bytes(torch.from_numpy(matrix).t())
    else:
        dtype = "F16" if operation == Operation.CAST_F16 else "BF16"
        result, seconds, extra = measure(lambda: who.cast(accepted, dtype))
        expected = as_bytes(torch.from_numpy(matrix).to(getattr(torch, model.TORCH_DTYPES[dtype])))
    if not isinstance(who, Memcpy) and not np.array_equal(as_bytes(result), expected):
        raise AssertionError("the result differs from torch's")
    return seconds, extra, (matrix.nbytes + expected.nbytes) // 2


def main(task_name: str, who_name: str, source: Path, scratch: Path, library: Path) -> dict[str, Any]:
    task = next(task for task in TASKS if task.name == task_name)
    who = CONTESTANTS[who_name]
    Limit.limits = limits = Limits(library)
    who.start()
    import torch  # noqa: F401  so that no contestant pays for it

    file = source.with_suffix(who.suffix)
    payload = source.stat().st_size
    match task.operation:
        case Operation.LIST:
            seconds, extra = list_names(who, source, file)
        case Operation.READ_ONE:
            seconds, extra = read_one(who, source, file)
        case Operation.SAVE | Operation.SAVE_DURABLE:
            durable = task.operation == Operation.SAVE_DURABLE
            seconds, extra = save(who, source, scratch, limits, durable=durable)
        case Operation.LOAD | Operation.LOAD_COLD:
            cold = task.operation == Operation.LOAD_COLD
            seconds, extra = load(who, source, file, limits, cold=cold)
        case Operation.LOAD_INTO:
            seconds, extra = load_into(who, source, file)
        case Operation.TRANSPOSE | Operation.CAST_F16 | Operation.CAST_BF16:
            seconds, extra, payload = transform(who, source, task.operation)
    largest = max(data.nbytes for _, _, data in model.mapped(source).values())
    return {"seconds": seconds, "extra_bytes": extra, "payload_bytes": payload, "largest_bytes": largest}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], *map(Path, sys.argv[3:6]))))
