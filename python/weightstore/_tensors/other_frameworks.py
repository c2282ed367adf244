"""Tensors of jax, TensorFlow, MLX and Paddle, made from numpy arrays. Imports a framework only when a caller asks for it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class _Framework(NamedTuple):
    """A function that makes a tensor from an array. `package` is what a user installs."""

    package: str
    module: str
    function: str


_FRAMEWORKS = {
    "flax": _Framework("jax", "jax.numpy", "array"),
    "tensorflow": _Framework("tensorflow", "tensorflow", "convert_to_tensor"),
    "mlx": _Framework("mlx", "mlx.core", "array"),
    "paddle": _Framework("paddle", "paddle", "to_tensor"),
}


def converter(framework: str) -> Callable[[Any], Any]:
    """The function that makes a tensor of a framework from a numpy array. Raises ModuleNotFoundError, which says what to
    install, if the framework is not there."""
    package, module, function = _FRAMEWORKS[framework]
    try:
        convert: Callable[[Any], Any] = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"framework '{framework}' needs the package {package}, which cannot be imported ({error}); install it, or open "
            "the file with framework='np' and convert the arrays",
            name=error.name,
        ) from error
    return convert
