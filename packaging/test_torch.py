"""test_torch.py 2.9 2.13 2.15: compiles the library for torch against each version, and runs the tests on the first and the last.

`make test-torch` calls it. Every version gets an environment in build/torch over that of the project: its own torch goes before the project's.
They are several GB each; `rm -r build/torch` removes them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from weightstore._torch_library.build import compile_commands
from weightstore._torch_library.running_torch import RunningTorch

REPOSITORY = Path(__file__).resolve().parents[1]


def run(*command: str | Path, **variables: str) -> None:
    print("+", *(str(part) for part in command[:8]), flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=REPOSITORY, env={**os.environ, **variables})


def environment(version: str, whole: bool) -> Path:
    """The interpreter of an environment with that torch; whole: also with what torch needs to run."""
    directory = REPOSITORY / "build/torch" / version
    python = directory / "bin/python"
    if not python.exists():
        run(sys.executable, "-m", "venv", directory)
    stamp = directory / (".whole" if whole else ".torch")
    if not stamp.exists():
        install = [
            python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-q",
            "--no-compile",
            "--no-cache-dir",
        ]
        constraints = REPOSITORY / "third_party/requirements-run.txt"
        numpy = re.search(r"numpy==\S+", constraints.read_text(encoding="utf-8"))[0]  # type: ignore[index]
        run(*install, f"torch=={version}.*", *([numpy] if whole else ["--no-deps"]))
        stamp.touch()
    if whole:
        site = sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)})
        Path(site, "project.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def described(python: Path) -> RunningTorch:
    """torch without importing it."""
    package = next(python.parents[1].glob("lib/python*/site-packages/torch"))
    version = re.search(r"__version__ = '(.+)'", (package / "version.py").read_text(encoding="utf-8"))[1]  # type: ignore[index]
    config = (package / "share/cmake/Torch/TorchConfig.cmake").read_text(encoding="utf-8")
    return RunningTorch(version, "D_GLIBCXX_USE_CXX11_ABI=0" in config, package)


def compile_only(torch: RunningTorch) -> None:
    with tempfile.TemporaryDirectory() as directory:
        compiles, link = compile_commands(["c++"], torch, Path(directory))
        for command in (*compiles, link):
            subprocess.run(command, check=True)
        library = Path(link[-1])
        symbols = subprocess.run(
            ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
        ).stdout
        needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    # CPU and CUDA builds of torch both have these two, so that they take the same library.
    of_torch = sorted(re.findall(r"Shared library: \[(lib(?:torch|c10)\S*)\]", needed))
    assert of_torch == ["libc10.so", "libtorch_cpu.so"], of_torch
    assert "cuda" not in symbols.lower(), "the library needs symbols of CUDA"
    print(f"torch {torch.version}: compiles and links; needs {', '.join(of_torch)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--tests", nargs="*", default=["tests/python", "tests/lifecycle"])
    arguments = parser.parse_args()
    versions = arguments.versions
    running = (
        [] if arguments.compile_only else [version for version in versions if version in (versions[0], versions[-1])]
    )
    pythons = {version: environment(version, version in running) for version in versions}
    for python in pythons.values():
        compile_only(described(python))
    cache = {"WEIGHTSTORE_CACHE_DIR": str(REPOSITORY / "build/torch/cache")}
    for version in running:
        run(pythons[version], "-m", "weightstore", "build-torch", **cache)
        run(pythons[version], "-m", "pytest", "-q", *arguments.tests, **cache)


if __name__ == "__main__":
    main()
