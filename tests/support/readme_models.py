"""The model of burn-store's README."""

from __future__ import annotations

import pytest

from weightstore import ModuleSnapshot

torch = pytest.importorskip("torch")

nn = torch.nn


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer0 = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.scale = nn.Parameter(torch.rand(1))


class Model(ModuleSnapshot, nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Half(), Half()
        for parameter in self.parameters():
            nn.init.normal_(parameter)


def same(one, other, names=None):
    other = other.state_dict()
    return all(
        torch.equal(tensor, other[name]) for name, tensor in one.state_dict().items() if names is None or name in names
    )
