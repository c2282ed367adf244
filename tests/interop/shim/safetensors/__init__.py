"""The package `safetensors` made of this library. With this folder first on PYTHONPATH, programs that import safetensors run
on weightstore, unchanged."""

from weightstore.compat import *  # noqa: F403
from weightstore.compat import __version__, _safe_open_handle  # noqa: F401
