"""Sizes as numbers and as text, in every function that takes one."""

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore import LayerPager, Pager, SafetensorsStore, errors
from weightstore._cli.main import main
from weightstore._files.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("size", "bytes"),
    [
        (7, 7),
        (np.int64(7), 7),
        ("7", 7),
        ("7B", 7),
        ("400MB", 400 * 10**6),
        ("400MiB", 400 * 2**20),
        ("400 mib", 400 * 2**20),
        (" 1.5 kB ", 1500),
        ("1.5KiB", 1536),
        ("2G", 2 * 10**9),
        ("2Gi", 2 * 2**30),
        ("1TB", 10**12),
        ("1TiB", 2**40),
    ],
)
def test_forms(size, bytes):
    assert parse_size(size, "it") == bytes


@pytest.mark.parametrize(
    "size", ["", "lots", "5 XB", "5iB", "-1MB", "1e6", "MB", 0, -1, "0GB", "0.1B", 2**63, "9999999TB"]
)
def test_what_is_no_size(size):
    with pytest.raises(errors.InvalidArgument, match="the limit must be"):
        parse_size(size, "the limit")


@pytest.mark.parametrize("size", [True, 4000.5, float("inf"), float("nan"), None, b"4MB", [4]])
def test_what_is_neither_text_nor_a_whole_number(size):
    with pytest.raises(TypeError, match=r"the limit must be .*'400MiB'"):
        parse_size(size, "the limit")


def test_a_float_that_is_whole():
    assert parse_size(4e6, "it") == 4_000_000
    with pytest.raises(weightstore.InvalidArgument):
        parse_size(1e30, "it")


def test_what_is_shown_can_be_read():
    assert format_size(1_200_000) == "1.2 MB"
    assert parse_size(format_size(1_200_000), "it") == 1_200_000


def test_every_function_takes_every_form(tmp_path):
    tensors = {f"t{i}": np.zeros(256, np.float32) for i in range(4)}
    source, index = tmp_path / "m.safetensors", tmp_path / "s.safetensors.index.json"
    wn.save_file(tensors, source)

    def shards() -> int:
        found = {handle.shard for handle in weightstore.open(index).values()}
        for file in (index, *found):
            (tmp_path / file).unlink()
        return len(found)

    for size in (2048, 2048.0, "2KiB", "2.048kB"):
        wn.save_file(tensors, index, max_shard_size=size)
        assert shards() == 2
        weightstore.convert(source, index, max_shard_size=size)
        assert shards() == 2
        SafetensorsStore.from_file(index).max_shard_size(size).collect_from(tensors)
        assert shards() == 2
        assert (
            main(
                [
                    "convert",
                    str(source),
                    str(index),
                    "--max-shard-size",
                    f"{size:.0f}" if isinstance(size, float) else str(size),
                ]
            )
            == 0
        )
        assert shards() == 2
        pager = Pager(source, size)
        assert pager.budget_bytes == 2048
        pager.set_budget("1MiB")
        assert pager.budget_bytes == 2**20
        assert LayerPager(b"1234", {"a": (0, 4)}, size).budget_bytes == 2048
    assert Pager(source, "0MB").budget_bytes == 0
    for budget in (-1, 2**64, "much"):
        with pytest.raises(errors.PagerError, match="budget must be"):
            Pager(source, budget)
    with pytest.raises(TypeError, match="budget must be"):
        Pager(source, 4000.5)


def test_blocks_of_a_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    import weightstore.torch

    table = torch.classes.store.HashTable("user", [16], torch.float32)
    ids = torch.arange(4096)
    table.insert(ids, torch.zeros(4096, 16))
    counts = []
    for size in (65536, "64KiB", "65.536kB"):
        path = tmp_path / str(size)
        weightstore.Saver(path=path, hashtables={"user": table}, max_block_bytes=size).save()
        counts.append(len(weightstore.CheckpointReader(path).tensor_slices("user@embedding")))
    assert counts[0] == counts[1] == counts[2] > 2
    for size in (0, "no"):
        with pytest.raises(errors.CheckpointError, match="max_block_bytes must be"):
            weightstore.Saver(path=tmp_path, max_block_bytes=size)
