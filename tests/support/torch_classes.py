"""torch, for tests of `torch.classes.store`: where that is not there, whoever imports this is skipped and says why."""

from __future__ import annotations

import pytest

from weightstore import _torch_library

torch = pytest.importorskip("torch")

try:
    _torch_library.load()
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)
