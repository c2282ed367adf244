"""The text that describes a state: a list of containers, in which a container refers only to those before it.

Nothing in the text is nested deeper than a few levels, however deep the state is. Reading and writing it needs no recursion.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from .. import errors

METADATA_KEY = "weightstore.state"
VERSION = 1

REFERENCE = "&"
# A sequence with more numbers than this, and bytes or text that are longer, are tensors of the file.
LONGEST_NUMBERS = 1000
LONGEST_BYTES = 4096
# JSON readers hold integers of this size exactly.
LARGEST_PLAIN_INT = 2**53
# Python computes the hash of a tuple recursively, and does not check its stack.
DEEPEST_KEY = 50


class NotAScalar(Exception):
    """A value has parts, or cannot be saved. The text says what can be done, if anything."""


class Tree(NamedTuple):
    """nodes: the containers, each after those that are in it.
    root: the state itself: a plain value, or a reference to a node."""

    nodes: list[list[Any]]
    root: Any

    def text(self) -> str:
        return json.dumps(
            {"version": VERSION, "root": self.root, "nodes": self.nodes}, allow_nan=False, separators=(",", ":")
        )


def parse(text: str, path: str) -> Tree:
    """Raises FormatError unless the text has the outer form of a tree. decode() checks the nodes."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, f"it is not JSON ({error})") from None
    return parse_document(found, path)


def parse_document(found: Any, path: str) -> Tree:
    """The tree of a document of JSON. Raises FormatError unless it has the outer form of a tree."""
    if not isinstance(found, dict) or found.get("version") != VERSION:
        version = found.get("version") if isinstance(found, dict) else None
        raise corrupt(path, f"its version is {version!r}; this weightstore reads version {VERSION}")
    nodes, root = found.get("nodes"), found.get("root")
    if not isinstance(nodes, list) or not all(isinstance(node, list) and node for node in nodes):
        raise corrupt(path, "'nodes' is not a list of lists")
    if not all(isinstance(node[0], str) for node in nodes):
        raise corrupt(path, "a node does not begin with its kind")
    return Tree(nodes, root)


def corrupt(path: str, what: str) -> errors.StoreError:
    return errors.make("corrupt", f"the metadata entry '{METADATA_KEY}' is damaged: {what}", path=path)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def float_bits(value: float) -> str:
    """A float that JSON cannot hold (infinite, or not a number), with all its bits."""
    return struct.pack(">d", value).hex()


def float_of_bits(text: str) -> float:
    """Raises ValueError or struct.error."""
    value: float = struct.unpack(">d", bytes.fromhex(text))[0]
    return value
