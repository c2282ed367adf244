"""Loading a module whose tensors are all in the file, under their own names and as they are.

This is the usual case, so it does no work per tensor in Python. Whatever differs (a name, a type, a shape, shared memory) is for
the plan and its commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ... import _core, errors
from ..._files.formats import FORMATS
from ..._tensors import batches
from .. import param_ids
from ..places import Gathered, gather
from .commit import FAILURES, failure
from .result import ApplyResult

if TYPE_CHECKING:
    from ..._files.progress import Progress
    from ..._files.source import OpenSource


@dataclass(slots=True)
class StraightLoad:
    """The tensors of a file, and those of a module into whose memory they are read."""

    result: ApplyResult
    source: OpenSource
    gathered: Gathered
    numbers: list[int]
    batch: _core.TensorBatch

    def commit(self, progress: Progress | None) -> None:
        """Reads all tensors. When reading fails, the error lists them in `replaced`, as commit() of a plan does."""
        reader = self.source.reader
        try:
            _core.read_batch(reader, self.numbers, self.batch, progress)
        except errors.StoreError as error:
            raise failure(error, list(self.result.applied)) from None
        except FAILURES as error:
            raise failure(error, list(self.result.applied)) from error
        batches.note_written(self.gathered.values)
        if FORMATS[self.source.format].has_param_ids:
            for (owner, key), number in zip(self.gathered.owners, self.numbers, strict=True):
                given = reader.param_id(number)
                if given is not None:
                    param_ids.give_id(owner, key, given)


def plan_straight(source: OpenSource, module: Any) -> StraightLoad | None:
    """None if something differs. Reads no data."""
    gathered = gather(module)
    if gathered is None:
        return None
    batch = batches.look_at(gathered.values)
    numbers = _core.fitting(source.reader, gathered.paths, batch)
    if numbers is None or batch.has_overlap():
        return None
    unused = []
    if len(numbers) != len(source.reader):
        used = set(gathered.paths)
        unused = [name for name in source.reader.names() if name not in used]
    return StraightLoad(ApplyResult(applied=gathered.paths, unused=unused), source, gathered, numbers, batch)
