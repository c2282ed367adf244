"""A TorchScript module that saves, run by a C++ program with libtorch and without Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import weightstore  # noqa: E402
import weightstore.torch  # noqa: E402

try:
    LIBRARY = weightstore.torch.library_path()
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)

SOURCE = Path(__file__).parents[2] / "consumer/torchscript.cc"
TORCH = Path(torch.__file__).parent
COMPILER = os.environ.get("CXX", "g++")


class Job(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, path: str) -> int:
        table = torch.classes.store.HashTable("user", [2], torch.float32, 0, 65536, 65536, 4096, [])
        table.insert(torch.tensor([1, 2]), torch.ones(2, 2))
        saver = torch.classes.store.Saver(0, 1, 2, path)
        saver.configure('{"layout": "recis"}')
        blocks = saver.make_write_blocks({"user": table}, {"w": self.w})
        saver.save(blocks)
        return len(blocks)


def run(*command: str | Path) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(COMPILER) is None or not (TORCH / "include/torch/csrc/jit/api/module.h").exists():
        pytest.skip("a C++ compiler and torch's headers are needed")
    program = tmp_path_factory.mktemp("program") / "torchscript"
    abi = int(torch.compiled_with_cxx11_abi())
    include = [f"-isystem{TORCH}/include", f"-isystem{TORCH}/include/torch/csrc/api/include"]
    link = [
        f"-L{TORCH}/lib",
        f"-Wl,-rpath,{TORCH}/lib",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        "-ldl",
    ]
    run(COMPILER, "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *include, SOURCE, "-o", program, *link)
    return program


def test_a_program_without_python(tmp_path: Path, program: Path) -> None:
    module = tmp_path / "job.pt"
    torch.jit.script(Job()).save(str(module))
    assert run(program, module, LIBRARY, tmp_path / "checkpoint") == "saved 3 blocks\n"
    reader = weightstore.CheckpointReader(tmp_path / "checkpoint")
    assert reader.tensor_names() == ["user@embedding", "user@id", "w"]
    assert torch.equal(reader.read_tensor("w"), torch.arange(3.0))
    assert sorted(reader.read_tensor("user@id").tolist()) == [1, 2]
    # Errors arrive as exceptions with our text.
    again = subprocess.run([program, module, LIBRARY, tmp_path / "checkpoint"], capture_output=True, text=True)
    assert again.returncode == 1
    assert "holds a checkpoint" in again.stderr


def test_the_same_module_from_python(tmp_path: Path) -> None:
    module = tmp_path / "job.pt"
    torch.jit.script(Job()).save(str(module))
    assert torch.jit.load(str(module))(str(tmp_path / "checkpoint")) == 3
    assert weightstore.CheckpointReader(tmp_path / "checkpoint").tensor_names() == ["user@embedding", "user@id", "w"]
