"""The command in this process: what verbs do, and how they fail."""

import argparse
import collections
import os
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore._cli.main import main


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((), np.int64)}
    weightstore.numpy.save_file(tensors, path, metadata={"format": "np"}, checksums=True)
    return path


def test_convert_there_and_back_gives_the_same_tensors(file, tmp_path):
    there, back = tmp_path / "model.bpk", tmp_path / "back.safetensors"
    assert main(["convert", str(file), str(there)]) == 0
    assert main(["convert", str(there), str(back)]) == 0
    before, after = weightstore.numpy.load_file(file), weightstore.numpy.load_file(back)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_convert_into_shards(file, tmp_path):
    index = tmp_path / "set.safetensors.index.json"
    assert main(["convert", str(file), str(index), "--max-shard-size", "24"]) == 0
    assert len(list(tmp_path.glob("set-*-of-00002.safetensors"))) == 2


def test_an_existing_target_is_replaced_only_when_asked(file, tmp_path, capsys):
    target = tmp_path / "model.bpk"
    target.write_bytes(b"precious")
    assert main(["convert", str(file), str(target)]) == 2
    assert target.read_bytes() == b"precious"
    assert str(target) in capsys.readouterr().err
    assert main(["convert", str(file), str(target), "--overwrite"]) == 0
    assert weightstore.open(target).format == "burnpack"


def test_verify_says_what_it_found(file, tmp_path, capsys):
    assert main(["verify", str(file)]) == 0
    assert "all 2 checksums are right" in capsys.readouterr().out

    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    assert main(["verify", str(file)]) == 1
    assert str(file) in capsys.readouterr().err

    without = tmp_path / "without.safetensors"
    weightstore.numpy.save_file({"a": np.zeros(3)}, without)
    assert main(["verify", str(without)]) == 1
    assert "1 of 1 tensors have no checksum" in capsys.readouterr().err


def test_verify_counts_the_tensors_of_a_pt_file_that_share_a_storage(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    weight = torch.arange(6.0)
    path = tmp_path / "tied.pt"
    torch.save({"head": weight, "embedding": weight, "half": weight[:3], "empty": torch.zeros(0)}, path)
    assert main(["verify", str(path)]) == 0
    assert "all 1 checksums are right" in capsys.readouterr().out

    torch.save({"a": weight}, path, _use_new_zipfile_serialization=False)
    assert main(["verify", str(path)]) == 1
    assert "1 of 1 tensors have no checksum" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["list"], ["verify"], ["convert", "x.bpk"]])
def test_errors_are_a_line_and_a_status(command, tmp_path, capsys):
    missing = str(tmp_path / "missing.safetensors")
    assert main([command[0], missing, *command[1:]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("weightstore: ")
    assert missing in captured.err
    assert captured.err.count("\n") == 1


def test_a_reader_that_stops_reading_gets_no_traceback(tmp_path):
    path = tmp_path / "many.safetensors"
    weightstore.numpy.save_file({f"tensor.{i:05}": np.zeros(1) for i in range(20_000)}, path)
    command = f"'{sys.executable}' -m weightstore list '{path}' | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(path))
    assert done.stderr == ""


def test_the_script_is_installed():
    script = os.path.join(sysconfig.get_path("scripts"), "weightstore")
    assert subprocess.run([script, "version"], capture_output=True, text=True, check=True).stdout.strip() == (
        weightstore.__version__
    )


def test_convert_verifies_and_adds_checksums(tmp_path, capsys):
    file, checked, copy = tmp_path / "1.safetensors", tmp_path / "checked.safetensors", tmp_path / "copy.bpk"
    weightstore.numpy.save_file({"a": np.arange(6.0)}, file)
    assert main(["convert", str(file), str(checked), "--verify", "full"]) == 2
    assert "no checksums" in capsys.readouterr().err
    assert main(["convert", str(file), str(checked), "--checksums"]) == 0
    assert main(["convert", str(checked), str(copy), "--verify", "full"]) == 0
    assert main(["verify", str(copy)]) == 0
    data = bytearray(checked.read_bytes())
    data[-1] ^= 1
    checked.write_bytes(data)
    assert main(["convert", str(checked), str(copy), "--overwrite"]) == 2
    assert "damaged" in capsys.readouterr().err
    assert main(["verify", str(copy)]) == 0
    assert main(["convert", str(checked), str(copy), "--overwrite", "--verify", "off"]) == 0
    assert main(["verify", str(copy)]) == 1


def test_objects_are_left_out_or_refused(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    source, target = str(tmp_path / "m.pt"), str(tmp_path / "m.safetensors")
    torch.save({"a": torch.ones(2), "arguments": argparse.Namespace(lr=0.1), "user": collections.UserDict()}, source)
    for command in (["list", source], ["verify", source], ["convert", source, target]):
        assert main([*command, "--opaque", "error"]) == (1 if command[0] == "verify" else 2)
        assert "UserDict" in capsys.readouterr().err
        assert main(command) == 0
        capsys.readouterr()
    assert main(["inspect", source]) == 0
    assert "UserDict.IterableUserDict" in capsys.readouterr().out
    assert list(weightstore.open(target)) == ["a"]
