"""Many arrays and tensors, handed to the core in one call.

The core looks at torch tensors through the functions of `torch.Tensor.__dlpack_c_exchange_api__`, which torch has since 2.10,
and at numpy arrays through the buffer protocol. Whatever the core leaves to Python, and all tensors of an older torch, go one
by one through `torch_tensors` and `arrays`.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Literal

from .. import _core, errors

# Tests set this to True: everything goes one by one then.
leaves_all_to_python = False


def look_at(values: list[Any], framework: Literal["numpy", "torch"] | None = None) -> _core.TensorBatch:
    """Where the elements of the values lie. The caller does not change the list.

    framework: "numpy" leaves torch tensors to Python, and "torch" numpy arrays.
    """
    numpy = sys.modules.get("numpy")
    array_class = numpy.ndarray if numpy is not None and framework != "torch" and not leaves_all_to_python else None
    return _core.TensorBatch(values, torch_exchange() if framework != "numpy" else None, array_class)


def torch_exchange() -> _core.TensorExchange | None:
    """What makes and looks at torch tensors. None if torch was not imported, or does not offer its functions."""
    return None if leaves_all_to_python or "torch" not in sys.modules else _torch_exchange()


@cache
def _torch_exchange() -> _core.TensorExchange | None:
    import torch

    try:
        return _core.TensorExchange(torch.Tensor.__dlpack_c_exchange_api__, (torch.Tensor, torch.nn.Parameter))
    except (AttributeError, TypeError, errors.StoreError):
        return None


def note_written(values: list[Any]) -> None:
    """As frameworks.note_written(), for all values of a batch that nothing was left of to Python."""
    if torch_exchange() is not None:
        torch = sys.modules["torch"]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if tensors:
            torch.autograd.graph.increment_version(tensors)
