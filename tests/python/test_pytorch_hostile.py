"""Files that were cut, changed, or made to harm."""

from __future__ import annotations

import io
import pickle
import random
import struct
import zipfile

import pytest

import weightstore
from weightstore import FormatError, LimitError, PytorchError, StoreError

torch = pytest.importorskip("torch")

STATE = {"a": torch.arange(4.0), "b": {"t": torch.arange(6).reshape(2, 3).T, "n": 5}}


def save(value, zipped: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


def archive(data: bytes, **records: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("archive/data.pkl", data)
        for name, content in {"version": b"3\n", "data/0": bytes(16), **records}.items():
            file.writestr("archive/" + name, content)
    return stream.getvalue()


def refused(data: bytes, match: str | None = None, kind: type[Exception] = PytorchError, **options) -> None:
    for way in (data, io.BytesIO(data)):
        with pytest.raises(kind, match=match):
            weightstore.open(way, **options)


@pytest.mark.parametrize("zipped", [True, False])
def test_every_truncation_is_refused(zipped):
    data = save(STATE, zipped)
    for length in range(len(data)):
        with pytest.raises(FormatError):
            weightstore.open(data[:length])
    weightstore.open(data)


@pytest.mark.parametrize("zipped", [True, False])
def test_bytes_behind_the_end_are_refused(zipped):
    for tail in (b"\0", b"PK", bytes(100)):
        refused(save(STATE, zipped) + tail)


def test_changed_bytes_are_refused_or_harmless():
    """One byte changed anywhere: an error of ours, or tensors of the same names, types and shapes."""
    draw = random.Random(5)
    for zipped in (True, False):
        data = save(STATE, zipped)
        for _ in range(1000):
            changed = bytearray(data)
            changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            for opaque in ("error", "skip"):
                try:
                    with weightstore.open(bytes(changed), opaque=opaque) as file:
                        for handle in file.values():
                            handle.bytes()
                except StoreError:
                    continue


@pytest.mark.parametrize("place", range(4))
def test_a_damaged_storage_is_found_when_asked_for(tmp_path, place):
    state = {"a": torch.arange(100.0), "t": torch.arange(100.0, 200).reshape(10, 10).T}
    data = bytearray(save(state))
    weightstore.open(bytes(data), verify="full")
    at = bytes(data).index(bytes(state["t"].untyped_storage())) + place * 100
    data[at] ^= 4
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    weightstore.open(path).load()
    with pytest.raises(PytorchError, match="CRC"):
        weightstore.open(path, verify="full")
    with weightstore.open(path, verify="lazy") as file:
        file["a"].numpy()
        for read in (file["t"].numpy, file["t"].torch, file["t"].bytes, file["t"][:1].numpy, file.load, file.verify):
            with pytest.raises(PytorchError, match="CRC"):
                read()
    with weightstore.open(save(state)) as file:
        assert file.verify() == 2


def test_a_file_without_checksums_cannot_be_verified():
    before = torch.serialization.get_crc32_options()
    try:
        torch.serialization.set_crc32_options(False)
        data = save(STATE)
    finally:
        torch.serialization.set_crc32_options(before)
    assert len(weightstore.open(data)) == 2
    refused(data, "no checksum", verify="full")
    refused(save(STATE, False), "no checksum", verify="full")


def test_a_damaged_pickle_is_always_found():
    data = bytearray(save(STATE))
    data[bytes(data).index(b"storage")] ^= 32
    refused(bytes(data), "CRC")


# ---- pickles -------------------------------------------------------------------------------------------------------

PICKLES = {
    "no protocol": (b"}.", "protocol"),
    "protocol 0": (b"\x80\x00}.", "protocol"),
    "protocol 6": (b"\x80\x06}.", "protocol"),
    "second protocol": (b"\x80\x02\x80\x02}.", "protocol"),
    "nothing": (b"", "ends"),
    "no stop": (b"\x80\x02}", "ends"),
    "empty stack": (b"\x80\x02.", "unused|values"),
    "two values": (b"\x80\x02}}.", "unused"),
    "open mark": (b"\x80\x02(}.", "unused"),
    "behind stop": (b"\x80\x02}.}", "STOP"),
    "append to dict": (b"\x80\x02}Na.", "items"),
    "setitem on list": (b"\x80\x02]NNs.", "items"),
    "setitems on int": (b"\x80\x02K\x01(NNu.", "items"),
    "setitems on a tensor": (b"\x80\x02ctorch\nTensor\n(NNu.", "items"),
    "setitems odd": (b"\x80\x02}(Nu.", "value"),
    "missing operand": (b"\x80\x02a.", "operands"),
    "below mark": (b"\x80\x02](Na.", "operands"),
    "tuple2 of one": (b"\x80\x02N\x86.", "operands"),
    "no mark": (b"\x80\x02Nt.", "MARK"),
    "memo": (b"\x80\x02h\x05.", "memo"),
    "memo far": (b"\x80\x02Nr\xff\xff\xff\xff.", "memo"),
    "text": (b"\x80\x02X\x02\x00\x00\x00\xff\xfe.", "UTF-8"),
    "surrogate": (b"\x80\x02X\x03\x00\x00\x00\xed\xa0\x80.", "UTF-8"),
    "long text": (b"\x80\x02X\xff\xff\xff\xffab.", "ends"),
    "long text 8": (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "ends"),
    "frame": (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.", "frame"),
    "inst": (b"\x80\x02(ios\nsystem\n.", "opcode"),
    "obj": (b"\x80\x02(cos\nsystem\no.", "os.system"),
    "ext": (b"\x80\x02\x82\x01.", "opcode"),
    "pop": (b"\x80\x02N0}.", "opcode"),
    "dup": (b"\x80\x02}2.", "opcode"),
    "text int": (b"\x80\x02I5\n.", "opcode"),
    "next buffer": (b"\x80\x05\x97.", "opcode"),
    "system": (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", r"os\.system"),
    "stack global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", r"os\.system"),
    "stack global of none": (b"\x80\x04NN\x93.", "text"),
    "eval": (b"\x80\x02c__builtin__\neval\n.", r"__builtin__\.eval"),
    "newobj of a function": (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)\x81.", "not to be called"),
    "call of a storage": (b"\x80\x02ctorch\nFloatStorage\nK\x05\x85R.", "not to be called"),
    "call of a tensor class": (b"\x80\x02ctorch\nFloatTensor\nK\x05\x85R.", "not to be called"),
    "call of a number": (b"\x80\x02K\x05)R.", "not to be called"),
    "call without a tuple": (b"\x80\x02ccollections\nOrderedDict\nNR.", "tuple"),
    "build on a dict": (b"\x80\x02}}b.", "BUILD"),
    "build on a tensor": (b"\x80\x02ctorch\ndevice\nX\x03\x00\x00\x00cpu\x85R}b.", "state"),
    "huge bytearray": (b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "bytearray"),
    "huge ordered dict": (b"\x80\x02ccollections\nOrderedDict\nJ\xff\xff\xff\x7f\x85R.", "OrderedDict"),
    "bad encode": (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.", "encode"),
    "list in itself": (b"\x80\x02]q\x00h\x00a.", "itself"),
    "dict in itself": (b"\x80\x02}q\x00K\x01h\x00s.", "itself"),
    "key twice": (b"\x80\x02}(K\x01NK\x01Nu.", "twice"),
    "text key twice": (b"\x80\x02}(X\x01\x00\x00\x00aNX\x01\x00\x00\x00aNu.", "twice"),
    "true and one": (b"\x80\x02}(K\x01N\x88Nu.", "twice"),
    "list as key": (b"\x80\x02}]Ns.", "key"),
    "set of lists": (b"\x80\x04\x8f(]\x90.", "set"),
    "persistent id of none": (b"\x80\x02NQ.", "persistent"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_is_none_is_refused(name):
    data, match = PICKLES[name]
    refused(archive(data), match)


@pytest.mark.parametrize("open_", [b"]", b"(", b"}K\x01"])
def test_depth_has_a_limit(open_):
    close = {b"]": b"a", b"(": b"t", b"}K\x01": b"s"}[open_]
    for depth, right in ((100, True), (127, True), (200, False), (100_000, False)):
        data = archive(b"\x80\x02" + open_ * depth + b"N" + close * depth + b".")
        if right:
            weightstore.open(data)
        else:
            refused(data, "deep", LimitError)


def test_sharing_has_a_limit():
    """Ten levels of ten references each, to something with a tensor inside and to something without."""
    tensor = pickle_of_tensor()
    for leaf, right in ((b"N", True), (tensor, False)):
        data = b"\x80\x02" + b"(" + b"](" + leaf + b"eq\x00"
        for level in range(1, 10):
            data += b"](" + b"h" + bytes([level - 1]) + (b"h" + bytes([level - 1])) * 9 + b"eq" + bytes([level])
        data = archive(data + b"t.")
        if right:
            assert len(weightstore.open(data)) == 0
        else:
            refused(data, "unfolds", LimitError)
        with pytest.raises(LimitError, match="unfolds"):
            weightstore.read_config(data)


def pickle_of_tensor(key=b"0", numel=4, offset=0, size=(4,), stride=(1,)) -> bytes:
    """The instructions for one tensor of floats."""

    def number(n) -> bytes:
        return pickle.dumps(n, 2)[2:-1]

    def text(t: bytes) -> bytes:
        return b"X" + struct.pack("<I", len(t)) + t

    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + b"("
        + text(b"storage")
        + b"ctorch\nFloatStorage\n"
        + text(key)
        + text(b"cpu")
        + number(numel)
        + b"tQ"
        + number(offset)
        + b"("
        + b"".join(map(number, size))
        + b"t("
        + b"".join(map(number, stride))
        + b"t\x89ccollections\nOrderedDict\n)RtR"
    )


TENSORS = {
    "offset": {"offset": 1},
    "huge offset": {"offset": 2**63 - 1},
    "offset of 65 bits": {"offset": 2**64},
    "negative offset": {"offset": -1},
    "size": {"size": (5,)},
    "huge size": {"size": (2**62, 2**62), "stride": (0, 0)},
    "negative size": {"size": (-1,)},
    "stride": {"stride": (2,)},
    "huge stride": {"stride": (2**62,)},
    "negative stride": {"stride": (-1,)},
    "ranks": {"size": (2, 2)},
    "numel": {"numel": 3},
    "huge numel": {"numel": 2**62},
    "key": {"key": b"1"},
    "traversal": {"key": b"../data.pkl"},
    "bool size": {"size": (True,)},
    "float size": {"size": (4.0,)},
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_that_leaves_its_storage_is_refused(name):
    assert len(weightstore.open(archive(b"\x80\x02" + pickle_of_tensor() + b"."))) == 1
    refused(archive(b"\x80\x02" + pickle_of_tensor(**TENSORS[name]) + b"."))


def test_an_ordered_dict_of_python_2():
    """It was made of a list of pairs, with strings that have no encoding."""
    pairs = (
        b"ccollections\nOrderedDict\n](](U\x01a" + pickle_of_tensor() + b"e](K\x07" + pickle_of_tensor() + b"ee\x85R"
    )
    data = archive(b"\x80\x02" + pairs + b".")
    assert list(weightstore.open(data)) == ["7", "a"]
    assert weightstore.read_config(data) == {"a": None, 7: None}
    loaded = torch.load(io.BytesIO(data), weights_only=True)
    assert list(loaded) == ["a", 7]
    refused(archive(b"\x80\x02" + pairs.replace(b"K\x07", b"N") + b"."), "key")


def test_two_names_that_become_one_are_refused():
    refused(save({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}), "twice")


def test_keys_that_make_no_name_are_refused():
    refused(save({None: torch.zeros(1)}), "key")
    refused(save({(1, 2): [torch.zeros(1)]}), "key")
    assert len(weightstore.open(save({None: 5, 1.5: "x", "t": torch.zeros(1)}))) == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_that_are_not_dense_are_refused_by_name():
    dense = torch.eye(3)
    for value, match in (
        (dense.to_sparse(), "sparse"),
        (dense.to_sparse_csr(), "sparse"),
        (torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8), "quantized"),
        (torch.zeros(2, device="meta"), "meta"),
    ):
        for opaque in ("error", "skip"):
            with pytest.raises(PytorchError, match=match) as caught:
                weightstore.open(save({"good": dense, "layer": {"bad": value}}), opaque=opaque)
            if match != "quantized":
                assert caught.value.tensor == "layer.bad"


def test_a_torchscript_archive_is_refused(tmp_path):
    module = torch.jit.script(torch.nn.Linear(2, 2))
    torch.jit.save(module, tmp_path / "x.pt")
    for opaque in ("error", "skip"):
        with pytest.raises(PytorchError, match="TorchScript"):
            weightstore.open(tmp_path / "x.pt", opaque=opaque)


# ---- archives ------------------------------------------------------------------------------------------------------


def entries(data: bytes) -> list[int]:
    """Where the directory's entries are."""
    found, at = [], data.index(b"PK\1\2")
    while at >= 0:
        found.append(at)
        at = data.find(b"PK\1\2", at + 1)
    return found


def patched(data: bytes, *changes: tuple[int, bytes]) -> bytes:
    result = bytearray(data)
    for at, content in changes:
        result[at : at + len(content)] = content
    return bytes(result)


def test_archives_that_two_readers_could_see_differently_are_refused():
    good = archive(b"\x80\x02}.")
    first = entries(good)[0]
    end = good.index(b"PK\5\6")
    cases = {
        "encrypted": patched(good, (first + 8, b"\1\0"), (6, b"\1\0")),
        "flags of the directory only": patched(good, (first + 8, b"\0\x08")),
        "flags no writer sets": patched(good, (first + 8, b"\0\x40"), (6, b"\0\x40")),
        "method": patched(good, (first + 10, b"\x0c\0"), (8, b"\x0c\0")),
        "local method": patched(good, (8, b"\x08\0")),
        "local name": patched(good, (30, b"brchive")),
        "local size": patched(good, (22, b"\1")),
        "local crc": patched(good, (14, b"\1")),
        "directory size": patched(good, (first + 20, b"\1"), (first + 24, b"\1")),
        "two sizes": patched(good, (first + 24, b"\1")),
        "offset": patched(good, (first + 42, b"\1")),
        "disk": patched(good, (first + 34, b"\1")),
        "comment length": patched(good, (first + 32, b"\1")),
        "count": patched(good, (end + 8, b"\2\0\2\0")),
        "counts": patched(good, (end + 8, b"\2\0")),
        "huge count": patched(good, (end + 8, b"\xff\xff\xff\xff")),
        "directory place": patched(good, (end + 16, b"\0\0\0\0")),
        "disks": patched(good, (end + 4, b"\1\0")),
        "prefix": b"x" + good,
        "control character": patched(good, (first + 46, b"\1"), (30, b"\1")),
        "backslash": patched(good, (first + 53, b"\\"), (37, b"\\")),
        "not utf-8": patched(good, (first + 46, b"\xff"), (30, b"\xff")),
    }
    weightstore.open(good)
    passed = []
    for name, data in cases.items():
        try:
            weightstore.open(data)
        except FormatError:
            continue
        passed.append(name)
    assert passed == []


@pytest.mark.parametrize(
    "names",
    [
        ["archive/data.pkl", "archive/version", "archive/version"],
        ["archive/data.pkl", "archive/version", "other/version"],
        ["data.pkl", "version"],
        ["archive/data.pkl"],
        ["archive/data.pkl", "archive/version", "archive/../x"],
        ["archive/data.pkl", "archive/version", "/x"],
        ["archive/data.pkl", "archive/version", "archive//x"],
        ["archive/data.pkl", "archive/version", "archive/dir/"],
        ["archive/data.pkl", "archive/version", "archive/constants.pkl"],
        ["archive/version"],
        [],
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_of_records(names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(name, b"\x80\x02}." if name.endswith("data.pkl") else b"3\n")
    with pytest.raises(FormatError):
        weightstore.open(stream.getvalue())


@pytest.mark.parametrize("text", [b"", b"0", b"11", b"x", b"3\n\n", b"-1", b"3" * 100])
def test_versions(text):
    refused(archive(b"\x80\x02}.", version=text), "version")


@pytest.mark.parametrize("text", [b"", b"Little", b"big\n", b"little" * 20])
def test_byte_orders(text):
    refused(archive(b"\x80\x02}.", byteorder=text), "byteorder")


def test_a_zip_bomb_is_refused_before_it_grows():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + bytes(1 << 20))
        file.writestr("archive/version", "3\n")
    data = stream.getvalue()
    assert len(data) < 2000
    first = entries(data)[0]
    huge = struct.pack("<I", 0xF0000000)
    refused(patched(data, (first + 24, huge), (22, huge)), "limit", LimitError)
    large = struct.pack("<I", 200 << 20)
    refused(patched(data, (first + 24, large), (22, large)), "cannot hold")
    refused(data)


def test_a_tensor_over_four_gibibytes_in_a_sparse_file(tmp_path):
    """ZIP64: sizes and offsets that take more than 32 bits, written by torch without their contents."""
    path = tmp_path / "large.pt"
    with torch.serialization.skip_data():
        torch.save(
            {"large": torch.empty(5 << 30, dtype=torch.uint8), "after": torch.empty(3), "large2": torch.empty(2 << 30)},
            path,
        )
    assert path.stat().st_blocks * 512 < 1 << 24
    with weightstore.open(path) as file:
        assert file["large"].shape == (5 << 30,)
        assert file["large"][-5:].numpy().tolist() == [0] * 5
        assert file["after"].numpy().tolist() == [0.0] * 3
        assert file["large2"].nbytes == 8 << 30
