"""Saves that are killed, or run into a limit: what was there before stays, or the new one is whole."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import weightstore
from support.torch_classes import torch

# Children save steps 1, 2, 3, ... over each other and say so when one is complete; each is killed at some moment. What is
# found then is whole, of one step, and no older than the last that was complete.
KILLED = """
import os, random, signal, sys, time
import torch, weightstore, weightstore.torch

path, layout, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(rounds)
torch.set_num_threads(1)

def save(step):
    table = torch.classes.store.HashTable("user", [4], torch.float32)
    table.insert(torch.arange(2000) * 7919, torch.full((2000, 4), float(step)))
    tensors = {"w": torch.full((50_000,), step), "step": torch.tensor(step)}
    weightstore.Saver(
        0, 1, 2, path, {"user": table}, tensors, layout=layout, overwrite=layout == "recis", max_block_bytes=4096
    ).save()

save(0)
least = 0
for _ in range(rounds):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for step in range(least + 1, 1 << 30):
                save(step)
                os.write(writer, step.to_bytes(8, "little"))
        finally:
            os._exit(3)
    os.close(writer)
    time.sleep(random.random() * 0.25)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    told = os.read(reader, 1 << 20)
    os.close(reader)
    least = max(least, int.from_bytes(told[-8:], "little"))
    checkpoint = weightstore.CheckpointReader(path)
    checkpoint.verify()
    step = int(checkpoint.read_tensor("step"))
    assert step in (least, least + 1), (step, least)
    assert checkpoint.read_tensor("w").eq(step).all()
    assert checkpoint.tensor_shape("user@id") == [2000]
    assert checkpoint.read_tensor("user@embedding").eq(step).all()
    least = step
save(least + 1)
names = os.listdir(path) + os.listdir(os.path.dirname(path))
assert not [name for name in names if "weightstore-save" in name], names
print("saved", least + 1)
"""


@pytest.mark.parametrize("layout", ["plain", "recis"])
def test_killed_at_any_moment(tmp_path: Path, layout: str) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "checkpoint"), layout, "15"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("saved")


@pytest.mark.parametrize("layout", ["plain", "recis"])
@pytest.mark.parametrize("limit", [100, 50_000, 300_000])
def test_a_file_that_may_not_grow_is_an_error(tmp_path: Path, layout: str, limit: int) -> None:
    path = tmp_path / "checkpoint"

    def save(value: float) -> None:
        tensors = {"w": torch.full((250_000,), value)}
        weightstore.Saver(0, 1, 2, path, tensors=tensors, layout=layout, overwrite=layout == "recis").save()

    save(1.0)
    before = sorted(path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(weightstore.CheckpointError, match="File too large") as caught:
            save(2.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(caught.value, OSError)
    assert sorted(path.iterdir()) == before
    assert list(tmp_path.iterdir()) == [path]
    assert weightstore.CheckpointReader(path).read_tensor("w").eq(1).all()
