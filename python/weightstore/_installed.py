"""Finds the files that the build installed beside the Python modules."""

import sys
from pathlib import Path


def find_installed(relative: str) -> Path | None:
    """The installed file or directory of that name, or None. An editable install has more than one place to look in."""
    for root in sys.modules[__package__].__path__:
        candidate = Path(root, relative)
        if candidate.exists():
            return candidate
    return None
