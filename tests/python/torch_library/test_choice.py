"""Which library is loaded for which torch, and what is said when there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from weightstore._cli.main import main
from weightstore._torch_library import cache, choice, running_torch
from weightstore._torch_library.running_torch import RunningTorch

TORCH = RunningTorch("2.12.1+cu130", False, Path("/nowhere/torch"))
LIBRARY = choice.NAMES[0]


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with libraries for torch 2.9, 2.12 and 2.13, and an empty cache."""
    package = tmp_path / "package"
    for minor in ("2.9", "2.12", "2.13"):
        (package / "torch_library" / minor).mkdir(parents=True)
        (package / "torch_library" / minor / LIBRARY).write_bytes(b"a library")

    def find(relative: str) -> Path | None:
        return package / relative if (package / relative).exists() else None

    monkeypatch.setattr(choice, "find_installed", find)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return package


def built(torch: RunningTorch) -> Path:
    directory = cache.directory_for(torch)
    cache.make_directory(directory)
    (directory / LIBRARY).write_bytes(b"a library")
    return directory / LIBRARY


@pytest.mark.parametrize(
    "version", ["2.12.0", "2.12.1", "2.12.1+cpu", "2.12.3+cu126", "2.12.0+rocm7.1", "2.12.0.post2", "2.12.1+xpu"]
)
def test_all_builds_of_a_minor_version_take_the_same_library(package: Path, version: str) -> None:
    assert choice.library_for(replace(TORCH, version=version)) == package / "torch_library/2.12" / LIBRARY


@pytest.mark.parametrize("version", ["2.11.0", "2.14.0+cu130", "2.1.0", "3.12.1", "2.12.0a0+git1234567", "2.12.0.dev20260101", "2.12.0+nv26.1"])  # fmt: skip
def test_other_torch_is_told_the_command(version: str) -> None:
    with pytest.raises(ImportError, match=r"no library for torch .*`weightstore build-torch`") as caught:
        choice.library_for(replace(TORCH, version=version))
    assert version in str(caught.value)


def test_the_old_abi_is_another_library(package: Path) -> None:
    old = replace(TORCH, old_abi=True)
    with pytest.raises(ImportError):
        choice.library_for(old)
    (package / "torch_library/2.12-old-abi").mkdir()
    library = package / "torch_library/2.12-old-abi" / LIBRARY
    library.write_bytes(b"a library")
    assert choice.library_for(old) == library
    assert choice.library_for(TORCH) != library


def test_what_was_built_is_found_for_exactly_that_torch() -> None:
    torch = replace(TORCH, version="2.11.0+cu128")
    library = built(torch)
    assert choice.library_for(torch) == library
    for other in (
        replace(torch, version="2.11.1+cu128"),
        replace(torch, version="2.11.0"),
        replace(torch, old_abi=True),
    ):
        assert cache.directory_for(other) != library.parent
        with pytest.raises(ImportError):
            choice.library_for(other)


def test_the_package_goes_before_the_cache(package: Path) -> None:
    built(TORCH)
    assert package in choice.library_for(TORCH).parents


def test_a_package_without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_installed", lambda relative: None)
    assert choice.prebuilt_minors() == []
    with pytest.raises(ImportError, match="weightstore build-torch"):
        choice.library_for(TORCH)


def test_check_says_what_is_used_and_why(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running_torch, "running_torch", lambda: TORCH)
    assert main(["build-torch", "--check"]) == 0
    text = capsys.readouterr().out
    assert f"{package / 'torch_library/2.12' / LIBRARY}: is used" in text
    assert "nothing was built for this torch" in text

    monkeypatch.setattr(running_torch, "running_torch", lambda: replace(TORCH, version="2.11.0"))
    assert main(["build-torch", "--check"]) == 1
    assert "libraries for torch 2.9, 2.12, 2.13, not for 2.11" in capsys.readouterr().out
    assert main(["build-torch", "--check", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["torch"] == "2.11.0"
    assert told["used"] is None
    assert [library["kind"] for library in told["libraries"]] == ["prebuilt", "built"]


def test_without_torch_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["build-torch", "--check"]) == 2
    assert "torch cannot be imported" in capsys.readouterr().err


WITHOUT_LIBRARY = """
import torch
from weightstore._torch_library import choice, running_torch
choice.find_installed = lambda relative: None
import weightstore, weightstore.torch as ws
for use in (lambda: torch.classes.store.Saver, lambda: weightstore.HashTable("t", [1], torch.float32), ws.library_path):
    try:
        use()
    except ImportError as error:
        print(error)
assert ws.load(ws.save({"t": torch.ones(2)}))["t"].tolist() == [1, 1]
assert not hasattr(torch.classes.store, "__path__")
from weightstore import _installed
choice.find_installed = _installed.find_installed
print(torch.classes.store.HashTable("t", [1], torch.float32, 0, 65536, 65536, 4096, []).size())
"""


def test_the_first_use_of_the_classes_raises_the_error(tmp_path: Path) -> None:
    """The verbs for files work without the library. A library that is built meanwhile is found."""
    pytest.importorskip("torch")
    result = subprocess.run([sys.executable, "-c", WITHOUT_LIBRARY], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    *errors, size = result.stdout.splitlines()
    assert len(errors) == 3
    assert len(set(errors)) == 1
    assert "`weightstore build-torch`" in errors[0]
    assert size == "0"
