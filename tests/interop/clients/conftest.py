"""What the tests of other people's programs share. Each runs with the package safetensors as it is, and with weightstore in its
place; the environment variable WEIGHTSTORE_INTEROP says which: "stock" or "ours"."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parent))


def pytest_sessionstart(session: pytest.Session) -> None:
    """A run with the wrong package would prove nothing."""
    import safetensors

    in_place = "ours" if Path(safetensors.__file__).is_relative_to(Path(__file__).parents[1] / "shim") else "stock"
    if os.environ["WEIGHTSTORE_INTEROP"] != in_place:
        pytest.exit(f"{safetensors.__file__} is not {os.environ['WEIGHTSTORE_INTEROP']}", returncode=3)
