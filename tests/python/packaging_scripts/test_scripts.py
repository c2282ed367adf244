"""The scripts that make and check wheels, on small ones. `make wheel`, `make test-wheel` and `make release-check` run them whole."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[3]
EPOCH = 1_700_000_000


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "packaging" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


wheel_bytes = script("wheel_bytes")
release_check = script("release_check")
FILES = {
    "p/b.py": b"b = 1\n",
    "p/a.so": b"\x7fELF",
    "p-1.dist-info/METADATA": b"Name: p\n",
    "p-1.dist-info/RECORD": b"old",
}


def make(path: Path, names: list[str], date: tuple[int, ...] = (1999, 1, 1, 0, 0, 0)) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name, date)
            info.external_attr = (0o775 if name.endswith(".so") else 0o600) << 16
            archive.writestr(info, FILES[name])
    return path


def test_order_and_times_do_not_matter(tmp_path: Path) -> None:
    name = "p-1-cp311-cp311-manylinux_2_34_x86_64.whl"
    (tmp_path / "out").mkdir()
    one = wheel_bytes.normalize(make(tmp_path / "one.whl", sorted(FILES)), tmp_path / "out" / name, EPOCH).read_bytes()
    other = make(tmp_path / "other.whl", sorted(FILES, reverse=True), (2020, 2, 2, 2, 2, 2))
    assert wheel_bytes.normalize(other, tmp_path / "out" / name, EPOCH).read_bytes() == one


def test_record_is_of_the_files(tmp_path: Path) -> None:
    name = "p-1-cp311-cp311-manylinux_2_34_x86_64.whl"
    (tmp_path / "p-1-cp311-cp311-linux_x86_64.whl").write_bytes(b"an older one by another tag")
    (tmp_path / "p-1-cp312-cp312-linux_x86_64.whl").write_bytes(b"of another Python")
    wheel = wheel_bytes.normalize(make(tmp_path / "one.whl", sorted(FILES)), tmp_path / name, EPOCH)
    assert sorted(path.name for path in tmp_path.glob("p-1-*")) == [name, "p-1-cp312-cp312-linux_x86_64.whl"]
    with zipfile.ZipFile(wheel) as archive:
        assert archive.namelist() == [*sorted(set(FILES) - {"p-1.dist-info/RECORD"}), "p-1.dist-info/RECORD"]
        assert archive.getinfo("p/a.so").external_attr >> 16 == 0o100755
        assert archive.getinfo("p/b.py").external_attr >> 16 == 0o100644
        rows = list(csv.reader(io.StringIO(archive.read("p-1.dist-info/RECORD").decode())))
        assert [row[0] for row in rows] == archive.namelist()
        for file, digest, size in rows[:-1]:
            data = archive.read(file)
            assert size == str(len(data))
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def test_paths_and_sizes_are_found(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        archive.writestr("p/a.so", b"\0/home/somebody/clone/cpp/src/x.cc\0")
    wheel_bytes.check_contents(tmp_path / "w.whl", [Path("/home/another")], 1000)
    with pytest.raises(SystemExit, match=r"p/a\.so has the path /home/somebody"):
        wheel_bytes.check_contents(tmp_path / "w.whl", [Path("/home/somebody")], 1000)
    with pytest.raises(SystemExit, match="at most 10"):
        wheel_bytes.check_contents(tmp_path / "w.whl", [], 10)


CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-01-31\n\n### Added\n\n- something\n\n## [0.1.0]\n"
EMBEDDING = "find_package(weightstore 0.2 CONFIG REQUIRED)"


@pytest.mark.parametrize(
    ("version", "changelog", "embedding", "problem"),
    [
        ("0.2.0", CHANGELOG, EMBEDDING, None),
        ("0.3.0", CHANGELOG, EMBEDDING.replace("0.2", "0.3"), "newest dated entry"),
        ("0.2.0", CHANGELOG.replace(" - 2026-01-31", ""), EMBEDDING, "newest dated entry"),
        ("0.2.0", CHANGELOG.replace("## [Unreleased]\n", "## [Unreleased]\n\n- more\n"), EMBEDDING, "not of a release"),
        ("0.2.0", "# Changelog\n\n## 0.2.0\n", EMBEDDING, "no entries such as"),
        ("0.2.1", CHANGELOG.replace("0.2.0", "0.2.1"), EMBEDDING.replace("0.2", "0.1"), "another version than 0.2"),
    ],
)
def test_release_documents(version: str, changelog: str, embedding: str, problem: str | None) -> None:
    found = release_check.problems_of_texts(version, changelog, embedding)
    assert (problem is None and found == []) or problem in found[0]


def test_the_changelog_has_the_form_and_the_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    embedding = (REPOSITORY / "docs/embedding-in-cpp.md").read_text(encoding="utf-8")
    assert f"\n## [{release_check.version()}] - 20" in text
    problems = release_check.problems_of_texts(release_check.version(), text, embedding)
    assert not [problem for problem in problems if "not of a release" not in problem]
