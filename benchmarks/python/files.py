"""The files that tasks load, made once a run: python -m benchmarks.python.files WHO SOURCE makes one contestant's."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.python import cache
from benchmarks.python.contestants import CONTESTANTS
from benchmarks.python.sample import tensors_of


def make(who_name: str, source: Path) -> Path:
    """Saves the model in `source` in the contestant's own format beside it."""
    who = CONTESTANTS[who_name]
    target = source.with_suffix(who.suffix)
    if not target.exists():
        who.start()
        who.save(who.accept(tensors_of(source, fill=True)), target, durable=False)
        cache.sync_tree(target)
    return target


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
