"""Writes the golden files: ``python tests/golden/make_golden.py FOLDER``.

The files in ``0.1.0/`` were made once, by the first version, and are never made again: every later version must read
them. A change of what is written gets a new folder beside the old one.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import cbor2
import torch

import weightstore
import weightstore.torch
from golden import content
from weightstore import _core
from weightstore._files.file import source_of


def writer_of(tensors, metadata=None) -> _core.Writer:
    writer = _core.Writer()
    for number, (name, (dtype, shape, data)) in enumerate(tensors.items()):
        writer.add_deferred(name, dtype, list(shape), data.__bytes__, 1000 + number)
    if metadata is not None:
        writer.set_metadata(metadata)
    return writer


def quantized_file() -> bytes:
    """A Burnpack file with one quantized tensor, as no API makes one from numbers."""
    scheme = {"value": "Q8S", "param": "F32", "store": {"PackedU32": 0}, "level": "Tensor", "mode": "Symmetric"}
    entry = {
        "dtype": {"QFloat": scheme},
        "shape": list(content.QUANTIZED_SHAPE),
        "data_offsets": [0, content.QUANTIZED_BYTES],
    }
    encoded = cbor2.dumps({"tensors": {"quantized": entry}})
    header = b"NRUB\x01\x00" + len(encoded).to_bytes(4, "little") + encoded
    return header.ljust(256, b"\0") + content.values("quantized", content.QUANTIZED_BYTES)


def write_files(folder: Path) -> None:
    tensors = content.tensors_of(content.SAFETENSORS_TYPES)
    writer_of(tensors).write_file(folder / "bare.safetensors", "safetensors")
    writer_of(tensors, content.METADATA).write_file(folder / "checked.safetensors", "safetensors", checksums=True)

    with weightstore.open(quantized_file()) as source:
        for burn in ("0.20", "0.21", "0.22"):
            writer = writer_of(content.tensors_of(content.BURNPACK_TYPES), content.METADATA)
            writer.add_quantized("quantized", source_of(source).reader, 0, 7)
            for name, value in content.SCALARS.items():
                writer.set_scalar(name, value)
            writer.write_file(folder / f"burn-{burn}.bpk", "burnpack", checksums=True, burn=burn)

    (folder / "set").mkdir()
    writer = writer_of(content.shard_set(), content.METADATA)
    writer.write_shards(folder / "set" / "model.safetensors.index.json", 1500, checksums=True)


def tables(shard: int, shard_num: int) -> dict:
    begin, end = 65536 * shard // shard_num, 65536 * (shard + 1) // shard_num

    def fill(table, name, ids, own_ids):
        kept = [i for i, own in enumerate(own_ids) if begin <= own % 2**64 % 65536 < end]
        if kept:
            own = torch.tensor([ids[i] for i in kept])
            table.insert(own, torch.tensor([content.row(name, "embedding", own_ids[i], 4) for i in kept]))
            table.write_slot("exp_avg", own, torch.tensor([content.row(name, "exp_avg", own_ids[i], 2) for i in kept]))

    user = torch.classes.store.HashTable("user", [4], torch.float32, begin, end, 65536, 4096, [])
    user.add_slot("exp_avg", [2], torch.float32, 0.0)
    fill(user, "user", content.TABLE_IDS, content.TABLE_IDS)
    children = list(content.CHILD_IDS)
    both = torch.classes.store.HashTable("both", [4], torch.float32, begin, end, 65536, 4096, children)
    both.add_slot("exp_avg", [2], torch.float32, 0.0)
    for number, (child, own) in enumerate(content.CHILD_IDS.items()):
        fill(both, child, both.coalesced_ids(number, torch.tensor(own)).tolist(), own)
    return {"user": user, "both": both}


def dense() -> dict:
    return {
        name: torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)
        for name, (_, shape, data) in content.shard_set().items()
    }


def write_checkpoints(folder: Path) -> None:
    for layout in ("plain", "recis"):
        path = folder / f"checkpoint-{layout}"
        savers = [
            weightstore.Saver(shard, 2, 2, path, tables(shard, 2), dense(), layout=layout, attempt="golden")
            for shard in range(2)
        ]
        threads = [threading.Thread(target=saver.save) for saver in savers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir()
    write_files(target)
    write_checkpoints(target)
