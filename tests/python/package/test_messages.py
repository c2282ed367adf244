"""What users see when they give a wrong argument or a wrong file: words of this package, and no values."""

import os
import re
import struct

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import BurnpackStore, FileStore, PytorchStore, SafetensorsStore, StoreError, errors

STORES = [SafetensorsStore, BurnpackStore, PytorchStore, FileStore]

STRANGERS = {
    "text": (b"Hello, this is a text.\n" * 40, "this is a text file"),
    "unicode": (("Grüße, мир, 世界\n" * 40).encode(), "this is a text file"),
    "page": (b"<!DOCTYPE html><html>404</html>", "HTML"),
    "onnx": (b"\x08\x07\x12\x07pytorch\x1a\x052.0.1:" + bytes(range(255, 0, -1)), "an ONNX model"),
    "random": (b"\x9f\x8e\x01\x02\xff\xfe\xfd\xfc\x03" * 50, "none of the formats.*9f 8e 01 02"),
}


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("ending", [".safetensors", ".bpk", ".pt", ".bin"])
def test_a_file_of_no_format(kind, ending, tmp_path):
    data, text = STRANGERS[kind]
    path = tmp_path / f"m{ending}"
    path.write_bytes(data)
    for call in (lambda: weightstore.open(path), *(store.from_file(path).keys for store in STORES)):
        with pytest.raises(weightstore.FormatError, match=text) as caught:
            call()
        assert "header" not in str(caught.value)
        assert caught.value.path == str(path)


def test_a_truncated_file_is_said_to_be_truncated(tmp_path):
    whole = weightstore.numpy.save({"a": np.arange(4.0), "b": np.arange(100.0)})
    (header,) = struct.unpack("<Q", whole[:8])
    for size in (3, 20, 8 + header + 1, len(whole) - 1):
        path = tmp_path / "cut.safetensors"
        path.write_bytes(whole[:size])
        with pytest.raises(weightstore.FormatError, match="truncated"):
            weightstore.open(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(weightstore.FormatError, match="something was appended"):
        weightstore.open(path)


def test_an_errno_is_said_once(tmp_path):
    os.mkdir(tmp_path / "d.safetensors")
    (tmp_path / "there.safetensors").write_bytes(weightstore.numpy.save({}))
    arrays = {"a": np.zeros(1)}
    for call, number in (
        (lambda: weightstore.open(tmp_path / "d.safetensors"), errors._errno.ENOENT),
        (lambda: weightstore.numpy.save_file(arrays, tmp_path / "d.safetensors"), errors._errno.EISDIR),
        (lambda: weightstore.save_into(arrays, tmp_path / "there.safetensors"), errors._errno.EEXIST),
    ):
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.errno == number
        assert os.strerror(number) not in str(caught.value)


def test_names_of_classes_are_names_that_users_can_catch():
    import builtins

    wanted = [(code, errno) for code in errors._KINDS for errno in (0, *errors._OS_KINDS)]
    classes = {errors._class_of(code, place, errno) for place in ("", *errors._PLACES) for code, errno in wanted}
    assert len(classes) > 100
    for cls in classes:
        for name in re.findall(r"\w+", cls.__name__):
            public = getattr(errors, name, None) if name in errors.__all__ else getattr(builtins, name)
            assert issubclass(cls, public), cls
        assert not cls.__name__.startswith("_")
        assert cls.__name__.count("[") <= 1


def test_every_store_has_its_error(tmp_path):
    assert SafetensorsStore.Error is weightstore.SafetensorsError
    assert BurnpackStore.Error is weightstore.BurnpackError
    assert PytorchStore.Error is weightstore.PytorchError
    assert FileStore.Error is StoreError
    for store in STORES:
        with pytest.raises(store.Error):
            store.from_file(tmp_path / "absent").keys()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("load_file", "weightstore.torch and weightstore.numpy"),
        ("save", "weightstore.torch and weightstore.numpy"),
        ("save_model", "weightstore.torch"),
        ("serialize", "weightstore.compat"),
        ("WriteBlock", "torch.classes.store.WriteBlock"),
    ],
)
def test_names_that_are_elsewhere(name, where):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; .*{re.escape(where)}"):
        getattr(weightstore, name)
    assert not hasattr(weightstore, name)


def test_the_hints_are_true():
    import importlib

    for name, hint in weightstore._ELSEWHERE.items():
        for module in re.findall(r"weightstore\.\w+", hint):
            if "torch.classes" not in hint:
                assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "an int"), (1.5, "a float"), (None, "None"), (np.zeros(1), "a numpy.ndarray"), ([], "a list")],
)
def test_types_have_their_article(value, text):
    assert errors.typed(value) == text


def test_what_is_no_tensor_is_named(tmp_path):
    secret = 123456789
    with pytest.raises(TypeError, match="'epoch' is an int") as caught:
        weightstore.save_into({"epoch": secret}, tmp_path / "m.bpk")
    assert str(secret) not in str(caught.value)


def test_keys_complete_in_notebooks(tmp_path):
    weightstore.numpy.save_file({"b": np.zeros(1), "a": np.zeros(1)}, tmp_path / "m.bpk")
    with weightstore.open(tmp_path / "m.bpk") as file:
        assert file._ipython_key_completions_() == ["a", "b"]
    assert file._ipython_key_completions_() == []


def test_variants_that_collide_are_named(tmp_path):
    module = {"m": {"Foo": {"w": np.zeros(1)}, "Bar": {"w": np.zeros(1)}}}
    store = SafetensorsStore.from_file(tmp_path / "m.safetensors").with_key_remapping("Foo|Bar", "x")
    with pytest.raises(weightstore.InvalidArgument, match=r"'m\.Foo\.w' and 'm\.Bar\.w' would both be named 'm\.x\.w'"):
        store.collect_from(module)
    # Variants that stand side by side tell tensors apart, and stay.
    SafetensorsStore.from_file(tmp_path / "m.safetensors").skip_enum_variants(True).collect_from(module)
    assert list(weightstore.open(tmp_path / "m.safetensors")) == ["m.Bar.w", "m.Foo.w"]
