"""``weightstore verify``: whether a file is whole."""

from __future__ import annotations

import argparse
import sys

from ..errors import FormatError, NoDataError, StoreError, StoreIOError
from . import options
from .output import print_json, safe
from .progress import bar


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "verify",
        _verify,
        "check that a file, a set or a checkpoint is complete and sound, and compare its bytes with its checksums; the status "
        "is 1 also if tensors have no checksum and there is no manifest",
        (
            "weightstore verify model.safetensors",
            "weightstore verify checkpoint/ --manifest checkpoint/SHA256SUMS",
            "cd checkpoint && sha256sum -c SHA256SUMS",
        ),
    )
    parser.add_argument("path", help=options.PATH_HELP)
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        help="a list of SHA-256 sums, as sha256sum writes it. If FILE is not there, it is written; if it is, all bytes are "
        "compared with it, and tensors need no checksums",
    )
    parser.add_argument("--overwrite", action="store_true", help="write FILE of --manifest anew")
    options.add_opaque(parser)
    options.add_progress(parser)
    options.add_json(parser)


def _verify(arguments: argparse.Namespace) -> int:
    from .._look.verification import verify

    try:
        with bar(arguments.progress, "reading") as report:
            found = verify(
                arguments.path,
                manifest=arguments.manifest,
                overwrite=arguments.overwrite,
                opaque=arguments.opaque,
                progress=report,
            )
    except (FormatError, NoDataError) as error:
        if isinstance(error, StoreIOError) or arguments.debug:
            raise
        return _broken(arguments, error)
    if arguments.json:
        print_json({"path": arguments.path, **found.as_dict()})
        return 0 if found.is_sound else 1
    path = safe(arguments.path)
    if found.checksums and not found.unchecked:
        print(f"{path}: all {found.checksums} checksums are right")
    elif found.unchecked:
        text = f"{path}: {found.checksums} checksums are right, {found.unchecked} of {found.tensors} tensors have no checksum"
        print(text, file=sys.stdout if found.is_sound else sys.stderr)
    else:
        print(f"{path}: sound; it has no tensors")
    if found.manifest is not None:
        print(
            f"{safe(arguments.manifest)}: {found.files} files "
            + ("are as listed" if found.manifest == "checked" else "listed; written")
        )
    return 0 if found.is_sound else 1


def _broken(arguments: argparse.Namespace, error: StoreError) -> int:
    if arguments.json:
        print_json({"path": arguments.path, "sound": False, "error": str(error)})
    print(f"weightstore: {safe(str(error))}", file=sys.stderr)
    return 1
