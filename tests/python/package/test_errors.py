"""Errors are caught by kind and by place, carry where they happened, and survive pickling."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import errors


def raised(call, *args, **kwargs) -> Exception:
    with pytest.raises(weightstore.StoreError) as caught:
        call(*args, **kwargs)
    return caught.value


def corrupt_safetensors(tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(weightstore.numpy.save({"t": np.zeros(4)})[:-1])
    return raised(weightstore.open, path)


def corrupt_burnpack(tmp_path):
    path = tmp_path / "bad.bpk"
    weightstore.numpy.save_file({"t": np.zeros(4)}, path)
    path.write_bytes(path.read_bytes()[:-30])
    return raised(weightstore.open, path)


def missing_tensor(tmp_path):
    path = tmp_path / "good.bpk"
    weightstore.numpy.save_file({"weight": np.zeros(4)}, path)
    return raised(weightstore.open(path).__getitem__, "wieght")


def missing_file(tmp_path):
    return raised(weightstore.open, tmp_path / "missing")


def existing_file(tmp_path):
    path = tmp_path / "there.safetensors"
    path.touch()
    return raised(weightstore.numpy.save_file, {}, path, overwrite=False)


def web_page(tmp_path):
    path = tmp_path / "page.safetensors"
    path.write_text("<!DOCTYPE html><html><body>404, but politely</body></html>" * 10)
    return raised(weightstore.open, path)


def bad_type(tmp_path):
    return raised(weightstore.numpy.save_file, {"t": np.zeros(3, np.complex128)}, tmp_path / "x.safetensors")


CASES = {
    corrupt_safetensors: (errors.FormatError, ValueError, errors.SafetensorsError),
    corrupt_burnpack: (errors.FormatError, ValueError, errors.BurnpackError),
    missing_tensor: (errors.TensorNotFound, KeyError, errors.BurnpackError),
    missing_file: (errors.StoreIOError, OSError, FileNotFoundError),
    existing_file: (errors.ConflictError, FileExistsError),
    web_page: (errors.FormatError,),
    bad_type: (ValueError, errors.SafetensorsError),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kind_and_place(case, tmp_path):
    error = case(tmp_path)
    for kind in CASES[case]:
        assert isinstance(error, kind), kind


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_pickle(case, tmp_path):
    error = case(tmp_path)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert getattr(copy, "errno", 0) == getattr(error, "errno", 0)
    assert getattr(copy, "filename", None) == getattr(error, "filename", None)


def test_the_place_is_told(tmp_path):
    error = missing_tensor(tmp_path)
    assert error.path == str(tmp_path / "good.bpk")
    assert error.tensor == "wieght"
    assert "weight" in str(error)
    assert str(tmp_path) in str(error)
    assert str(error)[0] not in "\"'"  # KeyError would show a repr

    error = missing_file(tmp_path)
    assert error.errno == errno.ENOENT
    assert error.filename == str(tmp_path / "missing")
    assert error.path == str(tmp_path / "missing")


def test_a_path_that_is_not_utf8(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.safetensors")
    assert raised(weightstore.open, path).path == path
    weightstore.numpy.save_file({"t": np.arange(3)}, path)
    np.testing.assert_array_equal(weightstore.open(path)["t"].numpy(), np.arange(3))


def test_unreadable(tmp_path):
    path = tmp_path / "secret.safetensors"
    weightstore.numpy.save_file({}, path)
    path.chmod(0)
    if os.access(path, os.R_OK):
        # root reads everything: ask as somebody else
        code = "import os, sys; from weightstore import open; os.setuid(65534)\ntry: open(sys.argv[1])\nexcept PermissionError: pass"
        for parent in (tmp_path, *tmp_path.parents[:3]):
            parent.chmod(0o755)
        subprocess.run([sys.executable, "-c", code, path], check=True, cwd="/")
    else:
        with pytest.raises(PermissionError):
            weightstore.open(path)


def test_errors_can_be_made_by_hand():
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = kind("what happened")
        assert str(error) == "what happened"
        assert error.path is error.tensor is error.offset is None
        assert str(pickle.loads(pickle.dumps(error))) == "what happened"


def test_every_combination_is_one_class():
    one = errors.from_core("corrupt", "burnpack", "t", "t", None, None, None, 0, None)
    two = errors.from_core("unsupported", "burnpack", "t", "t", None, None, 4, 0, None)
    assert type(one) is type(two)
    assert two.offset == 4
    assert errors.SafetensorError is errors.SafetensorsError is weightstore.SafetensorError
