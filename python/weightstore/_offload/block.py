"""One block of an offloaded module: takes its weights from the pager before it runs, and gives them back afterwards."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import torch

from .. import errors
from .._pager import PagedTensor, Pager
from .placeholder import Placeholder
from .weights import Weight


class Seat:
    """Where a module holds a parameter."""

    __slots__ = ("key", "name", "original", "owner", "placeholder", "weight")

    def __init__(self, name: str, owner: torch.nn.Module, key: str, weight: Weight, block: str) -> None:
        self.name = name
        self.owner = owner
        self.key = key
        self.weight = weight
        self.original: Any = owner._parameters[key]
        like: Any = self.original
        self.placeholder = Placeholder(like, weight.dtype, name, block or type(owner).__name__)

    def put(self, value: Any) -> None:
        self.owner._parameters[self.key] = value


class Counters:
    """What the blocks of a module did, added up."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = 0
        self.inside_ns = 0  # in blocks, with the waiting
        self.waiting_ns = 0  # for weights
        self.first: float | None = None
        self.last = 0.0
        self.casts = 0
        self.copied_bytes = 0
        self.first_block = ""
        self.passes = 0  # runs of the block that ran first


class Block:
    """Several threads can run a block at once, and it can run inside itself: the weights stay until the last one leaves."""

    def __init__(self, name: str, module: torch.nn.Module, pager: Pager, counters: Counters) -> None:
        self.name = name
        self.module = module
        self.seats: list[Seat] = []
        self._pager = pager
        self._counters = counters
        self._lock = threading.Lock()
        self._inside = 0
        self._handles: dict[int, PagedTensor] = {}
        self._made: list[tuple[Weight, torch.Tensor, int]] = []  # with the version of each tensor

    # ---- how much memory it needs --------------------------------------------------------------------------------

    @functools.cached_property
    def weights(self) -> list[Weight]:
        return list({id(seat.weight): seat.weight for seat in self.seats}.values())

    @functools.cached_property
    def slots(self) -> list[int]:
        return list(dict.fromkeys(slot for weight in self.weights for slot in weight.slots))

    @property
    def copied_bytes(self) -> int:
        return sum(weight.copied_bytes for weight in self.weights)

    # ---- running -------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        self._before = vars(self.module).get("forward")
        forward = self.module.forward

        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._check_inference(args, kwargs)
            start = time.perf_counter_ns()
            self._enter()
            entered = time.perf_counter_ns()
            error: BaseException | None = None
            try:
                return forward(*args, **kwargs)
            except BaseException as caught:
                error = caught
                raise
            finally:
                self._leave(error)
                self._count(start, entered)

        self.module.forward = run
        for seat in self.seats:
            seat.put(seat.placeholder)

    def detach(self, values: dict[int, Any]) -> None:
        """values: the parameters to leave behind, by the identity of the weight."""
        if self._before is None:
            del self.module.forward
        else:
            self.module.forward = self._before
        for seat in self.seats:
            seat.put(values[id(seat.weight)])

    @property
    def is_running(self) -> bool:
        return self._inside > 0

    def _check_inference(self, args: Any, kwargs: Any) -> None:
        if not torch.is_grad_enabled():
            return
        trains = self.module.training and any(seat.original.requires_grad for seat in self.seats)
        flows = any(isinstance(value, torch.Tensor) and value.requires_grad for value in (*args, *kwargs.values()))
        if trains or flows:
            raise errors.make(
                "invalid_argument",
                f"'{self.name or type(self.module).__name__}' is offloaded and cannot be trained: "
                + ("its input requires gradients" if flows else "it is in training mode and gradients are enabled")
                + "; call eval() on the module, or run it under torch.no_grad()",
                format="pager",
            )

    def _enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._take()
            self._inside += 1

    def _take(self) -> None:
        # Not tensors of inference mode: these have no versions.
        with torch.inference_mode(False), torch.no_grad():
            handles = dict(zip(self.slots, self._pager.acquire_many(self.slots), strict=True))
            try:
                made = {}
                for weight in self.weights:
                    tensor = torch.nn.Parameter(weight.tensor(handles), requires_grad=False)
                    made[id(weight)] = tensor
                    self._made.append((weight, tensor, tensor._version))
            except BaseException:
                self._made.clear()
                raise
        for seat in self.seats:
            tensor = made[id(seat.weight)]
            if vars(seat.original):
                vars(tensor).update(vars(seat.original))
            seat.put(tensor)
        self._handles = handles

    def _leave(self, error: BaseException | None) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            written = [weight for weight, tensor, version in self._made if tensor._version != version]
            for seat in self.seats:
                seat.put(seat.placeholder)
            self._made.clear()
            self._handles.clear()
        if written:
            self._refuse_writes(written, error)

    def _refuse_writes(self, written: list[Weight], error: BaseException | None) -> None:
        for weight in written:
            for slot in weight.slots:
                self._reread(slot)
        names = ", ".join(f"'{weight.name}'" for weight in written)
        text = (
            f"the forward of '{self.name or type(self.module).__name__}' wrote to offloaded weights: {names}. The pager has dropped "
            "what was written; the next forward reads the file again. Load the weights to change them: close(load=True)"
        )
        if error is not None:
            error.add_note(text)
            return
        raise errors.make("invalid_argument", text, format="pager", tensor=written[0].name)

    def _reread(self, slot: int) -> None:
        pins = 0
        while self._pager.is_pinned(slot):
            self._pager.unpin(slot)
            pins += 1
        self._pager.evict(slot)
        for _ in range(pins):
            self._pager.pin(slot)

    def _count(self, start: int, entered: int) -> None:
        end = time.perf_counter_ns()
        counters = self._counters
        with counters.lock:
            counters.calls += 1
            counters.inside_ns += end - start
            counters.waiting_ns += entered - start
            if counters.first is None:
                counters.first = start
                counters.first_block = self.name
            counters.passes += self.name == counters.first_block
            counters.last = end
            counters.casts += sum(weight.is_cast for weight in self.weights)
            counters.copied_bytes += self.copied_bytes
