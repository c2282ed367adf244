"""The state of Adam and AdamW as Burn's record of an optimizer has it, and back.

A record names tensors and scalars by the ids of parameters: `<id>.momentum.moment_1`, `<id>.momentum.moment_2`,
`<id>.momentum.max_moment_2` (AMSGrad only), `<id>.momentum.time`, `<id>.__rank`. Its metadata has the paths of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import errors
from .._files.entries.scalars import Scalar
from .._modules.adapters import ModuleAdapter, several
from .._modules.apply.adapted import adapted_for
from .._modules.apply.result import ApplyError, ApplyResult, LoadError, MissingTensor, ShapeMismatch
from .._modules.choice import choose, places_with_layers
from .._modules.filter import PathFilter
from .._modules.layers import LayerTypes
from .._modules.match import names_without_variants
from .._modules.module_tensors import snapshot_of
from .._modules.param_ids import id_of
from .._modules.places import Place, is_torch_module
from .._modules.snapshot import TensorSnapshot

if TYPE_CHECKING:
    import torch

# What torch.optim calls the tensors of its state, and Burn's names for them.
_MOMENTS = {"exp_avg": "moment_1", "exp_avg_sq": "moment_2", "max_exp_avg_sq": "max_moment_2"}


@dataclass(slots=True)
class OptimizerRules:
    """The options of a store that matter for an optimizer."""

    filter: PathFilter | None
    adapter: ModuleAdapter | None
    types: LayerTypes | None
    skip_enum_variants: bool


@dataclass(slots=True)
class OptimizerRecord:
    """What a file holds of an optimizer."""

    tensors: list[TensorSnapshot]
    scalars: dict[str, Scalar]
    paths: dict[str, str]  # by the ids of parameters, as text


def _parameters(optimizer: Any, model: Any, rules: OptimizerRules, word: str) -> tuple[list[Place], dict[str, str]]:
    """The parameters of the model that the optimizer changes and the filter lets through; and names without enum variants."""
    import torch

    if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        raise errors.make(
            "invalid_argument",
            f"only Adam and AdamW have a counterpart in Burn's records, not {type(optimizer).__name__}",
        )
    if not is_torch_module(model):
        raise TypeError(f"the model is a torch.nn.Module, not {type(model).__name__}")
    places = places_with_layers(model, rules.types)
    known = {id(place.value) for place in places}
    optimized = {id(value) for group in optimizer.param_groups for value in group["params"]}
    if not optimized <= known:
        raise errors.make(
            "invalid_argument",
            f"the optimizer changes {len(optimized - known)} parameters that the model does not have",
        )
    names = names_without_variants([place.path for place in places]) if rules.skip_enum_variants else {}
    chosen = choose(places, names, rules.filter, rules.adapter, refuse_none=word)
    return [place for place in chosen if id(place.value) in optimized], names


def make_record(optimizer: Any, model: Any, rules: OptimizerRules) -> OptimizerRecord:
    """Burn's record of an optimizer. Reads no tensors."""
    record = OptimizerRecord([], {}, {})
    places, names = _parameters(optimizer, model, rules, "saved")
    for place in places:
        state = optimizer.state.get(place.value)
        if not state:
            continue  # a parameter without a gradient so far
        for field, moment in _MOMENTS.items():
            if field not in state:
                continue
            snapshot = snapshot_of(replace(place, value=state[field]))
            snapshot.full_path = names.get(place.path, place.path)
            for part in several(snapshot if rules.adapter is None else rules.adapter.adapt(snapshot)):
                key = str(part.param_id)
                record.paths[key] = part.full_path
                record.scalars[f"{key}.__rank"] = len(part.shape)
                record.scalars[f"{key}.momentum.time"] = int(state["step"])
                record.tensors.append(part.renamed(f"{key}.momentum.{moment}"))
    return record


class OptimizerLoad:
    """Reads Burn's record into an optimizer: first everything is checked, then commit() changes the optimizer."""

    def __init__(
        self,
        optimizer: Any,
        model: Any,
        rules: OptimizerRules,
        tensors: Mapping[str, TensorSnapshot],
        scalars: Mapping[str, Scalar],
    ) -> None:
        self._optimizer = optimizer
        self._adapter = rules.adapter
        self._tensors = tensors
        self._scalars = scalars
        self._states: dict[int, tuple[int, dict[str, TensorSnapshot]]] = {}  # by the identity of the parameter
        self._groups = {id(value): group for group in optimizer.param_groups for value in group["params"]}
        self.result = ApplyResult()
        places, _ = _parameters(optimizer, model, rules, "loaded")
        used: set[str] = set()
        for place in places:
            ids = self._ids(place)
            mine = {f"{param_id}.momentum.{moment}" for param_id in ids for moment in _MOMENTS.values()} & set(tensors)
            used |= mine
            if not mine:
                self.result.missing.append(MissingTensor(place.path, ".".join(place.containers)))
                continue
            try:
                self._states[id(place.value)] = self._state(place, ids)
                self.result.applied.append(place.path)
            except ApplyError as error:
                self.result.errors.append(error.with_traceback(None))
        self.result.missing.sort()
        self.result.unused = sorted(set(tensors) - used)

    def _ids(self, place: Place) -> list[int]:
        packed = place.packed if self._adapter is not None and self._adapter._joins else None
        if packed is None or len(packed.parts) < 2:
            return [id_of(place.owner, place.key, place.path)]
        before = place.path.removesuffix(packed.name)
        return [id_of(place.owner, part, before + part) for part in packed.parts]

    def _state(self, place: Place, ids: list[int]) -> tuple[int, dict[str, TensorSnapshot]]:
        times = {f"{param_id}.momentum.time": self._scalars.get(f"{param_id}.momentum.time") for param_id in ids}
        for name, time in times.items():
            if not isinstance(time, int) or time < 0:
                raise LoadError(place.path, f"the scalar {name} is {time!r}; it is the number of steps")
        time, *others = map(int, set(times.values()))  # type: ignore[arg-type]
        if others:
            text = ", ".join(f"{name} is {found}" for name, found in times.items())
            raise LoadError(place.path, f"its parts have taken different numbers of steps: {text}")
        state = {}
        for field, moment in _MOMENTS.items():
            names = [f"{param_id}.momentum.{moment}" for param_id in ids]
            found = [self._tensors[name] for name in names if name in self._tensors]
            if not found and field == "max_exp_avg_sq":
                continue
            if len(found) < len(names):
                lacks = ", ".join(name for name in names if name not in self._tensors)
                raise LoadError(place.path, f"the record lacks {lacks}")
            state[field] = self._fitting(place, found)
        if self._groups[id(place.value)]["amsgrad"]:
            state.setdefault("max_exp_avg_sq", state["exp_avg_sq"])  # which Burn begins with, too
        elif "max_exp_avg_sq" in state:
            raise LoadError(place.path, "the record is of AMSGrad; make the optimizer with amsgrad=True")
        return time, state

    def _fitting(self, place: Place, stored: list[TensorSnapshot]) -> TensorSnapshot:
        is_joined = place.packed is not None and self._adapter is not None and self._adapter._joins
        snapshot = adapted_for(place, stored, self._adapter, is_joined=is_joined)
        expected = tuple(place.value.shape)
        if snapshot is None or snapshot.shape != expected:
            shape = None if snapshot is None else snapshot.shape
            text = f"shape {None if shape is None else list(shape)} was found where {list(expected)} is expected"
            raise ShapeMismatch(place.path, expected, shape, text)
        return snapshot

    def commit(self) -> None:
        """Reads the values and gives them to the optimizer, which puts them where its parameters are."""
        import torch

        packed = self._optimizer.state_dict()
        order = [value for group in self._optimizer.param_groups for value in group["params"]]
        for index, value in enumerate(order):
            if id(value) in self._states:
                time, state = self._states[id(value)]
                packed["state"][index] = {
                    "step": torch.tensor(float(time)),
                    **{field: _torch_value(snapshot) for field, snapshot in state.items()},
                }
        self._optimizer.load_state_dict(packed)


def _torch_value(snapshot: TensorSnapshot) -> torch.Tensor:
    return snapshot._values.torch(own=True)
