"""Burnpack files, Burn's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from .. import _core
from .._files.entries.scalars import Scalar, Scalars, add_scalars, scalars_of
from .._modules.apply.result import ApplyResult
from .._modules.param_ids import default_id
from .._modules.snapshot import TensorSnapshot
from .._modules.values.changed import Quantized
from .._modules.values.original import FileTensor
from ._optimizer import OptimizerLoad, OptimizerRules, make_record
from ._writing import WritingStore

_NEWEST_STABLE = "0.22"
# Types that Burn's releases do not encode alike.
_DIFFERS = ("BOOL", "BoolU8", "BoolU32", "QFloat")


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
        self._scalars = Scalars()
        self._burn: str | None = None
        self._planned_burn = _NEWEST_STABLE

    def for_burn(self, release: str) -> Self:
        """The Burn release that shall read what is saved: "0.20" to "0.23", also with a patch number ("0.21.0").

        Unless set, booleans and quantized tensors of files are saved for the release of their files, for the newest of them if
        there are several; everything else is saved for the newest stable release, 0.22. Saving raises InvalidArgument for a
        tensor that the release does not have, or from which it would read other numbers.
        """
        with self._placing():
            self._burn = _core.burn_release(release)
        return self

    def scalar(self, key: str, value: Scalar, *, unsigned: bool = False) -> Self:
        """Adds a named number or truth value to what is saved.

        unsigned: store a whole number without a sign, as Burn stores steps of optimizers and schedulers. Burn reads either.
        """
        if not isinstance(key, str) or not isinstance(value, (int, float)):
            raise TypeError(f"a scalar has a name and is an int, a float or a bool: not {key!r}, {value!r}")
        return self.scalars(Scalars({key: value}, (key,) if unsigned else ()))

    def scalars(self, scalars: Mapping[str, Scalar]) -> Self:
        """Adds scalars to what is saved. Those of a file (`file.scalars`, get_scalars()) are stored as the file stores them."""
        unsigned = scalars.unsigned if isinstance(scalars, Scalars) else frozenset()
        kept = self._scalars.unsigned - scalars.keys()
        self._scalars = Scalars({**self._scalars, **scalars}, kept | unsigned)
        return self

    def get_scalars(self) -> Scalars:
        """The scalars of the file."""
        with self._placing():
            return scalars_of(self._read().source.reader)

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
            add_scalars(writer, Scalars(record.scalars, unsigned=record.scalars))  # as Burn stores them
            self._planned_burn = self._burn or _NEWEST_STABLE
            self._write(writer)
            self._forget()

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

    def _plan_batch(self, module: Any) -> _core.Writer | None:
        self._planned_burn = self._burn or _NEWEST_STABLE
        return super()._plan_batch(module)

    def _plan(self, collected: Iterable[tuple[str, TensorSnapshot]]) -> _core.Writer:
        planned = list(collected)
        values = [snapshot._values for _, snapshot in planned]
        sources = [one.source.reader for one in values if isinstance(one, FileTensor) and one.dtype in _DIFFERS]
        releases = [reader.burn_release for reader in sources if reader.burn_release is not None]
        releases += [one.scheme.burn for one in values if isinstance(one, Quantized)]
        self._planned_burn = self._burn or max(releases, default=_NEWEST_STABLE)
        return super()._plan(planned)

    def _described(self) -> dict[str, str]:
        # Nothing else in a file tells 0.23 from 0.22.
        told = {"burn": self._planned_burn} if self._describes and self._planned_burn > _NEWEST_STABLE else {}
        return told | super()._described()

    def _format_options(self) -> dict[str, Any]:
        return {"burn": self._planned_burn}

    def _id(self, origin: str, snapshot: TensorSnapshot) -> int | None:
        return default_id(origin) if snapshot.param_id is None else snapshot.param_id

    def _add_scalars(self, writer: _core.Writer) -> None:
        add_scalars(writer, self._scalars)
