"""What a library must fit: the installed torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunningTorch:
    version: str
    """As torch says it: "2.13.0+cu130"."""
    old_abi: bool
    """Its std::string is that of GCC before version 5."""
    package: Path
    """The directory with its headers and libraries."""

    @property
    def minor(self) -> str:
        return ".".join(self.version.split("+")[0].split(".")[:2])

    @property
    def is_release(self) -> bool:
        """Releases of one minor version take the same library. Nightly builds and those of distributors need not."""
        return re.fullmatch(r"\d+\.\d+\.\d+(\.post\d+)?(\+(cpu|cu\d+|rocm[\d.]+|xpu))?", self.version) is not None


def running_torch() -> RunningTorch:
    """Imports torch."""
    import torch

    return RunningTorch(
        str(torch.__version__), not torch._C._GLIBCXX_USE_CXX11_ABI, Path(torch.__file__).resolve().parent
    )
