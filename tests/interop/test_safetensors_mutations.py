"""Mutated headers: what the safetensors package refuses is refused; what only we refuse is on a written list."""

from __future__ import annotations

import collections
import copy
import json
import random

import pytest

safetensors = pytest.importorskip("safetensors")

from weightstore import StoreError, compat  # noqa: E402

# What we refuse and the reference accepts (docs/formats.md, "Differences from the SafeTensors reference").
LISTED = {
    "duplicate tensor name",
    "duplicate metadata key",
    "tensor given as an array",
    "dtype given as an object",
    "rank above the limit",
}
RANK_LIMIT = 65_536


# ---- headers as trees: what no JSON library would write can be said ---------------------------------------------------


class Object(list):
    """Pairs [text of the key, node]. A node is an Object, a list, or the text of a token."""


def tree(value):
    if isinstance(value, dict):
        return Object([json.dumps(key), tree(item)] for key, item in value.items())
    if isinstance(value, list):
        return [tree(item) for item in value]
    return json.dumps(value)


def text_of(node) -> str:
    if isinstance(node, Object):
        return "{" + ",".join(f"{key}:{text_of(item)}" for key, item in node) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(text_of, node)) + "]"
    return node


def containers(node, found=None) -> list:
    found = [] if found is None else found
    if isinstance(node, list):
        found.append(node)
        for item in node:
            containers(item[1] if isinstance(node, Object) else item, found)
    return found


BASES = [
    {
        "__metadata__": {"format": "pt", "b": ""},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "U8", "shape": [3], "data_offsets": [16, 19]},
        "c": {"dtype": "I16", "shape": [], "data_offsets": [19, 21]},
    },
    {
        "x": {"dtype": "BF16", "shape": [0, 5], "data_offsets": [0, 0]},
        "y": {"dtype": "F4", "shape": [2, 4], "data_offsets": [0, 4]},
        "z": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [4, 7]},
    },
    {"w": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2], "extra": {"k": [1, -2.5e3, None, True, "t"]}}},
    {"__metadata__": {"k": "v"}},
]

TOKENS = r"""0 1 2 4 8 16 -0 -1 1.0 1e0 01 +1 .5 1. 0x1 18446744073709551615 18446744073709551616 9223372036854775808
1e400 1e-400 NaN Infinity nul null true false "" "F32" "f32" "U8" "F128" "I4" "BOOL" "\ud800" "\ud83d\ude00" "\u0000" "\x"
"__metadata__" "dtype" {} [] [[]] {"a":1} {"F32":null} [0,4] [0,0] 'a' "a /**/""".split()
TOKENS += ['"\t"', "\ufeff", "\0", ""]
KEYS = r'"a" "b" "dtype" "shape" "data_offsets" "__metadata__" "" "\u0061" "\ud800" a 1'.split()
KINDS = "swap delete duplicate replace digits nest escape key extra form deep".split()


def escape(token: str, rng) -> str:
    """The same string with some characters spelled as escapes."""
    return "".join(f"\\u{ord(c):04{rng.choice('xX')}}" if c.isalnum() and rng.random() < 0.5 else c for c in token)


def mutate(root, rng: random.Random) -> None:
    """One change to the tree, in place."""
    node = rng.choice(containers(root))
    kind = rng.choice(KINDS)
    is_object = isinstance(node, Object)
    if kind == "deep":
        depth = rng.choice([5, 124, 125, 126, 127, 128, 200])
        deep = "[" * depth + "]" * depth if rng.random() < 0.5 else '{"a":' * depth + "0" + "}" * depth
        node.append(['"deep"', deep] if is_object else deep)
        return
    if kind == "extra" or not node:
        node.append([rng.choice(KEYS), rng.choice(TOKENS)] if is_object else rng.choice(TOKENS))
        return
    i, j = rng.randrange(len(node)), rng.randrange(len(node))
    if kind == "swap":
        if is_object and rng.random() < 0.7:
            node[i][1], node[j][1] = node[j][1], node[i][1]
        else:
            node[i], node[j] = node[j], node[i]
    elif kind == "delete":
        del node[i]
    elif kind == "duplicate":
        node.insert(j, copy.deepcopy(node[i]))
    elif kind == "key" and is_object:
        node[i][0] = rng.choice(KEYS)
    elif kind == "escape" and is_object and rng.random() < 0.5:
        node[i][0] = escape(node[i][0], rng)
    else:
        slot, place = (node[i], 1) if is_object else (node, i)
        slot[place] = change(slot[place], kind, rng)


def change(value, kind: str, rng):
    if kind == "digits" and isinstance(value, str) and value.isdigit():
        n = int(value)
        return str(rng.choice([n + 1, max(n - 1, 0), n * 2, n * 10, n + 2**64, 2**64 - n]))
    if kind == "nest":
        return rng.choice([[value], [value, value], Object([['"F32"', value]]), Object([['"a"', value]])])
    if kind == "escape" and isinstance(value, str) and value.startswith('"'):
        return escape(value, rng)
    if kind == "form" and isinstance(value, Object):
        return [item for _, item in value]
    if kind == "form" and isinstance(value, str) and value.startswith('"'):
        return Object([[value, rng.choice(["null", "[]", "{}"])]])
    return rng.choice(TOKENS) if kind == "replace" else value


def corrupt(header: bytes, rng) -> bytes:
    """One change to the bytes."""
    at = rng.randrange(len(header) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return header[:at] + bytes([rng.choice([*b'{}[]",:\\0123456789 \t\n\0e-.', rng.randrange(256)])]) + header[at:]
    if kind == 1:
        return header[:at] + header[at + rng.randrange(1, 4) :]
    if kind == 2 and at < len(header):
        return header[:at] + bytes([header[at] ^ 1 << rng.randrange(8)]) + header[at + 1 :]
    if kind == 3:
        end = min(len(header), at + rng.randrange(1, 30))
        return header[:end] + header[at:end] + header[end:]
    return rng.choice([b" ", b"\n", b"\t\r", b"\0", b"\xef\xbb\xbf", b"//", b"\x0c"]).join([header[:at], header[at:]])


def read(deserialize, error, data: bytes):
    """What a reader makes of it, or None for a refusal."""
    try:
        found = deserialize(data)
    except error:
        return None
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found}


def reasons(header: bytes) -> set[str]:
    """Which entries of the list apply to a header that the reference accepts."""

    root = json.loads(header, object_pairs_hook=Object, parse_int=str, parse_float=str)
    found = set()
    names = [name for name, _ in root]
    if len(set(names)) < len(names):
        found.add("duplicate tensor name")
    for name, value in root:
        if name == "__metadata__":
            if value and len({key for key, _ in value}) < len(value):
                found.add("duplicate metadata key")
        elif not isinstance(value, Object):
            found.add("tensor given as an array")
        elif isinstance(dict(value)["dtype"], Object):
            found.add("dtype given as an object")
        elif len(dict(value)["shape"]) > RANK_LIMIT:
            found.add("rank above the limit")
    return found


def judge(header: bytes, data: bytes, tally: collections.Counter) -> None:
    file = len(header).to_bytes(8, "little") + header + data
    theirs = read(safetensors.deserialize, safetensors.SafetensorError, file)
    ours = read(compat.deserialize, StoreError, file)
    if ours is not None:
        assert theirs is not None, f"accepted by us alone: {header!r}"
        assert ours == theirs, f"read differently: {header!r}"
        tally["accepted"] += 1
    elif theirs is None:
        tally["refused"] += 1
    else:
        why = reasons(header)
        assert why & LISTED, f"refused by us alone: {header!r}"
        tally.update(why)


DATA = bytes(range(64))


def changed_trees(base, rng):
    for _ in range(6_000):
        root = tree(base)
        for _ in range(rng.choice([1, 1, 1, 2, 3, 5])):
            mutate(root, rng)
        yield text_of(root).encode("utf-8", "surrogatepass")


def changed_bytes(base, rng):
    for _ in range(4_000):
        header = text_of(tree(base)).encode()
        for _ in range(rng.choice([1, 1, 2, 4])):
            header = corrupt(header, rng)
        yield header


@pytest.mark.parametrize("changed", [changed_trees, changed_bytes])
@pytest.mark.parametrize("base", BASES, ids=["three", "subbyte", "extra", "metadata"])
def test_nothing_is_accepted_that_the_reference_refuses(base, changed):
    size = max((entry["data_offsets"][1] for name, entry in base.items() if name != "__metadata__"), default=0)
    tally: collections.Counter = collections.Counter()
    for header in changed(base, random.Random(1)):
        judge(header, DATA[:size], tally)
    assert tally["accepted"] > 100
    assert tally["refused"] > 1_000


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', "duplicate tensor name"),
        ('{"__metadata__":{"k":"1","\\u006b":"2"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', "duplicate metadata key"),
        ('{"a":["U8",[1],[0,1]]}', "tensor given as an array"),
        ('{"a":{"dtype":{"U8":null},"shape":[1],"data_offsets":[0,1]}}', "dtype given as an object"),
        ('{"a":{"dtype":"U8","shape":[1%s],"data_offsets":[0,1]}}' % (",1" * RANK_LIMIT), "rank above the limit"),
    ],
)  # fmt: skip
def test_every_entry_of_the_list_is_a_difference(header, why):
    tally: collections.Counter = collections.Counter()
    judge(header.encode(), b"x", tally)
    assert set(tally) == {why}


def test_the_largest_rank_is_read():
    tally: collections.Counter = collections.Counter()
    dims = ",".join(["1"] * RANK_LIMIT)
    judge(f'{{"a":{{"dtype":"U8","shape":[{dims}],"data_offsets":[0,1]}}}}'.encode(), b"x", tally)
    assert tally["accepted"] == 1
