"""Every class with memory, threads or files, in every state in which a process may fork, exit, collect or fail."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
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


@cache
def missing_library() -> str:
    """Why cases that need torch.classes.store cannot run; empty when they can."""
    try:
        from weightstore._torch_library import loading

        loading.load()
    except ImportError as error:
        return str(error)
    return ""


class Runner:
    def __init__(self, kind: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "lifecycle.runner", kind]
        self._process = subprocess.Popen(
            command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, *case: str) -> dict:
        self._process.stdin.write(json.dumps(case) + "\n")
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        with self._process:
            self._process.stdin.close()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def runners():
    """By kind, started when first asked for."""
    made: dict[str, Runner] = {}

    def get(kind: str) -> Runner:
        return made.get(kind) or made.setdefault(kind, Runner(kind))

    yield get
    for runner in made.values():
        runner.end()


@pytest.mark.parametrize(("situation", "specimen"), CASES)
def test_lifecycle(runners, tmp_path, situation, specimen):
    torch = SPECIMENS[specimen].torch or situation == "in_inference_mode"
    if torch and missing_library():
        pytest.skip(missing_library())
    answer = runners("torch" if torch else "plain").run(situation, specimen, str(tmp_path))
    assert (answer["code"], answer["stderr"]) == (0, ""), answer["stderr"]
