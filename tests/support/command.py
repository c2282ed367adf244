"""Runs the installed command `weightstore` in a process of its own, as people do."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from typing import Any, NamedTuple

import numpy as np

TENSORS = {
    "model.layers.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "model.layers.1.weight": -np.arange(12, dtype=np.float32).reshape(3, 4),
    "model.norm.bias": np.array([1.5, np.nan, np.inf, 0.0], np.float16),
    "step": np.array(2**62 + 1, np.int64),
}

SCRIPT = os.path.join(sysconfig.get_path("scripts"), "weightstore")


class Done(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: Any, cwd: Any = None, env: dict[str, str] | None = None) -> Done:
    """Runs the command. No output ever has a character that a terminal obeys, and no error is a traceback."""
    done = subprocess.run(
        [SCRIPT, *map(str, arguments)],
        capture_output=True,
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
        timeout=120,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    for text in (out, err):
        assert text.replace("\n", "").isprintable(), ascii(text)
    if "--debug" not in arguments:
        assert "Traceback" not in err, err
    return Done(done.returncode, out, err)
