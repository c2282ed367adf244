"""Which library is loaded: one that came with the package, or one that `weightstore build-torch` built for the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .._installed import find_installed
from . import cache
from .running_torch import RunningTorch

NAMES = ("libweightstore_torch.so", "libweightstore_torch.dylib")
COMMAND = "weightstore build-torch"


class NoLibrary(ImportError):
    """There is no library for the installed torch. The message has the command that builds it."""


@dataclass(frozen=True)
class Candidate:
    kind: Literal["prebuilt", "built"]
    place: Path
    """The library, or the directory that has none."""
    problem: str | None
    """Why it cannot be used; None if it can."""


def candidates(torch: RunningTorch) -> list[Candidate]:
    """In order of preference."""
    return [_prebuilt(torch), _built(torch)]


def library_for(torch: RunningTorch) -> Path:
    """The library to load. NoLibrary if there is none."""
    found = candidates(torch)
    for candidate in found:
        if candidate.problem is None:
            return candidate.place
    built = found[-1]
    if built.place.name in NAMES:
        raise NoLibrary(
            f"weightstore does not load the library that was built for torch {torch.version}: {built.problem}"
        )
    raise NoLibrary(
        f"weightstore has no library for torch {torch.version} yet, so torch.classes.store is missing. Run `{COMMAND}` in this "
        "environment; it needs a C++20 compiler and takes about a minute"
    )


def prebuilt_minors() -> list[str]:
    """The versions of torch that the package has libraries for."""
    directory = find_installed("torch_library")
    if directory is None:
        return []
    found = [path.parent.name for name in NAMES for path in directory.glob(f"*/{name}")]
    return sorted(found, key=lambda name: [int(part) for part in name.split("-")[0].split(".")])


def library_in(directory: Path | None) -> Path | None:
    if directory is not None:
        for name in NAMES:
            if (directory / name).exists():
                return directory / name
    return None


def _prebuilt(torch: RunningTorch) -> Candidate:
    relative = f"torch_library/{torch.minor}" + ("-old-abi" if torch.old_abi else "")
    library = library_in(find_installed(relative))
    if library is None:
        have = ", ".join(prebuilt_minors()) or "no version"
        absent = f"the package has libraries for torch {have}, not for {torch.minor}"
        if torch.old_abi:
            absent += " with the C++ ABI from before GCC 5"
        return Candidate("prebuilt", find_installed("torch_library") or Path(relative), absent)
    problem = None if torch.is_release else f"torch {torch.version} is not a release"
    return Candidate("prebuilt", library, problem)


def _built(torch: RunningTorch) -> Candidate:
    directory = cache.directory_for(torch)
    library = library_in(directory)
    if library is None:
        return Candidate("built", directory, "nothing was built for this torch")
    return Candidate("built", library, cache.why_unsafe(library))
