"""Files of the gguf package: every tensor and every key, in both versions and both byte orders."""

from __future__ import annotations

import struct
import subprocess
import sys

import gguf
import numpy as np
import pytest

import weightstore
from support.gguf_files import (
    CARRIED,
    DEQUANTIZED,
    PLAIN,
    TYPE,
    VALUE,
    array,
    entry,
    file,
    random_blocks,
    tensor,
    text,
    u32,
    write,
)


def test_every_type_is_listed_and_carried(tmp_path):
    path = tmp_path / "all.gguf"
    expected = {}
    writer = gguf.GGUFWriter(path, "llama")
    for kind in [*DEQUANTIZED, *CARRIED]:
        rows = random_blocks(kind, 3, 2, int(kind))
        writer.add_tensor(kind.name, rows, raw_dtype=kind)
        expected[kind.name] = ((3, 2 * gguf.GGML_QUANT_SIZES[kind][0]), rows.tobytes())
    for kind, dtype in zip(PLAIN, "f4 f2 u2 f8 i1 i2 i4 i8".split(), strict=True):
        values = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(dtype)
        data = values.view(np.uint8) if kind == TYPE.BF16 else values
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        expected[kind.name] = ((2, 3, 4), values.tobytes())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert len(expected) == len(TYPE)
    with weightstore.open(path) as opened:
        assert opened.format == "gguf"
        assert {name: (opened[name].shape, opened[name].bytes()) for name in opened} == expected
        assert all(opened[name].dtype == name for name in opened)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("version", [2, 3])
def test_versions_and_byte_orders(version, order):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    halves = np.arange(4, dtype=np.float16)
    data = values.astype(order + "f4").tobytes().ljust(32, b"\0") + halves.astype(order + "f2").tobytes()
    entries = [
        u32("general.alignment", 32, order),
        entry("name", VALUE.STRING, text("tiny", order), order),
        entry("list", VALUE.ARRAY, array(VALUE.INT16, 3, struct.pack(order + "3h", -1, 0, 300), order), order),
    ]
    tensors = [tensor("a", [3, 2], TYPE.F32, 0, order), tensor("b", [4], TYPE.F16, 32, order)]
    opened = weightstore.open(file(entries, tensors, data, version=version, order=order))
    assert dict(opened.metadata) == {"general.alignment": 32, "name": "tiny", "list": [-1, 0, 300]}
    np.testing.assert_array_equal(opened["a"].numpy(), values)
    np.testing.assert_array_equal(opened["a"][1:, ::2].numpy(), values[1:, ::2])
    np.testing.assert_array_equal(opened["b"].numpy(), halves)
    np.testing.assert_array_equal(opened.load()["a"], values)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4"])
def test_big_endian_files_of_the_conversion_tool(tmp_path, kind):
    """The gguf package has a tool that turns files around in place."""
    path = tmp_path / "model.gguf"
    rows = random_blocks(TYPE[kind], 4, 6) if kind[0] in "QM" else np.arange(32, dtype=np.uint8).reshape(4, 8)
    write(path, {"w": rows}, {"w": TYPE[kind]}, key="value")
    little = weightstore.open(path.read_bytes())
    command = [sys.executable, "-m", "gguf.scripts.gguf_convert_endian", path, "big"]
    subprocess.run(command, input=b"YES\n", check=True, capture_output=True)
    assert path.read_bytes()[4:8] == b"\0\0\0\3"
    with weightstore.open(path) as big:
        assert big["w"].bytes() == little["w"].bytes()
        assert dict(big.metadata) == dict(little.metadata)
        assert big["w"].dequantize().bytes() == little["w"].dequantize().bytes()


def test_shapes_have_the_order_of_numpy():
    opened = weightstore.open(file((), [tensor("w", [4, 3, 2], TYPE.I8, 0), tensor("s", [], TYPE.I8, 32)], bytes(33)))
    assert (opened["w"].shape, opened["s"].shape) == ((2, 3, 4), ())


def test_a_file_without_tensors_may_end_with_its_header():
    assert len(weightstore.open(file([u32("general.alignment", 4096)], alignment=1))) == 0


def test_a_tensor_without_elements():
    opened = weightstore.open(file((), [tensor("none", [0, 3], TYPE.Q4_0, 0), tensor("w", [1], TYPE.I8, 0)], bytes(1)))
    assert (opened["none"].shape, opened["none"].nbytes) == ((3, 0), 0)


def test_quantized_tensors_are_not_shown_as_arrays(tmp_path):
    path = tmp_path / "m.gguf"
    write(path, {"w": random_blocks(TYPE.Q4_K, 2, 1)}, {"w": TYPE.Q4_K})
    with weightstore.open(path) as opened:
        with pytest.raises(TypeError, match=r"numpy has no type for Q4_K.*dequantize\(\)"):
            opened["w"].numpy()
        with pytest.raises(weightstore.InvalidArgument, match="Q4_K tensors are read whole"):
            _ = opened["w"][0]


def test_everything_that_opens_files(tmp_path):
    path = tmp_path / "m.gguf"
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    packed = gguf.quants.quantize(values, TYPE.Q8_0)
    write(path, {"w": values, "q": packed}, {"q": TYPE.Q8_0})
    np.testing.assert_array_equal(weightstore.safe_open(path, "np").get_tensor("w"), values)
    with weightstore.Pager(path, budget="1MB") as pager:
        np.testing.assert_array_equal(pager.acquire("w").numpy(), values)
        assert bytes(pager.acquire("q").memory(False)) == packed.tobytes()
    target = {"w": np.zeros_like(values)}
    weightstore.load_from(target, weightstore.FileStore.from_file(path))
    np.testing.assert_array_equal(target["w"], values)
    target = {"w": np.zeros_like(values), "q": np.zeros_like(values)}
    store = weightstore.FileStore.from_file(path).with_from_adapter(weightstore.dequantize())
    assert weightstore.load_from(target, store).applied == ["w", "q"]
    np.testing.assert_array_equal(target["q"], gguf.quants.dequantize(packed, TYPE.Q8_0))
    with pytest.raises(weightstore.ValidationError, match="Q8_0"):
        weightstore.load_from({"q": np.zeros_like(values)}, path)
