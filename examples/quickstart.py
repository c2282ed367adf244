"""Saves a small torch model in both formats, lists it, reloads it, reads a slice, pages it, and saves it in shards."""

import tempfile
from pathlib import Path

import torch

import weightstore
import weightstore.torch


def make_model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Embedding(1000, 64), torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )


def show_file(path: Path, model: torch.nn.Module) -> None:
    weightstore.torch.save_file(model.state_dict(), path, metadata={"made_by": "quickstart"})

    # Opening reads the header only; a tensor is a handle until its values are asked for.
    with weightstore.open(path) as file:
        print(f"\n{path.name}: {file.format}, {path.stat().st_size:,} bytes, metadata {file.metadata}")
        print(f"  {'name':<10} {'dtype':<6} {'shape':<12} {'bytes':>8}")
        for name in file:
            tensor = file[name]
            print(f"  {name:<10} {tensor.dtype:<6} {list(tensor.shape)!s:<12} {tensor.nbytes:>8,}")
        embedding = file["0.weight"]
        rows = embedding[100:103]
        equal = torch.equal(rows.torch(), model.state_dict()["0.weight"][100:103])
        print(
            f"  rows 100 to 102 of 0.weight ({rows.nbytes:,} of {embedding.nbytes:,} bytes): {'equal' if equal else 'DIFFERENT'}"
        )

    restored = make_model()
    restored.load_state_dict(weightstore.torch.load_file(path))
    tokens = torch.arange(8)
    print("  reloaded model gives the same output:", torch.equal(model(tokens), restored(tokens)))


def page(path: Path, model: torch.nn.Module) -> None:
    """Runs the model with less memory than it needs: each layer's weights are there only while it works."""
    tokens = torch.arange(8)
    with weightstore.Pager(path, budget="70kB") as pager:
        for _ in range(3):
            hidden = model[0](tokens)
            for layer in (1, 3):
                with pager.acquire(f"{layer}.weight") as weight, pager.acquire(f"{layer}.bias") as bias:
                    hidden = torch.nn.functional.linear(hidden, weight.torch(), bias.torch())
                if layer == 1:
                    hidden = torch.relu(hidden)
        stats = pager.stats()
        print(f"\n{pager!r}")
        print("  paged model gives the same output:", torch.equal(hidden, model(tokens)))
        for name in ("hits", "misses", "evictions", "bytes_read", "wait_ns", "peak_live_bytes"):
            print(f"  {name:<16} {stats[name]:>8,}")


def save_sharded(path: Path, model: torch.nn.Module) -> None:
    """Two shards save a table and the model; three load the table. A job has one process per shard; here the shards take turns, so they need `run`."""

    def make_table(shard: int, shard_num: int) -> weightstore.HashTable:
        buckets = 65536 * shard // shard_num, 65536 * (shard + 1) // shard_num
        return weightstore.HashTable("user", [16], torch.float32, *buckets)

    ids = torch.arange(10_000) * 7919
    for shard in (1, 0):  # shard 0 completes the checkpoint, so it comes last
        table = make_table(shard, 2)
        begin, end, size = table.slice()
        own = ids[(ids % size >= begin) & (ids % size < end)]
        table.insert(own, own[:, None].expand(-1, 16).float())
        weightstore.Saver(shard, 2, 4, path, {"user": table}, model.state_dict(), attempt="demo", run="1").save()

    reader = weightstore.CheckpointReader(path)
    print(f"\n{path.name}: {sorted(file.name for file in path.iterdir())}")
    print(f"  tensors: {reader.tensor_names()}, {reader.verify()} checksums right")
    loaded = []
    for shard in range(3):
        table = make_table(shard, 3)
        weightstore.Loader(path, {"user": table}, strict=False).load()
        loaded.append(table.ids())
    print(f"  ids in three shards: {[len(part) for part in loaded]}; all there:", end=" ")
    print(torch.equal(torch.cat(loaded).sort().values, ids))


def main() -> None:
    torch.manual_seed(0)
    model = make_model()
    print(f"weightstore {weightstore.__version__}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as directory:
        show_file(Path(directory, "model.safetensors"), model)
        show_file(Path(directory, "model.bpk"), model)
        page(Path(directory, "model.bpk"), model)
        save_sharded(Path(directory, "checkpoint"), model)


if __name__ == "__main__":
    main()
