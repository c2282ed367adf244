"""`weightstore.open` of directories: sets, checkpoints of both layouts, single files; handles as for files."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest

import weightstore
import weightstore.numpy
import weightstore.torch
from support.torch_classes import torch
from weightstore import errors
from weightstore._cli.main import main

IDS = torch.arange(400) * 997


def save(path: Path, layout: str = "plain", **options: object) -> None:
    """A table in many blocks, and dense tensors."""
    table = torch.classes.store.HashTable("user", [3], torch.float32)
    table.add_slot("exp_avg", [1], torch.bfloat16, 0.5)
    table.insert(IDS, (IDS[:, None] + torch.arange(3)).float())
    dense = {"w": torch.arange(12, dtype=torch.int32).reshape(4, 3), "s": torch.tensor(2.5, dtype=torch.float64)}
    weightstore.Saver(
        path=path, hashtables={"user": table}, tensors=dense, layout=layout, parallel=2, max_block_bytes=256, **options
    ).save()


@pytest.fixture(scope="module", params=["plain", "recis"])
def checkpoint(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "ckpt"
    save(path, request.param)
    return path


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_handles_of_columns(checkpoint, backend):
    with weightstore.open(checkpoint, backend=backend) as file:
        assert list(file) == ["s", "user@embedding", "user@exp_avg", "user@id", "w"]
        assert file.format == "safetensors"
        assert repr(file) == f"<File {str(checkpoint)!r}, safetensors, 5 tensors>"
        column = file["user@embedding"]
        assert (column.dtype, column.shape, column.nbytes) == ("F32", (400, 3), 4800)
        ids, rows = file["user@id"].numpy(), column.numpy()
        assert sorted(ids.tolist()) == IDS.tolist()
        np.testing.assert_array_equal(rows, (ids[:, None] + np.arange(3)).astype(np.float32))
        assert torch.equal(column.torch(), torch.from_numpy(rows.copy()))
        assert column.bytes() == rows.tobytes()
        for key in (np.s_[5:9], np.s_[::-7, 1:], np.s_[399], np.s_[10:300:13, 2], np.s_[:0]):
            np.testing.assert_array_equal(column[key].numpy(), rows[key])
            assert torch.equal(column[key].torch(), torch.from_numpy(rows[key].copy()))
            assert column[key].bytes() == rows[key].tobytes()
        assert file["user@exp_avg"].torch().tolist() == [[0.5]] * 400
        np.testing.assert_array_equal(np.from_dlpack(column[3:8]), rows[3:8])
        np.testing.assert_array_equal(file["w"].numpy(), np.arange(12).reshape(4, 3))
        assert file["s"].torch() == 2.5

        loaded = file.load()
        assert loaded.keys() == set(file)
        np.testing.assert_array_equal(loaded["user@embedding"], rows)
        target = torch.zeros(400, 3)
        file.load_into({"user@embedding": target})
        np.testing.assert_array_equal(target.numpy(), rows)


def test_other_functions_take_directories(checkpoint):
    with weightstore.open(checkpoint) as file:
        rows = file["user@embedding"].numpy()
    np.testing.assert_array_equal(weightstore.numpy.load_file(checkpoint)["user@embedding"], rows)
    with weightstore.safe_open(checkpoint, "pt") as file:
        assert torch.equal(file.get_slice("user@embedding")[4:8], torch.from_numpy(rows[4:8].copy()))
    with weightstore.Pager(checkpoint, budget="1MB") as pager, pager.acquire("user@embedding") as paged:
        np.testing.assert_array_equal(paged.numpy(), rows)


def test_checkpoint_reader_shows_the_same(checkpoint):
    reader = weightstore.CheckpointReader(checkpoint, framework="numpy")
    with weightstore.open(checkpoint) as file:
        assert reader.tensor_names() == list(file)
        for name, handle in file.items():
            if handle.dtype != "BF16":
                np.testing.assert_array_equal(reader.read_tensor(name), handle.numpy())
            assert (reader.stored_dtype(name), reader.stored_shape(name)) == (handle.dtype, list(handle.shape))


def test_verify(tmp_path):
    save(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    with weightstore.open(tmp_path, verify="full") as file, weightstore.open(index) as blocks:
        assert file.verify() == blocks.verify() == len(blocks) > 20
        assert file.without_checksum() == []
        block = max(name for name in blocks if name.startswith("user.embedding/"))
        shard = Path(blocks[block].shard)
        at = shard.read_bytes().index(blocks[block].bytes())
    with shard.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 1]))
    with weightstore.open(tmp_path, verify="lazy") as file:
        for read in (
            file.verify,
            file["user@embedding"].numpy,
            file["user@embedding"][:1].numpy,
            file["user@embedding"].bytes,
        ):
            with pytest.raises(errors.FormatError, match="checksum") as caught:
                read()
            assert caught.value.tensor == block
            assert caught.value.path == str(shard)
        assert file["w"].numpy().sum() == 66
    with pytest.raises(errors.FormatError, match="checksum"):
        weightstore.open(tmp_path, verify="full")
    assert main(["verify", str(tmp_path)]) == 1


def test_recis_has_no_checksums(tmp_path, capsys):
    save(tmp_path, "recis")
    with weightstore.open(tmp_path) as file:
        assert file.verify() == 0
        assert file.without_checksum() == list(file)
    with pytest.raises(errors.FormatError, match="no checksums"):
        weightstore.open(tmp_path, verify="full")
    assert main(["verify", str(tmp_path)]) == 1
    assert "5 of 5 tensors have no checksum" in capsys.readouterr().err


def test_unknown_names(checkpoint):
    with (
        weightstore.open(checkpoint) as file,
        pytest.raises(errors.TensorNotFound, match="did you mean 'user@embedding'") as caught,
    ):
        file["user@embeding"]
    assert caught.value.path == str(checkpoint)


def test_metadata_of_a_checkpoint(tmp_path):
    save(tmp_path)
    with weightstore.open(tmp_path) as file, weightstore.open(tmp_path / "model.safetensors.index.json") as index:
        assert file.metadata == index.metadata


def test_a_set_and_its_shards(tmp_path):
    tensors = {f"layer.{i}": np.full(1000, i, np.float32) for i in range(4)}
    index = tmp_path / "model.safetensors.index.json"
    weightstore.numpy.save_file(tensors, tmp_path / "one.safetensors", {"format": "np"})
    weightstore.convert(tmp_path / "one.safetensors", index, max_shard_size=8000)
    (tmp_path / "one.safetensors").rename(tmp_path / "unused.safetensors")
    for _ in range(2):
        with weightstore.open(tmp_path) as file:
            assert list(file) == list(tensors)
            assert file.metadata["format"] == "np"
            assert all((file[name].numpy() == tensors[name]).all() for name in file)
        (tmp_path / "unused.safetensors").unlink(missing_ok=True)
        index.unlink(missing_ok=True)  # the shards are still a set
    sorted(tmp_path.glob("*.safetensors"))[0].unlink()
    with pytest.raises(FileNotFoundError, match=r"of the 2 shards the directory has only 1: .* is missing"):
        weightstore.open(tmp_path)


def test_single_files(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "weights.pt")
    with weightstore.open(tmp_path) as file:
        assert (file.format, list(file)) == ("pytorch", ["w"])
    weightstore.numpy.save_file({"a": np.ones(2)}, tmp_path / "model.safetensors")
    with weightstore.open(str(tmp_path)) as file:
        assert (file.format, list(file), file["a"].shard) == (
            "safetensors",
            ["a"],
            str(tmp_path / "model.safetensors"),
        )


def test_directories_that_are_refused(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match="holds no checkpoint and no model.*it is empty") as caught:
        weightstore.open(tmp_path)
    assert isinstance(caught.value, errors.StoreError)
    assert caught.value.path == str(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileNotFoundError, match=r"it has 'notes\.txt'"):
        weightstore.open(tmp_path)
    for name in ("a.safetensors", "b.safetensors"):
        weightstore.numpy.save_file({"a": np.ones(2)}, tmp_path / name)
    with pytest.raises(errors.InvalidArgument, match=r"2 files of weights and no index: 'a\.safetensors', 'b\.s"):
        weightstore.open(tmp_path)
    for name in ("a", "b"):
        weightstore.convert(tmp_path / f"{name}.safetensors", tmp_path / f"{name}.safetensors.index.json")
    with pytest.raises(errors.InvalidArgument, match=r"2 indexes: 'a\.safetensors\.index\.json', 'b\.s"):
        weightstore.open(tmp_path)
    assert main(["list", str(tmp_path)]) == 2
    assert "2 indexes" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        weightstore.open(tmp_path / "none")


def test_a_save_that_did_not_end(tmp_path):
    save(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(FileNotFoundError, match="not complete"):
        weightstore.open(tmp_path)


def _sum(file: weightstore.File) -> float:
    with file:
        return float(file["user@embedding"][:7].numpy().sum())


def test_pickles(tmp_path):
    save(tmp_path)
    with weightstore.open(tmp_path) as file:
        expected = float(file["user@embedding"][:7].numpy().sum())
        data = pickle.dumps(file)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(_sum, (file,)) == expected
    (tmp_path / "notes.txt").write_text("a file beside the checkpoint")
    assert _sum(pickle.loads(data)) == expected
    save(tmp_path)
    with pytest.raises(errors.ConflictError, match="was replaced or changed"):
        pickle.loads(data)


def test_convert_keeps_tables(tmp_path):
    save(tmp_path / "plain")
    weightstore.convert(tmp_path / "plain", tmp_path / "one.safetensors")
    table = torch.classes.store.HashTable("user", [3], torch.float32)
    table.add_slot("exp_avg", [1], torch.bfloat16, 0.0)
    weightstore.Loader(tmp_path / "one.safetensors", {"user": table}, strict=False, verify="full").load()
    assert table.ids().sort().values.tolist() == IDS.tolist()
    save(tmp_path / "recis", "recis")
    with pytest.raises(errors.InvalidArgument, match="has tables, such as 'user', in RecIS's layout"):
        weightstore.convert(tmp_path / "recis", tmp_path / "two.safetensors")
    weightstore.Saver(path=tmp_path / "dense", tensors={"w": torch.ones(2)}, layout="recis").save()
    weightstore.convert(tmp_path / "dense", tmp_path / "two.safetensors")
    assert weightstore.numpy.load_file(tmp_path / "two.safetensors")["w"].tolist() == [1, 1]
