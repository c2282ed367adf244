"""save_pretrained and from_pretrained of transformers: whole and sharded, tied, float32 and bfloat16."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
import transformers
from tiny_models import INPUT, MODELS, another, entry, llama, same

import weightstore
import weightstore.torch
from weightstore import BurnpackStore, SafetensorsStore, load_from, save_into

SHARD_SIZES = [None, "20KB"]


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def save_pretrained(model, directory, shard_size):
    model.save_pretrained(directory, **({} if shard_size is None else {"max_shard_size": shard_size}))
    assert (directory / "model.safetensors.index.json").exists() == (shard_size is not None)
    return entry(directory)


# ---- what transformers wrote -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_from_pretrained_of_save_pretrained(tmp_path, model, shard_size):
    save_pretrained(model, tmp_path, shard_size)
    loaded = type(model).from_pretrained(tmp_path, dtype="auto")
    same(loaded.state_dict(), model.state_dict())
    assert loaded.dtype == model.dtype


@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_load_file(tmp_path, model, shard_size):
    path = save_pretrained(model, tmp_path, shard_size)
    state = model.state_dict()
    for backend in ("mmap", "pread"):
        found = weightstore.torch.load_file(path, backend=backend)
        same(found, {name: state[name] for name in found})
    with weightstore.open(path) as file:
        assert sorted(found) == file.keys()


@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_load_from(tmp_path, model, shard_size):
    path, target = save_pretrained(model, tmp_path, shard_size), another(model)
    result = load_from(target, SafetensorsStore.from_file(path))
    assert not result.missing
    assert not result.unused
    same(target.state_dict(), model.state_dict())


@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_files_written_again_have_the_same_bytes(tmp_path, model, shard_size):
    save_pretrained(model, tmp_path, shard_size)
    for path in tmp_path.glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata()
        weightstore.torch.save_file(weightstore.torch.load_file(path), tmp_path / "again", metadata)
        assert (tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_convert_and_back(tmp_path, model, shard_size):
    path = save_pretrained(model, tmp_path, shard_size)
    weightstore.convert(path, tmp_path / "other.bpk")
    weightstore.convert(tmp_path / "other.bpk", tmp_path / "back.safetensors")
    same(weightstore.torch.load_file(tmp_path / "back.safetensors"), weightstore.torch.load_file(path))


# ---- what weightstore wrote ------------------------------------------------------------------------------------------


def by_store(model, path, shard_size, **options):
    store = SafetensorsStore.from_file(path)
    for name, value in options.items():
        store = getattr(store, name)(value)
    save_into(model, store if shard_size is None else store.max_shard_size(shard_size))


def by_save_file(model, path, shard_size):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weightstore.torch.save_file(state, path, {"format": "pt"}, max_shard_size=shard_size)


def by_save_file_with_checksums(model, path, shard_size):
    """Without metadata of the caller's: the checksums are metadata, too, and readers then want a format."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weightstore.torch.save_file(state, path, checksums=True, max_shard_size=shard_size)


def by_convert_of_burnpack(model, path, shard_size):
    save_into(model, BurnpackStore.from_file(path.parent / "model.bpk"))
    convert(path.parent / "model.bpk", path, shard_size)


def by_convert(model, path, shard_size):
    model.save_pretrained(path.parent / "stock")
    convert(path.parent / "stock" / "model.safetensors", path, shard_size)


def by_convert_of_torch_save(model, path, shard_size):
    torch.save(model.state_dict(), path.parent / "state.pt")
    convert(path.parent / "state.pt", path, shard_size)


def convert(source, path, shard_size):
    if shard_size is None:
        weightstore.convert(source, path)
    else:
        weightstore.convert(source, f"{path}.index.json", max_shard_size=shard_size)


WRITERS = {
    "store": by_store,
    "store with checksums": lambda *given: by_store(*given, checksums=True),
    "save_file": by_save_file,
    "save_file with checksums": by_save_file_with_checksums,
    "convert": by_convert,
    "convert of a Burnpack store": by_convert_of_burnpack,
    "convert of torch.save": by_convert_of_torch_save,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_from_pretrained_of_ours(tmp_path, model, writer, shard_size):
    model.config.save_pretrained(tmp_path)
    WRITERS[writer](model, tmp_path / "model.safetensors", shard_size)
    loaded, told = type(model).from_pretrained(tmp_path, dtype="auto", output_loading_info=True)
    same(loaded.state_dict(), model.state_dict())
    assert not told["missing_keys"]
    assert not told["mismatched_keys"]


@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_logits_after_from_pretrained_of_ours(tmp_path, shard_size):
    model = llama()
    model.config.save_pretrained(tmp_path)
    by_store(model, tmp_path / "model.safetensors", shard_size)
    loaded = type(model).from_pretrained(tmp_path)
    assert torch.equal(loaded(INPUT).logits, model(INPUT).logits)


# ---- verbs for models ------------------------------------------------------------------------------------------------

VERBS = {"in place": safetensors.torch, "weightstore": weightstore.torch}


@pytest.mark.parametrize("reader", VERBS)
@pytest.mark.parametrize("writer", VERBS)
def test_save_model_and_load_model(tmp_path, model, writer, reader):
    path, target = tmp_path / "m.safetensors", another(model)
    VERBS[writer].save_model(model, path)
    missing, unexpected = VERBS[reader].load_model(target, path)
    assert not missing
    assert not unexpected
    same(target.state_dict(), model.state_dict())


def values_after_from_pretrained(model, directory):
    loaded = type(model).from_pretrained(directory, dtype="auto").state_dict()
    return {name: tensor for name, tensor in loaded.items() if not tensor.is_meta}


@pytest.mark.parametrize("shard_size", SHARD_SIZES)
def test_from_pretrained_of_save_model(tmp_path, model, shard_size):
    """transformers 4 gives no values to the tied weights of some models here, whoever saved them."""
    for name in ("theirs", "ours"):
        model.config.save_pretrained(tmp_path / name)
    metadata, state = {"format": "pt"}, model.state_dict()
    safetensors.torch.save_model(model, tmp_path / "theirs" / "model.safetensors", metadata)
    weightstore.torch.save_model(model, tmp_path / "ours" / "model.safetensors", metadata, max_shard_size=shard_size)
    expected = values_after_from_pretrained(model, tmp_path / "theirs")
    found = values_after_from_pretrained(model, tmp_path / "ours")
    same(found, expected)
    same(found, {name: state[name] for name in found})
    assert transformers.__version__.startswith("4.") or found.keys() == state.keys()


# ---- slices ----------------------------------------------------------------------------------------------------------


class Mesh:
    """Two devices, as far as slicing asks."""

    def size(self, *_):
        return 2

    def get_local_rank(self, *_):
        return 0


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("opener", ["in place", "weightstore"])
def test_packed_weights_of_tensor_parallel_models(tmp_path, opener, dim):
    """transformers 4 indexes slices with lists here."""
    tensor_parallel = pytest.importorskip("transformers.integrations.tensor_parallel")
    if not hasattr(tensor_parallel, "get_packed_weights"):
        pytest.skip("transformers 5 has no get_packed_weights")
    weight = torch.arange(64.0).reshape(8, 8)
    safetensors.torch.save_file({"gate_up": weight}, tmp_path / "m.safetensors")
    opening = {"in place": safetensors.safe_open, "weightstore": weightstore.safe_open}[opener]
    with opening(tmp_path / "m.safetensors", framework="pt") as file:
        found = tensor_parallel.get_packed_weights(file.get_slice("gate_up"), torch.empty(8, 8), Mesh(), 0, dim)
    picked = torch.tensor([0, 1, 4, 5])
    assert torch.equal(found, weight.index_select(dim, picked))
