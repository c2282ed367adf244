"""Several processes that save the same path: whoever reads finds one of their files, whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

import weightstore

# Arguments: path, number of the writer, rounds, durable.
WRITER = """
import sys
import numpy as np
import weightstore.numpy as wn

path, writer, rounds, durable = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
for round in range(rounds):
    value = writer * 1000 + round
    wn.save_file(
        {"a": np.full(100_000 * (writer + 1), value, "i8"), "b": np.full((writer + 1, 3), value, "i2")},
        path, {"writer": str(writer)}, durable=durable, checksums=True,
    )
"""


def check(path) -> None:
    """The file is one writer's, as a whole."""
    with weightstore.open(path, verify="full", backend="pread") as file:
        writer = int(file.metadata["writer"])
        assert file["a"].shape == (100_000 * (writer + 1),)
        assert file["b"].shape == (writer + 1, 3)
        a = file["a"].numpy()
        assert a[0] // 1000 == writer
        assert (a == a[0]).all()
        assert (file["b"].numpy() == a[0]).all()


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "quick"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.bpk"])
def test_the_file_is_always_whole(tmp_path, name, durable):
    path = tmp_path / name
    rounds = 15 if durable else 40
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(i), str(rounds), str(durable)], stderr=subprocess.PIPE
        )
        for i in (1, 2)
    ]
    try:
        seen = 0
        while any(writer.poll() is None for writer in writers):
            if path.exists():
                check(path)
                seen += 1
        for writer in writers:
            _, errors = writer.communicate()
            assert writer.returncode == 0, errors.decode()
        assert seen > 0
        check(path)
        assert [p.name for p in tmp_path.iterdir()] == [name]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stderr.close()


def test_only_one_of_many_creates_a_file_that_must_not_exist(tmp_path):
    script = WRITER.replace("checksums=True", "overwrite=False") + "\n"
    path = tmp_path / "once.safetensors"
    writers = [
        subprocess.Popen([sys.executable, "-c", script, path, str(i), "1", "False"], stderr=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    outcomes = [(writer.communicate()[1], writer.returncode) for writer in writers]
    losers = [errors for errors, code in outcomes if code != 0]
    assert len(losers) == 3, outcomes
    assert all("ConflictError" in errors or "FileExists" in errors for errors in losers), losers
    assert [p.name for p in tmp_path.iterdir()] == ["once.safetensors"]
    with weightstore.open(path) as file:
        assert outcomes[int(file.metadata["writer"])][1] == 0
