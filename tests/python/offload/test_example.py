"""The example of a model larger than memory runs, and says what it found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "bigger_than_memory.py"


def test_the_example_runs(tmp_path):
    command = [
        sys.executable,
        EXAMPLE,
        "--mb",
        "16",
        "--passes",
        "2",
        "--dir",
        tmp_path,
        "--plot",
        tmp_path / "plot.png",
    ]
    output = subprocess.check_output(command, text=True)
    assert "the bound, max(compute, reading)" in output
    assert (tmp_path / "plot.png").exists() or "matplotlib is not installed" in output
