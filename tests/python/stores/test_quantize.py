"""Quantizing on the way into a file, and numbers on the way out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import weightstore
from weightstore import (
    BurnpackStore,
    PathFilter,
    QuantScheme,
    SafetensorsStore,
    dequantize,
    errors,
    load_from,
    quantize,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "burn"


def burn_numbers(name: str, count: int) -> np.ndarray:
    """The numbers that the program which made the golden files quantized: xorshift, seeded by the FNV-1a hash of a name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & (2**64 - 1)
    state |= 1
    numbers = []
    for _ in range(count):
        state ^= state << 13 & (2**64 - 1)
        state ^= state >> 7
        state ^= state << 17 & (2**64 - 1)
        numbers.append(np.float32(state >> 40) / np.float32(1 << 23) - np.float32(1))
    return np.array(numbers, "f4") * np.float32(0.5)


def cases() -> list:
    found = []
    for path in sorted(GOLDEN.glob("*/quant_q*.bpk")):
        release = path.parent.name
        info = json.loads((path.parent / (path.name + ".json")).read_text())
        for i, name in enumerate(info["schemes"]):
            # What quantize() makes: F32 scales of the tensor or of blocks, a byte a code or words along the last dimension.
            if re.search(r"_(tensor|b16|default)$", name) and not re.search("f16_tensor|_pn_|_u32d1_", name):
                found.append(pytest.param(path, i, name, id=f"{release}/{name}"))
    return found


@pytest.mark.parametrize(("path", "number", "name"), cases())
def test_burns_own_calibration(path: Path, number: int, name: str) -> None:
    with weightstore.open(path) as file:
        handle = file[f"list.{number}.weight"]
        scheme = handle.scheme
        store = BurnpackStore.from_bytes(None).with_to_adapter(quantize(scheme))
        store.collect_from({"w": burn_numbers(name, 128).reshape(4, 32)})
        made = weightstore.open(store.get_bytes())["w"]
        assert made.scheme.for_burn(scheme.burn) == scheme
        assert made.bytes() == handle.bytes()


def test_every_release_has_a_case() -> None:
    assert {case.values[0].parent.name for case in cases()} == {"0.20", "0.21", "0.22", "0.23"}


@pytest.mark.parametrize(
    ("scheme", "worst"),
    [
        ("Q8S", 1 / 254),
        (QuantScheme("Q8S", block=[32]), 1 / 254),
        (QuantScheme("Q4S", store="PackedU32", block=[2, 16]), 1 / 14),
        (QuantScheme("Q4S", store="PackedU32", burn="0.21"), 1 / 14),
        (QuantScheme("Q8F", block=[32], burn="0.23"), 1 / 127),
    ],
)
def test_there_and_back(tmp_path: Path, scheme: QuantScheme | str, worst: float) -> None:
    rng = np.random.default_rng(5)
    model = {"w": rng.uniform(-1, 1, (64, 96)).astype("f4"), "half": rng.uniform(-1, 1, (32, 32)).astype("f2")}
    model |= {"bias": np.ones(96, "f4"), "ids": np.arange(6).reshape(2, 3)}
    path = tmp_path / "q.bpk"
    BurnpackStore.from_file(path).with_to_adapter(quantize(scheme)).collect_from(model)
    with weightstore.open(path) as file:
        assert {name: file[name].dtype for name in file} == {
            "w": "QFloat",
            "half": "QFloat",
            "bias": "F32",
            "ids": "I64",
        }
        np.testing.assert_allclose(file["w"].dequantize(), model["w"], atol=worst)
    back = {
        name: np.zeros(value.shape, "f4" if value.dtype.kind == "f" else value.dtype) for name, value in model.items()
    }
    load_from(back, BurnpackStore.from_file(path).with_from_adapter(dequantize()))
    np.testing.assert_array_equal(back["w"], weightstore.open(path)["w"].dequantize().numpy())
    np.testing.assert_allclose(back["half"], model["half"], atol=worst)
    plain = SafetensorsStore.from_bytes(None).with_to_adapter(dequantize("bf16"))
    plain.collect_from(BurnpackStore.from_file(path).get_all_snapshots())
    assert plain.get_snapshot("w").dtype == "BF16"


def test_into_a_torch_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(64, 32)
    to_burn = weightstore.PyTorchToBurnAdapter().chain(quantize(QuantScheme("Q8S", block=[16])))
    BurnpackStore.from_file(tmp_path / "m.bpk").with_to_adapter(to_burn).collect_from(model)
    assert weightstore.open(tmp_path / "m.bpk")["weight"].shape == (64, 32)
    other = torch.nn.Linear(64, 32)
    from_burn = dequantize().chain(weightstore.BurnToPyTorchAdapter())
    load_from(other, BurnpackStore.from_file(tmp_path / "m.bpk").with_from_adapter(from_burn))
    assert torch.allclose(other.weight, model.weight, atol=0.125 / 254)
    assert torch.equal(other.bias, model.bias)


def test_which_tensors() -> None:
    model = {"a": {"w": np.ones((4, 4), "f4")}, "b": {"w": np.ones((4, 4), "f4"), "v": np.ones(4, "f4")}}
    store = BurnpackStore.from_bytes(None)
    store.with_to_adapter(quantize("Q8S", filter=PathFilter().with_regex(r"^b\.")))
    store.collect_from(model)
    assert {name: one.dtype for name, one in store.get_all_snapshots().items()} == {
        "a.w": "F32",
        "b.w": "QFloat",
        "b.v": "QFloat",
    }


def test_refusals(tmp_path: Path) -> None:
    def save(adapter: weightstore.ModuleAdapter, value: object = None) -> None:
        made = np.ones((3, 5), "f4") if value is None else value
        BurnpackStore.from_file(tmp_path / "x.bpk").with_to_adapter(adapter).collect_from({"deep": {"w": made}})

    with pytest.raises(errors.StoreError, match="whole number of blocks") as refused:
        save(quantize(QuantScheme(block=[4])))
    assert refused.value.tensor == "deep.w"
    with pytest.raises(errors.StoreError, match="not finite"):
        save(quantize("Q8S"), np.full((2, 2), np.inf, "f4"))
    with pytest.raises(errors.StoreError, match="integers"):
        save(quantize("E4M3"))
    with pytest.raises(errors.StoreError, match="QFloat"):
        SafetensorsStore.from_bytes(None).with_to_adapter(quantize("Q8S")).collect_from({"w": np.ones((2, 2), "f4")})
    with pytest.raises(errors.InvalidArgument, match="Q9"):
        quantize("Q9")
    assert list(tmp_path.iterdir()) == []
