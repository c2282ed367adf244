"""Shards in processes of their own, which agree about the attempt through torch.distributed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weightstore
from support.torch_classes import torch

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

SHARD = """
import json, sys
import torch, torch.distributed as dist, weightstore, weightstore.torch

rank, path, meeting = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
table = torch.classes.store.HashTable("user", [2], torch.float32, 32768 * rank, 32768 * (rank + 1), 65536, 4096, [])
saver = weightstore.Saver(rank, 2, 2, path, {"user": table}, {"w": torch.ones(3)}, timeout=60)
attempts = []

class Watched:
    def __init__(self, impl):
        self._impl = impl
    def __getattr__(self, name):
        return getattr(self._impl, name)
    def configure(self, options):
        attempts.append(json.loads(options)["attempt"])
        self._impl.configure(options)

saver._impl = Watched(saver._impl)
for value in (1.0, 2.0):
    table.insert(torch.tensor([32768 * rank + 5]), torch.full((1, 2), value))
    saver.save()
    table.insert(torch.tensor([32768 * rank + 5]), torch.full((1, 2), -1.0))
table.insert(torch.tensor([32768 * rank + 5]), torch.full((1, 2), 3.0))
saver.save_async().result()
print(json.dumps(attempts))
dist.barrier()
"""


def test_two_processes(tmp_path: Path) -> None:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    arguments = [str(tmp_path / "checkpoint"), str(tmp_path / "meeting")]
    shards = [
        subprocess.Popen(
            [sys.executable, "-c", SHARD, str(rank), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    attempts = []
    for shard in shards:
        out, error = shard.communicate(timeout=300)
        assert shard.returncode == 0, error
        attempts.append(json.loads(out))
    assert attempts[0] == attempts[1]
    assert len(set(attempts[0])) == 3
    assert all(attempts[0])
    index = json.loads((tmp_path / "checkpoint/model.safetensors.index.json").read_text())
    assert index["metadata"]["weightstore"]["attempt"] == attempts[0][-1]
    table = torch.classes.store.HashTable("user", [2], torch.float32)
    w = torch.zeros(3)
    weightstore.Loader(tmp_path / "checkpoint", {"user": table}, {"w": w}).load()
    assert torch.equal(table.lookup(torch.tensor([5, 32773]), False)[1], torch.full((2, 2), 3.0))
    assert w.eq(1).all()
