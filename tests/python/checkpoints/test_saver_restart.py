"""A job that died in a save, was started again, and saves under the same attempt again."""

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

# Prints "ready". For every line of input it saves with the options on that line. With a file to meet at it is a rank of
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
    try:
        weightstore.Saver(shard, 2, 2, path, {"user": table}, **{"timeout": 60, **json.loads(line)}).save()
        print("saved", flush=True)
    except weightstore.StoreError as error:
        print("failed:", error, flush=True)
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

    def fails(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("failed:")
        return line

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


def test_the_part_of_a_run_that_died_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with job(path, 1.0) as shards:
        for shard in shards:
            shard.begin('{"attempt": 7}')
        shards[1].hear("saved")
        shards[0].hear("saved")
        shards[1].begin('{"attempt": 8}')  # waits for shard 0, which dies
    with job(path, 2.0) as shards:
        shards[0].begin('{"attempt": 8}')
        time.sleep(0.5)  # shard 0 has time to go wrong
        shards[1].begin('{"attempt": 8}')
        shards[1].hear("saved")
        shards[0].hear("saved")
    assert values(path) == [2.0, 2.0]


def test_ranks_of_a_process_group_agree_anew_after_a_restart(tmp_path: Path) -> None:
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    path = tmp_path / "checkpoint"
    for value, meeting in ((1.0, "first"), (2.0, "second")):
        with job(path, value, str(tmp_path / meeting)) as shards:
            for shard in reversed(shards):
                shard.begin("{}")
            for shard in shards:
                shard.hear("saved")
    assert values(path) == [2.0, 2.0]


def test_shards_that_run_one_after_another_pass_attempt_and_run(tmp_path: Path) -> None:
    for shard in (1, 0):
        with job(tmp_path, 1.0) as shards:
            shards[shard].begin('{"attempt": 7, "run": "by hand"}')
            shards[shard].hear("saved")
    assert values(tmp_path) == [1.0, 1.0]


# A launcher that has imported weightstore forks its shards. In its first run shard 1 gives its part, shard 2 never comes,
# and shard 0 dies while it waits. In its second run shard 1 is the slowest.
FORKED = """
import os, sys, time
import torch, weightstore, weightstore.torch

torch.set_num_threads(1)
path = sys.argv[1]

def die(done, total, name):
    if os.path.exists(os.path.join(path, ".weightstore-save.100-s00001.json")):
        os._exit(9)

def shard(index, run, delay=0.0, progress=None):
    child = os.fork()
    if child:
        return child
    try:
        time.sleep(delay)
        begin, end = 65536 * index // 3, 65536 * (index + 1) // 3
        table = torch.classes.store.HashTable("user", [2], torch.float32, begin, end, 65536, 4096, [])
        table.insert(torch.tensor([begin + 5]), torch.full((1, 2), float(run)))
        weightstore.Saver(index, 3, 1, path, {"user": table}, attempt=100, timeout=60, progress=progress).save()
        os._exit(0)
    except BaseException as error:
        print(index, run, error, flush=True)
        os._exit(1)

def codes(children):
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

print(codes([shard(0, 1, progress=die), shard(1, 1)]))
print(codes([shard(0, 2), shard(1, 2, delay=1.0), shard(2, 2)]))
"""


def test_a_launcher_that_forks_its_shards(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "checkpoint")], capture_output=True, text=True, timeout=300
    )
    assert result.stdout.splitlines() == ["[9, 0]", "[0, 0, 0]"], result.stdout + result.stderr
    rows = weightstore.CheckpointReader(tmp_path / "checkpoint").read_tensor("user@embedding")
    assert rows[:, 0].tolist() == [2.0, 2.0, 2.0]


def test_a_shard_that_was_restarted_alone_needs_an_attempt(tmp_path: Path) -> None:
    with job(tmp_path, 1.0) as shards:
        for shard in shards:
            shard.begin("{}")
        for shard in shards:
            shard.hear("saved")
        with job(tmp_path, 2.0) as others:
            shards[0].begin('{"timeout": 30}')
            others[1].begin("{}")
            assert "save number 1 of this shard, but shard 0 is at number 2" in others[1].fails()
            assert "pass the same `attempt`" in shards[0].fails()
    assert values(tmp_path) == [1.0, 1.0]
