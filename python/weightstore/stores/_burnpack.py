"""Burnpack files, Burn's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from .. import _core, errors
from .._files.saving import Scalar
from .._modules.apply.result import ApplyResult
from .._modules.param_ids import default_id
from .._modules.snapshot import TensorSnapshot
from .._modules.values import FileTensor
from ._optimizer import OptimizerLoad, OptimizerRules, make_record
from ._writing import WritingStore

_OLDEST = "0.20"
# Types that Burn's releases do not encode alike.
_DIFFERS = ("QFloat", "BoolU8", "BoolU32")


class BurnpackStore(WritingStore):
    """Keeps modules in Burnpack files. Ids of parameters are saved and restored.

    A path without an ending gets `.bpk`, unless auto_extension(False).
    """

    _format = "burnpack"
    _default_metadata: ClassVar[dict[str, str]] = {"format": "burnpack", "producer": "weightstore"}
    # Burn knows nothing of other names in the metadata: it looks for every name.
    _ties_once = False

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__(path, data)
        self._auto_extension = path is not None
        self._scalars: dict[str, Scalar] = {}
        self._burn: str | None = None
        self._needed_burn = _OLDEST

    def for_burn(self, release: Literal["0.20", "0.21", "0.22"]) -> Self:
        """The Burn release that shall read what is saved: booleans changed in 0.21, quantized tensors in 0.22. Unless set it
        is 0.20, or the release of the files that such tensors are taken from."""
        if release not in ("0.20", "0.21", "0.22"):
            text = f"{release!r} is not '0.20', '0.21' or '0.22'"
            raise errors.make("invalid_argument", text, format=self._format)
        self._burn = release
        return self

    def scalar(self, key: str, value: Scalar) -> Self:
        """Adds a named number or truth value to what is saved."""
        if not isinstance(key, str) or not isinstance(value, (int, float)):
            raise TypeError(f"a scalar has a name and is an int, a float or a bool: not {key!r}, {value!r}")
        self._scalars[key] = value
        return self

    def get_scalars(self) -> dict[str, Scalar]:
        """The scalars of the file."""
        with self._placing():
            return self._read().source.reader.scalars()

    # ---- optimizers ----------------------------------------------------------------------------------------------

    def collect_optimizer(self, optimizer: Any, model: Any) -> None:
        """Saves the state of an optimizer as Burn's record, for `ModuleOptimizer::load`.

        optimizer: a torch.optim.Adam or AdamW. The learning rate, the betas and other settings are not part of a record.
        model: the torch.nn.Module that it trains. Save the model itself with the same adapter (with_to_adapter), in a file of its
            own: Burn finds the state by the ids that the parameters have there.
        """
        with self._placing():
            rules = OptimizerRules(self._filter, self._to_adapter, self._to_types, self._skips_variants)
            record = make_record(optimizer, model, rules)
            writer = _core.Writer()
            for tensor in record.tensors:
                tensor._values.add_to(writer, tensor.full_path, tensor.param_id, self._format)
            own = (
                self._metadata
                if not self._describes
                else {key: value for key, value in self._metadata.items() if self._default_metadata.get(key) != value}
            )
            paths = {key: self._remapper.rename(path) for key, path in record.paths.items()}
            if own or paths:
                writer.set_metadata({**own, **paths})
            self._add_scalars(writer)
            for name, value in record.scalars.items():
                writer.set_scalar(name, value)
            self._write(writer)
            self._contents = None

    def apply_optimizer(self, optimizer: Any, model: Any) -> ApplyResult:
        """Loads the state of an optimizer from Burn's record. Parameters are found by their ids, so load the model first, from
        the Burnpack file that belongs to the record.

        The result and the errors are those of apply_to(): a parameter is missing if the record has no state for it, and a
        tensor is unused if no parameter has its id. A load that fails leaves the optimizer as it was.
        """
        with self._placing():
            contents = self._read()
            rules = OptimizerRules(self._filter, self._from_adapter, self._from_types, self._skips_variants)
            scalars = contents.source.reader.scalars()
            load = OptimizerLoad(optimizer, model, rules, contents.snapshots, scalars)
            self._check(load.result)
            load.commit()
        return load.result

    def _plan(self, collected: Iterable[tuple[str, TensorSnapshot]]) -> _core.Writer:
        planned = list(collected)
        sources = [
            s._values.source for _, s in planned if isinstance(s._values, FileTensor) and s._values.dtype in _DIFFERS
        ]
        self._needed_burn = max((source.reader.dialect for source in sources), default=_OLDEST)
        return super()._plan(planned)

    def _format_options(self) -> dict[str, Any]:
        return {"burn": self._burn or max(self._needed_burn, _OLDEST)}

    def _id(self, origin: str, snapshot: TensorSnapshot) -> int | None:
        return default_id(origin) if snapshot.param_id is None else snapshot.param_id

    def _add_scalars(self, writer: _core.Writer) -> None:
        for name, value in self._scalars.items():
            writer.set_scalar(name, value)
