"""Files of torch.save(), and files that only look like them."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import pytest

import weightstore
from support.zip_archives import entries, patched
from weightstore import PytorchError

torch = pytest.importorskip("torch")

__all__ = ["archive", "entries", "patched", "pickle_of_tensor", "refused", "save"]


def save(value, zipped: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


def archive(data: bytes, **records: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("archive/data.pkl", data)
        for name, content in {"version": b"3\n", "data/0": bytes(16), **records}.items():
            file.writestr("archive/" + name, content)
    return stream.getvalue()


def refused(data: bytes, match: str | None = None, kind: type[Exception] = PytorchError, **options) -> None:
    for way in (data, io.BytesIO(data)):
        with pytest.raises(kind, match=match):
            weightstore.open(way, **options)


def pickle_of_tensor(key=b"0", numel=4, offset=0, size=(4,), stride=(1,)) -> bytes:
    """The instructions for one tensor of floats."""

    def number(n) -> bytes:
        return pickle.dumps(n, 2)[2:-1]

    def text(t: bytes) -> bytes:
        return b"X" + struct.pack("<I", len(t)) + t

    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + b"("
        + text(b"storage")
        + b"ctorch\nFloatStorage\n"
        + text(key)
        + text(b"cpu")
        + number(numel)
        + b"tQ"
        + number(offset)
        + b"("
        + b"".join(map(number, size))
        + b"t("
        + b"".join(map(number, stride))
        + b"t\x89ccollections\nOrderedDict\n)RtR"
    )
