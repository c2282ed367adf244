"""offload_module, and the handle that it returns."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import torch

from .. import errors
from .._files.file import File
from .._files.sizes import Size, format_size, parse_size
from .._files.source import kind_of
from .._modules.apply.commit import commit
from .._modules.apply.plan import Assignment, Plan
from .._modules.places import Place
from .._pager import Pager
from .._policies import Policy
from ..stores import FileStore
from ..stores._reading import ReadingStore
from .block import Block, Counters, Seat
from .blocks import around, find_blocks, innermost
from .pins import pinned_slots
from .report import describe_run
from .weights import Weight


def offload_module(
    model: torch.nn.Module,
    source: Any,
    *,
    budget: Size | None = "auto",
    policy: Policy = "cyclic",
    blocks: Iterable[Any] | None = None,
    pinned: Iterable[Any] = (),
) -> OffloadedModule:
    """Lets a module run with its weights in a file. Before the forward of a block, a pager brings the block's weights into
    memory; after it they may be evicted. For inference on the CPU.

    model: any nn.Module. Its parameters are not needed: build it with `empty_weights()`. Afterwards its parameters are
        placeholders, which have a shape and no values.
    source: a path, a File or a store, whose renames, filters and adapters apply; or the `pager` of another handle.
    budget: the limit for the memory of all weights, of copies that casts and adapters make, and of the module's buffers, as bytes
        or text such as "4GB". "auto" follows the available memory. None is no limit.
    policy: "cyclic" learns the order of the blocks, keeps as many as it can, and reads the others ahead; "lru";
        schedule([...]) with names of tensors of the file.
    blocks: the modules whose weights are in memory together, as names, patterns such as "layers.*", or modules. By default
        the repeated modules, such as the layers of a transformer, and the modules beside them.
    pinned: weights that stay in memory: names of parameters, patterns, "embeddings", "head", or "last:4" for the last four layers.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"offload_module takes a torch.nn.Module, not {errors.typed(model)}")
    return OffloadedModule(model, source, budget, policy, blocks, pinned)


class OffloadedModule:
    """A module that runs with its weights in a file. Made by offload_module(); a context manager that closes itself.

    module: the module.
    pager: the pager that has the weights. Another module can be offloaded to the same pager.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        source: Any,
        budget: Size | None,
        policy: Policy,
        blocks: Iterable[Any] | None,
        pinned: Iterable[Any],
    ) -> None:
        self.module = model
        self._check_module()
        shared = source if isinstance(source, Pager) else None
        plan, opened = _store_of(source)._paged(model, None if shared is None else shared._opened)
        self._source = opened
        weights = self._weights(plan)
        found = find_blocks(model, blocks)
        self._counters = Counters()
        self._seats = self._make_seats(found, weights)
        self._load_buffers(plan)
        self.buffer_bytes = _buffer_bytes(model)
        members: dict[str, list[Seat]] = {}
        for seat in self._seats:
            members.setdefault(innermost(seat.name, found), []).append(seat)
        needed, copied = self._needs(found, members)
        if shared is None:
            limit = self._limit(budget, needed, copied)
            shared = Pager(opened, limit, policy=policy, strict=True, window=2 * needed)
            self._owns_pager = True
        else:
            self._owns_pager = False
        self.pager = shared
        self.needed_bytes = needed
        self._pins = pinned_slots(pinned, self._seats, found, model)
        for slot in self._pins:
            self.pager.pin(slot)
        self._blocks = []
        for name, module in found.items():
            if name in members:
                block = Block(name, module, self.pager, self._counters)
                block.seats = members[name]
                self._blocks.append(block)
        self._guards = [
            module.register_load_state_dict_pre_hook(_refuse_load)  # type: ignore[no-untyped-call]
            for module in {id(seat.owner): seat.owner for seat in self._seats}.values()
        ]
        for block in self._blocks:
            block.attach()
        self._closed = False

    # ---- planning ------------------------------------------------------------------------------------------------

    def _check_module(self) -> None:
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            if tensor.device.type not in ("cpu", "meta"):
                raise errors.make(
                    "invalid_argument",
                    f"is on {tensor.device}; only modules on the CPU and on the meta device can be offloaded",
                    format="pager",
                    tensor=name,
                )
        if any(type(parameter).__name__ == "Placeholder" for parameter in self.module.parameters()):
            raise errors.make(
                "invalid_argument", "the module is offloaded already; close() the other handle", format="pager"
            )

    def _weights(self, plan: Plan) -> list[tuple[Weight, list[Place]]]:
        weights = []
        for assignment in plan.assignments:
            places = [place for place in assignment.places if place.kind == "parameter"]
            if places:
                weights.append((Weight(places[0].path, assignment, places[0].value), places))
        return weights

    def _make_seats(self, found: dict[str, Any], weights: list[tuple[Weight, list[Place]]]) -> list[Seat]:
        names: dict[int, list[tuple[str, torch.nn.Module, str]]] = {}
        for path, module in self.module.named_modules(remove_duplicate=True):
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    names.setdefault(id(parameter), []).append((f"{path}.{key}" if path else key, module, key))
        seats = []
        for weight, places in weights:
            parameters = {id(place.value): place.value for place in places}
            for parameter in parameters:
                for name, owner, key in names[parameter]:
                    seats.append(Seat(name, owner, key, weight, innermost(name, found)))
        return seats

    def _load_buffers(self, plan: Plan) -> None:
        """Buffers stay in memory. Those that the file has are loaded; one without values is refused."""
        taken: list[Assignment] = []
        for assignment in plan.assignments:
            places = [place for place in assignment.places if place.kind == "buffer"]
            if places:
                taken.append(Assignment(assignment.snapshot, places, assignment.converts, assignment.adopts))
        self._original_buffers = [
            (place.owner, place.key, place.value) for assignment in taken for place in assignment.places
        ]
        loaded = {id(place.value) for assignment in taken for place in assignment.places}
        lacking = [
            name
            for name, buffer in self.module.named_buffers()
            if buffer.device.type == "meta" and id(buffer) not in loaded
        ]
        if lacking:
            raise errors.make(
                "invalid_argument",
                f"is a buffer on the meta device, and the file does not have it{_others(lacking)}. Build the module with "
                "`with weightstore.empty_weights():`, which gives buffers their values",
                format="pager",
                tensor=lacking[0],
            )
        commit(Plan(plan.result, taken, []), zero_copy=False, progress=None)

    def _needs(self, found: dict[str, Any], members: dict[str, list[Seat]]) -> tuple[int, int]:
        """The memory of the pager that the largest block needs together with the blocks around it; and that of its copies."""
        stored = {name: _stored_bytes(seats) for name, seats in members.items()}
        copied = {
            name: sum({id(s.weight): s.weight.copied_bytes for s in seats}.values()) for name, seats in members.items()
        }
        needed = largest_copies = 0
        for name in members:
            path = around(name, found)
            total = sum(stored.get(outer, 0) for outer in path)
            if total > needed:
                needed, self._largest = total, name
            largest_copies = max(largest_copies, sum(copied.get(outer, 0) for outer in path))
        return needed, largest_copies

    def _limit(self, budget: Size | None, needed: int, copied: int) -> Size | None:
        if budget is None or budget == "auto":
            return budget
        given = parse_size(budget, "budget", least=0)
        left = given - self.buffer_bytes - copied
        if left < needed:
            raise errors.make(
                "invalid_argument",
                f"budget is {format_size(given)}, and '{self._largest}' needs {format_size(needed)} for its weights"
                + (f", {format_size(copied)} for weights that are cast or changed" if copied else "")
                + (f", beside {format_size(self.buffer_bytes)} of buffers" if self.buffer_bytes else "")
                + f"; give at least {needed + copied + self.buffer_bytes} bytes, or name smaller blocks",
                format="pager",
            )
        return left

    # ---- what callers see ----------------------------------------------------------------------------------------

    @property
    def blocks(self) -> list[str]:
        """The names of the blocks, in the order of the module. The empty name is the module itself."""
        return [block.name for block in self._blocks]

    def report(self) -> str:
        """One paragraph about the run so far: what limited it, and which budget would help."""
        return describe_run(self.pager, self._counters, self._model_bytes(), self.buffer_bytes)

    def _model_bytes(self) -> int:
        return _stored_bytes(self._seats)

    def close(self, *, load: bool = False) -> None:
        """Gives the module back: it runs without the pager again. Its parameters are on the meta device, or, with load=True, have
        the values of the file. Buffers keep the values of the file in both cases."""
        if self._closed:
            return
        running = [block.name for block in self._blocks if block.is_running]
        if running:
            raise errors.make(
                "invalid_argument", f"the module is running: '{running[0]}' has not returned", format="pager"
            )
        weights = {id(seat.weight): seat for seat in self._seats}
        values = {key: self._final(seat, load) for key, seat in weights.items()}
        for block in self._blocks:
            block.detach(values)
        for guard in self._guards:
            guard.remove()
        for slot in self._pins:
            self.pager.unpin(slot)
        self._closed = True
        if self._owns_pager:
            self.pager.close()

    def _final(self, seat: Seat, load: bool) -> Any:
        original = seat.original
        if not load and original.device.type == "meta":
            return original
        with torch.inference_mode(False), torch.no_grad():
            if load:
                slots = seat.weight.slots
                handles = dict(zip(slots, self.pager.acquire_many(slots), strict=True))
                value = seat.weight.tensor(handles).clone()
            else:
                value = torch.empty_like(original, device="meta")
            made = torch.nn.Parameter(value, requires_grad=original.requires_grad)
        vars(made).update(vars(original))
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._blocks)} blocks, {self.pager!r}"
        return f"<OffloadedModule {type(self.module).__name__}: {state}>"


def _store_of(source: Any) -> Any:
    if isinstance(source, Pager):
        if source._opened is None:
            raise TypeError("cannot offload to a LayerPager: its tensors have no types and shapes")
        return FileStore(None, None)
    if isinstance(source, File):
        return FileStore(None, source)
    if isinstance(source, ReadingStore):
        return source
    if kind_of(source) == "path":
        return FileStore.from_file(source)
    if kind_of(source) == "buffer":
        return FileStore.from_bytes(source)
    raise TypeError(f"cannot offload to {errors.typed(source)}: give a path, a File, a store or a Pager")


def _stored_bytes(seats: list[Seat]) -> int:
    """The pager's memory for these weights, with the slack of its buffers at most."""
    sizes = {}
    for seat in seats:
        if seat.weight.slots:
            size = seat.weight.stored_bytes
            sizes[tuple(seat.weight.slots)] = size if size < _POOLED else size + size // 256 + 3 * 4096
    return sum(sizes.values())


_POOLED = 60 << 10


def _buffer_bytes(model: torch.nn.Module) -> int:
    sizes = {buffer.untyped_storage().data_ptr(): buffer.untyped_storage().nbytes() for buffer in model.buffers()}
    return sum(sizes.values())


def _others(names: list[str]) -> str:
    return f" (and {len(names) - 1} more like it)" if len(names) > 1 else ""


def _refuse_load(module: Any, *_: Any) -> None:
    raise errors.make(
        "invalid_argument",
        "load_state_dict() on an offloaded module; close() its handle first, or write another file",
        format="pager",
    )
