"""Files of every kind, made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from support.command import TENSORS


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same tensors in every format, as a set and as a directory."""
    folder = tmp_path_factory.mktemp("files")
    found = {"safetensors": folder / "m.safetensors", "burnpack": folder / "m.bpk", "npz": folder / "m.npz"}
    weightstore.numpy.save_file(TENSORS, found["safetensors"], metadata={"made": "here"}, checksums=True)
    weightstore.numpy.save_file(TENSORS, found["burnpack"], checksums=True)
    np.savez(found["npz"], **TENSORS)
    found["set"] = folder / "set" / "model.safetensors.index.json"
    found["set"].parent.mkdir()
    weightstore.numpy.save_file(TENSORS, found["set"], max_shard_size=50, checksums=True)
    found["directory"] = found["set"].parent
    try:
        import torch
    except ImportError:
        return found
    found["pytorch"] = folder / "m.pt"
    torch.save({name: torch.from_numpy(array) for name, array in TENSORS.items()}, found["pytorch"])
    return found


@pytest.fixture(scope="session")
def golden() -> Path:
    return Path(__file__).parents[2] / "golden" / "0.1.0"
