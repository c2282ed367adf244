"""make_wheel.py [--torch "2.12 2.13"] [--python 3.12]... [--output dist]: builds the sdist, and from it a wheel for each Python.

`make wheel` calls it. The wheel is repaired for manylinux, has no path of this machine inside, and the same sources give the same bytes
in every directory. docs/packaging.md says what is in it and why it has its tag.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from wheel_bytes import check_contents, normalize

REPOSITORY = Path(__file__).resolve().parents[1]
PINS = REPOSITORY / "third_party"
MOST_BYTES = 8_000_000
# Loaded by `import torch` before the library that needs them.
OF_TORCH = ("libtorch.so", "libtorch_cpu.so", "libc10.so")
MOST_GLIBC = (2, 35)
BACKEND = "import json, sys; from scikit_build_core import build; print(getattr(build, sys.argv[1])(*json.loads(sys.argv[2])))"


def run(*command: str | Path, **options: object) -> str:
    print("+", *(str(part) for part in command[:6]), "..." if len(command) > 6 else "", file=sys.stderr, flush=True)
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nmake wheel: {command[0]} failed with status {done.returncode}")
    return str(done.stdout)


def find_python(name: str) -> Path:
    """An interpreter by path or by version ("3.12"), from the path or from pyenv."""
    if "/" in name:
        return Path(name)
    homes = sorted((Path.home() / ".pyenv/versions").glob(f"{name}.*/bin/python"))
    for candidate in (shutil.which(f"python{name}"), *homes):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return Path(candidate)
    sys.exit(f"make wheel: there is no Python {name}")


def environment(directory: Path, python: Path, pins: str) -> Path:
    """The Python of an environment with what a file of third_party lists."""
    if not (directory / "bin/python").exists():
        run(python, "-m", "venv", directory)
    run(directory / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q", "-r", PINS / pins)
    return directory / "bin/python"


def torch_package(wanted: str, work: Path, python: Path) -> Path:
    """The package of a minor version of torch, or a directory that is one. Installed here if it fits, else downloaded."""
    if "/" in wanted:
        return Path(wanted).resolve()
    find = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0] if u.find_spec('torch') else '')"
    here = run(sys.executable, "-c", find).strip()
    if here and f"__version__ = '{wanted}." in (Path(here) / "version.py").read_text(encoding="utf-8"):
        return Path(here).resolve()
    place = work / "torch" / wanted
    if not (place / "torch/include/torch/custom_class.h").exists():
        shutil.rmtree(place, ignore_errors=True)
        run(
            python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-compile", "--target", place,
            f"torch=={wanted}.*",
        )  # fmt: skip
    return place / "torch"


def source_date() -> str:
    """Seconds since 1970 that stand for the time of every file: of the commit, where git knows it."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    done = subprocess.run(
        ["git", "-C", REPOSITORY, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "315532800"  # zip files know no time before 1980


def backend(python: Path, function: str, arguments: str, directory: Path, variables: dict[str, str]) -> str:
    """Calls a function of the build backend, and returns the name of the file that it made."""
    path = f"{python.parent}:{variables['PATH']}"
    return run(python, "-c", BACKEND, function, arguments, cwd=directory, env={**variables, "PATH": path}).split()[-1]


def make_sdist(python: Path, output: Path, variables: dict[str, str]) -> Path:
    import json

    return output / backend(python, "build_sdist", json.dumps([str(output)]), REPOSITORY, variables)


def build_wheel(python: Path, source: Path, work: Path, torches: list[Path], variables: dict[str, str]) -> Path:
    """The wheel as the backend makes it, tagged for this machine."""
    import json

    # Where `make` has its tree: a compiler cache that goes by relative paths knows the objects of one from the other.
    tree = source / "build/release"
    shutil.rmtree(tree, ignore_errors=True)
    defines = {
        # The path of the build would otherwise be written into the file, and later overwritten by a shorter one.
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "WEIGHTSTORE_TORCH_PACKAGES": ";".join(map(str, torches)),
        "WEIGHTSTORE_TORCH": "ON" if torches else "OFF",
        "WEIGHTSTORE_WERROR": variables.get("WERROR", "OFF"),
    }
    settings = {"build-dir": str(tree), "build.targets": "weightstore_wheel"}
    settings |= {f"cmake.define.{name}": value for name, value in defines.items()}
    raw = work / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir()
    return raw / backend(python, "build_wheel", json.dumps([str(raw), settings]), source, variables)


def repair(wheel: Path, tools: Path, work: Path, variables: dict[str, str]) -> Path:
    """The wheel with the tag of the oldest system on which it runs. Libraries of torch are not put into it."""
    repaired = work / "repaired"
    shutil.rmtree(repaired, ignore_errors=True)
    excluded = [part for name in OF_TORCH for part in ("--exclude", name)]
    path = f"{tools.parent}:{variables['PATH']}"
    run(tools.parent / "auditwheel", "repair", *excluded, "-w", repaired, wheel, env={**variables, "PATH": path})
    (found,) = repaired.glob("*.whl")
    tag = found.stem.split("-")[-1].split(".")[0]
    if tag.startswith("manylinux_"):
        glibc = tuple(int(part) for part in tag.split("_")[1:3])
        if glibc > MOST_GLIBC:
            run(tools.parent / "auditwheel", "show", wheel)
            sys.exit(f"make wheel: the tag became {tag}; it shall run with glibc {MOST_GLIBC}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="2.13", help="minor versions, or directories of torch packages")
    parser.add_argument("--python", action="append", help="a version or path; the default is the running one")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "dist")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build/wheel", help="where to build")
    arguments = parser.parse_args()
    output, work = arguments.output.resolve(), arguments.work.resolve()
    output.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)

    variables = {**os.environ, "SOURCE_DATE_EPOCH": source_date(), "PYTHONHASHSEED": "0"}
    pythons = [find_python(name) for name in arguments.python or [sys.executable]]
    tools = environment(work / "tools", Path(sys.executable), "requirements-wheel.txt")
    torches = [torch_package(name, work, tools) for name in arguments.torch.split()]
    made: list[Path] = []
    for python in pythons:
        version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        builder = environment(work / f"python{version}", python, "requirements-build.txt")
        if not made:
            made.append(make_sdist(builder, output, variables))
            source = work / "source"
            shutil.rmtree(source, ignore_errors=True)
            with tarfile.open(made[0]) as archive:
                archive.extractall(work, filter="data")
            (work / made[0].name.removesuffix(".tar.gz")).rename(source)
        wheel = build_wheel(builder, source, work, torches, variables)
        wheel = repair(wheel, tools, work, variables) if sys.platform == "linux" else wheel
        made.append(normalize(wheel, output / wheel.name, int(variables["SOURCE_DATE_EPOCH"])))
        check_contents(made[-1], [REPOSITORY, work, Path.home(), *torches], MOST_BYTES)
    run(tools.parent / "twine", "check", "--strict", *made)
    for path in made:
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
