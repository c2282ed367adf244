"""Files that save_state() did not write."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import FormatError, ValidationError, load_state, save_state


@pytest.fixture
def write(tmp_path):
    def file(nodes, root=("&", 0), tensors=None, **more):
        text = json.dumps({"version": 1, "nodes": nodes, "root": list(root), **more})
        path = tmp_path / "s.safetensors"
        tensors = {"t": np.zeros(4, np.float32)} if tensors is None else tensors
        weightstore.numpy.save_file(tensors, path, {"weightstore.state": text}, durable=False)
        return path

    return file


BAD_NODES = {
    "unknown kind": ["object", "os.system"],
    "kind that is no text": [1],
    "kind that cannot be hashed": [[]],
    "itself": ["list", ["&", 0]],
    "a later node": ["list", ["&", 5]],
    "a negative node": ["list", ["&", -1]],
    "a node that is no number": ["list", ["&", True]],
    "unknown value": ["list", ["call", "os.system"]],
    "empty value": ["list", []],
    "object": ["list", {"a": 1}],
    "odd dict": ["dict", "a"],
    "key twice": ["dict", 1, 2, 1.0, 3],
    "unhashable key": ["dict", ["&", 0], 1],
    "element twice": ["set", 1, True],
    "deep key": ["dict", json.loads('["tuple",' * 60 + "1" + "]" * 60), 1],
    "factory": ["defaultdict", "eval"],
    "factory of a list": ["defaultdict", []],
    "no factory": ["defaultdict"],
    "attributes": ["OrderedDict", 5],
    "no attributes": ["OrderedDict"],
    "type": ["dataclass", "os.system"],
    "type of a list": ["dataclass", ["x"]],
    "no type": ["dataclass"],
    "int": ["list", ["int", "one"]],
    "int of nothing": ["list", ["int"]],
    "float": ["list", ["float", "00"]],
    "float of text": ["list", ["float", "zz"]],
    "complex": ["list", ["complex", 1, 2]],
    "bytes": ["list", ["bytes", "***"]],
    "enum": ["list", ["enum", "os", "x"]],
    "flags": ["list", ["flags", "os", 1]],
    "dtype": ["list", ["torch.dtype", "save"]],
    "size": ["list", ["torch.Size", "x"]],
    "device": ["list", ["torch.device", "moon"]],
    "numpy dtype": ["list", ["numpy.dtype", "O"]],
    "numpy dtype of objects": ["list", ["numpy.dtype", "i4,O"]],
    "numpy scalar": ["list", ["numpy.scalar", "O", "0000000000000000"]],
    "numpy scalar of other size": ["list", ["numpy.scalar", "<U2000000000", "00"]],
    "no tensor": ["tensor", "missing"],
    "no name": ["tensor"],
    "name": ["tensor", 5],
    "options": ["tensor", "t", 5],
    "more": ["tensor", "t", {}, 1],
    "numbers": ["numbers", "dict", "t"],
    "numbers without a name": ["numbers", "list"],
    "array of objects": ["array", "t", {"dtype": "O", "shape": [2]}],
    "array of other size": ["array", "t", {"dtype": "<U3", "shape": [1]}],
    "array without shape": ["array", "t", {"dtype": "<U1"}],
    "array of negative shape": ["array", "t", {"dtype": "<U1", "shape": [-4]}],
    "complex array": ["array", "t", {"dtype": "complex128"}],
    "view": ["array", "t", {"view": 5}],
    "view of objects": ["array", "t", {"view": ["O", [2], [8], 0]}],
    "view before": ["array", "t", {"view": ["F32", [2], [4], -4]}],
    "view beyond": ["array", "t", {"view": ["F32", [5], [4], 0]}],
    "view with strides beyond": ["array", "t", {"view": ["F32", [2], [1000000], 0]}],
    "view with negative strides": ["array", "t", {"view": ["F32", [2], [-4], 0]}],
    "view of huge shape": ["array", "t", {"view": ["F32", [2**62, 2**62], [0, 0], 0]}],
    "long str": ["long str", "bad"],
}
TORCH_NODES = {
    "pairs": {"dtype": "complex128"},
    "pairs of nothing": {"dtype": "os"},
    "strides": {"strides": [2]},
    "strides of other length": {"strides": [1, 1]},
    "negative strides": {"strides": [-1]},
    "view beyond": {"view": ["float32", [5], [1], 0]},
    "view at an odd place": {"view": ["float32", [1], [1], 2]},
    "view of another place": {"view": ["float32", [1], [1], 16]},
    "view with huge strides": {"view": ["float32", [2, 2], [2**61, 1], 0]},
    "view overflowing": {"view": ["float32", [2**61, 2**61], [2**61, 2**61], 0]},
    "view of negative shape": {"view": ["float32", [-1], [1], 0]},
    "view of no type": {"view": ["save", [1], [1], 0]},
    "view of fewer strides": {"view": ["float32", [1, 1], [1], 0]},
}


@pytest.mark.parametrize("kind", BAD_NODES)
def test_bad_nodes(write, kind):
    pytest.importorskip("torch")
    tensors = {"t": np.zeros(4, np.float32), "bad": np.full(3, 255, np.uint8)}
    path = write([BAD_NODES[kind]], tensors=tensors)
    with pytest.raises(FormatError, match=r"s\.safetensors: .*'weightstore\.state' is damaged"):
        load_state(path)
    with pytest.raises((FormatError, ValidationError)):
        load_state(path, into={"a": np.zeros(4, np.float32)})


@pytest.mark.parametrize("kind", TORCH_NODES)
def test_bad_tensors(write, kind):
    pytest.importorskip("torch")
    with pytest.raises(FormatError, match="is damaged: node 0"):
        load_state(write([["tensor", "t", TORCH_NODES[kind]]]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "version is None"),
        ('{"version": 2}', "version is 2; this weightstore reads version 1"),
        ('{"version": 1, "nodes": 5}', "not a list of lists"),
        ('{"version": 1, "nodes": [[]]}', "not a list of lists"),
        ('{"version": 1, "nodes": [["list", NaN]]}', "NaN is not a number"),
        ('{"version": 1, "nodes": [["list", ' + "1" * 5000 + "]]}", "not JSON"),
        ('{"version": 1, "nodes": [], "root": ["&", 0]}', "does not refer to a node"),
    ],
)
def test_bad_text(tmp_path, text, words):
    weightstore.numpy.save_file({}, tmp_path / "s", {"weightstore.state": text})
    with pytest.raises(FormatError, match=words):
        load_state(tmp_path / "s")


def test_other_files(tmp_path):
    weightstore.numpy.save_file({"a": np.ones(2)}, tmp_path / "s.safetensors")
    with pytest.raises(FormatError, match=r"save_state\(\) did not write it"):
        load_state(tmp_path / "s.safetensors")
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(FormatError):
        load_state(tmp_path / "x")


def test_a_tensor_is_copied_once(write):
    """Otherwise a node of a few bytes would cost the memory of a tensor."""
    copies = [["array", "t", {"order": "F"}]] * 1000
    path = write([*copies, ["list"]], ("&", 1000), {"t": np.zeros((100, 1000))})
    with pytest.raises(FormatError, match="tensor 't' is that of another node, too"):
        load_state(path)
    with pytest.raises(FormatError, match="is of torch and of numpy"):
        load_state(write([["array", "t"], ["tensor", "t", {"view": ["float32", [1], [1], 0]}]]))


def test_references_cost_no_copies(write):
    nodes = [["list", *range(100)]]
    for i in range(2000):
        nodes.append(["tuple", ["&", i], ["&", i]])
    path = write(nodes, ("&", 2000))
    tracemalloc.start()
    load_state(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * path.stat().st_size


def test_keys_with_one_hash(write):
    modulus = 2**61 - 1
    keys = [["int", hex(modulus * i)] for i in range(1, 5000)]
    with pytest.raises(FormatError, match="keys have the same hash"):
        load_state(write([["set", *keys]]))


def test_every_byte_changed(tmp_path):
    """Each gives a state or an error of ours."""
    path = tmp_path / "s"
    save_state(path, {"a": [1, 2.5, (None, b"x")], "w": np.arange(3), "v": {1: "x"}}, checksums=False)
    data = path.read_bytes()
    outcomes = set()
    for offset in range(8, len(data)):
        changed = bytearray(data)
        changed[offset] ^= 0x13
        path.write_bytes(changed)
        try:
            load_state(path)
            outcomes.add("state")
        except weightstore.StoreError:
            outcomes.add("error")
    assert outcomes == {"state", "error"}
