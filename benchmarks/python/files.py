"""The files that tasks load, made once a run: python -m benchmarks.python.files SOURCE SUFFIX makes one."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.python import cache
from benchmarks.python.contestants import CONTESTANTS
from benchmarks.python.sample import tensors_of

_MAKERS = {
    ".bpk": "weightstore .bpk",
    ".pt": "torch.save/load",
    ".tensors": "tensorizer",
    ".zarr": "tensorstore zarr3",
}


def make(source: Path, suffix: str) -> Path:
    """Saves the model in `source` beside it, in the format of the suffix."""
    who = CONTESTANTS[_MAKERS[suffix]]
    target = source.with_suffix(suffix)
    if not target.exists():
        who.start()
        who.save(who.accept(tensors_of(source, fill=True)), target, durable=False)
        cache.sync_tree(target)
    return target


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2])
