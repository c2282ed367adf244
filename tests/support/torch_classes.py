"""torch, for tests of `torch.classes.store`: where that is not there, whoever imports this is skipped and says why."""

from __future__ import annotations

import pytest

from weightstore._torch_library import loading

torch = pytest.importorskip("torch")

try:
    loading.load()
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)
