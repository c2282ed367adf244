"""Changes to tensors on their way between a module and a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from .. import errors
from .._core import QuantScheme
from .._files.dequantized import number_type
from .._tensors import dtypes
from .packed_layers import PACKED_LAYERS

if TYPE_CHECKING:
    from .filter import PathFilter
    from .snapshot import TensorSnapshot

Adapted = Union["TensorSnapshot", Sequence["TensorSnapshot"], None]
"""What an adapter makes of a tensor: another tensor, several, or nothing."""

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

# By the type of the layer, what Burn calls the parameters of torch.nn.
_TO_BURN = {
    layer: names
    for kinds, names in (
        ("BatchNorm LayerNorm GroupNorm RmsNorm InstanceNorm", {"weight": "gamma", "bias": "beta"}),
        ("PRelu", {"weight": "alpha"}),
    )
    for kind in kinds.split()
    for layer in _family(kind)
}
_TO_TORCH = {layer: {burn: torch for torch, burn in names.items()} for layer, names in _TO_BURN.items()}


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

    def adapt(self, snapshot: TensorSnapshot) -> Adapted:
        """The tensor as the other side wants it; None when the other side has no such tensor; several when the other side
        keeps it in parts, which is for saving only. While loading, the name of what is returned does not matter: the tensor is
        for the parameter that was asked about."""
        return snapshot

    def adapt_file(
        self, snapshots: Mapping[str, TensorSnapshot], metadata: Mapping[str, Any], wanted: Collection[str]
    ) -> Mapping[str, TensorSnapshot]:
        """All tensors of a file by the names that the other side has for them: where a file differs in more than single tensors.
        Called once a load, before names are matched; adapt() is asked about what is returned.

        metadata: of the file. wanted: the names of the parameters that are loaded."""
        return snapshots

    _joins = False  # whether the adapter makes packed tensors of their parts

    def _join(self, target: TensorSnapshot, parts: Sequence[TensorSnapshot]) -> Adapted:
        """A packed tensor for `target`, which says where it goes."""
        raise NotImplementedError

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
        self._joins = any(adapter._joins for adapter in self.adapters)

    def adapt(self, snapshot: TensorSnapshot) -> Adapted:
        return _adapt_by(self.adapters, [snapshot])

    def _join(self, target: TensorSnapshot, parts: Sequence[TensorSnapshot]) -> Adapted:
        at = next(i for i, adapter in enumerate(self.adapters) if adapter._joins)
        before = [made for part in parts for made in several(_adapt_by(self.adapters[:at], [part]))]
        return _adapt_by(self.adapters[at + 1 :], several(self.adapters[at]._join(target, before)))

    def adapt_file(
        self, snapshots: Mapping[str, TensorSnapshot], metadata: Mapping[str, Any], wanted: Collection[str]
    ) -> Mapping[str, TensorSnapshot]:
        for adapter in self.adapters:
            snapshots = adapter.adapt_file(snapshots, metadata, wanted)
        return snapshots

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
    """Transposes the weights of Linear and renames the parameters of normalizations and PReLU."""

    needs_types = True
    layer_names = frozenset({"Linear", *_TO_BURN, *PACKED_LAYERS})
    _names: dict[str, dict[str, str]]
    _found_under: dict[str, dict[str, str]]

    def adapt(self, snapshot: TensorSnapshot) -> Adapted:
        owner, dot, name = snapshot.full_path.rpartition(".")
        if snapshot.module_type == "Linear" and name == "weight" and len(snapshot.shape) == 2:
            return snapshot.transposed()
        other = self._names.get(snapshot.module_type or "", {}).get(name)
        return snapshot if other is None else snapshot.renamed(owner + dot + other)

    def get_alternative_param_name(self, param_name: str, container_type: str) -> str | None:
        return self._found_under.get(container_type, {}).get(param_name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PyTorchToBurnAdapter(_BurnAdapter):
    """From PyTorch's names and shapes to Burn's: Linear weights become [in, out], `weight` and `bias` of normalizations
    `gamma` and `beta`, `weight` of PReLU `alpha`. Saving, the packed matrices of attention, LSTM and GRU are split into the parts
    that Burn has, and `num_batches_tracked` is left out: Burn does not count batches."""

    _names = _TO_BURN
    _found_under = _TO_TORCH

    def adapt(self, snapshot: TensorSnapshot) -> Adapted:
        if snapshot._packed is not None:
            return snapshot._split()
        name = snapshot.full_path.rpartition(".")[2]
        if name == "num_batches_tracked" and snapshot.module_type in _BATCH_NORMS:
            return None
        return super().adapt(snapshot)


class BurnToPyTorchAdapter(_BurnAdapter):
    """From Burn's names and shapes to PyTorch's: the inverse of PyTorchToBurnAdapter. Loading, the packed matrices of attention,
    LSTM and GRU are made of Burn's parts, and a file need not have `num_batches_tracked`."""

    _names = _TO_TORCH
    _found_under = _TO_BURN
    _joins = True

    def _join(self, target: TensorSnapshot, parts: Sequence[TensorSnapshot]) -> Adapted:
        return target._join(target, parts)

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
        """Also converts layers of this type."""
        self._modules |= _family(name)
        return self

    def without_module(self, name: str) -> HalfPrecisionAdapter:
        """Leaves layers of this type as they are. An error for a type that is not converted anyway."""
        if not self._modules & _family(name):
            known = ", ".join(sorted(self._modules))
            raise errors.make("invalid_argument", f"{name} is not converted in the first place; these are: {known}")
        self._modules -= _family(name)
        return self

    def adapt(self, snapshot: TensorSnapshot) -> Adapted:
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
        """The same as FloatCastAdapter(dtype)."""
        return cls(dtype)

    def adapt(self, snapshot: TensorSnapshot) -> Adapted:
        return snapshot.cast(self.dtype) if snapshot._values.dtype in dtypes.FLOATS else snapshot

    def __repr__(self) -> str:
        return f"FloatCastAdapter({self.dtype!r})"


def several(adapted: Adapted) -> list[TensorSnapshot]:
    """What an adapter made, as a list."""
    if adapted is None:
        return []
    return list(adapted) if isinstance(adapted, Sequence) else [adapted]


def _adapt_by(adapters: Sequence[ModuleAdapter], snapshots: list[TensorSnapshot]) -> Adapted:
    """What adapters make of snapshots, one after the other."""
    for adapter in adapters:
        snapshots = [made for snapshot in snapshots for made in several(adapter.adapt(snapshot))]
    return snapshots[0] if len(snapshots) == 1 else snapshots or None


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
        return snapshot.dequantized(self.dtype) if dtypes.is_quantized(snapshot._values.dtype) else snapshot

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
