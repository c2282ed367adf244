"""A DTensor, in a process of its own: it needs a process group, which other tests must not see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.torch_classes import torch

PROGRAM = """
import sys, torch, weightstore, weightstore.torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
strange = distribute_tensor(torch.arange(8.0), init_device_mesh("cpu", (1,)), [Replicate()])
path = sys.argv[1]
weightstore.Saver(path=path, tensors={"w": torch.ones(8)}).save()
table = torch.classes.store.HashTable("user", [8], torch.float32)
for call in (
    lambda: weightstore.Saver(path=path, tensors={"w": strange}).save(),
    lambda: weightstore.Saver(path=path, tensors={"w": strange}).save_async().result(),
    lambda: weightstore.Loader(path, tensors={"w": strange}).load(),
    lambda: weightstore.torch.save_file({"w": strange}, path + "/w.safetensors"),
):
    try:
        call()
    except weightstore.InvalidArgument as error:
        assert "tensor 'w': has no memory of its own" in str(error) and "to_local()" in str(error), error
    else:
        raise AssertionError("not refused")
w = torch.zeros(8)
weightstore.Loader(path, tensors={"w": w}).load()
assert w.eq(1).all()
weightstore.Saver(path=path, tensors={"w": strange.full_tensor()}).save()
weightstore.Loader(path, tensors={"w": strange.to_local().zero_()}).load()
assert torch.equal(strange.full_tensor(), torch.arange(8.0))
print("as it should be")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_a_dtensor_is_refused_and_what_it_is_made_of_is_saved(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "as it should be\n"
