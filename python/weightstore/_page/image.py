"""Small images of matrices, for the viewer."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from .data import Json, real

if TYPE_CHECKING:
    import numpy as np

SIDE = 48
"""The most rows and columns of an image."""


def steps(rows: int, columns: int) -> tuple[int, int]:
    """Of how many rows and columns an image of a matrix has one."""
    return -(-rows // SIDE) or 1, -(-columns // SIDE) or 1


def matrix_image(sample: np.ndarray[Any, Any], row_step: int, column_step: int) -> Json | None:
    """The image of a matrix of which `sample` has one row in `row_step`, and one column in `column_step`. None for a sample
    without elements.

    Every element is a byte: -127 to 127 for -scale to scale, where scale is the largest finite size of a value; -128 for NaN.
    """
    import numpy as np

    if sample.size == 0:
        return None
    values = sample.astype(np.float64)
    finite = np.abs(values[np.isfinite(values)])
    scale = float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        bytes_ = np.rint(np.clip(values / (scale or 1.0), -1, 1) * 127)
    bytes_[np.isnan(values)] = -128
    return {
        "rows": sample.shape[0],
        "columns": sample.shape[1],
        "row_step": row_step,
        "column_step": column_step,
        "scale": real(scale),
        "pixels": base64.b64encode(bytes_.astype(np.int8).tobytes()).decode("ascii"),
    }
