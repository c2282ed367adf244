"""``weightstore set-metadata``: other metadata, the same tensors."""

from __future__ import annotations

import argparse

from .._files.entries.metadata import brief
from ..errors import make
from . import options
from .output import print_json, safe
from .progress import bar


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "set-metadata",
        _set_metadata,
        "add, replace or remove metadata entries of a SafeTensors or Burnpack file, or of an index; a new file takes the "
        "place of the old one when it is complete",
        (
            "weightstore set-metadata model.safetensors format=pt author='A. Turing'",
            "weightstore set-metadata model.bpk --remove notes",
        ),
    )
    parser.add_argument("path", metavar="file", help="a .safetensors or .bpk file, or the index of a set of shards")
    parser.add_argument("entries", metavar="key=value", nargs="*", help="entries to add or to replace")
    parser.add_argument("--remove", metavar="KEY", action="append", default=[], help="an entry to remove")
    options.add_progress(parser)
    options.add_json(parser)


def _set_metadata(arguments: argparse.Namespace) -> int:
    from .._convert.metadata import set_metadata
    from .._files.file import open as open_file

    entries = {}
    for text in arguments.entries:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise make("invalid_argument", f"{text!r} is not of the form key=value")
        entries[key] = value
    if not entries and not arguments.remove:
        raise make("invalid_argument", "there is nothing to change; give key=value or --remove KEY")
    with bar(arguments.progress, "copying") as report:
        set_metadata(arguments.path, entries, remove=arguments.remove, progress=report)
    with open_file(arguments.path, backend="pread") as file:
        if arguments.json:
            print_json({"path": arguments.path, "metadata": brief(file.metadata)})
        else:
            print(f"{safe(arguments.path)}: {len(file.metadata)} metadata entries")
    return 0
