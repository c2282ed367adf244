"""A File and its handles are pickled by path: for the workers of a DataLoader that are started anew."""

import copy
import io
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import weightstore
import weightstore.numpy as ws

ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.ones(5, np.int32)}


@pytest.fixture(params=["m.safetensors", "m.bpk", "m.safetensors.index.json"])
def path(request, tmp_path):
    path = tmp_path / request.param
    ws.save_file(ARRAYS, path)
    return path


def again(value):
    return pickle.loads(pickle.dumps(value))


def test_a_file(path):
    with weightstore.open(path, backend="pread", verify="lazy") as file:
        copied = again(file)
    assert copied.path == str(path)
    assert copied.format == weightstore.open(path).format
    assert not copied.closed
    for name, array in ARRAYS.items():
        assert np.array_equal(copied[name].numpy(), array)


def test_handles_share_their_file(path):
    file = weightstore.open(path)
    whole, part, other = again([file["a"], file["a"][1:, ::2], file["b"]])
    assert np.array_equal(whole.numpy(), ARRAYS["a"])
    assert np.array_equal(part.numpy(), ARRAYS["a"][1:, ::2])
    assert whole._source is part._source is other._source
    assert np.array_equal(copy.deepcopy(file)["b"].numpy(), ARRAYS["b"])


def test_options_are_kept(tmp_path):
    ws.save_file({"a": np.zeros((1, 1, 1))}, tmp_path / "m.safetensors", checksums=True)
    data = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(data[:-1] + b"\x01")
    file = weightstore.open(tmp_path / "m.safetensors", verify="lazy", backend="pread", limits={"rank": 3})
    with pytest.raises(weightstore.FormatError, match="checksum"):
        again(file)["a"].numpy()
    assert again(again(file))._source._opening == file._source._opening


def test_a_relative_path(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    file = weightstore.open(path.name)
    data = pickle.dumps(file)
    monkeypatch.chdir("/")
    assert pickle.loads(data).path == str(path)


def test_another_file_is_refused(path):
    data = pickle.dumps(weightstore.open(path)["a"])
    before = os.stat(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(weightstore.ConflictError, match="replaced or changed.*open it again") as caught:
        pickle.loads(data)
    assert caught.value.path == str(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)


def test_what_has_no_path_is_refused(path, tmp_path):
    ws.save_file(ARRAYS, tmp_path / "one.safetensors")
    contents = (tmp_path / "one.safetensors").read_bytes()
    with open(tmp_path / "one.safetensors", "rb") as stream:
        for source in (contents, io.BytesIO(contents), stream):
            for value in (weightstore.open(source), weightstore.open(source)["a"]):
                with pytest.raises(weightstore.InvalidArgument, match="only a file that was opened by its path"):
                    pickle.dumps(value)
    file = weightstore.open(path)
    file.close()
    with pytest.raises(weightstore.InvalidArgument, match="closed"):
        pickle.dumps(file)


SPAWNED = """
import sys
import torch
import weightstore

class Rows:
    def __init__(self, file):
        self.file = file
    def __len__(self):
        return self.file["a"].shape[0]
    def __getitem__(self, row):
        return self.file["a"][row].torch().clone()

if __name__ == "__main__":
    file = weightstore.open(sys.argv[1])
    loader = torch.utils.data.DataLoader(Rows(file), num_workers=1, multiprocessing_context="spawn")
    assert torch.equal(torch.cat(list(loader)), file["a"].torch())
    print("loaded", len(loader))
"""


def test_a_data_loader_with_spawned_workers(path, tmp_path):
    pytest.importorskip("torch")
    program = tmp_path / "spawned.py"
    program.write_text(SPAWNED)
    done = subprocess.run([sys.executable, program, path], capture_output=True, text=True, timeout=300)
    assert done.stdout == "loaded 3\n", done.stderr
