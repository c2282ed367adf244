"""Paths of local files, told apart from what looks like one and is not."""

from __future__ import annotations

import os
import re
from typing import Any, Literal

from .. import errors

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:(?=//)")
# os.PathLike classes make one slash of two.
_KNOWN = re.compile(
    r"(?:https?|s3a?|gcs|gs|hf|file|ftp|sftp|ssh|abfss?|az|adl|wasbs?|hdfs|oci|oss|r2|dbfs|memory):(?=/)", re.IGNORECASE
)


# What to do instead of giving a URL.
_ADVICE = {
    "open": "download the file, or pass a binary file object, such as fsspec.open({url!r}, 'rb').open()",
    "save": "save to a local path, or to bytes, and upload that",
    "store": "give a local path; weightstore.open() also takes a binary file object, such as fsspec.open({url!r}, 'rb').open()",
    "checkpoint": "give a local directory, and copy the checkpoint from or to the remote one",
}


def check_local(path: str | bytes, purpose: Literal["open", "save", "store", "checkpoint"]) -> None:
    """Raises InvalidArgument for a URL, and for a "~" that nobody has expanded. Such a text is a valid relative path, and a save
    would make directories of these names."""
    text = os.fsdecode(path)
    scheme = _SCHEME.match(text) or _KNOWN.match(text)
    if scheme is not None:
        raise errors.make("invalid_argument", _about_url(text, scheme.group(), purpose), path=text)
    home = text.partition("/")[0]
    if home.startswith("~") and not os.path.lexists(home):
        raise errors.make(
            "invalid_argument",
            f"'~' is not expanded; give os.path.expanduser({text!r}), or './{home}' for a folder of that name",
            path=text,
        )


def _about_url(url: str, scheme: str, purpose: str) -> str:
    if scheme.lower() == "file:":
        from urllib.parse import unquote

        local = "/" + unquote(url[len(scheme) :]).lstrip("/")
        return f"this is a URL; give the path: {local!r}"
    return f"URLs are not supported; {_ADVICE[purpose].format(url=url)}"


def hint_at_path(data: Any) -> str:
    """What to say when contents that were given as bytes are not a file, but look like the path of one; else ""."""
    if not isinstance(data, (bytes, bytearray)) or not 0 < len(data) <= 4096 or b"\0" in data:
        return ""
    path = os.fsdecode(bytes(data))
    if not (os.path.exists(path) or re.fullmatch(r"[^\n]+\.(?:safetensors|bpk|pth?|bin|np[yz]|index\.json)", path)):
        return ""
    return f"bytes are taken for the contents of a file; for the file of this path give {path!r}"
