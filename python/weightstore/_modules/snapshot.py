"""A tensor that has a name and a place, and values when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import errors
from .._files.dequantized import number_type
from .._tensors import dtypes
from .packed_layers import Packed
from .values.changed import cast, dequantized, joined, quantized, rows, transposed
from .values.original import Loaded, Produced, Values, values_of

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .._core import QuantScheme


# Modules that only hold others: the type of a parameter inside is that of the module around them.
HOLDERS = frozenset(
    ("ModuleList", "ModuleDict", "Sequential", "ParameterList", "ParameterDict", "dict", "list", "tuple", "OrderedDict")
)


def _innermost_layer(containers: Sequence[str]) -> str | None:
    return next((name for name in reversed(containers) if name not in HOLDERS), None)


class _Described:
    """What is known of a tensor without its values."""

    __slots__ = ("_values",)
    _values: Values

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in elements, as files count."""
        return self._values.shape

    @property
    def dtype(self) -> dtypes.DType:
        """By SafeTensors' name: "F32", "BF16", ...; also equal to the same type of torch and numpy."""
        return dtypes.DType(self._values.dtype)

    @property
    def nbytes(self) -> int:
        """The number of bytes in a file."""
        return self._values.nbytes


class TensorData(_Described):
    """The values of one tensor, in memory."""

    __slots__ = ("buffer",)

    def __init__(self, shape: Sequence[int], dtype: Any, buffer: Any) -> None:
        """dtype: "BF16", "bf16", torch.bfloat16, ...; buffer: the row-major, little-endian bytes."""
        self.buffer = buffer
        self._values = Produced(dtypes.stored_name(dtype), tuple(shape), lambda: buffer)
        self._values.view()

    @property
    def bytes(self) -> bytes:
        """A copy of the values as a file stores them: row-major, little-endian."""
        return bytes(self.buffer)

    def numpy(self) -> np.ndarray[Any, Any]:
        """An array over the same memory."""
        return self._values.numpy(own=False)

    def torch(self) -> torch.Tensor:
        """A tensor over the same memory, or over a copy where that may not be written to."""
        from .._tensors import torch_tensors

        if memoryview(self.buffer).readonly:
            return self._values.torch(own=True)
        return torch_tensors.from_memory(self.buffer, self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"<TensorData {self.dtype} {list(self.shape)}>"


class TensorSnapshot(_Described):
    """A tensor of a module or a file: its name, type, shape and place are known; its values are read by `to_data()`,
    `numpy()` and `torch()`, each time one of them is called.

    A snapshot of a module's tensor shows what the tensor holds when it is read, not when the snapshot was taken.
    """

    __slots__ = ("_layer", "_packed", "_part_ids", "_path", "containers", "param_id")

    def __init__(
        self,
        full_path: str,
        values: Values,
        *,
        containers: Sequence[str] = (),
        param_id: int | None = None,
        layer: str | None = None,
    ) -> None:
        """layer: see Place.layer."""
        self.full_path = full_path
        self._values = values
        self.containers = tuple(containers)
        self.param_id = param_id
        self._layer = layer
        # Of a tensor that torch.nn packs and Burn does not: its parts, and their ids.
        self._packed: Packed | None = None
        self._part_ids: tuple[int | None, ...] = ()

    @classmethod
    def from_value(cls, full_path: str, value: Any, *, containers: Sequence[str] = ()) -> TensorSnapshot:
        """A snapshot of a numpy array, a torch tensor, a DeferredTensor or a TensorHandle."""
        return cls(full_path, values_of(value, full_path), containers=containers, layer=_innermost_layer(containers))

    @classmethod
    def from_data(cls, full_path: str, data: TensorData, *, containers: Sequence[str] = ()) -> TensorSnapshot:
        """A snapshot of values that are in memory."""
        return cls(full_path, data._values, containers=containers, layer=_innermost_layer(containers))

    # ---- what is known -------------------------------------------------------------------------------------------

    @property
    def full_path(self) -> str:
        """The name: "layers.0.weight". May be assigned to."""
        return self._path

    @full_path.setter
    def full_path(self, path: str) -> None:
        if not isinstance(path, str):
            raise TypeError(f"the name of a tensor is text, not {type(path).__name__}")
        self._path = path

    @property
    def name(self) -> str:
        """The same as full_path."""
        return self._path

    @name.setter
    def name(self, path: str) -> None:
        self.full_path = path

    def data_len(self) -> int:
        """The same as nbytes."""
        return self._values.nbytes

    @property
    def container_path(self) -> str:
        """Class names from the root to the owner: "Net.ModuleList.Linear". Empty for tensors of files."""
        return ".".join(self.containers)

    @property
    def container_type(self) -> str:
        """The class that holds the tensor, such as "Linear"; "Unknown" for a tensor of a file."""
        return self.containers[-1] if self.containers else "Unknown"

    @property
    def module_type(self) -> str | None:
        """The class of the layer that owns the tensor, lists and dicts of layers aside; for a subclass of a torch.nn class
        that class's name. None if it is not known: arrays and files do not say what layers their tensors belong to."""
        return self._layer or None

    # ---- values --------------------------------------------------------------------------------------------------

    def to_data(self) -> TensorData:
        """Reads the values, with all changes."""
        data = TensorData.__new__(TensorData)
        data.buffer = self._values.view() if self._values.shares else self._values.own()
        data._values = Loaded(self._values, data.buffer)
        return data

    def numpy(self) -> np.ndarray[Any, Any]:
        """Reads the values into an array, with all changes."""
        return self._values.numpy(own=not self._values.shares)

    def torch(self) -> torch.Tensor:
        """Reads the values into a tensor, with all changes."""
        return self._values.torch(own=not self._values.shares)

    # ---- others like it ------------------------------------------------------------------------------------------

    def renamed(self, full_path: str) -> TensorSnapshot:
        """A copy with another name."""
        return self._copy(full_path, self._values)

    def transposed(self) -> TensorSnapshot:
        """A matrix with rows and columns exchanged when it is read."""
        return self._copy(self._path, transposed(self._values, self._path))

    def cast(self, dtype: Any) -> TensorSnapshot:
        """The same numbers as another floating-point type ("bf16", torch.bfloat16, ...), converted when they are read."""
        return self._copy(self._path, cast(self._values, dtypes.stored_name(dtype), self._path))

    def quantized(self, scheme: QuantScheme) -> TensorSnapshot:
        """Floating-point numbers quantized as Burn does it, when they are written. Only Burnpack can hold the result."""
        return self._copy(self._path, quantized(self._values, scheme, self._path))

    def dequantized(self, dtype: Any = "F32") -> TensorSnapshot:
        """The numbers of a quantized tensor, as F32, F64, F16 or BF16, made when they are read."""
        return self._copy(self._path, dequantized(self._values, number_type(dtype), self._path))

    def mapped(
        self, function: Callable[[TensorData], Any], *, dtype: Any = None, shape: Sequence[int] | None = None
    ) -> TensorSnapshot:
        """What `function` makes of the values when they are read: an array, a tensor or bytes. dtype and shape say what that
        will be, when it is not what it was."""
        name = self._values.dtype if dtype is None else dtypes.stored_name(dtype)
        size = self.shape if shape is None else tuple(shape)
        return self._copy(self._path, Produced(name, size, lambda: function(self.to_data())))

    def _split(self) -> list[TensorSnapshot]:
        """The parts that Burn keeps of a packed tensor, as layers of Linear would have them: their matrices are transposed."""
        assert self._packed is not None
        before = self._path.removesuffix(self._packed.name)
        count = len(self._packed.parts)
        if not count or not self.shape or self.shape[0] % count:
            raise errors.make(
                "invalid_argument",
                f"Burn's layer has no parameter for {self._packed.name}"
                if not count
                else f"shape {list(self.shape)} cannot be split into {count} equal parts",
                tensor=self._path,
            )
        size = self.shape[0] // count
        found = []
        for i, (part, param_id) in enumerate(zip(self._packed.parts, self._part_ids, strict=True)):
            values = rows(self._values, i * size, (i + 1) * size, before + part)
            made = self._copy(before + part, transposed(values, before + part) if len(values.shape) == 2 else values)
            made._layer, made.param_id = "Linear", param_id
            found.append(made)
        return found

    @classmethod
    def _join(cls, target: TensorSnapshot, parts: Sequence[TensorSnapshot]) -> TensorSnapshot:
        """The inverse of _split(): the parts as one tensor, which goes where `target` says."""
        values = [transposed(part._values, part.full_path) if len(part.shape) == 2 else part._values for part in parts]
        return target._copy(target._path, joined(values, target._path))

    def _in_layer(self, layer: str | None) -> TensorSnapshot:
        made = self._copy(self._path, self._values)
        made._layer = layer
        return made

    def _copy(self, full_path: str, values: Values) -> TensorSnapshot:
        return TensorSnapshot(full_path, values, containers=self.containers, param_id=self.param_id, layer=self._layer)

    def __copy__(self) -> TensorSnapshot:
        return self._copy(self._path, self._values)

    def __repr__(self) -> str:
        place = f" in {self.container_path}" if self.containers else ""
        return f"<TensorSnapshot {self._path!r} {self.dtype} {list(self.shape)}{place}>"
