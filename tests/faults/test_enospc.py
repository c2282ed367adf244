"""A disk that is full, and a file that may not grow: the old file stays, nothing is left beside it, the error says why."""

from __future__ import annotations

import shutil
import subprocess

import pytest

# Each limit on the size of files is tried on an overwrite. Arguments: path, durable.
LIMITED = """
import errno, os, resource, signal, sys
import numpy as np
import weightstore, weightstore.numpy as wn
from weightstore.errors import StoreIOError

path, durable = sys.argv[1], sys.argv[2] == "True"
folder = os.path.dirname(path)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
wn.save_file({"old": np.arange(1000)}, path, durable=durable)
old = open(path, "rb").read()
new = {"a": np.ones(3_000_000, "u1"), "b": np.ones((700, 700), "f4").T, "c": np.zeros(0)}
wn.save_file(new, path + ".size" + os.path.splitext(path)[1], durable=False)
size = os.path.getsize(path + ".size" + os.path.splitext(path)[1])
os.remove(path + ".size" + os.path.splitext(path)[1])
for limit in (0, 1, 100, 5000, 1 << 20, 3_000_000, size // 2, size - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        wn.save_file(new, path, durable=durable)
    except StoreIOError as error:
        assert isinstance(error, OSError) and error.errno == errno.EFBIG, (limit, error.errno)
        assert folder in str(error), str(error)
    else:
        raise AssertionError(f"saved {size} bytes under a limit of {limit}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert open(path, "rb").read() == old, limit
    assert os.listdir(folder) == [os.path.basename(path)], (limit, os.listdir(folder))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
wn.save_file(new, path, durable=durable)
assert os.path.getsize(path) == size
"""

# A file system of 4 MiB. Arguments: directory, file name, durable.
FULL = """
import errno, os, subprocess, sys
import numpy as np
import weightstore, weightstore.numpy as wn
from weightstore.errors import StoreIOError

folder, name, durable = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True)
path = os.path.join(folder, name)

def attempt(tensors, checksums=False):
    try:
        wn.save_file(tensors, path, durable=durable, checksums=checksums)
    except StoreIOError as error:
        assert error.errno == errno.ENOSPC, error.errno
        assert "space" in str(error), str(error)
        return
    raise AssertionError("saved more than there is room for")

attempt({"a": np.ones(8 << 20, "u1")})
assert os.listdir(folder) == []
wn.save_file({"old": np.arange(100_000)}, path, durable=durable)
old = open(path, "rb").read()
for checksums in (False, True):
    attempt({"a": np.ones(8 << 20, "u1")}, checksums)
    attempt({f"t{i}": np.ones(100_000, "u1") for i in range(60)}, checksums)
    attempt({"f": np.ones((2000, 2000), "u1").T[::2], "g": np.ones((1500, 1500), "u1").T}, checksums)
    # There is room for the new file, but not for both.
    attempt({"a": np.ones(3_700_000, "u1")}, checksums)
assert open(path, "rb").read() == old
assert os.listdir(folder) == [name]
wn.save_file({"new": np.arange(1000)}, path, durable=durable)
with weightstore.open(path) as file:
    assert file["new"].numpy().tolist() == list(range(1000))
"""


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "quick"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.bpk"])
def test_a_file_that_may_not_grow(run_child, tmp_path, name, durable):
    run_child(LIMITED, tmp_path / name, durable)


def private_mounts() -> tuple[str, ...]:
    for prefix in (("unshare", "-m"), ("unshare", "-rm")):
        probe = [*prefix, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0:
            return prefix
    pytest.skip("no small file system to fill: mounting one is not allowed here")


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "quick"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.bpk"])
def test_a_full_file_system(run_child, tmp_path, name, durable):
    run_child(FULL, tmp_path, name, durable, prefix=private_mounts())


def test_a_device_that_is_always_full_is_no_target(tmp_path):
    import numpy as np

    import weightstore.numpy as wn

    link = tmp_path / "full.safetensors"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match="regular|device"):
        wn.save_file({"a": np.ones(3)}, link)
    assert link.is_symlink()
