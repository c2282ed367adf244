"""What each rank writes where: made by the coordinator, sent to the ranks by torch. Imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from .._chunks.layout import WholeLayout, check_coverage
from .exchange import Exchange, ExchangePlan, Range
from .items import chunk_of, file_tensor, is_in_safetensors, stored_dtype
from .sharing import Place


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """Layout "whole": where the tensor of an item is.

    file: number in RankPlan.files.
    begin: where the tensor begins there.
    shared: the part of the tensor that ranks write together."""

    file: int
    begin: int
    shared: Range | None


@dataclass(frozen=True, slots=True)
class RankPlan:
    """What the coordinator tells a rank.

    places: layout "whole": one for each item; None for what goes to the file of objects.
    syncs: the rank syncs the shared files that it wrote into. On the machine of the coordinator that does it for all."""

    staging: str
    rank: int
    files: tuple[str, ...] = ()
    places: tuple[ItemPlace | None, ...] | None = None
    exchange: Exchange | None = None
    syncs: bool = True


@dataclass(frozen=True, slots=True)
class Written:
    """What a rank tells the coordinator about an item.

    remainder: of the bytes of the whole tensor, with zeros in place of those that the rank did not write."""

    file: str
    key: str
    file_size: int
    remainder: int | None = None


def plan_per_rank(staging: str, ranks: int) -> list[RankPlan]:
    return [RankPlan(staging, rank) for rank in range(ranks)]


def plan_layout(plans: Sequence[SavePlan], max_bytes: int, checksums: bool) -> WholeLayout:
    """The files of the whole tensors. Raises InvalidArgument for a tensor of which the ranks do not have everything."""
    tensors: dict[str, Any] = {}
    elements: dict[str, int] = {}
    for plan in plans:
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                continue
            data = item.tensor_data
            assert data is not None
            name = item.index.fqn
            if name not in tensors:
                tensors[name] = data
                elements[name] = 0
            elements[name] += data.chunk.sizes.numel()
    planned = []
    for name, data in tensors.items():
        check_coverage(name, data.size, elements[name])
        dtype = stored_dtype(data.properties.dtype, name)
        if is_in_safetensors(dtype):
            planned.append(file_tensor(name, dtype, tuple(data.size)))
    return WholeLayout(planned, max_bytes, checksums)


def plan_whole(
    staging: str, plans: Sequence[SavePlan], places: Sequence[Place], layout: WholeLayout, coordinator: Place
) -> list[RankPlan]:
    exchanges = ExchangePlan(places)
    described: dict[str, tuple[tuple[int, ...], int]] = {}  # shape and size of the elements
    for rank, plan in enumerate(plans):
        for item in plan.items:
            name = item.index.fqn
            if item.type == WriteItemType.BYTE_IO or name not in layout.places:
                continue
            data = item.tensor_data
            assert data is not None
            shape, begin, size = chunk_of(item)
            described[name] = (shape, data.properties.dtype.itemsize)
            exchanges.add(rank, name, shape, begin, size, data.properties.dtype.itemsize)
    exchanges.finish({name: (begin, *described[name]) for name, (_, begin) in layout.places.items()})
    return [
        _of_rank(staging, rank, plan.items, layout, exchanges, places[rank].host != coordinator.host)
        for rank, plan in enumerate(plans)
    ]


def _of_rank(
    staging: str,
    rank: int,
    items: Iterable[WriteItem],
    layout: WholeLayout,
    exchanges: ExchangePlan,
    syncs: bool,
) -> RankPlan:
    numbers: dict[int, int] = {}  # of a file: its number for the rank
    exchange, ranges = exchanges.of(rank)
    places: list[ItemPlace | None] = []
    for item in items:
        name = item.index.fqn
        place = None if item.type == WriteItemType.BYTE_IO else layout.places.get(name)
        if place is None:
            places.append(None)
        else:
            shared = ranges.get(name) if exchanges.has(rank, name, chunk_of(item)[1]) else None
            places.append(ItemPlace(numbers.setdefault(place[0], len(numbers)), place[1], shared))
    files = tuple(layout.files[number].name for number in numbers)
    return RankPlan(staging, rank, files, tuple(places), exchange, syncs)
