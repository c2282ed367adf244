"""Which parts of a module have their weights in memory at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch

from .. import errors

_LISTS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)


def find_blocks(root: torch.nn.Module, named: Iterable[Any] | None) -> dict[str, torch.nn.Module]:
    """Names and modules of blocks that together own all parameters. Blocks may lie inside each other: a parameter belongs to
    the innermost one.

    Without names, these are the repeated modules: the elements of lists that have several of one class. What lies
    beside them becomes blocks of its own, each a module with parameters and all that it contains.
    """
    chosen = dict(_repeated(root, "", set())) if named is None else _named(root, list(named))
    found: dict[str, torch.nn.Module] = {}
    _fill(root, "", chosen, found, inside=False)
    return found


def _named(root: torch.nn.Module, named: list[Any]) -> dict[str, torch.nn.Module]:
    modules = dict(root.named_modules())
    chosen: dict[str, torch.nn.Module] = {}
    for entry in named:
        if isinstance(entry, torch.nn.Module):
            matches = [name for name, module in modules.items() if module is entry]
        elif isinstance(entry, str):
            matches = [name for name in modules if name == entry or fnmatchcase(name, entry)]
        else:
            raise TypeError(f"blocks must hold names, patterns or modules, not {errors.typed(entry)}")
        if not matches:
            raise errors.make("not_found", f"blocks: the module has no part {entry!r}", format="pager")
        chosen.update((name, modules[name]) for name in matches)
    return chosen


def _repeated(
    module: torch.nn.Module, path: str, seen: set[torch.nn.Module], *, inside: bool = False
) -> Iterator[tuple[str, torch.nn.Module]]:
    """The elements of lists that have several of one class. Inside of such a block, the elements of a Sequential are no blocks:
    they always run together. Those of a ModuleList may not, such as experts."""
    if module in seen:
        return
    seen.add(module)
    lists = (torch.nn.ModuleList, torch.nn.ModuleDict) if inside else _LISTS
    kinds = Counter(type(child) for child in module.children()) if isinstance(module, lists) else Counter()
    for key, child in module.named_children():
        below = f"{path}.{key}" if path else key
        is_list = isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict))
        is_block = kinds[type(child)] > 1 and not is_list and any(True for _ in child.parameters())
        if is_block:
            yield below, child
        yield from _repeated(child, below, seen, inside=inside or is_block)


def _fill(
    module: torch.nn.Module,
    path: str,
    chosen: dict[str, torch.nn.Module],
    found: dict[str, torch.nn.Module],
    *,
    inside: bool,
) -> None:
    """Adds the blocks of a subtree. `inside`: a block around it takes the parameters that no block below has."""
    if path in chosen:
        found[path] = module
        inside = True
    elif not inside and any(True for _ in module.parameters(recurse=False)):
        found[path] = module
        # With chosen blocks below, this one has its own parameters alone: the modules between run on their own.
        inside = not any(name != path and _is_below(name, path) for name in chosen)
    for key, child in module.named_children():
        _fill(child, f"{path}.{key}" if path else key, chosen, found, inside=inside)


def _is_below(name: str, path: str) -> bool:
    return not path or name.startswith(path + ".")


def innermost(path: str, blocks: dict[str, Any]) -> str:
    """The block that a parameter belongs to, by the parameter's name."""
    while path:
        path = path.rpartition(".")[0]
        if path in blocks:
            return path
    raise KeyError(path)


def around(name: str, blocks: dict[str, Any]) -> list[str]:
    """The blocks that run while this one does: itself, and those it lies in."""
    found = [name]
    while name:
        name = name.rpartition(".")[0]
        if name in blocks:
            found.append(name)
    return found
