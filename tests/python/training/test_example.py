"""examples/train.py: killed, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from weightstore import CheckpointManager

torch = pytest.importorskip("torch")
EXAMPLE = Path(__file__).parents[3] / "examples" / "train.py"
STEPS = 30


def start(directory: Path, world: int) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)] if world > 1 else []
    command = [sys.executable, *launcher, str(EXAMPLE), str(directory), str(STEPS)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def run(directory: Path, world: int) -> str:
    with start(directory, world) as process:
        assert process.stdout is not None
        text = process.stdout.read()
    assert process.returncode == 0, text
    return text


def interrupted(directory: Path, world: int, number: int) -> None:
    """A run that is sent a signal after step 12: all of its processes at once."""
    with start(directory, world) as process:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "step 12," in line:
                os.killpg(process.pid, number)
                break
        assert any("step 12," in line for line in seen), "".join(seen)
        process.stdout.read()
    deadline = time.monotonic() + 60
    while _has_members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def final(directory: Path) -> dict[str, Any]:
    found = CheckpointManager(directory).restore()
    assert found is not None
    assert found.step == STEPS
    return {"model": found["model"], "optimizer": found["optimizer"]["state"], "loss": found.metrics["loss"]}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_a_killed_run_ends_as_one_that_was_not(tmp_path: Path) -> None:
    run(tmp_path / "whole", 1)
    interrupted(tmp_path / "killed", 1, signal.SIGKILL)
    assert CheckpointManager(tmp_path / "killed").latest() in (5, 10)
    text = run(tmp_path / "killed", 1)
    assert "step 12," in text
    assert "step 5," not in text
    assert same(final(tmp_path / "killed"), final(tmp_path / "whole"))
