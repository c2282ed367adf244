"""A control group with a limit on memory, for the processes of a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _own_group() -> tuple[Path, str]:
    """The directory of this process's memory group, and the name of the file with its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory", group.lstrip("/")), "memory.limit_in_bytes"
    return Path("/sys/fs/cgroup", group.lstrip("/")), "memory.max"


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A new group below that of this process; a process joins by writing its id to `cgroup.procs` in it."""
    above, limit_file = _own_group()
    group = above / f"weightstore-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (group / limit_file).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"memory cannot be limited here: {error}")
        yield group
    finally:
        group.rmdir()
