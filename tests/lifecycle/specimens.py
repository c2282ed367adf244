"""One of everything that has memory, threads or files. A new class is one more entry in SPECIMENS.

Values are the same in all of them: tensor "i" is SIZE bytes of the value i.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import weightstore
import weightstore.numpy

COUNT = 4
SIZE = 70_000
NAMES = [str(i) for i in range(COUNT)]
DATA = b"".join(bytes([i]) * SIZE for i in range(COUNT))
RANGES = {name: (SIZE * int(name), SIZE) for name in NAMES}


class Anchor:
    """What a specimen calls back, or reads from. An anchor that holds its specimen is in a reference cycle with it."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None  # raised by the next callback
        self.pause = 0.0  # of every callback, so that it is under way when something happens
        self.thing: Any = None

    def _called(self) -> None:
        if self.pause:
            time.sleep(self.pause)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def read(self, offset: int, size: int) -> bytes:
        self._called()
        return DATA[offset : offset + size]

    def progress(self, done: int, total: int, name: str) -> None:
        self._called()

    def filter(self, chosen: Any) -> Any:
        self._called()
        return chosen

    def produce(self, name: str) -> Callable[[], bytes]:
        def make() -> bytes:
            self._called()
            return self.read(*RANGES[name])

        return make

    def file(self, path: Path) -> AnchoredFile:
        return AnchoredFile(self, path)


def opened(path: Path) -> Any:
    return open(path, "rb", buffering=0)


class AnchoredFile:
    """A file object of which nothing is known but its methods."""

    def __init__(self, anchor: Anchor, path: Path) -> None:
        self._anchor = anchor
        self._file = opened(path)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        self._anchor._called()
        return self._file.readinto(buffer)


@dataclass(frozen=True)
class Specimen:
    make: Callable[[Path, Anchor], Any]
    use: Callable[[Any], Any]  # returns the same every time
    close: Callable[[Any], None] | None = None  # None: there is no such thing
    begin: Callable[[Any], Callable[[], object]] | None = None  # begins background work; the result waits for its end
    calls_back: bool = False  # use() calls the anchor
    refused_in_child: bool = False  # a forked process gets a clear error instead
    exclusive: bool = False  # for one thread at a time; two may get a clear error
    torch: bool = False  # needs torch.classes.store
    torch_class: bool = False  # is called through torch


# ---- files ---------------------------------------------------------------------------------------------------------


def saved(directory: Path, ending: str = "safetensors") -> Path:
    path = directory / f"m.{ending}"
    if not path.exists():
        arrays = {name: np.frombuffer(DATA, np.uint8, SIZE, offset) for name, (offset, _) in RANGES.items()}
        weightstore.numpy.save_file(arrays, path, durable=False)
    return path


def saved_pt(directory: Path) -> Path:
    import torch

    path = directory / "m.pt"
    torch.save({name: torch.full((SIZE,), int(name), dtype=torch.uint8) for name in NAMES}, path)
    return path


def raw(directory: Path) -> Path:
    path = directory / "raw"
    path.write_bytes(DATA)
    return path


def contents(values: Any) -> bytes:
    return b"".join(bytes(memoryview(values[name])) for name in NAMES)


def use_file(file: weightstore.File) -> bytes:
    first, *_ = (file[name].bytes() for name in NAMES)
    assert first == DATA[:SIZE]
    assert bytes(file["1"][10:20].numpy()) == bytes([1]) * 10
    return contents(file.load(NAMES))


def a_file(open_it: Callable[[Path, Anchor], weightstore.File], **options: Any) -> Specimen:
    return Specimen(open_it, use_file, weightstore.File.close, **options)


# ---- pagers --------------------------------------------------------------------------------------------------------


def use_pager(pager: weightstore.Pager) -> bytes:
    parts = []
    for name in NAMES:
        with pager.acquire(name) as tensor:
            parts.append(tensor.bytes())
    assert [tensor.bytes() for tensor in pager.acquire_many(NAMES)] == parts
    return b"".join(parts)


def prefetch(pager: weightstore.Pager) -> Callable[[], object]:
    pager.prefetch(NAMES)
    return lambda: pager.prefetch([], wait=True)


def a_pager(make: Callable[[Path, Anchor], weightstore.Pager], **options: Any) -> Specimen:
    return Specimen(make, use_pager, weightstore.Pager.close, prefetch, **options)


BUDGET = 2 * SIZE  # so that every use() reads


def layer_pager(source: Callable[[Path, Anchor], Any], **options: Any) -> Specimen:
    return a_pager(lambda where, anchor: weightstore.LayerPager(source(where, anchor), RANGES, BUDGET), **options)


class Acquired:
    """A tensor in use; the anchor may hold it, and with it the pager."""

    def __init__(self, where: Path, anchor: Anchor) -> None:
        self.tensor = weightstore.LayerPager(anchor.read, RANGES, BUDGET).acquire("1")

    def use(self) -> bytes:
        assert self.tensor.numpy()[-1] == 1
        return self.tensor.bytes()

    def close(self) -> None:
        self.tensor.release()


# ---- stores and calls ----------------------------------------------------------------------------------------------


def a_store(kind: str, ending: str, *, zero_copy: bool = False, **options: Any) -> Specimen:
    def make(where: Path, anchor: Anchor) -> Any:
        path = saved_pt(where) if ending == "pt" else saved(where, ending)
        return getattr(weightstore, kind).from_file(path).zero_copy(zero_copy).progress(anchor.progress)

    def use(store: Any) -> bytes:
        module = {name: np.zeros(SIZE, np.uint8) for name in NAMES}
        store.apply_to(module)
        return contents(module)

    return Specimen(make, use, calls_back=True, **options)


class Saving:
    """Deferred tensors on their way into a file."""

    def __init__(self, where: Path, anchor: Anchor) -> None:
        self.where = where
        self.anchor = anchor

    def use(self) -> bytes:
        made = {name: weightstore.DeferredTensor("U8", (SIZE,), self.anchor.produce(name)) for name in NAMES}
        path = self.where / f"saved-{os.getpid()}.safetensors"
        weightstore.numpy.save_file(made, path, durable=False, progress=self.anchor.progress)
        return contents(weightstore.open(path).load())


class Converting(Saving):
    def use(self) -> bytes:
        path = self.where / f"converted-{os.getpid()}.bpk"
        weightstore.convert(saved(self.where), path, overwrite=True, progress=self.anchor.progress, durable=False)
        return contents(weightstore.open(path).load())


# ---- checkpoints ---------------------------------------------------------------------------------------------------

IDS = 5000


def table() -> Any:
    import torch

    from weightstore._torch_library import loading

    loading.load()
    made = torch.classes.store.HashTable("user", [4], torch.float32, 0, 65536, 65536, 64, [])
    ids = torch.arange(IDS)
    made.insert(ids, ids[:, None].float().repeat(1, 4))
    return made


def use_table(made: Any) -> bytes:
    import torch

    ids = torch.arange(IDS)
    made.insert(ids, ids[:, None].float().repeat(1, 4))
    made.snapshot()
    index, found = made.lookup(ids, False)
    assert bool((index >= 0).all())
    return bytes(found.contiguous().view(torch.uint8).numpy())


def use_snapshot(snapshot: Any) -> int:
    return int(snapshot.epoch())


def tensors() -> dict[str, Any]:
    import torch

    return {name: torch.full((SIZE,), int(name), dtype=torch.uint8) for name in NAMES}


def saver(where: Path, anchor: Anchor) -> Any:
    return weightstore.Saver(
        path=where / "checkpoint",
        hashtables={"user": table()},
        tensors=tensors(),
        durable=False,
        timeout=20,
        filter_func=anchor.filter,
        progress=anchor.progress,
    )


def read_back(path: Path) -> bytes:
    reader = weightstore.CheckpointReader(path)
    return contents({name: reader.read_tensor(name).numpy() for name in NAMES})


class Saver:
    def __init__(self, where: Path, anchor: Anchor) -> None:
        self.where = where / "checkpoint"
        self.saver = saver(where, anchor)

    def use(self) -> bytes:
        self.saver.save()
        return read_back(self.where)

    def begin(self) -> Callable[[], object]:
        return self.saver.save_async().result


class AsyncSaver(Saver):
    def use(self) -> bytes:
        self.saver.save_async().result(60)
        return read_back(self.where)


def targets() -> dict[str, Any]:
    import torch

    with torch.inference_mode(False):  # whose tensors torch does not let others change
        return tensors()


class Loader:
    def __init__(self, where: Path, anchor: Anchor) -> None:
        saver(where, anchor).save()
        self.table, self.tensors = table(), targets()
        self.loader = weightstore.Loader(
            where / "checkpoint",
            hashtables={"user": self.table},
            tensors=self.tensors,
            filter_func=anchor.filter,
            progress=anchor.progress,
        )

    def use(self) -> bytes:
        import torch

        with torch.no_grad():
            for tensor in self.tensors.values():
                tensor.zero_()
        self.loader.load()
        return contents({name: tensor.numpy() for name, tensor in self.tensors.items()})


def checkpoint_reader(where: Path, anchor: Anchor) -> Any:
    saver(where, anchor).save()
    return weightstore.CheckpointReader(where / "checkpoint")


def use_reader(reader: Any) -> bytes:
    assert len(reader.read_tensor("user@id")) == IDS
    return contents({name: reader.read_tensor(name).numpy() for name in NAMES})


def a_torch_class(make: Callable[[Path, Anchor], Any], use: Callable[[Any], Any], **options: Any) -> Specimen:
    return Specimen(make, use, torch=True, torch_class=True, **options)


# ---- all of them ---------------------------------------------------------------------------------------------------

SPECIMENS: dict[str, Specimen] = {
    "File, mapped": a_file(lambda where, _: weightstore.open(saved(where))),
    "File, read": a_file(lambda where, _: weightstore.open(saved(where), backend="pread")),
    "File, lazily verified": a_file(lambda where, _: weightstore.open(saved(where), verify="lazy")),
    "File of bytes": a_file(lambda where, _: weightstore.open(saved(where).read_bytes())),
    "File of a file": a_file(lambda where, _: weightstore.open(opened(saved(where)))),
    "File of a file object": a_file(
        lambda where, anchor: weightstore.open(anchor.file(saved(where))), calls_back=True, refused_in_child=True
    ),
    "Burnpack": a_file(lambda where, _: weightstore.open(saved(where, "bpk"))),
    "TensorHandle": Specimen(lambda where, _: weightstore.open(saved(where))["1"], lambda handle: handle.bytes()),
    "safe_open": Specimen(
        lambda where, _: weightstore.safe_open(saved(where), "np"),
        lambda file: contents(file.get_tensors()),
        lambda file: file.__exit__(None, None, None),
    ),
    "Pager of a path": a_pager(lambda where, _: weightstore.Pager(saved(where), BUDGET)),
    "Pager of a path, strict": a_pager(lambda where, _: weightstore.Pager(saved(where), COUNT * 100_000, strict=True)),
    "Pager of a File": a_pager(lambda where, _: weightstore.Pager(weightstore.open(saved(where)), BUDGET)),
    "Pager of bytes": a_pager(lambda where, _: weightstore.Pager(saved(where).read_bytes(), BUDGET)),
    "Pager of a file": a_pager(lambda where, _: weightstore.Pager(opened(saved(where)), BUDGET)),
    "Pager of a file object": a_pager(
        lambda where, anchor: weightstore.Pager(anchor.file(saved(where)), BUDGET),
        calls_back=True,
        refused_in_child=True,
    ),
    "LayerPager of a path": layer_pager(lambda where, _: raw(where)),
    "LayerPager of bytes": layer_pager(lambda where, _: DATA),
    "LayerPager of a file": layer_pager(lambda where, _: opened(raw(where))),
    "LayerPager of a file object": layer_pager(
        lambda where, anchor: anchor.file(raw(where)), calls_back=True, refused_in_child=True
    ),
    "LayerPager of a callable": layer_pager(lambda where, anchor: anchor.read, calls_back=True),
    "PagedTensor": Specimen(Acquired, Acquired.use, Acquired.close),
    "BurnpackStore": a_store("BurnpackStore", "bpk"),
    "SafetensorsStore": a_store("SafetensorsStore", "safetensors"),
    "SafetensorsStore, zero copy": a_store("SafetensorsStore", "safetensors", zero_copy=True),
    "PytorchStore": a_store("PytorchStore", "pt", torch=True),
    "save_file of deferred tensors": Specimen(Saving, Saving.use, calls_back=True),
    "convert": Specimen(Converting, Converting.use, calls_back=True),
    "HashTable": a_torch_class(lambda where, _: table(), use_table),
    "HashTable's snapshot": a_torch_class(lambda where, _: table().snapshot(), use_snapshot),
    "Saver": a_torch_class(Saver, Saver.use, begin=Saver.begin, calls_back=True, exclusive=True),
    "Saver.save_async": a_torch_class(AsyncSaver, AsyncSaver.use, begin=Saver.begin, calls_back=True, exclusive=True),
    "Loader": a_torch_class(Loader, Loader.use, calls_back=True, exclusive=True),
    "CheckpointReader": a_torch_class(checkpoint_reader, use_reader),
}
