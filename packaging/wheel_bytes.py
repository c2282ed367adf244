"""What makes the bytes of a wheel the same everywhere, and checks of what is in it."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path


def normalize(wheel: Path, output: Path, seconds: int) -> Path:
    """Writes the files of a wheel in the order of their names, all with the same time, and with a new RECORD. A wheel by another
    tag of the same Python and version is removed."""
    date = time.gmtime(max(seconds, 315532800))[:6]
    python = "-".join(output.name.split("-")[:4])
    for old in output.parent.glob(f"{python}-*.whl"):
        old.unlink()
    with zipfile.ZipFile(wheel) as source:
        files = {info.filename: (source.read(info), info.external_attr >> 16) for info in source.infolist()}
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    names = sorted(name for name in files if name != record and not name.endswith("/"))
    lines = [f"{name},sha256={_digest(files[name][0])},{len(files[name][0])}" for name in names]
    files[record] = ("\n".join([*lines, f"{record},,", ""]).encode(), 0o644)
    temporary = output.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in [*names, record]:
            data, mode = files[name]
            info = zipfile.ZipInfo(name, date)
            info.external_attr = (0o100755 if mode & 0o111 else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            target.writestr(info, data, compresslevel=9)
    os.replace(temporary, output)
    return output


def check_contents(wheel: Path, places: list[Path], most_bytes: int) -> None:
    """Ends the program if the wheel is too large, or if a file in it has the path of one of these places."""
    wrong = []
    if (size := wheel.stat().st_size) > most_bytes:
        wrong.append(f"{size:,} bytes; at most {most_bytes:,}")
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            data = archive.read(info)
            wrong += [
                f"{info.filename} has the path {place} inside" for place in places if os.fsencode(place) + b"/" in data
            ]
        if wrong:
            for info in sorted(archive.infolist(), key=lambda info: -info.compress_size)[:12]:
                print(f"{info.compress_size:>10,} {info.filename}", file=sys.stderr)
    if wrong:
        sys.exit("\n".join(f"{wheel.name}: {line}" for line in wrong))


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
