from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def run_child() -> Callable[..., str]:
    """Runs a script in a process of its own, which may be limited, killed or mounted over; returns what it printed."""

    def run(script: str, *arguments: object, prefix: tuple[str, ...] = ()) -> str:
        # The time limit only keeps a hanging process from hanging the tests.
        child = subprocess.run(
            [*prefix, sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=300
        )
        assert child.returncode == 0, f"exit code {child.returncode}\n{child.stdout}\n{child.stderr}"
        return child.stdout

    return run
