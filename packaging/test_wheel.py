"""test_wheel.py [--python 3.12]... [--torch 2.13]... [--other-torch 2.14] [--dist dist]: installs wheels as a user does.

`make test-wheel` calls it. Every step runs in a new environment with `env -i`, a new home, and no compiler on the path, in a directory
that is not the repository:

- without torch: pip's time, the numpy parts of the README, the command, and a C++ program built with the wheel (by a compiler outside);
- with each version of --torch, one of those that the wheel has libraries for: the README's first screen and the classes;
- with --other-torch, one that it has none for: the error, the command in it, and the classes again. This step alone sees a compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from make_wheel import find_python

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MOST_SECONDS = 10.0
# How pip gets to its index is a matter of the machine.
OF_PIP = ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

MODEL = """
import numpy as np, weightstore.numpy
rng = np.random.default_rng(0)
tensors = {"weight": rng.random((1000, 64), dtype="f4"), "bias": rng.random(1000, dtype="f4")}
weightstore.numpy.save_file(tensors, "model.safetensors")
weightstore.save_into({"layer": {"weight": tensors["weight"].copy()}}, "nested.safetensors")
target = {"layer": {"weight": np.zeros((1000, 64), "f4")}}
print(weightstore.load_from(target, "nested.safetensors"))
assert (target["layer"]["weight"] == tensors["weight"]).all()
import sys
assert "torch" not in sys.modules
"""
CLASSES = """
import os, sys, tempfile
import torch
import weightstore, weightstore.torch

assert os.path.realpath(weightstore.__file__).startswith(os.path.realpath(sys.prefix)), weightstore.__file__
directory = os.path.join(tempfile.mkdtemp(), "checkpoint")
tensors = {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.ones(3)}
table = torch.classes.store.HashTable("user", [4], torch.float32)
rows = torch.rand(5, 4)
table.insert(torch.arange(5), rows)
saver = torch.classes.store.Saver(0, 1, 2, directory)
saver.save(saver.make_write_blocks({"user": table}, tensors))

loaded = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
again = torch.classes.store.HashTable("user", [4], torch.float32)
loader = torch.classes.store.Loader(directory, 2, {"user": again}, loaded)
loader.load(loader.default_load_info())
assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
assert torch.equal(again.lookup(torch.arange(5), False)[1], rows)
print("torch", torch.__version__, "weightstore", weightstore.__version__, weightstore.torch.library_path())
"""


class Home:
    """A new environment, home and directory, and commands in them."""

    def __init__(self, directory: Path, python: Path, cache: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "home").mkdir(parents=True)
        self.directory = directory
        # Made with the system's path, because an interpreter of pyenv may need it; used without.
        subprocess.run([python, "-m", "venv", directory / "venv"], check=True)
        self.bin = directory / "venv/bin"
        self.variables = {
            "HOME": str(directory / "home"),
            "PATH": str(self.bin),
            "LANG": "C.UTF-8",
            "PIP_CACHE_DIR": str(cache),
        }
        self.variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.variables |= {name: os.environ[name] for name in OF_PIP if name in os.environ}

    def run(self, *command: str | Path, fails: bool = False, **variables: str) -> str:
        """Runs a command that is in the environment. Returns what it prints."""
        words = [str(part) for part in command]
        words[0] = str(self.bin / words[0]) if "/" not in words[0] else words[0]
        done = subprocess.run(
            words, cwd=self.directory / "home", env={**self.variables, **variables}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if (done.returncode != 0) != fails:
            sys.exit(f"make test-wheel: status {done.returncode} of {shlex.join(words)}\n{done.stdout}")
        return done.stdout

    def python(self, code: str, *, fails: bool = False) -> str:
        return self.run("python", "-I", "-c", code, fails=fails)


def snippets(language: str) -> list[str]:
    return [text for name, text in re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL) if name == language]


def install(home: Home, dist: Path) -> None:
    """The command of the README, with the place of the wheels."""
    command = shlex.split(snippets("sh")[0], comments=True)
    assert command[:4] == ["pip", "install", "--find-links", "dist"], command
    begin = time.monotonic()
    home.run("pip", "install", "-q", "--find-links", dist, f"{command[4]}=={version()}", "--only-binary", ":all:")
    seconds = time.monotonic() - begin
    print(f"  installed in {seconds:.1f} s (at most {MOST_SECONDS:.0f})")
    if seconds > MOST_SECONDS:
        print("  TOO SLOW", file=sys.stderr)


def version() -> str:
    text = (REPOSITORY / "cpp/include/weightstore/version.h").read_text(encoding="utf-8")
    return re.search(r'WEIGHTSTORE_VERSION "(.+)"', text)[1]  # type: ignore[index]


def check_without_torch(home: Home) -> None:
    """The parts of the README that need no torch, as they are there."""
    home.python(MODEL)
    code = [
        text for text in snippets("python") if "torch" not in text and "save_state" not in text and "Saver" not in text
    ]
    assert len(code) >= 2, "the README has no snippet without torch"
    home.python("import weightstore\n" + "\n".join(code))
    commands = [line for text in snippets("sh") for line in text.splitlines() if line.startswith("weightstore ")]
    for line in commands:
        if "build-torch" not in line:
            home.run(*shlex.split(line))
    assert "torch cannot be imported" in home.run("weightstore", "build-torch", "--check", fails=True)
    print(f"  without torch: {len(code)} snippets, {len(commands) - 1} commands")


def check_consumer(home: Home) -> None:
    """A C++ program of a stranger: the compiler sees the wheel, and the program runs without the compiler."""
    (program,) = snippets("cpp")
    source = home.directory / "program.cc"
    lines = ["#include <weightstore/weightstore.h>", "#include <vector>", "int main() {", program]
    source.write_text("\n".join([*lines, "return weight.size() == 1000 * 64 * 4 ? 0 : 1;", "}"]), encoding="utf-8")
    pc = Path(home.run("weightstore", "pkgconfig-dir").strip(), "weightstore.pc")
    assert (Path(home.run("weightstore", "cmake-dir").strip()) / "weightstoreConfig.cmake").exists()
    prefix = pc.parents[2]
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lweightstore", "-pthread"]
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++20", str(source), "-o", str(home.directory / "program"), *flags]
    subprocess.run(command, check=True)
    home.run(home.directory / "program")
    print("  the C++ program runs")


def install_torch(home: Home, wanted: str) -> None:
    home.run(
        "pip", "install", "-q", "--no-compile", f"torch=={wanted}.*" if wanted.count(".") == 1 else f"torch=={wanted}"
    )


def check_with_torch(home: Home) -> None:
    """The whole README, and the classes."""
    code = snippets("python")
    screen = "import weightstore\n" + "\n".join(code[:3])
    home.python(screen)
    print("  the first screen of the README runs;", home.python(CLASSES).strip())


def check_other_torch(home: Home) -> None:
    """One error, with the command to run."""
    message = home.python("import weightstore.torch, torch; torch.classes.store.Saver", fails=True).splitlines()[-1]
    command = re.search(r"`(weightstore build-torch)`", message)
    assert command is not None, message
    print(f"  {message}")
    home.run("weightstore", "build-torch", "--check", fails=True)
    begin = time.monotonic()
    home.run(*shlex.split(command[1]), PATH=f"{home.bin}:{os.environ['PATH']}")
    print(f"  built in {time.monotonic() - begin:.0f} s")
    home.run("weightstore", "build-torch", "--check")
    check_with_torch(home)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="a version or path; the default is the running one")
    parser.add_argument("--torch", action="append", default=[], help="a version that the wheel has a library for")
    parser.add_argument("--other-torch", action="append", default=[], help="a version that it has none for")
    parser.add_argument("--dist", type=Path, default=REPOSITORY / "dist")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build/test-wheel")
    arguments = parser.parse_args()
    work, dist = arguments.work.resolve(), arguments.dist.resolve()
    for number, name in enumerate(arguments.python or [sys.executable]):
        python = find_python(name)
        home = Home(work / f"python{number}", python, work / "pip-cache")
        print(home.run("python", "-V").strip(), flush=True)
        install(home, dist)
        check_without_torch(home)
        check_consumer(home)
        if number == 0:  # the library for torch is the same file for each Python
            for torch in arguments.torch:
                install_torch(home, torch)
                check_with_torch(home)
            for torch in arguments.other_torch:
                install_torch(home, torch)
                check_other_torch(home)
        shutil.rmtree(home.directory)


if __name__ == "__main__":
    main()
