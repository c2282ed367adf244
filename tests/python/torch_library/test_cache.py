"""The cache of built libraries: nobody else can put a library there, and a half-built one is never loaded."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from weightstore._torch_library import build as building
from weightstore._torch_library import cache, choice
from weightstore._torch_library.build import BuildError, build
from weightstore._torch_library.running_torch import RunningTorch

TORCH = RunningTorch("2.99.0", False, Path("/nowhere/torch"))
LIBRARY = choice.NAMES[0]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler whose every output is a copy of the file "output", and which torch's check of the library is not asked about."""
    (tmp_path / "output").write_bytes(b"a library")
    script = tmp_path / "compiler"
    script.write_text(f'while [ $# -gt 1 ]; do if [ "$1" = -o ]; then cp {tmp_path}/output "$2"; fi; shift; done\n')
    monkeypatch.setenv("CXX", f"sh {script}")
    monkeypatch.setattr(building, "_TRY", "pass")
    return script


def leftovers(root: Path) -> list[str]:
    return [path.name for path in (root / "torch_library").iterdir() if path.name.startswith(".")]


def test_builds_for_the_user_alone(root: Path, compiler: Path) -> None:
    library = build(TORCH)
    assert library.read_bytes() == b"a library"
    assert [path.name for path in library.parent.iterdir()] == [LIBRARY]
    assert choice.library_for(TORCH) == library
    for directory in (root, root / "torch_library", library.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert leftovers(root) == []


def test_builds_again_only_if_told(tmp_path: Path, compiler: Path) -> None:
    build(TORCH)
    (tmp_path / "output").write_bytes(b"a newer one")
    assert build(TORCH).read_bytes() == b"a library"
    assert build(TORCH, force=True).read_bytes() == b"a newer one"


def test_many_builds_at_once(root: Path, compiler: Path) -> None:
    with ThreadPoolExecutor(6) as threads:
        libraries = set(threads.map(lambda number: build(TORCH, force=number % 2 == 1), range(12)))
    assert len(libraries) == 1
    assert choice.library_for(TORCH).read_bytes() == b"a library"
    assert leftovers(root) == []


def test_what_the_compiler_says_is_shown_and_nothing_stays(root: Path, compiler: Path) -> None:
    compiler.write_text("echo this torch is strange; exit 1\n")
    with pytest.raises(BuildError, match=r"(?s)do not compile.*this torch is strange"):
        build(TORCH)
    assert leftovers(root) == []
    with pytest.raises(ImportError):
        choice.library_for(TORCH)


def test_a_library_that_torch_does_not_load_is_not_kept(
    root: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "_TRY", "import ctypes, sys; ctypes.CDLL(sys.argv[1])")
    with pytest.raises(BuildError, match="does not load"):
        build(TORCH)
    assert leftovers(root) == []
    with pytest.raises(ImportError):
        choice.library_for(TORCH)


def test_a_killed_build_is_not_loaded_and_is_removed_a_day_later(root: Path, compiler: Path) -> None:
    with cache.unfinished(cache.directory_for(TORCH)) as work:
        (work / LIBRARY).write_bytes(b"half")
        killed = work.with_name(work.name + "-killed")
        shutil.copytree(work, killed)
        with pytest.raises(ImportError):
            choice.library_for(TORCH)
    build(TORCH)
    assert killed.exists()
    os.utime(killed, (1, 1))
    build(TORCH, force=True)
    assert not killed.exists()


@pytest.mark.parametrize("who", ["library", "its directory", "the cache", "above the cache"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_not_loaded(root: Path, compiler: Path, who: str, mode: int) -> None:
    library = build(TORCH)
    place = {"library": library, "its directory": library.parent, "the cache": root, "above the cache": root.parent}[
        who
    ]
    place.chmod(stat.S_IMODE(place.stat().st_mode) | mode)
    with pytest.raises(ImportError, match=f"{place}.*chmod go-w"):
        choice.library_for(TORCH)
    if who != "library" and place != library.parent:
        with pytest.raises(BuildError, match="chmod go-w"):
            build(TORCH, force=True)
    place.chmod(stat.S_IMODE(place.stat().st_mode) & ~0o022)
    assert choice.library_for(TORCH) == library


def test_sticky_directories_above_are_fine(root: Path, compiler: Path) -> None:
    library = build(TORCH)
    root.parent.chmod(0o1777)
    assert choice.library_for(TORCH) == library


def test_what_belongs_to_another_user_is_not_loaded(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = build(TORCH)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.raises(ImportError, match=f"{library}.* belongs to the user with the number {me}"):
        choice.library_for(TORCH)


def test_a_link_is_not_loaded(tmp_path: Path, compiler: Path) -> None:
    library = build(TORCH)
    library.rename(tmp_path / "elsewhere.so")
    library.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(ImportError, match="symbolic link"):
        choice.library_for(TORCH)


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"no C\+\+ compiler was found .*CXX"):
        build(TORCH)
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(BuildError, match="no-such-compiler, is not there"):
        build(TORCH)


def test_a_name_from_torch_is_no_path() -> None:
    odd = RunningTorch("2.99.0+../../x y", False, Path("/nowhere"))
    assert cache.directory_for(odd).parent == cache.directory_for(TORCH).parent


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"XDG_CACHE_HOME": "/somewhere"}, "/somewhere/weightstore"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/somebody"}, "/somebody/.cache/weightstore"),
        ({"XDG_CACHE_HOME": "", "HOME": "/somebody"}, "/somebody/.cache/weightstore"),
    ],
)
@pytest.mark.skipif(sys.platform == "darwin", reason="another place there")
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: str) -> None:
    monkeypatch.delenv(cache.VARIABLE)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache.root() == Path(place)


def test_the_sources_of_the_package_are_complete(tmp_path: Path) -> None:
    """The preprocessor finds every header in the package alone. `make test-torch` compiles them."""
    torch = pytest.importorskip("torch")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("there is no compiler")
    here = RunningTorch(torch.__version__, False, Path(torch.__file__).parent)
    compiles, link = building.compile_commands([compiler], here, tmp_path)
    assert len(compiles) == 2
    for command in compiles:
        lines = [argument for argument in command if argument not in ("-c", "-O3")]
        ours = [argument for argument in lines if "site-packages/torch/" not in argument and argument != "-isystem"]
        # -MG: headers that are not there, here those of torch, are listed as if they were in this directory.
        listed = subprocess.run(
            [*ours[:-2], "-MM", "-MG"], capture_output=True, text=True, check=True, cwd=tmp_path
        ).stdout
        missing = {name for name in shlex.split(listed) if "/" in name and not name.startswith("/")}
        assert all(name.split("/")[0] in ("ATen", "c10", "torch") for name in missing), missing
    assert Path(next(argument for argument in link if argument.endswith(".a"))).exists()
