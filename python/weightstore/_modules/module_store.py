"""What every store can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from .apply.result import ApplyResult
from .snapshot import TensorSnapshot


@runtime_checkable
class ModuleStore(Protocol):
    """Keeps the tensors of modules. A class with these methods works with save_into() and load_from()."""

    def collect_from(self, module: Any) -> None:
        """Saves a module's tensors."""

    def apply_to(self, module: Any) -> ApplyResult:
        """Loads stored tensors into a module."""

    def keys(self) -> list[str]:
        """The names of all stored tensors, sorted by their UTF-8 bytes."""

    def get_all_snapshots(self) -> Mapping[str, TensorSnapshot]:
        """All stored tensors, in the order of keys(). Reads no values."""

    def get_snapshot(self, name: str) -> TensorSnapshot | None:
        """One stored tensor, or None."""

    def get_metadata(self) -> dict[str, str]:
        """The stored metadata."""
