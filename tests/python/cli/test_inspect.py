"""`weightstore inspect` and `weightstore list`, on files of every kind."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from support.command import TENSORS, run

EVIL = ["\x1b[2J\x1b[1;1H", "</script><img onerror=alert(1)>", "a\nb\tc", "‮evil", "\x9b31m", "层.权重", "", "." * 5]


def every_kind(files):
    return list(files.values())


def test_inspect_says_the_same_of_all_formats(files):
    for path in every_kind(files):
        done = run("inspect", path, "--json")
        assert done.status == 0, done.err
        found = done.json
        assert found["tensors"] == 4, path
        assert found["parameters"] == 12 + 12 + 4 + 1
        assert found["nbytes"] == sum(array.nbytes for array in TENSORS.values())
        assert {share["dtype"]: share["nbytes"] for share in found["dtypes"]} == {"F32": 96, "I64": 8, "F16": 8}
        assert found["largest"][0]["nbytes"] == 48
        (model,) = [node for node in found["tree"]["children"] if node["name"] == "model"]
        assert model["tensors"] == 3
        assert [child["name"] for child in model["children"]] == ["layers", "norm"]
        assert run("inspect", path).status == 0


def test_inspect_for_people(files):
    done = run("inspect", files["safetensors"])
    assert done.out.splitlines()[0] == str(files["safetensors"])
    words = [line.split() for line in done.out.splitlines()]
    assert ["format", "SafeTensors"] in words
    assert ["tensors", "4"] in words
    assert ["parameters", "29", "(29)"] in words
    assert ["made", "here"] in words
    deep = run("inspect", files["safetensors"], "--depth", 3).out
    assert "0 to 1, 2 alike" in deep


def test_checkpoints_and_sets_of_the_first_release(golden):
    for name in ("checkpoint-plain", "checkpoint-recis", "set"):
        done = run("inspect", golden / name)
        assert done.status == 0, done.err
        listed = run("list", golden / name, "--json").json["tensors"]
        with weightstore.open(golden / name) as file:
            assert [row["name"] for row in listed] == list(file)


def test_list_for_people_and_programs(files):
    for path in every_kind(files):
        done = run("list", path)
        assert done.status == 0
        rows = [line.split() for line in done.out.splitlines()[1:]]
        assert rows == [
            ["model.layers.0.weight", "F32", "[3,", "4]", "48", "B"],
            ["model.layers.1.weight", "F32", "[3,", "4]", "48", "B"],
            ["model.norm.bias", "F16", "[4]", "8", "B"],
            ["step", "I64", "[]", "8", "B"],
        ]
        assert [row["shape"] for row in run("list", path, "--json").json["tensors"]] == [[3, 4], [3, 4], [4], []]


def test_list_chooses_and_sorts(files):
    def names(*options):
        return [line.split()[0] for line in run("list", files["burnpack"], *options).out.splitlines()[1:]]

    assert names("--include", "layers", "--exclude", r"\.1\.") == ["model.layers.0.weight"]
    assert names("--include", "nothing") == []
    assert names("--sort", "size")[-1].startswith("model.layers")
    assert names("--sort", "size", "--reverse")[0].startswith("model.layers")
    assert names("--sort", "dtype")[0] == "model.norm.bias"
    with weightstore.open(files["burnpack"]) as file:
        by_place = run_json_names(files["burnpack"], "--sort", "file")
        assert sorted(by_place) == list(file)
    done = run("list", files["burnpack"], "--include", "(")
    assert done.status == 2


def run_json_names(path, *options):
    return [row["name"] for row in run("list", path, "--json", *options).json["tensors"]]


def test_hostile_names_are_only_text(tmp_path):
    path = tmp_path / "evil.safetensors"
    weightstore.numpy.save_file(
        {name: np.zeros(1) for name in EVIL}, path, metadata={name or "empty": name for name in EVIL}
    )
    for verb in ("inspect", "list", "show", "verify"):
        run(verb, path)  # which looks at every character
        if verb != "verify":
            done = run(verb, path, "--json")
            assert done.out.isascii()
    assert run_json_names(path) == sorted(EVIL, key=str.encode)
    listed = run("list", path).out
    assert r"\x1b[2J" in listed
    assert "</script><img onerror=alert(1)>" in listed
    assert "层.权重" in listed
    assert r"\u202e" in listed
    ascii_only = run("list", path, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert ascii_only.status == 0
    assert ascii_only.out.isascii()
    other = tmp_path / "other.safetensors"
    weightstore.numpy.save_file({}, other)
    done = run("diff", path, other)
    assert done.status == 1


def test_empty_broken_and_missing(tmp_path):
    empty = tmp_path / "empty.safetensors"
    weightstore.numpy.save_file({}, empty)
    for verb in ("inspect", "list", "show", "verify"):
        assert run(verb, empty).status == 0, verb
    cases = {
        "broken.safetensors": b"\xff" * 40,
        "short.safetensors": b"\x10",
        "cut.bpk": b"NRUB\x01\x00\xff\xff",
        "nothing.pt": b"",
        "text.bin": b"hello there, this is no model",
        "loop.safetensors.index.json": b"[" * 10_000,
    }
    for name, data in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        for verb in ("inspect", "list", "show"):
            done = run(verb, path)
            assert (done.status, done.out) == (2, ""), name
            assert done.err.startswith("weightstore: ")
            assert str(path) in done.err
    for verb in ("inspect", "list", "show", "verify"):
        missing = run(verb, tmp_path / "missing.safetensors")
        assert missing.status == 2
        assert missing.err.count("\n") == 1
    (tmp_path / "folder").mkdir()
    assert run("inspect", tmp_path / "folder").status == 2


def test_debug_shows_the_traceback(tmp_path):
    done = run("inspect", tmp_path / "missing.safetensors", "--debug")
    assert done.status == 1
    assert "Traceback" in done.err


def test_version_help_and_wrong_arguments():
    assert run("--version").out == f"weightstore {weightstore.__version__}\n"
    assert run("version").out == f"{weightstore.__version__}\n"
    help = run("--help")
    assert help.status == 0
    assert "set-metadata" in help.out
    for arguments in (
        (),
        ("nonsense",),
        ("inspect", "a", "--depth", "-1"),
        ("inspect", "a", "--depth", "9" * 30),
        ("list",),
        ("list", "a", "--sort", "\x1b[31m"),
    ):
        assert run(*arguments).status == 2
    assert "examples:" in run("convert", "--help").out


def test_inspect_and_list_import_neither_numpy_nor_torch(files):
    for verb in ("inspect", "list"):
        code = (
            "import sys\nfrom weightstore._cli.main import main\n"
            f"assert main([{verb!r}, {str(files['safetensors'])!r}]) == 0\n"
            "print(sorted({'numpy', 'torch', 'rich', 'dataclasses', 'logging', 'inspect'} & set(sys.modules)))"
        )
        import subprocess

        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


# ---- hexdump and sample ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("safetensors", ["length of the header", "header", "data"]),
        ("burnpack", ["magic", "version", "length of the metadata", "metadata", "padding", "data"]),
        ("npz", ["magic", "version needed", "flags", "method"]),
        ("pytorch", ["magic", "version needed", "flags", "method"]),
        ("set", ["JSON"]),
    ],
)
def test_hexdump_names_the_fields(files, kind, names):
    if kind not in files:
        pytest.skip("needs torch")
    path = files[kind]
    fields = run("inspect", path, "--hexdump", "--json").json
    found = [field["name"] for field in fields]
    assert [name for name in found if name in names][: len(names)] == names
    data = path.read_bytes()
    position = 0
    for field in fields:
        assert field["offset"] == position
        position += field["size"]
        read = bytes.fromhex(field["data"])
        assert data[field["offset"] :].startswith(read)
        assert len(read) == min(field["size"], max(65536 - field["offset"], 0))
    if kind in ("safetensors", "burnpack", "set"):
        assert position == len(data)
    done = run("inspect", path, "--hexdump")
    assert done.status == 0
    assert done.out.startswith("00000000  " + data[:8].hex(" ")[:11])


def test_hexdump_of_other_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    fields = run("inspect", tmp_path / "a.npy", "--hexdump", "--json").json
    assert [field["name"] for field in fields] == [
        "magic",
        "version",
        "minor version",
        "length of the header",
        "header",
        "data",
    ]
    assert "'descr': '<i8'" in fields[4]["meaning"]
    (tmp_path / "cut.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{")
    fields = run("inspect", tmp_path / "cut.safetensors", "--hexdump", "--json").json
    assert "the file ends after 1 of" in fields[1]["meaning"]
    (tmp_path / "noise").write_bytes(b"no format at all")
    assert run("inspect", tmp_path / "noise", "--hexdump").status == 2
    assert run("inspect", tmp_path, "--hexdump").status == 2


def test_sample_is_a_file_and_its_advice_works(tmp_path):
    done = run("inspect", "--sample", "s.bpk", cwd=tmp_path)
    assert done.status == 0, done.err
    with weightstore.open(tmp_path / "s.bpk") as file:
        assert file["linear.weight"].numpy().tolist() == np.arange(12.0).reshape(3, 4).tolist()
    data = (tmp_path / "s.bpk").read_bytes()
    (line,) = [line for line in done.out.splitlines() if line.strip().startswith("linear.weight")]
    words = line.split()
    begin, size = int(words[words.index("-s") + 1]), int(words[words.index("-n") + 1])
    assert np.frombuffer(data[begin : begin + size], "f4").tolist() == list(range(12))
    import shlex

    for line in done.out.partition("Try:\n")[2].splitlines():
        command = shlex.split(line)
        assert command[0] == "weightstore"
        assert run(*command[1:], cwd=tmp_path).status == 0, line
    again = run("inspect", "--sample", "s.bpk", cwd=tmp_path)
    assert again.status == 2
    assert (tmp_path / "s.bpk").read_bytes() == data
    assert run("inspect", "--sample", "s.safetensors", cwd=tmp_path).status == 2
    assert run("inspect").status == 2


def test_json_is_json_for_numbers_that_json_lacks(tmp_path):
    path = tmp_path / "nan.safetensors"
    weightstore.numpy.save_file({"a": np.array([np.nan], "f4")}, path)
    done = run("show", path, "--json")
    json.loads(done.out, parse_constant=pytest.fail)
