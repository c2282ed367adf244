"""Whether ranks can write one file together. They can on one machine, and on file systems made for that."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

# File systems on which several hosts may write into one file at once, each its own bytes, and read what the others wrote.
_TOGETHER = ("lustre", "gpfs", "ceph", "beegfs", "nfs", "nfs4", "wekafs", "panfs", "ocfs2", "gfs2", "afs", "virtiofs")
# File systems that do not write into the middle of a file, on one host or many: object stores behind FUSE.
_SEQUENTIAL = (
    "fuse.gcsfuse",
    "fuse.s3fs",
    "fuse.mount-s3",
    "fuse.goofys",
    "fuse.rclone",
    "fuse.blobfuse2",
    "fuse.blobfuse",
)


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank knows about its machine, and about the file system of a directory."""

    host: str
    device: int
    kind: str
    # Ranks of one process namespace and user can open the memory of each other's descriptors.
    process: int = 0
    namespace: int = 0
    user: int = 0
    memory: int = -1

    @classmethod
    def of(cls, directory: str, memory: int = -1) -> Place:
        """directory: need not exist; then the nearest one above it counts. memory: a descriptor of this process."""
        while not os.path.exists(directory):
            directory = os.path.dirname(directory) or "."
        device, kind = os.stat(directory).st_dev, _kind(os.path.realpath(directory))
        try:
            namespace = os.stat("/proc/self/ns/pid").st_ino
        except OSError:
            namespace, memory = 0, -1
        return cls(_host(), device, kind, os.getpid(), namespace, os.geteuid(), memory)


def why_not_together(places: Sequence[Place]) -> str | None:
    """Why the ranks cannot write one file together; None if they can."""
    kinds = {place.kind for place in places}
    bad = sorted(kinds.intersection(_SEQUENTIAL))
    if bad:
        return f"{bad[0]} cannot write into the middle of a file"
    if len({place.host for place in places}) == 1:
        if len({place.device for place in places}) == 1:
            return None
        return "the ranks see the directory on different file systems"
    alone = sorted(kind for kind in kinds if kind not in _TOGETHER)
    if alone:
        return f"the ranks are on several hosts, and {alone[0]} is not known to let hosts write one file together"
    return None


def _host() -> str:
    """One machine has one boot id, also where containers have host names of their own."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def _kind(path: str) -> str:
    """The type of the file system that a path is on, as the system calls it."""
    best, kind = "", "unknown"
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split(" ")
                if len(fields) < 3:
                    continue
                point = fields[1].replace("\\040", " ")
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, fields[2]
    except OSError:
        pass
    return kind
