"""Who takes part. A contestant has the operations it can do; a task names the contestants it compares."""

from __future__ import annotations

from benchmarks.python.contestants import (
    limit,
    ours,
    peer_arrays,
    peer_fastsafetensors,
    peer_modules,
    peer_runai,
    peer_safetensors,
    peer_tensorizer,
    peer_tensorstore,
    peer_torch,
    stores,
)
from benchmarks.python.contestants.base import Contestant, Kind

_MODULES = (
    ours,
    stores,
    peer_safetensors,
    peer_torch,
    peer_modules,
    peer_arrays,
    peer_fastsafetensors,
    peer_runai,
    peer_tensorizer,
    peer_tensorstore,
    limit,
)

CONTESTANTS: dict[str, Contestant] = {each.name: each for module in _MODULES for each in module.CONTESTANTS}

__all__ = ["CONTESTANTS", "Contestant", "Kind"]
