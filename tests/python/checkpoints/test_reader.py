"""CheckpointReader: looks into checkpoints with torch, with numpy, or with neither."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import weightstore
import weightstore.torch
from weightstore._cli.main import main


def save(path: Path, layout: str = "plain") -> None:
    table = torch.classes.store.HashTable("user", [2], torch.float32)
    table.add_slot("exp_avg", [2], torch.bfloat16, 0.5)
    table.insert(torch.tensor([3, 1, 40000]), torch.arange(6, dtype=torch.float32).reshape(3, 2))
    dense = {"w": torch.arange(6, dtype=torch.int32).reshape(3, 2), "s": torch.tensor(2.5, dtype=torch.float64)}
    weightstore.Saver(path=path, hashtables={"user": table}, tensors=dense, layout=layout, parallel=2).save()


@pytest.mark.parametrize("layout", ["plain", "recis"])
def test_numpy_and_torch_show_the_same(tmp_path: Path, layout: str) -> None:
    save(tmp_path, layout)
    arrays = weightstore.CheckpointReader(tmp_path, framework="numpy")
    tensors = weightstore.CheckpointReader(tmp_path, framework="pt")
    assert arrays.tensor_names() == ["s", "user@embedding", "user@exp_avg", "user@id", "w"]
    assert arrays.tables() == tensors.tables() == {"user": ["embedding", "exp_avg", "id"]}
    for name in ("s", "w", "user@embedding", "user@id"):
        array, tensor = arrays.read_tensor(name), tensors.read_tensor(name)
        assert isinstance(array, np.ndarray)
        assert isinstance(tensor, torch.Tensor)
        assert array.dtype == arrays.tensor_dtype(name)
        assert tensor.dtype == tensors.tensor_dtype(name)
        assert list(array.shape) == list(tensor.shape) == arrays.tensor_shape(name)
        np.testing.assert_array_equal(array, tensor.numpy())
        assert arrays.tensor_nbytes(name) == array.nbytes
    np.testing.assert_array_equal(arrays.read_rows("w", 1, 3), [[2, 3], [4, 5]])
    stored = arrays.stored_dtype("user@exp_avg")
    assert stored == "BF16"
    assert stored == torch.bfloat16
    assert sum(rows for *_, rows in arrays.tensor_slices("user@id")) == 3
    assert arrays.tensor_slices("w") == []
    rows = dict(zip(arrays.read_tensor("user@id").tolist(), arrays.read_tensor("user@embedding").tolist(), strict=True))
    assert rows == {3: [0, 1], 1: [2, 3], 40000: [4, 5]}


def test_arrays_and_tensors_own_their_memory(tmp_path: Path) -> None:
    save(tmp_path)
    for framework in ("np", "pt"):
        value = weightstore.CheckpointReader(tmp_path, framework=framework).read_tensor("w")
        value[0, 0] = 7
        again = weightstore.CheckpointReader(tmp_path, framework=framework).read_tensor("w")
        assert value[0, 0] == 7
        assert again[0, 0] == 0


def test_verify_reports_progress(tmp_path: Path) -> None:
    save(tmp_path)
    reader = weightstore.CheckpointReader(tmp_path)
    calls: list[tuple[int, int, str]] = []
    assert reader.verify(progress=lambda *call: calls.append(call)) == reader.verify() > 0
    done, total, _ = calls[-1]
    assert done == total > 0
    with pytest.raises(weightstore.OperationCancelled):
        reader.verify(progress=lambda *_: False)


def test_what_is_refused(tmp_path: Path) -> None:
    save(tmp_path)
    with pytest.raises(weightstore.InvalidArgument, match="framework is 'tf'; it is one of"):
        weightstore.CheckpointReader(tmp_path, framework="tf")
    reader = weightstore.CheckpointReader(tmp_path, framework="np")
    for read in (reader.read_tensor, reader.tensor_shape, reader.tensor_dtype, reader.tensor_slices):
        with pytest.raises(weightstore.TensorNotFound) as caught:
            read("v\udc80")
        assert isinstance(caught.value, weightstore.CheckpointError)
    for rows in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(weightstore.InvalidArgument, match="has no rows"):
            reader.read_rows("w", *rows)
    with pytest.raises(weightstore.InvalidArgument, match="has no rows"):
        reader.read_rows("s", 0, 1)


def test_the_command_lists_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path)
    assert main(["list", str(tmp_path)]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path}: safetensors, 5 tensors, ")
    assert [line.split()[:2] for line in lines] == [
        ["s", "F64"],
        ["user@embedding", "F32"],
        ["user@exp_avg", "BF16"],
        ["user@id", "I64"],
        ["w", "I32"],
    ]
    (tmp_path / "empty").mkdir()
    assert main(["list", str(tmp_path / "empty")]) == 2
    assert str(tmp_path / "empty") in capsys.readouterr().err


# Imports of torch fail, as they do where torch is not installed.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import weightstore
reader = weightstore.CheckpointReader(sys.argv[1], framework="numpy")
assert "numpy" not in sys.modules
assert reader.tensor_names() == ["s", "user@embedding", "user@exp_avg", "user@id", "w"]
assert reader.tables() == {"user": ["embedding", "exp_avg", "id"]}
assert reader.tensor_shape("user@embedding") == [3, 2] and reader.stored_dtype("w") == "I32"
assert sum(rows for *_, rows in reader.tensor_slices("user@id")) == 3
assert reader.verify() > 0
assert "numpy" not in sys.modules
assert reader.read_tensor("w").tolist() == [[0, 1], [2, 3], [4, 5]]
assert sorted(reader.read_tensor("user@id").tolist()) == [1, 3, 40000]
assert reader.read_rows("user@embedding", 1, 3).shape == (2, 2)
try:
    weightstore.CheckpointReader(sys.argv[1]).read_tensor("w")
except ImportError:
    print("done")
"""


def test_looking_into_a_checkpoint_needs_no_torch(tmp_path: Path) -> None:
    save(tmp_path)
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("done", 0), done.stderr
