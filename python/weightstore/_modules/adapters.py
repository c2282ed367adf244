"""Changes to tensors on their way between a module and a file."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .. import errors
from .._core import QuantScheme
from .._files.dequantized import number_type
from .._tensors import dtypes

if TYPE_CHECKING:
    from .filter import PathFilter
    from .snapshot import TensorSnapshot

# Classes of one kind: Burn's name, and what torch.nn calls it.
_FAMILIES = {
    "BatchNorm": ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
    "InstanceNorm": ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
    "RmsNorm": ("RMSNorm",),
    "PRelu": ("PReLU",),
}


def _family(name: str) -> set[str]:
    plain = name.removeprefix("Struct:").removeprefix("Enum:")
    return {plain, *_FAMILIES.get(plain, ())}


_BATCH_NORMS = _family("BatchNorm")
_RENAMED_NORMS = _BATCH_NORMS | _family("LayerNorm") | _family("GroupNorm") | _family("RmsNorm")

_TO_BURN = {"weight": "gamma", "bias": "beta"}
_TO_TORCH = {burn: torch for torch, burn in _TO_BURN.items()}


class ModuleAdapter:
    """Base of all adapters; by itself it changes nothing.

    An adapter is asked about one tensor at a time, with the layer it belongs to in `snapshot.module_type`. It describes
    the change (`renamed()`, `transposed()`, `cast()`, `mapped()`) and reads nothing itself.
    """

    needs_types: bool = False
    """Whether the adapter goes by `snapshot.module_type`, so that a tensor without one is an error. An adapter of your own
    that asks for the module type sets this to True."""

    layer_names: Collection[str] = ()
    """The layer types that the adapter knows by name."""

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        """The tensor as the other side wants it; None when the other side has no such tensor. While loading, the name of
        what is returned does not matter: the tensor is for the parameter that was asked about."""
        return snapshot

    def get_alternative_param_name(self, param_name: str, container_type: str) -> str | None:
        """Another name under which a file may hold the parameter `param_name` of a layer of type `container_type`."""
        return None

    def is_optional(self, param_name: str, container_type: str) -> bool:
        """Whether the other side may lack this parameter, so that it is not missing when it does."""
        return False

    def chain(self, other: ModuleAdapter) -> ChainAdapter:
        """This adapter, then the other."""
        return ChainAdapter(self, other)


class ChainAdapter(ModuleAdapter):
    """Several adapters, one after the other."""

    def __init__(self, *adapters: ModuleAdapter) -> None:
        self.adapters = [as_adapter(adapter) for adapter in adapters]
        self.needs_types = any(adapter.needs_types for adapter in self.adapters)
        self.layer_names = {name for adapter in self.adapters for name in adapter.layer_names}

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        current: TensorSnapshot | None = snapshot
        for adapter in self.adapters:
            if current is None:
                return None
            current = adapter.adapt(current)
        return current

    def get_alternative_param_name(self, param_name: str, container_type: str) -> str | None:
        # Each is asked about what those before it suggested, and the last suggestion counts.
        name = param_name
        suggested = None
        for adapter in self.adapters:
            other = adapter.get_alternative_param_name(name, container_type)
            if other is not None:
                name = suggested = other
        return suggested

    def is_optional(self, param_name: str, container_type: str) -> bool:
        return any(adapter.is_optional(param_name, container_type) for adapter in self.adapters)

    def __repr__(self) -> str:
        return f"ChainAdapter({', '.join(map(repr, self.adapters))})"


class _BurnAdapter(ModuleAdapter):
    """Transposes the weights of Linear and renames the parameters of normalizations."""

    needs_types = True
    layer_names = frozenset({"Linear", *_RENAMED_NORMS})
    _names: dict[str, str]
    _found_under: dict[str, str]

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        owner, dot, name = snapshot.full_path.rpartition(".")
        if snapshot.module_type == "Linear" and name == "weight" and len(snapshot.shape) == 2:
            return snapshot.transposed()
        if snapshot.module_type in _RENAMED_NORMS and name in self._names:
            return snapshot.renamed(owner + dot + self._names[name])
        return snapshot

    def get_alternative_param_name(self, param_name: str, container_type: str) -> str | None:
        return self._found_under.get(param_name) if container_type in _RENAMED_NORMS else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PyTorchToBurnAdapter(_BurnAdapter):
    """From PyTorch's names and shapes to Burn's: Linear weights become [in, out], `weight` and `bias` of normalizations
    `gamma` and `beta`. Saving, `num_batches_tracked` is left out: Burn does not count batches."""

    _names = _TO_BURN
    _found_under = _TO_TORCH

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        name = snapshot.full_path.rpartition(".")[2]
        if name == "num_batches_tracked" and snapshot.module_type in _BATCH_NORMS:
            return None
        return super().adapt(snapshot)


class BurnToPyTorchAdapter(_BurnAdapter):
    """From Burn's names and shapes to PyTorch's: the inverse of PyTorchToBurnAdapter. Loading, a file need not have
    `num_batches_tracked`."""

    _names = _TO_TORCH
    _found_under = _TO_BURN

    def is_optional(self, param_name: str, container_type: str) -> bool:
        return param_name == "num_batches_tracked" and container_type in _BATCH_NORMS


_HALVED = (
    "Linear Embedding Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d DeformConv2d LayerNorm GroupNorm "
    "InstanceNorm RmsNorm PRelu"
).split()


class HalfPrecisionAdapter(ModuleAdapter):
    """F32 becomes F16, and F16 becomes F32: the same adapter serves saving and loading. Only in layers that bear it: linear
    layers, convolutions, embeddings, PReLU, and normalizations except BatchNorm.

    with_module() and without_module() change the adapter and return it.
    """

    needs_types = True

    def __init__(self) -> None:
        self._modules: set[str] = set().union(*(_family(name) for name in _HALVED))
        self.layer_names = {*self._modules, *_BATCH_NORMS}

    def with_module(self, name: str) -> HalfPrecisionAdapter:
        self._modules |= _family(name)
        return self

    def without_module(self, name: str) -> HalfPrecisionAdapter:
        if not self._modules & _family(name):
            known = ", ".join(sorted(self._modules))
            raise errors.make("invalid_argument", f"{name} is not converted in the first place; these are: {known}")
        self._modules -= _family(name)
        return self

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        other = {"F32": "F16", "F16": "F32"}.get(snapshot._values.dtype)
        return snapshot if other is None or snapshot.module_type not in self._modules else snapshot.cast(other)

    def __repr__(self) -> str:
        return "HalfPrecisionAdapter()"


class FloatCastAdapter(ModuleAdapter):
    """Every floating-point tensor becomes `dtype` ("F32", "BF16", torch.float16, ...), whatever layer it belongs to."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtypes.DType(dtypes.stored_name(dtype))
        if self.dtype not in dtypes.FLOATS:
            raise errors.make("invalid_argument", f"cannot cast to {self.dtype}; types are {', '.join(dtypes.FLOATS)}")

    @classmethod
    def to(cls, dtype: Any) -> FloatCastAdapter:
        return cls(dtype)

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        return snapshot.cast(self.dtype) if snapshot._values.dtype in dtypes.FLOATS else snapshot

    def __repr__(self) -> str:
        return f"FloatCastAdapter({self.dtype!r})"


class _Quantize(ModuleAdapter):
    def __init__(self, scheme: QuantScheme, chosen: PathFilter | None) -> None:
        self.scheme = scheme
        self.chosen = chosen

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        if snapshot._values.dtype not in dtypes.CORE_FLOATS:
            return snapshot
        if self.chosen is None:
            is_chosen = len(snapshot.shape) >= 2
        else:
            is_chosen = self.chosen.matches(snapshot.full_path, snapshot.container_path)
        return snapshot.quantized(self.scheme) if is_chosen else snapshot

    def __repr__(self) -> str:
        return f"quantize({self.scheme!r})"


class _Dequantize(ModuleAdapter):
    def __init__(self, dtype: Any) -> None:
        self.dtype = number_type(dtype)

    def adapt(self, snapshot: TensorSnapshot) -> TensorSnapshot | None:
        return snapshot.dequantized(self.dtype) if snapshot._values.dtype == "QFloat" else snapshot

    def __repr__(self) -> str:
        return f"dequantize({self.dtype!r})"


def quantize(scheme: QuantScheme | str, filter: PathFilter | None = None) -> ModuleAdapter:
    """An adapter that quantizes on the way into a Burnpack file, with the scales and codes of Burn's own calibration: the largest
    magnitude of a tensor, or of a block, becomes the largest code.

    scheme: a QuantScheme, or the type of its values ("Q8S", "Q4S") for one F32 scale a tensor and a byte a value.
        `scheme.burn` is the release whose rounding is used.
    filter: which tensors. By default all floating-point tensors of two or more dimensions; those of fewer are small.
    """
    return _Quantize(QuantScheme(scheme) if isinstance(scheme, str) else scheme, filter)


def dequantize(dtype: Any = "F32") -> ModuleAdapter:
    """An adapter that makes numbers of quantized tensors, on the way into a module or into a file.

    dtype: F32, F64, F16 or BF16.
    """
    return _Dequantize(dtype)


def as_adapter(adapter: Any) -> ModuleAdapter:
    """An adapter, or the class of one that needs no arguments."""
    made = adapter() if isinstance(adapter, type) and issubclass(adapter, ModuleAdapter) else adapter
    if not isinstance(made, ModuleAdapter):
        raise TypeError(f"an adapter derives from ModuleAdapter; {type(made).__name__} does not")
    return made
