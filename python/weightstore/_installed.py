"""Finds the files that the build installed beside the Python modules."""

from pathlib import Path

import weightstore


def find_installed(relative: str) -> Path | None:
    """The installed file or directory of that name, or None. An editable install has more than one place to look in."""
    for root in weightstore.__path__:
        candidate = Path(root, relative)
        if candidate.exists():
            return candidate
    return None
