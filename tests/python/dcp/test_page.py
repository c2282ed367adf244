"""docs/distributed.md: its program runs under torchrun, and leaves what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import safetensors.torch

import weightstore

PAGE = Path(__file__).parents[3] / "docs/distributed.md"


def test_the_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    whole = safetensors.torch.load_file(tmp_path / "export/model.safetensors")
    assert whole["0.weight"].shape == (64, 64)
    assert (tmp_path / "export/config.json").read_text() == '{"model_type": "mine"}'
    with weightstore.open(tmp_path / "ckpt") as file:
        assert file["model.0.weight"].torch().equal(whole["0.weight"])
        assert file.verify() > 0
