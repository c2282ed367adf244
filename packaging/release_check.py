"""release_check.py: whether what is in dist/ may be released. `make release-check` calls it after `make wheel` and `make test-wheel`.

- The version is that of the header, everywhere where it is written.
- CHANGELOG.md has an entry for it with a date, and nothing that is not released.
- dist/ has the sdist and at least one wheel of this version, and `twine check` passes.
- The sdist, built again in another directory, gives the same bytes as the wheel in dist/.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def version() -> str:
    text = (REPOSITORY / "cpp/include/weightstore/version.h").read_text(encoding="utf-8")
    found = re.search(r'WEIGHTSTORE_VERSION "(.+)"', text)
    assert found is not None
    return found[1]


def problems_of_texts(version: str, changelog: str, embedding: str) -> list[str]:
    """What is wrong with the documents."""
    problems = []
    titles = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$", changelog, re.MULTILINE)
    if "## [" not in changelog or not titles:
        return ["CHANGELOG.md has no entries such as '## [0.2.0] - 2026-01-31'"]
    released = [name for name, date in titles if date]
    if not released or released[0] != version:
        problems.append(f"the newest dated entry of CHANGELOG.md is {released[:1]}, the version is {version}")
    if titles[0][0] == "Unreleased":
        body = changelog.split("## [Unreleased]")[1].split("\n## [")[0]
        if re.search(r"^- ", body, re.MULTILINE):
            problems.append("CHANGELOG.md has entries that are not of a release; give them the version and a date")
    minor = ".".join(version.split(".")[:2])
    if f"find_package(weightstore {minor} CONFIG" not in embedding:
        problems.append(f"docs/embedding-in-cpp.md asks for another version than {minor}")
    return problems


def problems_of_files(version: str, dist: Path) -> list[str]:
    problems = []
    if not (dist / f"weightstore-{version}.tar.gz").exists():
        problems.append(f"{dist} has no sdist of {version}")
    wheels = list(dist.glob(f"weightstore-{version}-*.whl"))
    if not wheels:
        problems.append(f"{dist} has no wheel of {version}; run `make wheel`")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            metadata = archive.read(f"weightstore-{version}.dist-info/METADATA").decode()
        for line in (f"Version: {version}", "License-Expression: ", "Requires-Python: ", "Provides-Extra: torch"):
            if f"\n{line}" not in metadata:
                problems.append(f"{wheel.name}: its metadata has no line '{line}'")
    return problems


def problems_of_sdist(version: str, dist: Path, torch: str) -> list[str]:
    """Builds the wheel for this Python again, from the sdist alone, elsewhere."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (wheel,) = dist.glob(f"weightstore-{version}-{tag}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        date = archive.infolist()[0].date_time
    import calendar

    seconds = str(calendar.timegm((*date, 0, 0, 0)))
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(dist / f"weightstore-{version}.tar.gz") as archive:
            archive.extractall(directory, filter="data")
        source = Path(directory, f"weightstore-{version}")
        command = [sys.executable, str(source / "packaging/make_wheel.py"), "--torch", torch]
        import os

        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": seconds})
        again = source / "dist" / wheel.name
        if not again.exists() or not filecmp.cmp(again, wheel, shallow=False):
            return [f"the sdist does not build the bytes of {wheel.name}"]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="2.13", help="as for `make wheel`")
    parser.add_argument("--dist", type=Path, default=REPOSITORY / "dist")
    parser.add_argument("--quick", action="store_true", help="do not build the wheel again")
    arguments = parser.parse_args()
    now = version()
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    embedding = (REPOSITORY / "docs/embedding-in-cpp.md").read_text(encoding="utf-8")
    problems = problems_of_texts(now, changelog, embedding) + problems_of_files(now, arguments.dist.resolve())
    if not problems and not arguments.quick:
        problems = problems_of_sdist(now, arguments.dist.resolve(), arguments.torch)
    if problems:
        sys.exit("\n".join(f"release-check: {problem}" for problem in problems))
    print(f"release-check: {now} may be released")


if __name__ == "__main__":
    main()
