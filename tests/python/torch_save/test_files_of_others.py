"""Files made by others: real ones, which torch reads, and hostile ones, each with a verdict."""

from __future__ import annotations

import io
import json
import pathlib

import pytest

import weightstore
from weightstore import FormatError, PytorchError

torch = pytest.importorskip("torch")

REAL = [
    *"bfloat16 bool buffers checkpoint complex_structure empty extreme_values float16 float32 float64 int16 int32".split(),
    *"int64 int8 large_shape legacy_shared_storage legacy_uncloned_views legacy_with_offsets mixed_types".split(),
    *"nested_dict parameter scalar simple_legacy special_values state_dict tensor_2d tensor_3d tensor_4d uint8".split(),
]


def flat(value, name: str = "") -> dict:
    if isinstance(value, torch.Tensor):
        return {name or "tensor": value.detach()}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    result = {}
    for key, item in items:
        result |= flat(item, f"{name}.{key}" if name else str(key))
    return result


def same(source, expected: dict) -> None:
    with weightstore.open(source) as file:
        assert list(file) == sorted(expected)
        for name, tensor in expected.items():
            ours = file[name].torch()
            assert (ours.dtype, ours.shape) == (tensor.dtype, tensor.shape)
            assert file[name].bytes() == bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_what_torch_loads(testdata, name):
    path = testdata / "fixtures" / "pytorch" / f"{name}.pt"
    expected = flat(torch.load(path, weights_only=True))
    assert expected
    same(path, expected)
    same(path.read_bytes(), expected)


def test_a_real_tar_archive(testdata):
    path = testdata / "fixtures" / "pytorch" / "legacy_real_tar.pt"
    same(path, flat(torch.load(path, weights_only=False)))


def test_a_broken_file(testdata):
    with pytest.raises(FormatError):
        weightstore.open(testdata / "fixtures" / "pytorch" / "broken.pt")


def test_every_verdict(testdata):
    folder = testdata / "testkit" / "pt_cases"
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert len(verdicts) >= 50
    wrong = []
    for name, verdict in verdicts.items():
        path = folder / f"{name}.pt"
        for opaque in ("error", "skip"):
            try:
                with weightstore.open(path, opaque=opaque) as file:
                    for handle in file.values():
                        if handle.nbytes < 1 << 20:
                            handle.bytes()
                found = "read"
            except FormatError as error:
                assert str(path) in str(error)
                found = "refuse"
            if verdict not in ("either", found):
                wrong.append((name, opaque, verdict, found))
    assert wrong == []


def test_what_is_read_of_the_cases_is_what_torch_loads(testdata):
    folder = testdata / "testkit" / "pt_cases"
    for name in ("ok", "byteorder_big", "location_cuda"):
        data = (folder / f"{name}.pt").read_bytes()
        same(data, flat(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")))


def test_errors_say_where(testdata, tmp_path):
    folder = testdata / "testkit" / "pt_cases"
    with pytest.raises(PytorchError, match="posix") as caught:
        weightstore.open(folder / "global_posix.pt")
    assert caught.value.path == str(folder / "global_posix.pt")
    with pytest.raises(PytorchError) as caught:
        weightstore.open(folder / "offset_oob.pt")
    assert caught.value.tensor == "a"


def test_a_tensor_that_repeats_few_bytes_is_not_unfolded_without_measure(testdata):
    with weightstore.open(pathlib.Path(testdata / "testkit" / "pt_cases" / "stride0_huge.pt")) as file:
        (name,) = file
        handle = file[name]
        assert handle.nbytes > 1 << 40
        part = handle[1:]
        for read in (handle.numpy, handle.torch, handle.bytes, file.load, part.numpy, part.torch, part.bytes):
            with pytest.raises(weightstore.LimitError, match="repeat"):
                read()
        with pytest.raises(weightstore.LimitError) as caught:
            part.numpy()
        assert caught.value.tensor == name
        assert handle[:10].numpy().size == 10
