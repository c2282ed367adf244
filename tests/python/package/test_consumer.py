"""The wheel is also the C++ library: somebody else's project finds, links and runs it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
CONSUMER = REPOSITORY / "tests/consumer"
COMPILER = os.environ.get("CXX", "g++")


def run(*command: str | Path, **options: object) -> str:
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert result.returncode == 0, f"{shlex.join(map(str, command))}\n{result.stdout}{result.stderr}"
    return str(result.stdout)


def sdk(command: str) -> str:
    return run(sys.executable, "-m", "weightstore", command).strip()


def tool(name: str) -> str:
    """A program of this Python environment, or of the system."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def pkg_config_flags() -> list[str]:
    environment = {**os.environ, "PKG_CONFIG_PATH": sdk("pkgconfig-dir")}
    return shlex.split(run(tool("pkg-config"), "--cflags", "--libs", "weightstore", env=environment))


def compile_and_run(
    source: Path, flags: list[str], directory: Path, *arguments: str | Path, defines: tuple[str, ...] = ()
) -> str:
    program = directory / source.stem
    run(COMPILER, "-std=c++20", "-Wall", "-Wextra", "-Werror", *defines, source, "-o", program, *flags)
    return run(program, *arguments, cwd=directory)


def test_cmake_project(tmp_path: Path) -> None:
    cmake, ninja = tool("cmake"), tool("ninja")
    run(
        cmake, "-S", CONSUMER, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}",
        f"-Dweightstore_DIR={sdk('cmake-dir')}",
    )  # fmt: skip
    run(cmake, "--build", tmp_path)
    assert "roundtrip: ok" in run(tmp_path / "roundtrip", tmp_path)
    assert "formats_only: ok" in run(tmp_path / "formats_only")
    assert "embedded: " in run(tmp_path / "embedded")


def test_cmake_refuses_another_minor_version(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(p LANGUAGES CXX)\nfind_package(weightstore 99.9 CONFIG REQUIRED)\n"
    )
    command = [tool("cmake"), "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja"]
    command += [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-Dweightstore_DIR={sdk('cmake-dir')}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert "99.9" in result.stderr


def test_pkg_config(tmp_path: Path, pkg_config_flags: list[str]) -> None:
    assert "roundtrip: ok" in compile_and_run(CONSUMER / "roundtrip.cc", pkg_config_flags, tmp_path, tmp_path)
    define = f'-DEMBEDDED_FILE="{tmp_path / "model.bpk"}"'
    assert "embedded: " in compile_and_run(CONSUMER / "embedded.cc", pkg_config_flags, tmp_path, defines=(define,))


def test_pkg_config_file_is_relocatable() -> None:
    text = Path(sdk("pkgconfig-dir"), "weightstore.pc").read_text()
    assert "prefix=${pcfiledir}/../.." in text
    assert not re.search(r"=/", text), "an absolute path would name the machine that built the wheel"


def test_version_is_the_headers() -> None:
    header = Path(sdk("include-dir"), "weightstore/version.h").read_text()
    assert f'"{sdk("version")}"' in header


def test_documented_programs(tmp_path: Path, pkg_config_flags: list[str]) -> None:
    """docs/embedding-in-cpp.md: every whole program in it compiles and runs, in order, and is short."""
    text = (REPOSITORY / "docs/embedding-in-cpp.md").read_text()
    programs = [block for block in re.findall(r"```cpp\n(.*?)```", text, re.DOTALL) if "int main" in block]
    assert len(programs) >= 2
    for i, program in enumerate(programs):
        assert len(program.splitlines()) < 40
        source = tmp_path / f"program{i}.cc"
        source.write_text(program)
        compile_and_run(source, pkg_config_flags, tmp_path)
