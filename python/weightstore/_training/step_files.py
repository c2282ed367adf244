"""The two small files of a step: `step.json` says which step it is and its metrics, `state.json` has everything that is no tensor.

They are JSON, and have checksums: of state.json in step.json, of step.json in itself.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import errors
from .._state import scalars
from .._state.tree import Tree, corrupt, parse_document

STEP_FILE = "step.json"
STATE_FILE = "state.json"
VERSION = 1
_LARGEST_STEP_FILE = 1 << 24
_LARGEST_STATE_FILE = 1 << 31


@dataclass(frozen=True, slots=True)
class Step:
    """world: how many ranks saved. state: bytes and crc32 of state.json."""

    step: int
    metrics: dict[str, float]
    world: int
    state: tuple[int, int]


@dataclass(frozen=True, slots=True)
class State:
    """common: the state that all ranks have. own: that of each rank."""

    common: Tree
    own: list[Tree]


def check_step(step: Any) -> int:
    try:
        number = step.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"a step is an int, not {errors.typed(step)}") from None
    if not 0 <= number < 1 << 62:
        raise errors.make("invalid_argument", f"step {number}: steps count from 0 on")
    return int(number)


def check_metrics(metrics: Mapping[str, Any] | None, best: str | None) -> dict[str, float]:
    """Numbers by name. Raises InvalidArgument if the one that decides which step is the best is missing."""
    if metrics is not None and not isinstance(metrics, Mapping):
        raise TypeError(f"metrics is a dict of name to number, not {errors.typed(metrics)}")
    checked = {}
    for name, value in (metrics or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"metrics: the name of a metric is a str, not {errors.typed(name)}")
        number = _plain(value)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"metrics[{name!r}] is {errors.typed(value)}; a metric is a number")
        checked[name] = float(number)
    if best is not None and best not in checked:
        known = ", ".join(repr(name) for name in checked) or "none"
        text = f"the metrics lack {best!r}, by which the best step is chosen (best={best!r}); given: {known}"
        raise errors.make("invalid_argument", text)
    return checked


def _plain(value: Any) -> Any:
    """The number of a tensor, array or scalar that has one."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):
        return value


def state_text(common: str, own: list[str]) -> bytes:
    """common, own: the texts of trees."""
    return f'{{"version":{VERSION},"common":{common},"own":[{",".join(own)}]}}\n'.encode()


def step_text(step: int, metrics: Mapping[str, float], world: int, state: bytes) -> bytes:
    content = {
        "version": VERSION,
        "step": step,
        "metrics": {name: scalars.encode(value) for name, value in metrics.items()},
        "world": world,
        "state": {"bytes": len(state), "crc32": zlib.crc32(state)},
    }
    return _dump({"weightstore": content, "crc32": zlib.crc32(_dump(content))}) + b"\n"


def _dump(document: Any) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def write(directory: str, name: str, data: bytes, *, durable: bool) -> None:
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def read_step(directory: str) -> Step:
    path = os.path.join(directory, STEP_FILE)
    try:
        document = json.loads(_read(path, _LARGEST_STEP_FILE))
        content = document["weightstore"]
        if content["version"] != VERSION:
            raise _damaged(path, f"version {content['version']!r}; this weightstore reads version {VERSION}")
        if zlib.crc32(_dump(content)) != document["crc32"]:
            raise _damaged(path, "its checksum is wrong")
        metrics = {str(name): _number(value) for name, value in content["metrics"].items()}
        state = content["state"]
        return Step(check_step(content["step"]), metrics, int(content["world"]), (state["bytes"], state["crc32"]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, errors.StoreError):
            raise
        raise _damaged(path, f"{type(error).__name__}: {error}") from None


def _number(value: Any) -> float:
    number = scalars.decode(value)
    if type(number) not in (int, float):
        raise ValueError(f"{value!r:.40} is not a number")
    return float(number) if math.isfinite(number) else number


def read_state(directory: str, step: Step) -> State:
    path = os.path.join(directory, STATE_FILE)
    text = _read(path, _LARGEST_STATE_FILE)
    if (len(text), zlib.crc32(text)) != step.state:
        raise _damaged(path, f"it has {len(text)} bytes, which are not the {step.state[0]} that were saved")
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise _damaged(path, f"version {document['version']!r}; this weightstore reads version {VERSION}")
        own = [parse_document(each, path) for each in document["own"]]
        state = State(parse_document(document["common"], path), own)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, errors.StoreError):
            raise
        raise _damaged(path, f"{type(error).__name__}: {error}") from None
    if len(state.own) != step.world:
        raise corrupt(path, f"it has the states of {len(state.own)} ranks, and {step.world} saved")
    return state


def _read(path: str, largest: int) -> bytes:
    with open(path, "rb") as file:
        text = file.read(largest + 1)
    if len(text) > largest:
        raise errors.make("limit", f"larger than {largest} bytes", path=path, format="checkpoint")
    return text


def _damaged(path: str, what: str) -> errors.StoreError:
    return errors.make("corrupt", f"damaged, or not of weightstore: {what}", path=path, format="checkpoint")
