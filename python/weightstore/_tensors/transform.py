"""Changes to the bytes of tensors: the transpose of a matrix, and casts between floating-point types.

Both run in C++, on several threads and without the GIL, and give memory of their own that may be written to. A
`_core.Producer` does the same lazily: `Producer.memory(...).transpose("F32", 4, 6).cast("F32", "F16")` converts block by
block when a writer that it was added to writes it, or all at once when it is `read()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: The types that `cast` takes and gives, each to each.
FLOATS = ("F16", "BF16", "F32", "F64", "Flex32")


def transpose(data: Buffer, dtype: str, rows: int, cols: int) -> _core.Memory:
    """The transpose of a row-major matrix of `rows` x `cols` elements of a stored type."""
    return _core.transpose(data, dtype, rows, cols)


def cast(data: Buffer, from_dtype: str, to_dtype: str) -> _core.Memory:
    """The same numbers as another type: to the nearest, ties to even, too large ones to infinity, NaN to NaN. The bits
    are those of torch's `.to()`, except for NaNs that become BF16.
    """
    return _core.cast(data, from_dtype, to_dtype)
