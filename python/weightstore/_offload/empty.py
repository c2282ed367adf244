"""Modules without memory for their weights."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_state = threading.local()  # only the thread that asked for it builds modules without memory
_patch = threading.Lock()
_register = torch.nn.Module.register_parameter
_depth = 0


def _register_on_meta(module: torch.nn.Module, name: str, param: Any) -> None:
    if getattr(_state, "depth", 0) and param is not None and param.device.type != "meta":
        attributes = vars(param)
        made = torch.nn.Parameter(param.to("meta"), requires_grad=param.requires_grad)
        vars(made).update(attributes)
        param = made
    _register(module, name, param)


@contextmanager
def empty_weights() -> Iterator[None]:
    """Modules made in this `with` block have parameters without memory (on the meta device) and real buffers.

    Parameters take no memory and no time to initialise. Buffers, such as tables of rotary embeddings, are computed as usual:
    no file may have them. For `offload_module`, and for loading with `load_from`, which gives the parameters memory.
    Only modules made by the same thread are affected.
    """
    global _depth
    with _patch:
        _depth += 1
        if _depth == 1:
            torch.nn.Module.register_parameter = _register_on_meta  # type: ignore[method-assign, assignment]
    _state.depth = getattr(_state, "depth", 0) + 1
    try:
        yield
    finally:
        _state.depth -= 1
        with _patch:
            _depth -= 1
            if _depth == 0:
                torch.nn.Module.register_parameter = _register  # type: ignore[method-assign]
