"""Whose file a save replaces, and through whose links: needs root, to have files of several users."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore.errors import StoreIOError

OTHER = 65534
THIRD = 65533
TENSORS = {"a": np.arange(10), "b": np.arange(20)}
INDEX = "model.safetensors.index.json"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of other users")


def save(folder: Path, name: str) -> list[Path]:
    """The files that were written."""
    before = set(folder.iterdir())
    wn.save_file(TENSORS, folder / name, max_shard_size=1 if name == INDEX else None)
    with weightstore.open(folder / name) as file:
        assert (file["b"].numpy() == TENSORS["b"]).all()
    return [folder / name, *(set(folder.iterdir()) - before)]


def attributes(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def acl(*entries: tuple[int, int, int]) -> bytes:
    """As the kernel stores it: version 2, then tag, permissions and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NONE = 0xFFFFFFFF
# The owner rw, the user THIRD rw, the group nothing, the mask rw, all others nothing: the mode is 0660.
ACL = acl((0x01, 6, NONE), (0x02, 6, THIRD), (0x04, 0, NONE), (0x10, 6, NONE), (0x20, 0, NONE))
ACL_NAME = "system.posix_acl_access"


@pytest.mark.parametrize("name", ["model.safetensors", "model.bpk", INDEX])
@pytest.mark.parametrize("mode", [0o640, 0o600, 0o2755])
def test_root_keeps_owner_group_and_mode(tmp_path, name, mode):
    for path in save(tmp_path, name):
        os.chown(path, OTHER, THIRD)
        path.chmod(mode)
    for path in save(tmp_path, name):
        assert attributes(path) == (OTHER, THIRD, mode), path


@pytest.mark.parametrize("name", ["model.safetensors", INDEX])
def test_user_attributes_and_acls_are_kept(tmp_path, name):
    for path in save(tmp_path, name):
        try:
            os.setxattr(path, "user.note", b"kept")
            os.setxattr(path, ACL_NAME, ACL)
        except OSError as error:
            pytest.skip(f"no extended attributes here: {error}")
        assert attributes(path)[2] == 0o660
    for path in save(tmp_path, name):
        assert os.getxattr(path, "user.note") == b"kept"
        assert os.getxattr(path, ACL_NAME) == ACL
        assert attributes(path)[2] == 0o660


# Saves as another user into a folder that everybody may write to. Arguments: user, path.
SAVE_AS = """
import os, sys
import numpy as np
import weightstore.numpy as wn
from weightstore.errors import StoreIOError
np.arange(3).sum()
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
try:
    wn.save_file({"a": np.zeros(3)}, sys.argv[2])
    print("saved")
except StoreIOError as error:
    print(type(error).__mro__[-4:], error.errno, error)
"""


@pytest.fixture
def open_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("open")
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    folder.chmod(0o777)
    return folder


@pytest.mark.parametrize(("mode", "then"), [(0o640, 0o600), (0o644, 0o644), (0o666, 0o666), (0o664, 0o644)])
def test_a_group_that_cannot_be_kept_gains_nothing(run_child, open_folder, mode, then):
    path = open_folder / "model.safetensors"
    path.write_bytes(b"root's")
    path.chmod(mode)
    assert run_child(SAVE_AS, OTHER, path) == "saved\n"
    assert attributes(path) == (OTHER, OTHER, then)


def test_without_its_acl_the_mask_does_not_become_the_groups_right(run_child, open_folder):
    path = open_folder / "model.safetensors"
    path.write_bytes(b"root's")
    try:
        os.setxattr(path, ACL_NAME, ACL)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error}")
    assert run_child(SAVE_AS, OTHER, path) == "saved\n"
    assert attributes(path) == (OTHER, OTHER, 0o600)


@pytest.fixture
def shared(open_folder) -> Path:
    """As /tmp is: everybody may write, nobody may remove what is another's. With a file that a link may lead to."""
    (open_folder / "victim").write_bytes(b"precious")
    folder = open_folder / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def link(folder: Path, owner: int, name: str = "model.safetensors") -> Path:
    path = folder / name
    path.symlink_to("../victim")
    os.chown(path, owner, owner, follow_symlinks=False)
    return path


@pytest.mark.parametrize("name", ["model.safetensors", INDEX])
def test_another_users_link_in_a_shared_directory_is_not_followed(shared, name):
    path = link(shared, OTHER, name)
    with pytest.raises(PermissionError, match="symlink of another user") as caught:
        wn.save_file(TENSORS, path)
    assert isinstance(caught.value, StoreIOError)
    assert caught.value.filename == str(path)
    assert (shared.parent / "victim").read_bytes() == b"precious"
    assert list(shared.iterdir()) == [path]
    assert path.is_symlink()


def test_a_link_on_the_way_counts_too(shared):
    link(shared, OTHER, "hop")
    path = shared.parent / "model.safetensors"
    path.symlink_to("shared/hop")
    with pytest.raises(PermissionError, match="symlink of another user") as caught:
        wn.save_file(TENSORS, path)
    assert caught.value.filename == str(shared / "hop")
    assert (shared.parent / "victim").read_bytes() == b"precious"


def test_ones_own_link_in_a_shared_directory_is_followed(shared):
    os.chown(shared, THIRD, THIRD)
    path = link(shared, os.geteuid())
    wn.save_file(TENSORS, path)
    assert path.is_symlink()
    with weightstore.open(shared.parent / "victim") as file:
        assert sorted(file) == ["a", "b"]


def test_a_link_of_the_directorys_owner_is_followed(shared):
    os.chown(shared, OTHER, OTHER)
    path = link(shared, OTHER)
    wn.save_file(TENSORS, path)
    assert path.is_symlink()
    assert (shared.parent / "victim").read_bytes() != b"precious"


@pytest.mark.parametrize("mode", [0o1775, 0o777])
def test_other_directories_are_not_restricted(shared, mode):
    shared.chmod(mode)
    path = link(shared, OTHER)
    wn.save_file(TENSORS, path)
    assert path.is_symlink()
    assert (shared.parent / "victim").read_bytes() != b"precious"


def test_the_rule_holds_for_other_users_too(run_child, shared):
    (shared.parent / "victim").chmod(0o666)
    path = link(shared, THIRD)
    assert "symlink of another user (uid 65533)" in run_child(SAVE_AS, OTHER, path)
    assert (shared.parent / "victim").read_bytes() == b"precious"
    path.unlink()
    assert run_child(SAVE_AS, OTHER, link(shared, OTHER)) == "saved\n"
    assert attributes(shared.parent / "victim")[0] == OTHER
