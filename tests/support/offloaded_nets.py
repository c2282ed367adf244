"""A small module with tied weights and buffers, for tests that offload it."""

from __future__ import annotations

import torch
from torch import nn

from weightstore import empty_weights


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    """With tied weights, a buffer that files have, and one that they do not have."""

    def __init__(self, layers=8, width=64):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.full((width,), 2.0))
        self.register_buffer("table", torch.arange(width).float() / width, persistent=False)

    def forward(self, x):
        x = self.embed(x) * self.scale + self.table
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.set_num_threads(1)
INPUT = torch.arange(10).reshape(2, 5)
LAYER_BYTES = 4 * (64 * 128 * 2 + 128 + 64 + 2 * 64)
BUDGET = 6 * LAYER_BYTES


def empty(**options):
    with empty_weights():
        return Net(**options).eval()


def outputs(module, value=INPUT):
    with torch.no_grad():
        return module(value)
