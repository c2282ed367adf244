"""Files of torch.save() over types, layouts, protocols and containers: what torch loads, weightstore reads."""

from __future__ import annotations

import collections
import io
import pickle
import struct
import sys
import tarfile
import types
import warnings
import zipfile

import pytest

import weightstore
from weightstore._files.file import source_of

torch = pytest.importorskip("torch")

# torch says so of complex32 whenever it makes one.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")

TYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
    torch.float4_e2m1fn_x2,
]
# Saved without a storage class of their own.
UNTYPED = {torch.uint16, torch.uint32, torch.uint64, torch.complex32, *TYPES[-6:]}
BYTES = torch.arange(1, 4097, dtype=torch.int64).mul(0x9E3779B1).remainder(251).to(torch.uint8)


def elements(dtype, count: int):
    """Numbers that differ from their neighbours, bit by bit."""
    if dtype == torch.bool:
        return BYTES[:count].remainder(2).to(torch.bool)
    return BYTES[: count * dtype.itemsize].clone().view(dtype)


LAYOUTS = {
    "plain": lambda t: t[:24].reshape(2, 3, 4),
    "transposed": lambda t: t[:24].reshape(4, 6).T,
    "permuted": lambda t: t[:24].reshape(2, 3, 4).permute(2, 0, 1),
    "offset": lambda t: t[5:17],
    "strided": lambda t: t[3:23:4],
    "columns": lambda t: t[:24].reshape(4, 6)[:, 1:4],
    "every second column": lambda t: t[:24].reshape(4, 6)[:, ::2],
    "expanded": lambda t: t[2:6].reshape(1, 4).expand(3, 4),
    "expanded inside": lambda t: t[2:6].reshape(4, 1).expand(4, 5),
    "repeated": lambda t: t[7:8].expand(6),
    "scalar": lambda t: t[9],
    "empty": lambda t: t[:0],
    "empty rows": lambda t: t[:0].reshape(0, 5),
    "windows": lambda t: t.as_strided((5, 4), (2, 1), 1),
    "ones": lambda t: t[4:5].as_strided((1, 1, 1), (7, 9, 2), 4),
}


def tar_bytes(state, protocol: int) -> bytes:
    """What torch 0.1.9 wrote."""
    tensors, storages, ids = [], {}, {}

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            if not isinstance(value, torch.Tensor):
                return None
            if id(value) not in ids:
                ids[id(value)] = len(ids) + 1
                tensors.append(value)
                storages.setdefault(value.untyped_storage().data_ptr(), (len(storages) + 100, value))
            return ids[id(value)]

    def dumps(value) -> bytes:
        return pickle.dumps(value, protocol=protocol)

    stream = io.BytesIO()
    Pickler(stream, protocol).dump(state)
    letters = {8: "Double", 4: "Float", 2: "Half"}

    def class_pickle(items, kind) -> bytes:
        # A tuple that ends with a class, spelled by hand: torch's own classes are not what 0.1.9 called them.
        head = b"\x80\x02(" + b"".join(pickle.dumps(item, 2)[2:-1] for item in items)
        return head + b"ctorch\n" + kind.encode() + b"\nt."

    data = dumps(len(storages))
    for key, tensor in storages.values():
        storage = bytes(tensor.untyped_storage())
        kind = "Float" if tensor.dtype == torch.float32 else letters[tensor.element_size()]
        data += class_pickle([key, "cpu"], kind + "Storage")
        data += struct.pack("<q", len(storage) // tensor.element_size()) + storage
    data += dumps([])
    rows = dumps(len(tensors))
    for tensor in tensors:
        kind = "Float" if tensor.dtype == torch.float32 else letters[tensor.element_size()]
        key = storages[tensor.untyped_storage().data_ptr()][0]
        rows += class_pickle([ids[id(tensor)], key], kind + "Tensor") + struct.pack("<ixxxx", tensor.dim())
        rows += struct.pack(f"<{2 * tensor.dim() + 1}q", *tensor.shape, *tensor.stride(), tensor.storage_offset())
    info = dumps({"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 8}})
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (("sys_info", info), ("pickle", stream.getvalue()), ("tensors", rows), ("storages", data)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mtime = 1485000000.25
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def save(value, kind: str, protocol: int = 2) -> bytes:
    if kind == "tar":
        return tar_bytes(value, protocol)
    stream = io.BytesIO()
    torch.save(value, stream, pickle_protocol=protocol, _use_new_zipfile_serialization=kind == "zip")
    return stream.getvalue()


def raw(tensor) -> bytes:
    tensor = tensor.detach()
    if tensor.dtype == torch.float4_e2m1fn_x2:
        tensor = tensor.view(torch.uint8)
    tensor = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy())


def check(data, expected: dict, **options) -> None:
    """Names, types, shapes and bytes, by every way of reading."""
    for backend in ("mmap", "pread"):
        with weightstore.open(data, backend=backend, **options) as file:
            assert file.format == "pytorch"
            assert list(file.keys()) == sorted(expected)
            loaded = file.load(framework="torch")
            for name, tensor in expected.items():
                shown = file[name].torch()
                assert (shown.dtype, shown.shape) == (tensor.dtype, tensor.shape or shown.shape)
                assert raw(shown) == file[name].bytes() == raw(loaded[name]) == raw(tensor)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: str(t).removeprefix("torch."))
@pytest.mark.parametrize("kind", ["zip", "stream"])
def test_types_and_layouts(dtype, kind, tmp_path):
    whole = elements(dtype, 48)
    state = {"whole": whole}
    for name, layout in LAYOUTS.items():
        if dtype == torch.float4_e2m1fn_x2 and layout(torch.arange(48)).dim() == 0:
            continue
        state[name] = layout(whole)
    data = save(state, kind)
    path = tmp_path / "file.pt"
    path.write_bytes(data)
    expected = state
    if kind == "zip" or dtype not in UNTYPED:  # torch cannot load those streams of its own
        expected = torch.load(io.BytesIO(data), weights_only=True)
        assert {name: t.stride() for name, t in expected.items()} == {name: t.stride() for name, t in state.items()}
    check(data, expected)
    check(path, expected)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["zip", "stream", "tar"])
def test_protocols_and_containers(protocol, kind):
    whole = torch.arange(24, dtype=torch.float32)
    state = collections.OrderedDict(
        weight=whole.reshape(4, 6),
        transposed=whole.reshape(4, 6).T,
        half=torch.arange(7, dtype=torch.float16),
        nested={"list": [torch.zeros(2), (torch.ones(1), 5)], 3: torch.full((2,), 3.0), -1: torch.zeros(())},
        step=17,
        text="é" * 300,
        big=2**70,
    )
    check(
        save(state, kind, protocol),
        {
            "weight": state["weight"],
            "transposed": state["transposed"],
            "half": state["half"],
            "nested.list.0": torch.zeros(2),
            "nested.list.1.0": torch.ones(1),
            "nested.3": torch.full((2,), 3.0),
            "nested.-1": torch.zeros(()),
        },
    )


@pytest.mark.parametrize("kind", ["zip", "stream", "tar"])
def test_a_bare_tensor_is_called_tensor(kind):
    tensor = torch.arange(6.0).reshape(2, 3)
    check(save(tensor, kind), {"tensor": tensor})


def test_lazy_conjugates_and_negatives():
    for dtype in (torch.complex64, torch.complex128, torch.complex32):
        value = elements(dtype, 12).reshape(3, 4)
        state = {"conj": value.conj(), "both": value.T.conj()}
        if dtype != torch.complex32:
            state["neg"] = torch._neg_view(value)
            state["neg conj"] = torch._neg_view(value).conj()
            imaginary = value.conj().imag
            assert imaginary.is_neg()
            check(save(imaginary, "zip"), {"tensor": imaginary})
        check(save(state, "zip"), state)


def test_parameters_buffers_and_subclasses():
    module = torch.nn.BatchNorm1d(3)
    state = {
        "parameter": torch.nn.Parameter(torch.arange(4.0)),
        "buffer": torch.nn.Buffer(torch.arange(3.0)),
        "state": module.state_dict(),
        "with attribute": torch.arange(5),
    }
    state["with attribute"].note = "hello"
    state["parameter"].tag = [1, 2]
    expected = {
        "parameter": state["parameter"].data,
        "buffer": state["buffer"].data,
        "with attribute": torch.arange(5),
        **{f"state.{name}": value for name, value in module.state_dict().items()},
    }
    for kind in ("zip", "stream"):
        check(save(state, kind), expected)


def test_a_checkpoint_with_an_optimizer():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    data = save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "zip")
    with weightstore.open(data) as file:
        assert "model.0.weight" in file
        assert "optimizer.state.0.exp_avg" in file
        assert torch.equal(file["optimizer.state.3.exp_avg"].torch(), optimizer.state_dict()["state"][3]["exp_avg"])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.BatchNorm1d(2))])
        self.alone = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("dropped", torch.arange(4), persistent=False)
        self.register_parameter("nothing", None)
        self.tied = self.blocks[0]


@pytest.mark.parametrize("kind", ["zip", "stream"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_whole_model_has_the_names_of_its_state(kind, protocol, monkeypatch):
    model = Net()
    # Pickled by name, which a test module of pytest does not have.
    home = types.ModuleType("home_of_net")
    home.Net = Net
    monkeypatch.setattr(Net, "__module__", "home_of_net")
    monkeypatch.setitem(sys.modules, "home_of_net", home)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch cannot find the source of a class made here
        data = save(model, kind, protocol)
    check(data, dict(model.state_dict()))
    with pytest.raises(weightstore.PytorchError, match="home_of_net|whole model"):
        weightstore.open(data, opaque="error")


def test_big_endian_files():
    for dtype in TYPES:
        if dtype == torch.float4_e2m1fn_x2:
            continue
        whole = elements(dtype, 24)
        state = {"a": whole, "t": whole.reshape(4, 6).T, "part": whole[3:9]}
        data = save(state, "zip")
        width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        storage = bytes(whole.untyped_storage())
        swapped = b"".join(storage[i : i + width][::-1] for i in range(0, len(storage), width))
        check(rezip(data, {"byteorder": b"big", "data/0": swapped}), state)


def rezip(data: bytes, changed: dict[str, bytes]) -> bytes:
    """The same archive with other contents, all records stored."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for name in old.namelist():
            new.writestr(zipfile.ZipInfo(name), changed.get(name.partition("/")[2], old.read(name)))
    return stream.getvalue()


def test_the_order_of_records_and_the_alignment_do_not_matter():
    state = {"a": torch.arange(5.0), "b": torch.arange(7)}
    data = save(state, "zip")
    check(rezip(data, {}), state)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for name in reversed(old.namelist()):
            new.writestr(zipfile.ZipInfo(name), old.read(name))
    check(stream.getvalue(), state)
    config = torch.utils.serialization.config
    before = config.save.storage_alignment
    try:
        config.save.storage_alignment = 4096
        check(save(state, "zip"), state)
    finally:
        config.save.storage_alignment = before


def test_a_deflated_pickle_is_read_and_a_deflated_storage_is_not():
    state = {f"layer.{i}": torch.arange(3.0) for i in range(200)}
    data = save(state, "zip")
    for part, right in (("data.pkl", True), ("data/0", False)):
        stream = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
            for name in old.namelist():
                method = zipfile.ZIP_DEFLATED if name.endswith("/" + part) else zipfile.ZIP_STORED
                new.writestr(zipfile.ZipInfo(name), old.read(name), compress_type=method)
        if right:
            check(stream.getvalue(), state)
        else:
            with pytest.raises(weightstore.PytorchError, match="compressed"):
                weightstore.open(stream.getvalue())


def test_conversion(tmp_path):
    whole = torch.arange(24.0)
    state = {
        "a": whole.reshape(4, 6),
        "t": whole.reshape(4, 6).T,
        "half": whole.half(),
        "e": torch.ones(1).expand(3, 3),
    }
    torch.save(state, tmp_path / "x.pt")
    for target in ("x.safetensors", "x.bpk"):
        weightstore.convert(tmp_path / "x.pt", tmp_path / target)
        with weightstore.open(tmp_path / target) as file:
            assert sorted(file) == sorted(state)
            for name, tensor in state.items():
                assert torch.equal(file[name].torch(), tensor)
    torch.save({"c": torch.zeros(2, dtype=torch.complex128)}, tmp_path / "c.pt")
    with pytest.raises(weightstore.InvalidArgument, match="C128"):
        weightstore.convert(tmp_path / "c.pt", tmp_path / "c.safetensors")


def test_plain_tensors_are_views_of_the_file(tmp_path):
    state = {"a": torch.arange(1000.0), "b": torch.arange(4000.0).reshape(1000, 4)[:, :2]}
    torch.save(state, tmp_path / "x.pt")
    with weightstore.open(tmp_path / "x.pt") as file:
        first, second = file["a"].numpy(), file["a"].numpy()
        assert first.ctypes.data == second.ctypes.data
        assert first.ctypes.data % 64 == 0
        assert not first.flags.writeable
        reader = source_of(file).reader
        assert reader.view(reader.at("b")) is None
    assert torch.equal(torch.from_numpy(first.copy()), state["a"])


def test_slices_of_gathered_tensors():
    whole = torch.arange(720.0).reshape(6, 10, 12)
    state = {"p": whole.permute(2, 0, 1), "e": whole[:, :1].expand(6, 9, 12)}
    with weightstore.open(save(state, "zip")) as file:
        for key in ((3,), (slice(2, 9, 3), 1), (slice(None), slice(None, None, -2), slice(1, 8))):
            for name, tensor in state.items():
                assert (file[name][key].numpy() == tensor.numpy()[key]).all()
