"""Compiles the library for the installed torch: the sources and the static library are part of the package."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .._installed import find_installed
from . import cache
from .choice import library_in
from .running_torch import RunningTorch

_COMPILERS = ("c++", "g++", "clang++")
_BATCHES = 2
_NAME = "libweightstore_torch.dylib" if sys.platform == "darwin" else "libweightstore_torch.so"
_TRY = "import sys, torch; torch.classes.load_library(sys.argv[1]); torch.classes.store.Saver"


class BuildError(RuntimeError):
    """The library could not be built. The message says what to do, and ends with what the compiler said."""


def build(torch: RunningTorch, *, force: bool = False, say: Callable[[str], None] = lambda line: None) -> Path:
    """Builds the library into the cache of the user and returns its path. Several processes may build at once: one of their
    libraries stays. A library is only kept if torch loads it.

    force: replace the library that is there.
    say: called with a line about every step.
    """
    directory = cache.directory_for(torch)
    cache.make_directory(directory.parent)
    if problem := cache.why_unsafe(directory.parent):
        raise BuildError(f"no library is built, because it would not be safe to load it: {problem}")
    library = library_in(directory)
    if library is not None and not force:
        say("is there already; --force builds it again")
        return library
    compiler = _compiler()
    with cache.unfinished(directory) as work:
        _compile(compiler, torch, work, say)
        say("load it, as a check")
        _run([sys.executable, "-c", _TRY, str(work / _NAME)], "torch does not load the library that was built")
        for path in work.iterdir():
            if path.name != _NAME:
                path.unlink()
        cache.publish(work, directory, replace=force)
    return directory / _NAME


def compile_commands(compiler: Sequence[str], torch: RunningTorch, work: Path) -> tuple[list[list[str]], list[str]]:
    """The commands that compile, which may run at the same time, and the one that links what they made."""
    sources = _installed("torch_library/sources")
    archive = _static_library(torch)
    files = sorted(sources.glob("*.cc"))
    size = -(-len(files) // _BATCHES)
    # torch's headers take longer to parse than the sources.
    flags = ["-std=c++20", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-pthread"]
    flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(not torch.old_abi)}")
    flags += [f"-I{sources}", f"-I{_installed('include')}"]
    headers = torch.package / "include"
    flags += ["-isystem", str(headers), "-isystem", str(headers / "torch/csrc/api/include")]
    compiles, objects = [], []
    for start in range(0, len(files), size):
        batch = work / f"batch{start // size}.cc"
        batch.write_text("".join(f'#include "{file}"\n' for file in files[start : start + size]), encoding="utf-8")
        objects.append(str(batch.with_suffix(".o")))
        compiles.append([*compiler, *flags, "-c", str(batch), "-o", objects[-1]])
    libraries = torch.package / "lib"
    link = [*compiler, "-shared", *objects, str(archive), f"-L{libraries}", "-ltorch_cpu", "-lc10", "-pthread"]
    link += [f"-Wl,-rpath,{libraries}", "-o", str(work / _NAME)]
    return compiles, link


def _compile(compiler: Sequence[str], torch: RunningTorch, work: Path, say: Callable[[str], None]) -> None:
    compiles, link = compile_commands(compiler, torch, work)
    say(f"compile for torch {torch.version} with {shlex.join(compiler)}")
    logs = [work / f"batch{number}.log" for number in range(len(compiles))]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command, log in zip(compiles, logs, strict=True):
            with log.open("wb") as stream:
                running.append(subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT))
        for process, log, command in zip(running, logs, compiles, strict=True):
            if process.wait() != 0:
                raise _failed("the sources do not compile", command, log.read_text(encoding="utf-8", errors="replace"))
    finally:
        for process in running:
            process.kill()
            process.wait()
    say("link")
    _run(link, "the library does not link")


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise _failed(what, command, done.stdout.decode(errors="replace"))


def _failed(what: str, command: Sequence[str], output: str) -> BuildError:
    return BuildError(f"{what}:\n{shlex.join(command)}\n{output.strip()}")


def _compiler() -> list[str]:
    """$CXX, which may have arguments, or the first compiler on the path."""
    named = shlex.split(os.environ.get("CXX", ""))
    for name in named[:1] or _COMPILERS:
        if shutil.which(name):
            return named or [name]
    if named:
        raise BuildError(f"the compiler that CXX names, {named[0]}, is not there")
    raise BuildError(
        f"no C++ compiler was found ({', '.join(_COMPILERS)}). Install one that knows C++20 (on Debian: apt install g++), or name "
        "it in the environment variable CXX"
    )


def _static_library(torch: RunningTorch) -> Path:
    if not torch.old_abi:
        return _installed("lib/libweightstore.a")
    raise BuildError(
        f"torch {torch.version} was built with the C++ ABI from before GCC 5, as the packages of torch 2.6 on PyPI were; weightstore "
        "has no library for that. Use torch 2.7 or later"
    )


def _installed(relative: str) -> Path:
    path = find_installed(relative)
    if path is None:
        raise BuildError(f"this installation has no {relative}; reinstall weightstore")
    return path
