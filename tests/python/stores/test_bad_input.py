"""Bad input to the stores: a clear error of the right class; the module and the old file stay as they were."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from weightstore import BurnpackStore, PytorchStore, SafetensorsStore, errors

PLACES = {
    BurnpackStore: errors.BurnpackError,
    SafetensorsStore: errors.SafetensorsError,
    PytorchStore: errors.PytorchError,
}
everyone = pytest.mark.parametrize("kind", PLACES)
writers = pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])


@pytest.fixture
def target():
    """A module that must not change."""
    module = {"weight": np.full((2, 2), 5, "f4"), "bias": np.full(2, 5, "f4")}
    yield module
    assert all((array == 5).all() for array in module.values())


def model():
    return {"weight": np.ones((2, 2), "f4"), "bias": np.ones(2, "f4")}


def refuses(kind, error, call, match):
    with pytest.raises(error, match=match) as caught:
        call()
    assert isinstance(caught.value, PLACES[kind]), type(caught.value)
    assert isinstance(caught.value, errors.StoreError)
    return caught.value


@everyone
def test_a_missing_file(kind, tmp_path, target):
    path = tmp_path / "none.x"
    error = refuses(kind, FileNotFoundError, lambda: kind.from_file(path).apply_to(target), "none")
    assert (error.errno, error.filename) == (errno.ENOENT, str(path))
    for call in (kind.from_file(path).keys, kind.from_file(path).get_all_snapshots, kind.from_file(path).get_metadata):
        refuses(kind, errors.StoreIOError, call, "none")


@everyone
def test_a_directory(kind, tmp_path, target):
    refuses(
        kind, errors.StoreError, lambda: kind.from_file(tmp_path).auto_extension(False).apply_to(target), "directory"
    )


@pytest.mark.parametrize(
    ("kind", "other"), [(k, o) for k in PLACES for o in (BurnpackStore, SafetensorsStore) if k is not o]
)
def test_another_format(kind, other, tmp_path, target):
    path = tmp_path / "model.x"
    other.from_file(path).collect_from(model())
    error = refuses(
        kind, errors.FormatError, lambda: kind.from_file(path).apply_to(target), f"{other.__name__} reads it"
    )
    assert error.path == str(path)
    refuses(kind, errors.FormatError, kind.from_bytes(path.read_bytes()).keys, other.__name__)


@everyone
@pytest.mark.parametrize(
    "contents", [b"", b"abc", b"\0" * 100, b"<html>", b"version https://git-lfs.github.com/spec/v1\n"]
)
def test_no_format_at_all(kind, contents, tmp_path, target):
    path = tmp_path / "model.x"
    path.write_bytes(contents)
    refuses(kind, errors.FormatError, lambda: kind.from_file(path).apply_to(target), "model.x")
    refuses(kind, errors.FormatError, lambda: kind.from_bytes(contents).apply_to(target), ".")


@writers
def test_a_key_that_is_not_there(kind, target):
    store = kind.from_bytes(None)
    store.collect_from(model())
    error = refuses(
        kind, errors.TensorNotFound, lambda: store.with_top_level_key("state_dict").apply_to(target), "state_dict"
    )
    assert isinstance(error, KeyError)
    assert "bias, weight" in str(error)
    store = kind.from_bytes(store.get_bytes())
    assert store.get_snapshot("wieght") is None
    error = refuses(
        kind,
        errors.TensorNotFound,
        lambda: store.with_key_remapping("weight", "wieght").apply_to(target),
        "did you mean 'wieght'",
    )
    assert error.tensor == "weight"
    assert error.result.missing == ["weight"]


@writers
def test_another_type(kind, target):
    store = kind.from_bytes(None)
    store.collect_from({"weight": np.ones((2, 2), "f8"), "bias": np.ones(2, "f4")})
    error = refuses(
        kind, errors.ValidationError, lambda: store.dtype_policy("strict").apply_to(target), "F64 was found where F32"
    )
    assert error.tensor == "weight"


@writers
def test_another_shape(kind, target):
    store = kind.from_bytes(None)
    store.collect_from({"weight": np.ones((3, 3), "f4"), "bias": np.ones(2, "f4")})
    error = refuses(
        kind,
        errors.ValidationError,
        lambda: store.apply_to(target),
        r"shape \[3, 3\] was found where \[2, 2\] is expected",
    )
    assert isinstance(error, ValueError)
    assert error.tensor == "weight"
    ((path, mismatch),) = error.result.errors
    assert (path, mismatch.expected, mismatch.found) == ("weight", (2, 2), (3, 3))


@writers
def test_a_file_that_exists(kind, tmp_path):
    path = tmp_path / "model.x"
    kind.from_file(path).collect_from(model())
    old = path.read_bytes()
    error = refuses(kind, FileExistsError, lambda: kind.from_file(path).collect_from({"other": np.zeros(3)}), "exists")
    assert isinstance(error, errors.ConflictError)
    assert "allow overwriting" in str(error)
    assert path.read_bytes() == old
    kind.from_file(path).overwrite(True).collect_from({"other": np.zeros(3)})
    assert kind.from_file(path).keys() == ["other"]


@writers
def test_a_directory_that_is_missing(kind, tmp_path):
    error = refuses(
        kind, FileNotFoundError, lambda: kind.from_file(tmp_path / "no" / "model.x").collect_from(model()), "no"
    )
    assert error.errno == errno.ENOENT
    assert os.listdir(tmp_path) == []


READ_ONLY = """
import os, sys
import numpy as np
from weightstore import BurnpackStore, SafetensorsStore, StoreIOError, BurnpackError, SafetensorsError
folder = sys.argv[1]
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for kind, place in ((BurnpackStore, BurnpackError), (SafetensorsStore, SafetensorsError)):
    path = os.path.join(folder, kind.__name__)
    try:
        kind.from_file(path).auto_extension(False).overwrite(True).collect_from({"a": np.ones(3)})
    except PermissionError as error:
        assert isinstance(error, StoreIOError) and isinstance(error, place), type(error)
        assert error.errno == 13 and folder in str(error), error
    else:
        raise AssertionError("saved into a read-only directory")
"""


def test_a_directory_that_is_read_only(tmp_path):
    package = os.path.dirname(os.path.dirname(sys.modules["weightstore"].__file__))
    probe = subprocess.run(["test", "-r", package], check=False)
    assert probe.returncode == 0
    for kind in (BurnpackStore, SafetensorsStore):
        kind.from_file(tmp_path / kind.__name__).auto_extension(False).collect_from(model())
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for parent in [tmp_path, *tmp_path.parents[:2]]:
        parent.chmod(0o755)
    tmp_path.chmod(0o555)
    try:
        child = subprocess.run([sys.executable, "-c", READ_ONLY, str(tmp_path)], capture_output=True, text=True)
    finally:
        tmp_path.chmod(0o755)
    if "ModuleNotFoundError" in child.stderr or "No module named" in child.stderr:
        pytest.skip("another user cannot read the package here")
    assert child.returncode == 0, child.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old


FULL = """
import errno, os, subprocess, sys
import numpy as np
from weightstore import BurnpackStore, SafetensorsStore, StoreIOError, BurnpackError, SafetensorsError
folder = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
for kind, place in ((BurnpackStore, BurnpackError), (SafetensorsStore, SafetensorsError)):
    path = os.path.join(folder, "model.x")
    kind.from_file(path).overwrite(True).collect_from({"old": np.arange(1000)})
    old = open(path, "rb").read()
    try:
        kind.from_file(path).overwrite(True).collect_from({"a": np.ones(4 << 20, "u1")})
    except StoreIOError as error:
        assert isinstance(error, place), type(error)
        assert error.errno == errno.ENOSPC and "space" in str(error), error
    else:
        raise AssertionError("saved more than there is room for")
    assert open(path, "rb").read() == old
    assert os.listdir(folder) == ["model.x"]
"""


def test_a_full_disk(tmp_path):
    for prefix in (("unshare", "-m"), ("unshare", "-rm")):
        probe = [*prefix, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("no small file system to fill: mounting one is not allowed here")
    child = subprocess.run(
        [*prefix, sys.executable, "-W", "ignore", "-c", FULL, str(tmp_path)], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr


@writers
def test_truncated_files(kind, tmp_path, target):
    whole = kind.from_bytes(None)
    whole.collect_from(model())
    data = whole.get_bytes()
    path = tmp_path / "model.x"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        refuses(kind, errors.FormatError, lambda: kind.from_file(path).apply_to(target), "model.x")
        refuses(kind, errors.FormatError, lambda length=length: kind.from_bytes(data[:length]).apply_to(target), ".")


@writers
def test_a_saved_object_that_fails_leaves_the_old_file(kind, tmp_path):
    path = tmp_path / "model.x"
    kind.from_file(path).collect_from(model())
    old = path.read_bytes()

    from weightstore import DeferredTensor

    def fail():
        raise RuntimeError("half way")

    store = kind.from_file(path).overwrite(True)
    with pytest.raises(RuntimeError, match="half way"):
        store.collect_from({"a": np.ones(3), "b": DeferredTensor("F32", (2,), fail)})
    with pytest.raises(errors.InvalidArgument, match="needs? 8"):
        store.collect_from({"b": DeferredTensor("F32", (2,), lambda: b"123")})
    with pytest.raises(TypeError, match="str"):
        store.collect_from({"a": "text"})
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["model.x"]


def test_hostile_files(testdata, target):
    """Every file that must be refused is, by the store that is asked to read it."""
    folder = testdata / "testkit" / "safetensors_cases"
    if not folder.is_dir():
        pytest.skip("WEIGHTSTORE_TESTDATA has no testkit/safetensors_cases")
    refused = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            SafetensorsStore.from_file(path).apply_to(target)
        except errors.SafetensorsError:
            refused += 1
    assert refused >= 20


def test_hostile_pytorch_files(testdata, target):
    folder = testdata / "testkit" / "pt_cases"
    if not folder.is_dir():
        pytest.skip("WEIGHTSTORE_TESTDATA has no testkit/pt_cases")
    verdicts = json.loads((folder / "verdicts.json").read_text())
    refused = [name for name, verdict in verdicts.items() if verdict == "refuse" and (folder / f"{name}.pt").is_file()]
    assert len(refused) >= 20
    for name in refused:
        with pytest.raises(errors.PytorchError):
            PytorchStore.from_file(folder / f"{name}.pt").apply_to(target)


def test_names_a_pytorch_store_refuses_to_save(tmp_path):
    path = tmp_path / "model.pt"
    error = refuses(
        PytorchStore, errors.InvalidArgument, lambda: PytorchStore.from_file(path).collect_from(model()), "Safetensors"
    )
    assert "SafetensorsStore" in str(error)
    assert "BurnpackStore" in str(error)
    assert not path.exists()
    for option in ("with_to_adapter", "metadata", "overwrite", "scalar", "durable", "get_bytes"):
        assert not hasattr(PytorchStore, option)
