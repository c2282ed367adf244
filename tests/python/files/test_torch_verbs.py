"""weightstore.torch: the verbs, and tensors of every layout."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import weightstore  # noqa: E402
import weightstore.torch as wt  # noqa: E402
from weightstore import errors  # noqa: E402

pytestmark = pytest.mark.usefixtures("both_ways")

# Without a zero: torch itself is not of one mind about the sign of a negated one.
FLOATS = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5) - 29.5
COMPLEX = torch.complex(FLOATS, FLOATS.flip(0))

LAYOUTS = {
    "contiguous": FLOATS,
    "transposed": FLOATS.permute(2, 0, 1),
    "strided": FLOATS[::2, 1:, ::3],
    "expanded": FLOATS[:, :1].expand(3, 7, 5),
    "conjugated": COMPLEX.conj(),
    "conjugated, transposed": COMPLEX.conj().permute(1, 2, 0),
    "negated": COMPLEX.conj().imag,
    "negated and conjugated": torch._neg_view(COMPLEX).conj(),
    "0-d": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "empty, strided": torch.zeros(4, 0)[::2],
    "offset": FLOATS.reshape(-1)[7:31],
    "requires grad": torch.ones(3, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.ones(3, 2).t()),
    "channels last": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
}


def plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = plain(one), plain(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return not one.numel() or torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_saved_by_value(tmp_path, layout):
    tensor = LAYOUTS[layout]
    paths = [tmp_path / "m.safetensors"] + ([] if tensor.is_complex() else [tmp_path / "m.bpk"])
    for path in paths:
        wt.save_file({"t": tensor}, path)
        for backend in ("mmap", "pread"):
            assert same(wt.load_file(path, backend=backend)["t"], tensor)
    assert same(wt.load(wt.save({"t": tensor}))["t"], tensor)


TYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
]
TYPES += [
    "float64",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]
TYPES += ["float4_e2m1fn_x2"]


@pytest.mark.parametrize("name", TYPES)
def test_types(tmp_path, name):
    dtype = getattr(torch, name)
    if name == "float4_e2m1fn_x2":
        tensor = torch.arange(12, dtype=torch.uint8).reshape(3, 4).view(dtype)
    else:
        tensor = torch.ones(3, 4).to(dtype)
    path = tmp_path / "m.safetensors"
    wt.save_file({"t": tensor, "transposed": tensor.t().clone() if name == "bool" else tensor.clone().t()}, path)
    for backend in ("mmap", "pread"):
        loaded = wt.load_file(path, backend=backend)
        assert same(loaded["t"], tensor)
        assert loaded["transposed"].shape == (4, 3)
        with weightstore.open(path, backend=backend) as file:
            assert same(file["t"][1:].torch(), tensor[1:])
            target = torch.empty_like(tensor)
            file.load_into({"t": target})
            assert same(target, tensor)


def test_bytes_of_the_reference():
    reference = pytest.importorskip("safetensors.torch")
    tensors = {"b": FLOATS, "a": torch.ones(3, dtype=torch.bfloat16), "c": torch.zeros(2, 4, dtype=torch.float8_e4m3fn)}
    assert wt.save(tensors, {"format": "pt"}) == reference.save(tensors, {"format": "pt"})


def test_mapped_tensors_can_be_trained_and_leave_the_file_as_it_is(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({"w": torch.ones(100, 100)}, path)
    before = path.read_bytes()
    parameter = torch.nn.Parameter(wt.load_file(path)["w"])
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    parameter.sum().backward()
    optimizer.step()
    assert torch.equal(parameter, torch.zeros(100, 100))
    assert path.read_bytes() == before
    assert torch.equal(wt.load_file(path)["w"], torch.ones(100, 100))


def test_a_loaded_tensor_owns_no_more_than_itself(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({f"t{i}": torch.full((10,), float(i)) for i in range(100)}, path)
    for backend in ("mmap", "pread"):
        loaded = wt.load_file(path, backend=backend)
        assert loaded["t7"].untyped_storage().nbytes() == 40
        assert len(pickle.dumps(loaded["t7"])) < 2000
        wt.save_file(loaded, tmp_path / "again.safetensors")
        assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_reversed_slices_are_copies(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({"t": FLOATS}, path)
    handle = weightstore.open(path)["t"]
    assert torch.equal(handle[::-1, :, ::-2].torch(), FLOATS.flip(0)[:, :, [4, 2, 0]])
    assert torch.equal(handle[1, ..., -1].torch(), FLOATS[1, ..., -1])
    assert handle[0:0].torch().shape == (0, 4, 5)


def test_unaligned_data_is_copied():
    data = weightstore.numpy.save({"t": np.arange(4, dtype=np.float64)})
    length = int.from_bytes(data[:8], "little")
    odd = (length + 1).to_bytes(8, "little") + data[8 : 8 + length] + b" " + data[8 + length :]
    tensor = weightstore.open(odd)["t"].torch()
    assert tensor.data_ptr() % 8 == 0
    assert tensor.tolist() == [0, 1, 2, 3]


def test_tensors_that_share_memory_are_refused(tmp_path):
    base = torch.zeros(10)
    with pytest.raises(RuntimeError, match="'a', 'b', 'far'") as caught:
        # 'b' is inside 'a' and ends before 'far' begins: the sweep must not forget how far 'a' reaches.
        wt.save_file({"a": base, "b": base[1:2], "far": base[8:9], "other": torch.zeros(3)}, tmp_path / "m.safetensors")
    assert isinstance(caught.value, errors.SharedTensorsError)
    assert "other" not in str(caught.value)
    wt.save_file({"left": base[:5], "right": base[5:]}, tmp_path / "m.safetensors")
    wt.save_file({"e1": base[:0], "e2": base[:0], "all": base}, tmp_path / "m.safetensors")


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match="sparse"):
        wt.save_file({"t": torch.eye(3).to_sparse()}, path)
    with pytest.raises(RuntimeError, match="Cannot copy out of meta tensor"):
        wt.save_file({"t": torch.zeros(3, device="meta")}, path)
    with pytest.raises(ValueError, match="complex128"):
        wt.save_file({"t": torch.zeros(3, dtype=torch.complex128)}, path)
    with pytest.raises(ValueError, match="Expected a dict"):
        wt.save_file([torch.zeros(3)], path)
    assert not list(tmp_path.iterdir())


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(4, 6, bias=False)
        self.head = torch.nn.Linear(4, 6)
        self.head.weight = self.embed.weight


def test_models_with_tied_weights(tmp_path):
    path = tmp_path / "m.safetensors"
    model = Tied()
    with pytest.raises(RuntimeError, match=r"'embed\.weight', 'head\.weight'"):
        wt.save_file(model.state_dict(), path)
    metadata = {"k": "v"}
    wt.save_model(model, path, metadata)
    assert metadata == {"k": "v"}
    with weightstore.open(path) as file:
        assert file.keys() == ["embed.weight", "head.bias"]
        assert file.metadata == {"head.weight": "embed.weight", "k": "v"}
    for backend in ("mmap", "pread"):
        other = Tied()
        assert wt.load_model(other, path, backend=backend) == (set(), [])
        assert torch.equal(other.head.weight, model.head.weight)
        assert other.head.weight is other.embed.weight


def test_a_model_that_does_not_fit(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({"weight": torch.zeros(2, 3), "extra": torch.zeros(1)}, path)
    model = torch.nn.Linear(3, 2)
    with pytest.raises(RuntimeError, match=r'(?s)Missing.*"bias".*Unexpected.*"extra"'):
        wt.load_model(model, path)
    assert wt.load_model(model, path, strict=False) == ({"bias"}, ["extra"])


def test_aliases_without_a_whole_are_refused():
    base = torch.zeros(10)
    module = torch.nn.Module()
    module.a = torch.nn.Parameter(base[:6])
    module.b = torch.nn.Parameter(base[4:])
    with pytest.raises(RuntimeError, match="none of them covers"):
        wt.save_model(module, "never.safetensors")


def test_save_model_gathers_strided_tensors_unless_told_not_to(tmp_path):
    module = torch.nn.Module()
    module.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match=r"not contiguous: turned\..*save_model\(\.\.\., force_contiguous=True\)"):
        wt.save_model(module, path, force_contiguous=False)
    assert not path.exists()
    wt.save_model(module, path)
    assert torch.equal(wt.load_file(path)["turned"], module.turned)


def test_no_device_is_the_cpu(tmp_path):
    path, module = tmp_path / "m.safetensors", torch.nn.Linear(2, 3)
    wt.save_model(module, path)
    for backend in ("mmap", "pread"):
        assert torch.equal(wt.load_file(path, device=None, backend=backend)["weight"], module.weight)
    target = torch.nn.Linear(2, 3)
    assert wt.load_model(target, path, device=None) == (set(), [])
    assert torch.equal(target.weight, module.weight)


def storages() -> dict[str, torch.Tensor]:
    memory = torch.arange(12.0)
    tensors = {"whole": memory, "part": memory[3:5], "expanded": memory[:1].expand(4), "empty": torch.zeros(0)}
    tensors |= {"meta": torch.zeros(5, device="meta"), "parameter": torch.nn.Parameter(memory.clone())}
    return tensors


@pytest.mark.parametrize("name", storages())
def test_storages_as_the_reference_sees_them(name):
    reference = pytest.importorskip("safetensors.torch")
    tensor = storages()[name]
    assert wt.storage_ptr(tensor) == reference.storage_ptr(tensor)
    assert wt.storage_size(tensor) == reference.storage_size(tensor)


def test_storages():
    made = storages()
    assert wt.storage_ptr(made["part"]) == wt.storage_ptr(made["whole"]) == made["whole"].data_ptr()
    assert wt.storage_size(made["part"]) == wt.storage_size(made["expanded"]) == 48
    assert (wt.storage_ptr(made["meta"]), wt.storage_size(made["meta"])) == (0, 20)
    sparse = torch.eye(3).to_sparse()
    assert wt.storage_ptr(sparse) == 0
    with pytest.raises(NotImplementedError):
        wt.storage_size(sparse)


def test_load_into(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({"a": FLOATS, "b": FLOATS.reshape(12, 5).clone(), "c": COMPLEX}, path)
    parameter = torch.nn.Parameter(torch.zeros(3, 4, 5))
    transposed = torch.zeros(5, 12).t()
    conjugated = torch.zeros(3, 4, 5, dtype=torch.complex64).conj()
    seen = []
    with weightstore.open(path) as file:
        file.load_into({"a": parameter, "b": transposed, "c": conjugated}, progress=lambda *args: seen.append(args))
    assert torch.equal(parameter, FLOATS)
    assert torch.equal(transposed, FLOATS.reshape(12, 5))
    assert torch.equal(conjugated, COMPLEX)
    assert seen[-1][0] == seen[-1][1] == 240 + 240 + 480


def test_load_into_is_seen_by_autograd(tmp_path):
    path = tmp_path / "m.safetensors"
    wt.save_file({"a": torch.ones(3)}, path)
    target = torch.ones(3)
    weight = torch.ones(3, requires_grad=True)
    product = (target * weight).sum()
    weightstore.open(path).load_into({"a": target})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (torch.zeros(3, 4, 5, dtype=torch.float64), "float64"),
        (torch.zeros(5, 4, 3), "shape"),
        (torch.zeros(3, 4, 5, device="meta"), "meta"),
    ],
)
def test_load_into_checks(tmp_path, target, says):
    path = tmp_path / "m.safetensors"
    wt.save_file({"a": FLOATS}, path)
    with pytest.raises(ValueError, match=says):
        weightstore.open(path).load_into({"a": target})


def test_burnpack_ids_and_scalars(tmp_path):
    path = tmp_path / "m.bpk"
    wt.save_file({"w": FLOATS}, path, param_ids={"w": 77}, scalars={"step": 12})
    with weightstore.open(path) as file:
        assert file["w"].param_id == 77
        assert file.scalars == {"step": 12}
        assert torch.equal(file["w"].torch(), FLOATS)


def test_types_torch_lacks(write_raw):
    file = weightstore.open(write_raw({"f6": ("F6_E3M2", (4,), b"abc"), "odd": ("F4", (2, 3), b"abc")}))
    with pytest.raises(TypeError, match=r"\.bytes\(\)"):
        file["f6"].torch()
    for read in (file["odd"].torch, file["odd"].__dlpack__, lambda: file.load(["odd"], "torch")):
        with pytest.raises(errors.InvalidArgument, match=r"'odd'.*is odd.*\.bytes\(\)") as caught:
            read()
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, BufferError)


def test_wide_booleans(write_raw):
    data = write_raw({"t": ("BoolU32", (2,), bytes([1, 0, 0, 0, 0, 0, 0, 0]))}, "burnpack", burn="0.21")
    assert weightstore.open(data)["t"].torch().tolist() == [True, False]
    assert weightstore.open(data).load(framework="torch")["t"].tolist() == [True, False]
