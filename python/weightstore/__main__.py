"""``python -m weightstore``: where the C++ library of this installation is."""

import argparse
import sys

import weightstore
from weightstore._installed import find_installed

_DIRECTORIES = {
    "cmake-dir": ("lib/cmake/weightstore", "the CMake package, for -Dweightstore_DIR="),
    "include-dir": ("include", "the C++ headers"),
    "pkgconfig-dir": ("lib/pkgconfig", "the pkg-config file, for PKG_CONFIG_PATH"),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weightstore", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("version", help="print the version")
    for name, (_, description) in _DIRECTORIES.items():
        commands.add_parser(name, help=f"print the directory of {description}")
    command = parser.parse_args(arguments).command

    if command == "version":
        print(weightstore.__version__)
        return 0
    relative, _ = _DIRECTORIES[command]
    directory = find_installed(relative)
    if directory is None:
        print(f"weightstore: this installation has no {relative}; reinstall the package", file=sys.stderr)
        return 1
    print(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
