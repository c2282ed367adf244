"""Saving and loading do little in Python for each tensor."""

from __future__ import annotations

import gc
import sys

import pytest

torch = pytest.importorskip("torch")

import weightstore  # noqa: E402
import weightstore.torch as wt  # noqa: E402
from weightstore._tensors import batches  # noqa: E402

pytestmark = pytest.mark.skipif(batches.torch_exchange() is None, reason="this torch has no DLPack exchange API")


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
