"""torch.classes.store, and what guards its loading."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import weightstore.torch  # noqa: E402
from weightstore._torch_library import loading  # noqa: E402

try:
    loading.library_path()
except ImportError as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture(params=["model.safetensors", "model.bpk"])
def model_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    weightstore.torch.save_file(
        {
            "b": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
            "a": torch.tensor([True, False]),
            "e": torch.empty(0, 4),
        },
        path,
    )
    return path


def reader_of(path: Path) -> object:
    loading.load()
    return torch.classes.store.CheckpointReader(str(path))


def test_reads_what_was_saved(model_file: Path) -> None:
    reader = reader_of(model_file)
    assert reader.list_tensor_names() == ["a", "b", "e"]
    assert reader.tensor_shape("b") == [2, 3]
    assert reader.tensor_shape("e") == [0, 4]
    b = reader.read_tensor("b")
    assert b.dtype is torch.bfloat16
    assert torch.equal(b, torch.arange(6, dtype=torch.bfloat16).reshape(2, 3))
    assert torch.equal(reader.read_tensor("a"), torch.tensor([True, False]))
    assert reader.read_tensor("e").shape == (0, 4)


def test_dtype_is_what_torchscript_takes_for_one(model_file: Path) -> None:
    loading.load()

    @torch.jit.script
    def same_dtype(path: str, name: str) -> bool:
        reader = torch.classes.store.CheckpointReader(path)
        return reader.tensor_dtype(name) == reader.read_tensor(name).dtype

    assert same_dtype(str(model_file), "a")
    assert same_dtype(str(model_file), "b")


def test_tensors_are_independent_of_the_file(model_file: Path) -> None:
    before = model_file.read_bytes()
    b = reader_of(model_file).read_tensor("b")
    b.add_(1)
    model_file.write_bytes(b"")
    assert b[1, 2] == 6
    model_file.write_bytes(before)
    assert reader_of(model_file).read_tensor("b")[1, 2] == 5


def test_errors_are_runtime_errors_with_our_text(model_file: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"absent\.bpk"):
        reader_of(tmp_path / "absent.bpk")
    with pytest.raises(RuntimeError, match="nothing_like_it"):
        reader_of(model_file).read_tensor("nothing_like_it")


def test_loading_twice_is_harmless() -> None:
    loading.load()
    loading.load()


def in_new_interpreter(code: str, *arguments: str) -> str:
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_a_copy_loaded_from_elsewhere_is_used_as_it_is(tmp_path: Path) -> None:
    """A second registration would abort the interpreter."""
    copy = tmp_path / "copy.so"
    copy.write_bytes(loading.library_path().read_bytes())
    code = (
        "import sys, torch; torch.classes.load_library(sys.argv[1])\n"
        "from weightstore._torch_library import loading; loading.load(); print('alive')"
    )
    assert in_new_interpreter(code, str(copy)) == "alive"


def test_a_stranger_in_the_namespace_is_an_import_error() -> None:
    code = (
        "import torch; stranger = torch.library.Library('store', 'DEF')\n"
        "from weightstore._torch_library import loading\n"
        "try: loading.load()\n"
        "except ImportError as error: print(error)"
    )
    assert "another library" in in_new_interpreter(code)
