"""What a save does to modes and links, and where it refuses to write."""

from __future__ import annotations

import errno
import os
import stat

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore.errors import StoreIOError

NAMES = ["model.safetensors", "model.bpk"]
TENSORS = {"a": np.arange(10)}


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def assert_saved(path) -> None:
    with weightstore.open(path) as file:
        assert (file["a"].numpy() == TENSORS["a"]).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077, 0o002])
def test_a_new_file_has_the_mode_the_umask_gives(tmp_path, name, umask):
    before = os.umask(umask)
    try:
        wn.save_file(TENSORS, tmp_path / name)
    finally:
        os.umask(before)
    assert mode(tmp_path / name) == 0o666 & ~umask


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", [0o600, 0o640, 0o664, 0o444, 0o666, 0o755])
def test_a_replaced_file_keeps_its_mode(tmp_path, name, kept):
    path = tmp_path / name
    path.write_bytes(b"old")
    path.chmod(kept)
    wn.save_file(TENSORS, path)
    assert mode(path) == kept
    assert_saved(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_symlink_is_followed_and_stays(tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / "blob"
    target.write_bytes(b"old")
    target.chmod(0o640)
    hop = tmp_path / "hop"
    hop.symlink_to("elsewhere/blob")
    link = tmp_path / name
    link.symlink_to(hop)
    wn.save_file(TENSORS, link)
    assert os.readlink(link) == str(hop)
    assert os.readlink(hop) == "elsewhere/blob"
    assert not target.is_symlink()
    assert mode(target) == 0o640
    assert_saved(target)
    assert_saved(link)
    assert [p.name for p in elsewhere.iterdir()] == ["blob"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["elsewhere", "hop", name])


@pytest.mark.parametrize("name", NAMES)
def test_a_dangling_symlink_gets_its_target(tmp_path, name):
    (tmp_path / "sub").mkdir()
    link = tmp_path / name
    link.symlink_to("sub/target")
    wn.save_file(TENSORS, link)
    assert os.readlink(link) == "sub/target"
    assert_saved(tmp_path / "sub/target")


def test_a_dangling_symlink_into_nowhere_is_an_error(tmp_path):
    link = tmp_path / "model.safetensors"
    link.symlink_to("missing/target")
    with pytest.raises(StoreIOError) as caught:
        wn.save_file(TENSORS, link)
    assert caught.value.errno == errno.ENOENT
    assert link.is_symlink()


def test_a_loop_of_symlinks_is_an_error(tmp_path):
    (tmp_path / "a.safetensors").symlink_to("b.safetensors")
    (tmp_path / "b.safetensors").symlink_to("a.safetensors")
    for act in (lambda p: wn.save_file(TENSORS, p), weightstore.open):
        with pytest.raises(StoreIOError) as caught:
            act(tmp_path / "a.safetensors")
        assert caught.value.errno == errno.ELOOP


def test_a_symlinked_directory_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    wn.save_file(TENSORS, tmp_path / "link/model.bpk")
    assert_saved(tmp_path / "real/model.bpk")
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", NAMES)
def test_other_names_of_the_old_file_keep_the_old_contents(tmp_path, name):
    path = tmp_path / name
    wn.save_file({"old": np.zeros(3)}, path)
    old = path.read_bytes()
    os.link(path, tmp_path / "other")
    wn.save_file(TENSORS, path)
    assert (tmp_path / "other").read_bytes() == old
    assert_saved(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_directory_is_an_error(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        wn.save_file(TENSORS, tmp_path / "missing" / name)
    assert isinstance(caught.value, StoreIOError)
    assert "missing" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_file_where_a_directory_should_be_is_an_error(tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        wn.save_file(TENSORS, tmp_path / "file" / name)


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_is_not_replaced(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(StoreIOError, match="directory") as caught:
        wn.save_file(TENSORS, tmp_path / name)
    assert caught.value.errno == errno.EISDIR
    assert list((tmp_path / name).iterdir()) == []
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_fifo_is_not_replaced(tmp_path):
    path = tmp_path / "model.safetensors"
    os.mkfifo(path)
    with pytest.raises(StoreIOError, match="FIFO"):
        wn.save_file(TENSORS, path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_name_too_long_for_the_file_system_is_an_error(tmp_path):
    with pytest.raises(StoreIOError) as caught:
        wn.save_file(TENSORS, tmp_path / ("n" * 300 + ".bpk"))
    assert caught.value.errno == errno.ENAMETOOLONG
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_the_file_system_has_is_saved(tmp_path):
    """A temporary beside it must not need a longer one."""
    path = tmp_path / ("n" * 251 + ".bpk")
    wn.save_file(TENSORS, path)
    wn.save_file(TENSORS, path)
    assert_saved(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_of_bytes_that_are_no_text_is_saved(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"m\xff\xe9.safetensors")
    wn.save_file(TENSORS, os.fsdecode(path))
    assert_saved(os.fsdecode(path))
    assert os.listdir(os.fsencode(tmp_path)) == [b"m\xff\xe9.safetensors"]


def test_a_relative_path_is_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wn.save_file(TENSORS, "model.bpk")
    assert_saved(tmp_path / "model.bpk")


# Runs as a user without privileges, when started with them. Arguments: directory, name.
READ_ONLY = """
import os, sys
import numpy as np
import weightstore, weightstore.numpy as wn
from weightstore.errors import StoreIOError

folder, name = sys.argv[1:]
path = os.path.join(folder, name)
wn.save_file({"a": np.arange(10)}, path)
old = open(path, "rb").read()
os.chmod(path, 0o400)
os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    wn.save_file({"a": np.zeros(3)}, path)
except PermissionError as error:
    assert isinstance(error, StoreIOError) and folder in str(error), str(error)
else:
    raise AssertionError("saved into a directory that is read-only")
if os.getuid() == 0:
    try:
        weightstore.open(path)
    except PermissionError as error:
        assert isinstance(error, StoreIOError) and path in str(error), str(error)
    else:
        raise AssertionError("opened a file of somebody else")
    os.seteuid(0)
assert open(path, "rb").read() == old
assert os.listdir(folder) == [name]
os.chmod(folder, 0o755)
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_read_only_directory_is_an_error(run_child, tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("read-only")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    run_child(READ_ONLY, folder, name)
