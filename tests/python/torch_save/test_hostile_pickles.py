"""Pickles that were made to harm, and tensors that leave their storages."""

from __future__ import annotations

import io

import pytest

import weightstore
from support.torch_files import archive, pickle_of_tensor, refused, save
from weightstore import LimitError, PytorchError

torch = pytest.importorskip("torch")

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
            refused(data, "may take", LimitError)
        with pytest.raises(LimitError, match="may take"):
            weightstore.read_config(data)


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
    assert list(weightstore.open(archive(b"\x80\x02" + pairs.replace(b"K\x07", b"N") + b"."))) == ["None", "a"]


def test_two_names_that_become_one_are_refused():
    refused(save({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}), "twice")


def test_what_has_no_name_is_left_out_or_refused():
    tensor = torch.zeros(1)
    for value, words in (
        ({frozenset([1]): tensor}, "key that makes no name"),
        ({("x" * 2000,): [tensor]}, "key that makes no name"),
        ({tensor: 5}, "tensor that is the key"),
        ({tensor}, "tensor in a set"),
        (frozenset([(tensor,)]), "tensor in a set"),
    ):
        data = save({"t": tensor, "below": value})
        with weightstore.open(data) as file:
            assert list(file) == ["t"]
            (left,) = file.left_out
            assert left.name == "below"
            assert words in left.reason
        refused(data, words, opaque="error")
        refused(save({"below": value}), words)
    assert len(weightstore.open(save({None: 5, 1.5: "x", "t": torch.zeros(1)}))) == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_that_are_not_dense_are_left_out_or_refused_by_name():
    dense = torch.eye(3)
    for value, match in (
        (dense.to_sparse(), "sparse"),
        (dense.to_sparse_csr(), "sparse"),
        (torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8), "quantized"),
        (torch.zeros(2, device="meta"), "meta"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "kind that is not known"),
        (torch.ones(3).untyped_storage(), "storage by itself"),
    ):
        data = save({"good": dense, "layer": {"bad": value}})
        with pytest.raises(PytorchError, match=f"{match}|torch.nested") as caught:
            weightstore.open(data, opaque="error")
        assert caught.value.tensor in ("layer.bad", None)
        with weightstore.open(data) as file:
            assert list(file) == ["good"]
            assert "layer.bad" not in file
            (left,) = file.left_out
            assert left.name == "layer.bad"
            assert match in left.reason
            with pytest.raises(PytorchError, match=match) as caught:
                file["layer.bad"]
            assert caught.value.tensor == "layer.bad"
        assert torch.equal(weightstore.PytorchStore.from_bytes(data).get_all_snapshots()["good"].torch(), dense)


def test_a_torchscript_archive_is_refused(tmp_path):
    module = torch.jit.script(torch.nn.Linear(2, 2))
    torch.jit.save(module, tmp_path / "x.pt")
    for opaque in ("error", "skip"):
        with pytest.raises(PytorchError, match="TorchScript"):
            weightstore.open(tmp_path / "x.pt", opaque=opaque)
