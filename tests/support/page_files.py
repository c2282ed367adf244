"""Files and data of pages, for the tests of the viewer and its measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import weightstore.numpy

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "a]]>\"'`&amp;<b>bold</b>",
    "javascript:alert(1)",
    "{policy}{0}%s",
    "\u202eevil\u0000\x1b[31m",
    "\u2028\u2029",
    "__proto__",
    "constructor.prototype",
    "",
    ".",
    "..",
    "x" * 5000,
    ".".join("deep" * 3 for _ in range(300)),
]


def small_model(path: Path, layers: int = 4, *, seed: int = 0, **changes: np.ndarray | None) -> Path:
    """A model with layers of attention; `changes` replaces tensors or, with None, removes them."""
    random = np.random.default_rng(seed)
    tensors: dict[str, Any] = {"embed.weight": random.normal(0, 0.02, (1000, 64)).astype("f4")}
    for layer in range(layers):
        for name in ("q", "k", "v", "o"):
            tensors[f"layers.{layer}.attn.{name}_proj.weight"] = random.normal(0, 0.1, (64, 64)).astype("f2")
        tensors[f"layers.{layer}.mlp.up.weight"] = random.normal(0, 0.1, (256, 64)).astype("f2")
        tensors[f"layers.{layer}.mlp.down.weight"] = random.normal(0, 0.1, (64, 256)).astype("f2")
        tensors[f"layers.{layer}.norm.weight"] = np.ones(64, "f4")
    tensors["position_ids"] = np.arange(128)
    for name, value in changes.items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    weightstore.numpy.save_file(tensors, path, metadata={"format": "pt", "license": "<b>free</b>"})
    return path


def many_tensors(count: int) -> dict[str, Any]:
    """Data of a page about a file of many tensors, as a mixture of experts has them."""
    from weightstore._page.data import page_data

    names = sorted(
        f"model.layers.{i // 400}.mlp.experts.{i // 4 % 100}.{('up', 'down', 'gate', 'router')[i % 4]}_proj.weight"
        for i in range(count)
    )
    shapes = [[64 << i % 5, 4096] for i in range(count)]
    dtypes = [i % 7 % 3 for i in range(count)]
    tensors = {
        "name": names,
        "dtype": dtypes,
        "shape": shapes,
        "bytes": [shape[0] * shape[1] * (2, 4, 1)[dtype] for shape, dtype in zip(shapes, dtypes, strict=True)],
    }
    file = {
        "path": f"{count}-tensors.safetensors",
        "format": "SafeTensors",
        "metadata": {},
        "scalars": {},
        "left_out": [],
        "dtypes": ["BF16", "F32", "F8_E4M3"],
        "tensors": tensors,
    }
    return page_data([file])
