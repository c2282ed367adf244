"""The same options have the same names, and take the same values, wherever they are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore import BurnpackStore, PytorchStore, SafetensorsStore, errors

PAGE = Path(__file__).parents[3] / "docs/conventions.md"
TENSORS = {"a": np.arange(6, dtype=np.float32), "b": np.ones(3, np.int16)}


def test_snippets_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(compile(snippet, PAGE.name, "exec"), {})


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    pytest.importorskip("torch")
    import weightstore.torch
    from weightstore import compat

    for module in (weightstore, weightstore.numpy, weightstore.torch, compat):
        for name in [*module.__all__, *(["open"] if module is weightstore else [])]:
            value = getattr(module, name)
            if inspect.isclass(value):
                yield f"{name}()", value.__init__
                yield from ((f"{name}.{n}", m) for n, m in inspect.getmembers(value, inspect.isfunction) if n[0] != "_")
            elif callable(value):
                yield name, value


def test_no_option_has_another_name():
    banned = {
        "checksum",
        "crc",
        "check",
        "map",
        "mmap",
        "force",
        "replace",
        "exist_ok",
        "sync",
        "fsync",
        "max_block_size",
    }
    seen = set()
    for where, function in public():
        try:
            parameters = inspect.signature(function).parameters
        except ValueError:  # of the core, which has none: QuantScheme
            assert where.startswith("QuantScheme"), where
            continue
        seen |= parameters.keys()
        # Two methods of burn-store and DLPack's protocol have names of their own.
        if not where.endswith(("map_indices_contiguous", "__dlpack__")):
            assert not banned & parameters.keys(), where
    assert {"checksums", "verify", "overwrite", "durable", "backend", "progress", "max_shard_size"} <= seen


# ---- verify ------------------------------------------------------------------------------------------------------------


def load_into_store(kind: Any) -> Callable[[Path, Any], Any]:
    return lambda path, verify: kind.from_file(path).verify(verify).apply_to({n: a * 0 for n, a in TENSORS.items()})


def open_and_read(path: Path, verify: Any) -> None:
    with weightstore.open(path, verify=verify) as file:
        file.load()


def convert(path: Path, verify: Any) -> None:
    weightstore.convert(path, path.with_name("converted.bpk"), overwrite=True, verify=verify)


def page(path: Path, verify: Any) -> None:
    with weightstore.Pager(path, verify=verify) as pager:
        for name in TENSORS:
            pager.acquire(name).release()


def load_torch(path: Path, verify: Any) -> None:
    pytest.importorskip("torch")
    import weightstore.torch as wt

    wt.load_file(path, verify=verify)


def load_model(path: Path, verify: Any) -> None:
    torch = pytest.importorskip("torch")
    import weightstore.torch as wt

    module = torch.nn.Module()
    for name, array in TENSORS.items():
        module.register_buffer(name, torch.from_numpy(array * 0))
    wt.load_model(module, path, verify=verify)


def load_checkpoint(path: Path, verify: Any) -> None:
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(array * 0) for name, array in TENSORS.items()}
    weightstore.Loader(path, tensors=tensors, verify=verify).load()


DOORS = {
    "open": open_and_read,
    "numpy.load_file": lambda path, verify: wn.load_file(path, verify=verify),
    "numpy.load_file mapped": lambda path, verify: wn.load_file(path, verify=verify, backend="mmap"),
    "numpy.load": lambda path, verify: wn.load(path.read_bytes(), verify=verify),
    "torch.load_file": load_torch,
    "torch.load_model": load_model,
    "store": load_into_store(SafetensorsStore),
    "convert": convert,
    "Pager": page,
    "Loader": load_checkpoint,
}
every_door = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """With right checksums, with none, and with a wrong one."""
    paths = tmp_path / "good.safetensors", tmp_path / "none.safetensors", tmp_path / "bad.safetensors"
    wn.save_file(TENSORS, paths[0], checksums=True)
    wn.save_file(TENSORS, paths[1])
    data = bytearray(paths[0].read_bytes())
    data[-1] ^= 1
    paths[2].write_bytes(data)
    return paths


@every_door
def test_verify_means_the_same(door, files):
    good, none, bad = files
    for verify in ("off", False, "lazy", "full", True):
        door(good, verify)
    for verify in ("off", False):
        door(bad, verify)
    for verify in ("lazy", "full", True):
        with pytest.raises(errors.FormatError, match="checksum"):
            door(bad, verify)
    for verify in ("off", False, "lazy"):
        door(none, verify)
    for verify in ("full", True):
        with pytest.raises(errors.FormatError, match="checksum"):
            door(none, verify)


@every_door
@pytest.mark.parametrize("verify", ["maybe", "", "FULL"])
def test_other_words_are_refused(door, files, verify):
    with pytest.raises(errors.InvalidArgument, match="verify is .*'off', 'lazy' or 'full'"):
        door(files[0], verify)


@pytest.mark.parametrize("kind", [SafetensorsStore, BurnpackStore, PytorchStore])
def test_every_store_has_verify(kind):
    store = kind.from_bytes(b"")
    assert store.verify("lazy") is store
    with pytest.raises(errors.InvalidArgument, match="'off', 'lazy' or 'full'"):
        store.verify("maybe")


def test_a_pager_over_a_file_verifies_as_the_file(files):
    with weightstore.open(files[2], verify="lazy") as file, weightstore.Pager(file) as pager:
        with pytest.raises(errors.FormatError, match="checksum"):
            pager.acquire_many(list(TENSORS))
        with pytest.raises(errors.InvalidArgument, match="a File has its own"):
            weightstore.Pager(file, verify="lazy")


# ---- checksums -----------------------------------------------------------------------------------------------------------


def test_every_save_writes_checksums(tmp_path):
    torch = pytest.importorskip("torch")
    import weightstore.torch as wt

    tensors = {name: torch.from_numpy(array) for name, array in TENSORS.items()}
    module = torch.nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor)
    for number, save in enumerate(
        [
            lambda path, on: wn.save_file(TENSORS, path, checksums=on),
            lambda path, on: path.write_bytes(wn.save(TENSORS, checksums=on)),
            lambda path, on: wt.save_file(tensors, path, checksums=on),
            lambda path, on: path.write_bytes(wt.save(tensors, checksums=on)),
            lambda path, on: wt.save_model(module, path, checksums=on),
            lambda path, on: SafetensorsStore.from_file(path).checksums(on).collect_from(TENSORS),
            lambda path, on: weightstore.convert(tmp_path / "0-False.safetensors", path, checksums=on),
        ]
    ):
        for on in (False, True):
            path = tmp_path / f"{number}-{on}.safetensors"
            save(path, on)
            assert weightstore.open(path).verify() == (2 if on else 0)
    for on in (False, True):
        weightstore.Saver(path=tmp_path / f"c{on}", tensors=tensors, checksums=on).save()
        assert weightstore.open(tmp_path / f"c{on}/model.safetensors.index.json").verify() == (2 if on else 0)
