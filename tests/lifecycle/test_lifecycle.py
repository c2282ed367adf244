"""Every class with memory, threads or files, in every state in which a process may fork, exit, collect or fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lifecycle.situations import SITUATIONS, fits
from lifecycle.specimens import SPECIMENS

TESTS = Path(__file__).parents[1]

CASES = [
    pytest.param(situation, specimen, id=f"{situation}-{specimen}")
    for situation in SITUATIONS
    for specimen in SPECIMENS
    if fits(SITUATIONS[situation], SPECIMENS[specimen])
]


def missing_library() -> str:
    """Why cases that need torch.classes.store cannot run; empty when they can."""
    try:
        from weightstore import _torch_library

        _torch_library.load()
    except ImportError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def runner():
    command = [sys.executable, "-W", "ignore", "-m", "lifecycle.runner"]
    process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.stdin.close()
    assert process.wait() == 0


@pytest.mark.parametrize(("situation", "specimen"), CASES)
def test_lifecycle(runner, tmp_path, situation, specimen):
    if SPECIMENS[specimen].torch and missing_library():
        pytest.skip(missing_library())
    if situation == "in_inference_mode":
        pytest.importorskip("torch")
    runner.stdin.write(json.dumps([situation, specimen, str(tmp_path)]) + "\n")
    runner.stdin.flush()
    answer = json.loads(runner.stdout.readline())
    assert (answer["code"], answer["stderr"]) == (0, ""), answer["stderr"]
