"""GGUF files that weightstore writes: read back by the gguf package, and equal to what its writer makes."""

from __future__ import annotations

import logging

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import weightstore
import weightstore.numpy
from support.gguf_files import DEQUANTIZED, TYPE, random_blocks, write
from weightstore import GgufValue

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["<s>", "a", "ä"],
    "tokenizer.ggml.token_type": [3, 1, 1],
    "flag": True,
}


def tensors():
    random = np.random.default_rng(0)
    return {
        "token_embd.weight": random.standard_normal((6, 64), np.float32),
        "norm": random.standard_normal(64, np.float32),
        "half": random.standard_normal((3, 5)).astype(np.float16),
        "ids": np.arange(7, dtype=np.int64),
        "cube": random.standard_normal((2, 3, 32), np.float32),
    }


def by_package(path, tensors, kinds=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "a", "ä"])
    writer.add_array("tokenizer.ggml.token_type", [3, 1, 1])
    writer.add_bool("flag", True)
    for name, value in tensors.items():
        writer.add_tensor(name, value, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def test_the_same_bytes_as_the_gguf_package(tmp_path):
    path = tmp_path / "ours.gguf"
    weightstore.numpy.save_file(tensors(), path, METADATA)
    assert path.read_bytes() == by_package(tmp_path / "theirs.gguf", tensors())


def test_torch_and_bfloat16(tmp_path):
    import torch

    import weightstore.torch

    path = tmp_path / "m.gguf"
    value = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(torch.bfloat16)
    weightstore.torch.save_file({"w": value}, path, {"general.architecture": "llama"})
    (found,) = gguf.GGUFReader(path).tensors
    assert found.tensor_type == TYPE.BF16
    np.testing.assert_array_equal(gguf.quants.dequantize(found.data, TYPE.BF16), value.float().numpy())
    assert torch.equal(weightstore.torch.load_file(path)["w"], value)


def test_alignment(tmp_path):
    path = tmp_path / "m.gguf"
    weightstore.numpy.save_file({"a": np.ones(3, np.int8), "b": np.ones(3, np.int8)}, path, {"general.alignment": 256})
    reader = gguf.GGUFReader(path)
    assert [tensor.data_offset % 256 for tensor in reader.tensors] == [0, 0]
    assert path.stat().st_size % 256 == 0
    for wrong in (0, 24, GgufValue(32, "UINT64"), "32"):
        with pytest.raises(weightstore.InvalidArgument, match=r"general\.alignment is a UINT32 and a power of two"):
            weightstore.numpy.save_file({}, path, {"general.alignment": wrong})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n" * 64, np.ones(1, np.float32), "its name has 64 bytes; GGUF allows 63"),
        ("ä" * 32, np.ones(1, np.float32), "its name has 64 bytes"),
        ("a\0b", np.ones(1, np.float32), "NUL"),
        ("w", np.ones((1, 1, 1, 1, 1), np.float32), "has 5 dimensions; GGUF allows 4"),
        ("w", np.ones(1, np.uint8), "U8 does not exist in GGUF"),
        ("w", np.ones(1, bool), "BOOL does not exist in GGUF"),
        ("w", np.ones(1, np.complex64), "C64 does not exist in GGUF"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, value, message):
    path = tmp_path / "m.gguf"
    with pytest.raises(weightstore.InvalidArgument, match=message):
        weightstore.numpy.save_file({name: value}, path)
    assert not path.exists()


def test_the_longest_name_and_four_dimensions(tmp_path):
    path = tmp_path / "m.gguf"
    weightstore.numpy.save_file({"n" * 63: np.zeros((2, 1, 3, 1), np.float32)}, path)
    assert weightstore.open(path)["n" * 63].shape == (2, 1, 3, 1)
    assert gguf.GGUFReader(path).tensors[0].shape.tolist() == [1, 3, 1, 2]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_quantized_as_the_gguf_package_does(tmp_path, kind):
    source, target = tmp_path / "m.safetensors", tmp_path / "q.gguf"
    weightstore.numpy.save_file(tensors(), source, {"note": "text"})
    weightstore.convert(source, target, dtype=kind)
    reader = gguf.GGUFReader(target)
    found = {tensor.name: tensor for tensor in reader.tensors}
    for name in ("token_embd.weight", "cube"):
        assert found[name].tensor_type == TYPE[kind]
        expected = gguf.quants.quantize(tensors()[name], TYPE[kind])
        np.testing.assert_array_equal(found[name].data, expected)
    # Vectors, integers and rows that are not whole blocks stay.
    assert {name: found[name].tensor_type.name for name in ("norm", "half", "ids")} == {
        "norm": "F32",
        "half": "F16",
        "ids": "I64",
    }
    assert reader.fields["note"].contents() == "text"
    assert reader.fields["general.quantization_version"].contents() == 2


@settings(deadline=None, max_examples=100)
@given(
    arrays.arrays(np.float32, (4, 32), elements=st.floats(-(2.0**15), 2.0**15, width=32)),
    st.sampled_from(["Q8_0", "Q4_0"]),
)
def test_any_numbers_are_quantized_the_same(values, kind):
    import tempfile

    with tempfile.TemporaryDirectory() as directory, np.errstate(all="ignore"):
        weightstore.numpy.save_file({"w": values}, f"{directory}/m.gguf")
        weightstore.convert(f"{directory}/m.gguf", f"{directory}/q.gguf", dtype=kind)
        found = gguf.GGUFReader(f"{directory}/q.gguf").tensors[0].data
        np.testing.assert_array_equal(found, gguf.quants.quantize(values, TYPE[kind]))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize(("wrong", "message"), [(np.inf, "not finite"), (np.nan, "not finite"), (1e9, "too large")])
def test_numbers_that_cannot_be_quantized(tmp_path, kind, wrong, message):
    values = np.ones((4, 64), np.float32)
    values[2, 40] = wrong
    weightstore.numpy.save_file({"w": values}, tmp_path / "m.gguf")
    with pytest.raises(weightstore.InvalidArgument, match=message):
        weightstore.convert(tmp_path / "m.gguf", tmp_path / "q.gguf", dtype=kind)
    assert not (tmp_path / "q.gguf").exists()


def test_half_and_bfloat16_are_quantized_from_f32(tmp_path):
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float16)
    weightstore.numpy.save_file({"w": values}, tmp_path / "m.gguf")
    weightstore.convert(tmp_path / "m.gguf", tmp_path / "q.gguf", dtype="q8_0")
    expected = gguf.quants.quantize(values.astype(np.float32), TYPE.Q8_0)
    np.testing.assert_array_equal(gguf.GGUFReader(tmp_path / "q.gguf").tensors[0].data, expected)


@pytest.mark.parametrize("target", ["n.safetensors", "n.gguf", "n.bpk"])
@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_numbers_are_written_by_convert(tmp_path, target, dtype):
    rows = {kind.name: random_blocks(kind, 300, 4, 3) for kind in DEQUANTIZED}
    write(tmp_path / "m.gguf", rows, {kind.name: kind for kind in DEQUANTIZED})
    weightstore.convert(tmp_path / "m.gguf", tmp_path / target, dtype=dtype)
    with weightstore.open(tmp_path / target) as found, np.errstate(all="ignore"):
        for kind in DEQUANTIZED:
            expected = gguf.quants.dequantize(rows[kind.name], kind).astype(
                f"f{dtype[1:]}"[:1] + str(int(dtype[1:]) // 8)
            )
            assert found[kind.name].dtype == dtype
            np.testing.assert_array_equal(found[kind.name].numpy(), expected)


def test_without_dtype_a_quantized_tensor_is_an_error(tmp_path):
    write(tmp_path / "m.gguf", {"w": random_blocks(TYPE.Q4_K, 2, 1)}, {"w": TYPE.Q4_K})
    with pytest.raises(
        weightstore.InvalidArgument, match=r'Q4_K does not exist in SafeTensors; dequantize it.*dtype="F32"'
    ):
        weightstore.convert(tmp_path / "m.gguf", tmp_path / "m.safetensors")
    write(tmp_path / "iq.gguf", {"w": random_blocks(TYPE.IQ2_XS, 2, 1)}, {"w": TYPE.IQ2_XS})
    with pytest.raises(weightstore.StoreError, match="IQ2_XS is not dequantized"):
        weightstore.convert(tmp_path / "iq.gguf", tmp_path / "m.safetensors", dtype="F16")
    for dtype in ("Q8_0", "Q4_K", "I32"):
        with pytest.raises(weightstore.InvalidArgument, match="quantized tensors become"):
            weightstore.convert(tmp_path / "m.gguf", tmp_path / "m.safetensors", dtype=dtype)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".safetensors"] == []


def test_gguf_to_gguf_keeps_everything(tmp_path):
    kinds = {kind.name: kind for kind in TYPE if kind.name[0] not in "FBI" or kind.name.startswith("IQ")}
    by_package(tmp_path / "m.gguf", {name: random_blocks(kind, 2, 2) for name, kind in kinds.items()}, kinds)
    weightstore.convert(tmp_path / "m.gguf", tmp_path / "copy.gguf")
    assert (tmp_path / "copy.gguf").read_bytes() == (tmp_path / "m.gguf").read_bytes()


def test_metadata_on_the_way_to_safetensors_and_back(tmp_path, caplog):
    weightstore.numpy.save_file({"w": np.zeros((2, 2), np.float32)}, tmp_path / "m.gguf", METADATA)
    with caplog.at_level(logging.WARNING):
        weightstore.convert(tmp_path / "m.gguf", tmp_path / "m.safetensors")
    (record,) = caplog.records
    assert "tokenizer.ggml.tokens, tokenizer.ggml.token_type" in record.getMessage()
    assert weightstore.open(tmp_path / "m.safetensors").metadata == {
        "general.architecture": "llama",
        "llama.block_count": "2",
        "llama.rope.freq_base": "10000",
        "flag": "true",
        "format": "pt",
    }
    weightstore.convert(tmp_path / "m.safetensors", tmp_path / "back.gguf")
    back = weightstore.open(tmp_path / "back.gguf").metadata
    assert back["llama.block_count"] == "2"
    assert back.type_of("flag") == "STRING"


def test_file_type_is_true_after_a_conversion(tmp_path):
    write(tmp_path / "m.gguf", {"w": np.ones((1, 32), np.float32)})
    source = {
        **weightstore.open(tmp_path / "m.gguf").metadata.typed(),
        "general.file_type": 0,
        "u": GgufValue(1, "UINT64"),
    }
    weightstore.numpy.save_file({"w": np.ones((1, 32), np.float32)}, tmp_path / "m.gguf", source)
    for dtype, expected in (("Q8_0", 7), ("Q4_0", 2)):
        weightstore.convert(tmp_path / "m.gguf", tmp_path / "q.gguf", dtype=dtype, overwrite=True)
        found = weightstore.open(tmp_path / "q.gguf").metadata
        assert (found["general.file_type"], found["general.quantization_version"]) == (expected, 2)
        assert found.type_of("u") == "UINT64"
    weightstore.convert(tmp_path / "q.gguf", tmp_path / "f.gguf", dtype="F16")
    assert weightstore.open(tmp_path / "f.gguf").metadata["general.file_type"] == 1


def test_checksums(tmp_path):
    path = tmp_path / "m.gguf"
    weightstore.numpy.save_file(tensors(), path, METADATA, checksums=True)
    assert weightstore.open(path, verify="full").verify() == 5
    weightstore.convert(path, tmp_path / "copy.gguf")
    assert (tmp_path / "copy.gguf").read_bytes() == path.read_bytes()
    weightstore.convert(path, tmp_path / "m.safetensors")
    assert weightstore.open(tmp_path / "m.safetensors").verify() == 5
    weightstore.convert(path, tmp_path / "q.gguf", dtype="Q8_0", checksums=True)
    assert weightstore.open(tmp_path / "q.gguf", verify="full").verify() == 5
    damaged = bytearray(path.read_bytes())
    damaged[-40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(weightstore.FormatError, match="checksum"):
        weightstore.open(path).verify()
    assert len(gguf.GGUFReader(tmp_path / "q.gguf").tensors) == 5


def test_what_stays_is_listed(tmp_path, caplog):
    weightstore.numpy.save_file(
        {"odd": np.ones((2, 33), np.float32), "v": np.ones(33, np.float32)}, tmp_path / "m.gguf"
    )
    with caplog.at_level(logging.WARNING):
        weightstore.convert(tmp_path / "m.gguf", tmp_path / "q.gguf", dtype="Q8_0")
    assert "odd" in caplog.text
    assert weightstore.open(tmp_path / "q.gguf")["odd"].dtype == "F32"


def test_payloads_of_any_type_are_written(tmp_path):
    rows = random_blocks(TYPE.Q6_K, 2, 1)
    weightstore.numpy.save_file(
        {"w": weightstore.DeferredTensor("Q6_K", (2, 256), lambda: rows.tobytes())}, tmp_path / "m.gguf"
    )
    np.testing.assert_array_equal(gguf.GGUFReader(tmp_path / "m.gguf").tensors[0].data, rows)


def test_stores_do_not_write_gguf(tmp_path):
    with pytest.raises(weightstore.InvalidArgument, match="no store writes this format"):
        weightstore.save_into({"w": np.ones(3)}, tmp_path / "m.gguf")
    with pytest.raises(weightstore.InvalidArgument, match="reads files and does not write them"):
        weightstore.FileStore.from_file(tmp_path / "m.gguf").collect_from({"w": np.ones(3)})


def test_sets_of_shards_are_not_written(tmp_path):
    with pytest.raises(weightstore.InvalidArgument, match="GGUF files are not sharded"):
        weightstore.numpy.save_file({"w": np.ones(3)}, tmp_path / "m.gguf", max_shard_size="1MB")
