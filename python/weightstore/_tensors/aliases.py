"""Which tensors of a dict share memory, and which of their names to keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import torch

from .. import errors
from .torch_memory import memory_range, storage_range, why_not_dense


def shared_groups(tensors: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """Names in groups that overlap in memory, transitively. Parts of one storage that do not overlap are apart."""
    storages: defaultdict[tuple[torch.device, int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.device.type == "meta" or why_not_dense(tensor) is not None:
            continue
        address, nbytes = storage_range(tensor)
        if address != 0 and nbytes != 0:
            storages[tensor.device, address, nbytes].append((*memory_range(tensor), name))

    groups: list[set[str]] = []
    for ranges in storages.values():
        ranges.sort()
        reach = -1
        for begin, end, name in ranges:
            if begin < reach:
                groups[-1].add(name)
            else:
                groups.append({name})
            # The furthest end so far, not the last one: a long tensor may overlap far more than its neighbour.
            reach = max(reach, end)
    return [group for group in groups if len(group) > 1]


def check_not_shared(tensors: Mapping[str, torch.Tensor]) -> None:
    groups = shared_groups(tensors)
    if groups:
        aliases = "; ".join(", ".join(f"'{name}'" for name in sorted(group)) for group in groups)
        raise errors.make(
            "shared",
            f"tensors share memory: {aliases}. Saved like this they would be written more than once and be separate after "
            "loading. save_model() keeps one name of each; or save clones, or only one of the names",
        )


def names_to_drop(tensors: Mapping[str, torch.Tensor], preferred: Collection[str] = ()) -> dict[str, list[str]]:
    """Kept name to the names dropped for it, one entry a group. The kept tensor covers its whole storage: the first such
    name in sorted order, or the first of them that is preferred."""
    result: dict[str, list[str]] = {}
    for group in shared_groups(tensors):
        complete = sorted(name for name in group if _is_complete(tensors[name]))
        if not complete:
            names = ", ".join(f"'{name}'" for name in sorted(group))
            raise errors.make(
                "shared",
                f"tensors {names} share memory, and none of them covers the whole of it, so that no name can stand for the "
                "others; save clones of them",
            )
        kept = next((name for name in complete if name in preferred), complete[0])
        result[kept] = sorted(group - {kept})
    return result


def _is_complete(tensor: torch.Tensor) -> bool:
    storage = tensor.untyped_storage()
    return tensor.data_ptr() == storage.data_ptr() and tensor.numel() * tensor.element_size() == storage.nbytes()
