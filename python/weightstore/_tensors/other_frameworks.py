"""Tensors of jax, TensorFlow, MLX and Paddle, made from numpy arrays. Imports a framework only when a caller asks for it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Convert = Callable[[Any], Any]


def converter(framework: str) -> Convert:
    """A function that makes a tensor of a framework from a numpy array. The tensor has memory of its own. Raises
    ModuleNotFoundError, which says what to install, if the framework is not there."""
    package, make = _MAKERS[framework]
    try:
        return make()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"framework '{framework}' needs the package {package}, which cannot be imported ({error}); install it, or open "
            "the file with framework='np' and convert the arrays",
            name=error.name,
        ) from error


def _flax() -> Convert:
    array: Convert = import_module("jax.numpy").array
    return array


def _tensorflow() -> Convert:
    convert = import_module("tensorflow").convert_to_tensor
    # TensorFlow may share the memory of the array, and only a view of a mapped file is read-only.
    return lambda array: convert(array if array.flags.writeable else array.copy())


def _mlx() -> Convert:
    array: Convert = import_module("mlx.core").array
    return array


def _paddle() -> Convert:
    paddle = import_module("paddle")

    def convert(array: Any) -> Any:
        # isbuiltin is 2 for types that are not of numpy's own, such as bfloat16. Paddle takes only their bits.
        if array.dtype.isbuiltin != 2 or not hasattr(paddle, array.dtype.name):
            return paddle.to_tensor(array)
        bits = paddle.to_tensor(array.view(f"i{array.dtype.itemsize}"))
        return bits.view(getattr(paddle, array.dtype.name))

    return convert


_MAKERS = {
    "flax": ("jax", _flax),
    "tensorflow": ("tensorflow", _tensorflow),
    "mlx": ("mlx", _mlx),
    "paddle": ("paddle", _paddle),
}
