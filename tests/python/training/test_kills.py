"""A training loop that is killed at random moments leaves a directory that restores; `make soak` does it 300 times."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from support.killed_runs import soak


@pytest.mark.parametrize(("way", "kills"), [("sync", 8), ("async", 7)])
def test_every_restore_is_complete(way: str, kills: int) -> None:
    outcome = soak(kills, 1, way)
    assert outcome.kills == kills
