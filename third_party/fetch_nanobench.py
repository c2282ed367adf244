"""Gets nanobench.h for the C++ benchmarks: ``python fetch_nanobench.py DIRECTORY``.

No package index has nanobench by itself; one source distribution carries the unmodified header (4.3.11, MIT). That
archive is downloaded from the index that pip is configured for, compared with its pinned SHA-256, and the one file is
taken out of it. ``pip download`` would do the first step, but runs the build backend of what it downloads to learn its
metadata; asking pip's package finder for the link runs nothing of it.
"""

import hashlib
import io
import sys
import tarfile
from pathlib import Path

from pip._internal.commands import create_command
from pip._internal.commands.download import DownloadCommand

PROJECT = "py-bitcoinkernel"
VERSION = "0.1.0a5"
SHA256 = "71b91eecac7a8b07248be04471c3bf98016b38bf823aefd28f7b31179940520d"
MEMBER = "depend/bitcoin/src/bench/nanobench.h"


def download() -> bytes:
    command = create_command("download")
    assert isinstance(command, DownloadCommand)
    options, _ = command.parse_args(["--pre"])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        for candidate in finder.find_all_candidates(PROJECT):
            if str(candidate.version) == VERSION and not candidate.link.is_wheel:
                response = session.get(candidate.link.url_without_fragment, headers={"Accept-Encoding": "identity"})
                response.raise_for_status()
                return bytes(response.content)
    raise SystemExit(f"the package index has no source distribution of {PROJECT} {VERSION}")


def main() -> None:
    directory = Path(sys.argv[1])
    archive = download()
    found = hashlib.sha256(archive).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{PROJECT} {VERSION}: SHA-256 is {found}, expected {SHA256}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = next(name for name in tar.getnames() if name.endswith("/" + MEMBER))
        header = tar.extractfile(member)
        assert header is not None
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "nanobench.h").write_bytes(header.read())


if __name__ == "__main__":
    main()
