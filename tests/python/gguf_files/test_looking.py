"""What the command and the verbs that only look tell about quantized tensors."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest

import weightstore
from support.gguf_files import DEQUANTIZED, TYPE, random_blocks, write
from weightstore._cli.main import main
from weightstore._look.difference import difference
from weightstore._look.statistics import statistics


def finite_blocks(kind, rows=4, blocks=2, seed=0):
    """Quantized by the package, or else bytes that are small everywhere, so that scales are finite."""
    return random_blocks(kind, rows, blocks, seed) & 0x37


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.gguf"
    tensors = {kind.name: finite_blocks(kind) for kind in DEQUANTIZED}
    kinds = {kind.name: kind for kind in DEQUANTIZED}
    tensors |= {"carried": random_blocks(TYPE.IQ2_XS, 4, 2), "plain": np.ones((4, 64), np.float32)}
    write(path, tensors, {**kinds, "carried": TYPE.IQ2_XS})
    return path


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_statistics_are_those_of_the_numbers(model, backend):
    with weightstore.open(model, backend=backend) as file:
        found = statistics(file, bins=4)
        assert found["carried"] is None
        for kind in DEQUANTIZED:
            numbers = file[kind.name].dequantize().numpy().astype(np.float64)
            one = found[kind.name]
            assert (one.count, one.zeros) == (numbers.size, np.count_nonzero(numbers == 0))
            assert (one.min, one.max) == (numbers.min(), numbers.max())
            assert one.mean == pytest.approx(numbers.mean())


def test_every_verb_of_the_command(model, capsys):
    assert main(["show", str(model), "--json"]) == 0
    shown = capsys.readouterr().out
    assert '"carried"' in shown
    for name in ("Q4_K", "MXFP4", "carried"):
        assert main(["show", str(model), name]) == 0
    assert "IQ2_XS has no numbers" in capsys.readouterr().out
    assert main(["list", str(model), "--json"]) == 0
    listed = {tensor["name"]: tensor["dtype"] for tensor in json.loads(capsys.readouterr().out)["tensors"]}
    assert listed["carried"] == "IQ2_XS"
    assert all(listed[kind.name] == kind.name for kind in DEQUANTIZED)
    assert main(["inspect", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"] == len(listed)
    assert main(["verify", str(model)]) == 1  # it has no checksums
    assert "have no checksum" in capsys.readouterr().err


def test_values_are_compared(model, tmp_path, capsys):
    other = tmp_path / "other.gguf"
    changed = {"Q8_0": finite_blocks(TYPE.Q8_0), "carried": random_blocks(TYPE.IQ2_XS, 4, 2, 1)}
    changed["Q8_0"][0, 5] ^= 1
    write(other, changed, {"Q8_0": TYPE.Q8_0, "carried": TYPE.IQ2_XS})
    assert main(["diff", str(model), str(model), "--values"]) == 0
    assert main(["diff", str(model), str(other), "--values", "--json"]) == 1
    assert "Q8_0" in capsys.readouterr().out
    with weightstore.open(model) as left, weightstore.open(other) as right:
        between = difference(left, right, values=True)
    apart = np.abs(
        gguf.quants.dequantize(finite_blocks(TYPE.Q8_0), TYPE.Q8_0) - gguf.quants.dequantize(changed["Q8_0"], TYPE.Q8_0)
    )
    (found,) = (one.values for one in between.changed if one.name == "Q8_0")
    assert found is not None
    assert found.max_absolute == pytest.approx(float(apart.max()))


def test_a_page_of_quantized_tensors(model, tmp_path):
    weightstore.html_report(model, output=tmp_path / "page.html", values=True)
    assert "IQ2_XS" in (tmp_path / "page.html").read_text(encoding="utf-8")
