"""Small modules, and stores that hold them."""

from __future__ import annotations

import numpy as np
import pytest

from weightstore import BurnpackStore, SafetensorsStore

KINDS = [BurnpackStore, SafetensorsStore]

both = pytest.mark.parametrize("kind", KINDS)

NAMES = ["bias", "nested.beta", "nested.gamma", "weight"]


def t4(zero=False):
    """Four arrays, under NAMES."""
    module = {
        "weight": np.array([[1, 2], [3, 4]], "f4"),
        "bias": np.array([0.1, 0.2], "f4"),
        "nested": {"gamma": np.ones(2, "f4"), "beta": np.zeros(2, "f4")},
    }
    if zero:
        for array in (module["weight"], module["bias"], module["nested"]["gamma"]):
            array[...] = 0
    return module


def saved(module, kind=SafetensorsStore):
    """A store over the bytes that `module` was saved into."""
    store = kind.from_bytes(None)
    store.collect_from(module)
    return kind.from_bytes(store.get_bytes())


def numbered(*names):
    """Tensors of one element with these names."""
    return {name: np.zeros(1, "f4") for name in names}
