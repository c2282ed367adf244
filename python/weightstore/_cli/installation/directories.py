"""Where the C++ library is, for build systems."""

from __future__ import annotations

import argparse
import sys

from ..._core import __version__
from .. import options

_DIRECTORIES = {
    "cmake-dir": ("lib/cmake/weightstore", "the CMake package, for -Dweightstore_DIR="),
    "include-dir": ("include", "the C++ headers"),
    "pkgconfig-dir": ("lib/pkgconfig", "the pkg-config file, for PKG_CONFIG_PATH"),
}


def add_to(verbs: options.Verbs) -> None:
    options.add_verb(verbs, "version", _version, "print the version")
    for name, (_, what) in _DIRECTORIES.items():
        options.add_verb(verbs, name, _directory, f"print the directory of {what}")


def _version(_: argparse.Namespace) -> int:
    print(__version__)
    return 0


def _directory(arguments: argparse.Namespace) -> int:
    from ..._installed import find_installed

    relative, _ = _DIRECTORIES[arguments.verb]
    directory = find_installed(relative)
    if directory is None:
        print(f"weightstore: this installation has no {relative}; reinstall the package", file=sys.stderr)
        return 2
    print(directory)
    return 0
