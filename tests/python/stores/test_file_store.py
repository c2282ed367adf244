"""One store for files of every format; and paths in place of stores."""

from pathlib import Path

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore import BurnpackStore, FileStore, PytorchStore, SafetensorsStore, errors, load_from, save_into

TENSORS = {"fc": {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.ones(2, np.float32)}}


def empty() -> dict:
    return {"fc": {name: np.zeros_like(array) for name, array in TENSORS["fc"].items()}}


def check(module: dict) -> None:
    for name, array in TENSORS["fc"].items():
        np.testing.assert_array_equal(module["fc"][name], array)


def flat() -> dict:
    return {f"fc.{name}": array for name, array in TENSORS["fc"].items()}


@pytest.fixture(params=["m.safetensors", "m.bpk", "m.pt", "m.npz", "m.safetensors.index.json", "m"])
def path(request, tmp_path: Path) -> Path:
    target = tmp_path / request.param
    if target.suffix == ".pt":
        torch = pytest.importorskip("torch")
        torch.save({name: torch.from_numpy(array) for name, array in flat().items()}, target)
    elif target.suffix == ".npz":
        np.savez(target, **flat())
    else:
        wn.save_file(flat(), target)
    return target


def test_a_path_loads_whatever_the_format(path):
    for given in (path, str(path)):
        module = empty()
        assert load_from(module, given).is_success()
        check(module)


def test_an_open_file_loads(path):
    module = empty()
    with weightstore.open(path) as file:
        assert load_from(module, file).is_success()
    check(module)
    with pytest.raises(errors.InvalidArgument, match="closed"):
        load_from(module, file)


def test_the_reading_half_of_a_store(path):
    store = (
        FileStore.from_file(path)
        .with_key_remapping("^fc", "head")
        .with_full_path("head.bias")
        .allow_partial(True)
        .validate(True)
        .zero_copy(False)
        .verify("lazy")
        .opaque("error")
    )
    assert store.keys() == ["head.bias", "head.weight"]
    assert store.get_snapshot("head.weight").shape == (2, 3)
    module = {"head": empty()["fc"]}
    assert store.apply_to(module).applied == ["head.bias"]
    assert module["head"]["bias"].tolist() == [1, 1]
    assert not module["head"]["weight"].any()
    assert isinstance(store.get_metadata(), dict)


def test_bytes(path):
    if path.suffix != ".json":
        module = empty()
        assert FileStore.from_bytes(path.read_bytes()).apply_to(module).is_success()
        check(module)


def test_defaults_are_those_of_the_formats_own_store(tmp_path):
    torch = pytest.importorskip("torch")
    gaps = {"fc.0.weight": torch.ones(2), "fc.2.weight": torch.ones(2) * 2}
    torch.save(gaps, tmp_path / "m.pt")
    wn.save_file({name: tensor.numpy() for name, tensor in gaps.items()}, tmp_path / "m.safetensors")

    def module() -> dict:
        return {"fc": [{"weight": np.zeros(2, np.float32)}, {"weight": np.zeros(2, np.float32)}]}

    for kind in (FileStore, PytorchStore):
        loaded = module()
        assert kind.from_file(tmp_path / "m.pt").apply_to(loaded).is_success()
        assert loaded["fc"][1]["weight"].tolist() == [2, 2]
        with pytest.raises(errors.TensorNotFound):
            kind.from_file(tmp_path / "m.pt").map_indices_contiguous(False).apply_to(module())
    for kind in (FileStore, SafetensorsStore):
        with pytest.raises(errors.TensorNotFound):
            kind.from_file(tmp_path / "m.safetensors").apply_to(module())
        assert kind.from_file(tmp_path / "m.safetensors").map_indices_contiguous("auto").apply_to(module()).is_success()


def test_errors_are_of_the_files_format(tmp_path):
    BurnpackStore.from_file(tmp_path / "m.bpk").collect_from(TENSORS)
    with pytest.raises(errors.BurnpackError, match="missing"):
        load_from({"other": np.zeros(2)}, tmp_path / "m.bpk")
    with pytest.raises(FileNotFoundError):
        load_from(empty(), tmp_path / "none.bpk")
    (tmp_path / "page.bin").write_text("<!doctype html>")
    with pytest.raises(errors.FormatError, match="HTML"):
        load_from(empty(), tmp_path / "page.bin")


def test_it_only_reads(tmp_path):
    store = FileStore.from_file(tmp_path / "m.safetensors")
    with pytest.raises(errors.InvalidArgument, match="FileStore reads files and does not write them"):
        store.collect_from(TENSORS)
    with pytest.raises(errors.InvalidArgument, match="ending"):
        store.auto_extension(True)
    assert not list(tmp_path.iterdir())
    for option in ("with_to_adapter", "metadata", "overwrite", "checksums", "scalar", "durable", "get_bytes"):
        assert not hasattr(FileStore, option)


@pytest.mark.parametrize(
    ("name", "format"),
    [("m.safetensors", "safetensors"), ("m.bpk", "burnpack"), ("m.safetensors.index.json", "safetensors")],
)
def test_a_module_is_saved_in_the_format_of_the_ending(tmp_path, name, format):
    save_into(TENSORS, tmp_path / name)
    assert weightstore.open(tmp_path / name).format == format
    module = empty()
    load_from(module, str(tmp_path / name))
    check(module)


@pytest.mark.parametrize("name", ["m", "m.pt", "m.npz", "m.txt"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(errors.InvalidArgument, match=r"use .*\.safetensors"):
        save_into(TENSORS, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_is_no_store():
    for wrong in (3, None, b"bytes", TENSORS):
        with pytest.raises(TypeError, match="expected a store or a path"):
            load_from(empty(), wrong)
        with pytest.raises(TypeError, match="expected a store or a path"):
            save_into(TENSORS, wrong)


def test_methods_of_a_module_take_paths(tmp_path):
    torch = pytest.importorskip("torch")

    class Net(weightstore.ModuleSnapshot, torch.nn.Linear):
        pass

    saved, loaded = Net(3, 2), Net(3, 2)
    saved.save_into(tmp_path / "m.bpk")
    assert loaded.load_from(tmp_path / "m.bpk").is_success()
    assert torch.equal(saved.weight, loaded.weight)
    with weightstore.open(tmp_path / "m.bpk") as file:
        assert loaded.load_from(file).is_success()
