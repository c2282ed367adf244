"""``python -m weightstore`` is the command ``weightstore``."""

import sys

from ._cli.main import command

if __name__ == "__main__":
    sys.exit(command())
