"""Processes killed while they overwrite a file: the old file whole or a new one whole, and nothing left for long."""

from __future__ import annotations

import pytest

KILLS = 25

# Forks a process that saves one version after another, and kills it.
KILLED_WRITER = """
import os, random, signal, time

rng = random.Random(7)

def die_while_saving(first):
    ready, started = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(started, b"x")
            version = first
            while True:
                version += 1
                save(version)
        finally:
            os._exit(1)
    os.close(started)
    os.read(ready, 1)
    os.close(ready)
    time.sleep(rng.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
"""

# Kills a writer again and again. Every version of the file is recognisable by each of its elements.
# Arguments: path, durable, kills.
SCRIPT = """
import os, sys
import numpy as np
import weightstore, weightstore.numpy as wn

path, durable, kills = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3])
folder, name = os.path.split(path)

def save(version):
    tensors = {
        "flat": np.full(1_500_000, version, "i4"),
        "turned": np.full((500, 600), version, "i4").T,
        "version": np.asarray(version),
    }
    wn.save_file(tensors, path, {"version": str(version)}, durable=durable, checksums=True)

def version_of_whole_file():
    with weightstore.open(path, verify="full") as file:
        version = int(file.metadata["version"])
        assert sorted(file) == ["flat", "turned", "version"]
        for name in file:
            array = file[name].numpy()
            assert (array == version).all(), (name, version)
        assert file["flat"].shape == (1_500_000,) and file["turned"].shape == (600, 500)
    return version

save(0)
first = 0
leftovers = 0
for kill in range(kills):
    die_while_saving(first)
    found = version_of_whole_file()
    assert found >= first, (found, first)
    leftovers += len(os.listdir(folder)) - 1
    first = found + 1
    save(first)
    assert version_of_whole_file() == first
    assert os.listdir(folder) == [name], os.listdir(folder)
print(leftovers)
"""


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "quick"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.bpk"])
def test_kills_leave_whole_files(run_child, tmp_path, name, durable):
    run_child(KILLED_WRITER + SCRIPT, tmp_path / name, durable, KILLS)


# Stops in the middle of a save for certain: the second tensor never comes. Arguments: path.
STUCK = """
import os, signal, sys
import numpy as np
import weightstore, weightstore.numpy as wn

def never():
    os.kill(os.getpid(), signal.SIGKILL)

a = np.ones(6 << 20, "u1")
b = weightstore.DeferredTensor("U8", (6 << 20,), never)
wn.save_file({"a": a, "b": b}, sys.argv[1], durable=False)
"""


@pytest.mark.parametrize("name", ["model.safetensors", "model.bpk"])
def test_the_temporary_of_a_dead_writer_is_removed_by_the_next_save(run_child, tmp_path, name):
    import numpy as np

    import weightstore.numpy as wn

    path = tmp_path / name
    wn.save_file({"old": np.arange(9)}, path)
    old = path.read_bytes()
    with pytest.raises(AssertionError, match="exit code -9"):
        run_child(STUCK, path)
    assert path.read_bytes() == old
    assert len(list(tmp_path.iterdir())) == 2, "the dead writer leaves its temporary"
    wn.save_file({"other": np.arange(3)}, tmp_path / "other.safetensors", durable=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "other.safetensors"])
    assert path.read_bytes() == old


# The same for a set of shards, of 1 to 4 of them: other files in the folder stay. Arguments: folder, durable, kills.
SET_SCRIPT = """
import json, os, sys
import numpy as np
import weightstore, weightstore.numpy as wn

folder, durable, kills = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3])
index = os.path.join(folder, "model.safetensors.index.json")
foreign = ["config.json", "model-00001-of-00009.safetensors", "model-1a2b3c4d-00001-of-00002.safetensors"]
for name in foreign:
    with open(os.path.join(folder, name), "w") as file:
        file.write("theirs")

def save(version):
    tensors = {f"t{i}": np.full(200_000, version, "i4") for i in range(version % 4 + 1)}
    wn.save_file(tensors, index, {"version": str(version)}, durable=durable, checksums=True, max_shard_size="800kB")

def version_of_whole_set():
    with weightstore.open(index, verify="full") as file:
        version = int(file.metadata["version"])
        assert sorted(file) == [f"t{i}" for i in range(version % 4 + 1)], (version, sorted(file))
        for name in file:
            assert (file[name].numpy() == version).all(), (name, version)
    for name in foreign:
        assert open(os.path.join(folder, name)).read() == "theirs", name
    return version

save(0)
first = 0
for kill in range(kills):
    die_while_saving(first)
    found = version_of_whole_set()
    assert found >= first, (found, first)
    first = found + 1
    save(first)
    assert version_of_whole_set() == first
    shards = set(json.load(open(index))["weight_map"].values())
    assert set(os.listdir(folder)) == shards | set(foreign) | {os.path.basename(index)}, os.listdir(folder)
"""


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "quick"])
def test_kills_leave_whole_sets(run_child, tmp_path, durable):
    run_child(KILLED_WRITER + SET_SCRIPT, tmp_path, durable, KILLS)
