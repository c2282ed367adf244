"""A job that died in a save, came back, and saves under the same attempt again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weightstore
from support.torch_classes import torch

# Says "ready", and for every line that comes saves with the options on it. With a file to meet at it is a rank of
# torch.distributed.
SHARD = """
import json, sys
import torch, torch.distributed as dist, weightstore, weightstore.torch

shard, path, value, meeting = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
if meeting:
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=shard, world_size=2)
table = torch.classes.store.HashTable("user", [2], torch.float32, 32768 * shard, 32768 * (shard + 1), 65536, 4096, [])
table.insert(torch.tensor([32768 * shard + 5]), torch.full((1, 2), value))
print("ready", flush=True)
for line in sys.stdin:
    weightstore.Saver(shard, 2, 2, path, {"user": table}, timeout=60, **json.loads(line)).save()
    print("saved", flush=True)
"""


class Shard:
    def __init__(self, shard: int, path: Path, value: float, meeting: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHARD, str(shard), str(path), str(value), meeting],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        )

    def begin(self, options: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(options + "\n")
        self._process.stdin.flush()

    def hear(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == word + "\n"

    def die(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def job(path: Path, value: float, meeting: str = "") -> Iterator[list[Shard]]:
    shards = [Shard(shard, path, value, meeting) for shard in range(2)]
    try:
        for shard in shards:
            shard.hear("ready")
        yield shards
    finally:
        for shard in shards:
            shard.die()


def values(path: Path) -> list[float]:
    table = torch.classes.store.HashTable("user", [2], torch.float32)
    weightstore.Loader(path, {"user": table}).load()
    rows = table.lookup(torch.tensor([5, 32773]), False)[1]
    return [float(row[0]) for row in rows]


@pytest.mark.parametrize("meet", [False, True], ids=["alone", "distributed"])
def test_the_part_of_a_run_that_died_is_not_taken(tmp_path: Path, meet: bool) -> None:
    if meet and not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    path = tmp_path / "checkpoint"
    with job(path, 1.0, str(tmp_path / "first") if meet else "") as shards:
        shards[1].begin('{"attempt": 7}')
        shards[1].hear("saved")  # and needs nobody for that
    with job(path, 2.0, str(tmp_path / "second") if meet else "") as shards:
        shards[0].begin('{"attempt": 7}')
        time.sleep(0.5)  # shard 0 has time to go wrong
        shards[1].begin('{"attempt": 7}')
        shards[1].hear("saved")
        shards[0].hear("saved")
    assert values(path) == [2.0, 2.0]


def test_a_shard_may_be_through_before_shard_0_begins(tmp_path: Path) -> None:
    with job(tmp_path, 1.0) as shards:
        shards[1].begin('{"attempt": 7}')
        shards[1].hear("saved")
        shards[1].die()
        shards[0].begin('{"attempt": 7}')
        shards[0].hear("saved")
    assert values(tmp_path) == [1.0, 1.0]


def test_processes_one_after_the_other_say_that_they_are_one_run(tmp_path: Path) -> None:
    for shard in (1, 0):
        with job(tmp_path, 1.0) as shards:
            shards[shard].begin('{"attempt": 7, "run": "by hand"}')
            shards[shard].hear("saved")
    assert values(tmp_path) == [1.0, 1.0]
