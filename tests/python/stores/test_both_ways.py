"""Modules that are saved and loaded in one call, and one tensor at a time: the same files, results and errors."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from support.stores import KINDS, both  # noqa: E402
from weightstore import BurnpackStore, SafetensorsStore, load_from, param_ids, set_param_ids  # noqa: E402
from weightstore._modules.places import gather, places_of  # noqa: E402
from weightstore._tensors import batches  # noqa: E402

nn = torch.nn


def each_way(call):
    """What a call returns or raises, together and one by one."""
    found = []
    for left in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches, "leaves_all_to_python", left)
            try:
                found.append(call())
            except Exception as error:
                result, replaced = getattr(error, "result", None), getattr(error, "replaced", None)
                found.append((type(error), str(error), getattr(error, "tensor", None), fields(result), replaced))
    return found


def fields(result):
    if result is None:
        return None
    errors = [(type(error), error.path, str(error)) for error in result.errors]
    return result.applied, result.skipped, result.missing, result.unused, errors


class Leaf(nn.Module):
    def __init__(self, sizes: list[int], dtype: torch.dtype) -> None:
        super().__init__()
        for number, size in enumerate(sizes):
            self.register_parameter(f"p{number}", nn.Parameter(torch.randn(size, 2).to(dtype)))
        self.register_parameter("none", None)
        self.register_buffer("count", torch.tensor(len(sizes)))
        self.register_buffer("scratch", torch.ones(2), persistent=False)


@st.composite
def modules(draw):
    leaves = draw(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
    module = nn.ModuleDict({"list": nn.ModuleList(Leaf(sizes, torch.float32) for sizes in leaves)})
    if draw(st.booleans()):
        module["again"] = module["list"][0]  # tied
    if draw(st.booleans()):
        module["turned"] = nn.Linear(2, 3).requires_grad_(False)
        module["turned"].weight.data = module["turned"].weight.data.t()
    return module


def test_gathering_finds_the_places():
    module = nn.Sequential(
        Leaf([1, 2], torch.float32), nn.BatchNorm1d(2), nn.ModuleDict({"a": Leaf([], torch.float16)})
    )
    gathered, places = gather(module), places_of(module)
    assert gathered.paths == [place.path for place in places]
    assert all(value is place.value for value, place in zip(gathered.values, places, strict=True))
    assert gathered.owners == [(place.owner, place.key) for place in places]
    assert gather({"a": 1, 2: 3}) is None
    assert gather([1]) is None


def changed(module: nn.Module, change: str) -> nn.Module:
    made = copy.deepcopy(module)
    first = made["list"][0]
    if change == "shape":
        first.register_parameter("p0", nn.Parameter(torch.zeros(7)))
    elif change == "type":
        made.double()
    elif change == "missing":
        first.register_parameter("extra", nn.Parameter(torch.zeros(1)))
    elif change == "unused":
        first.register_buffer("count", None)
    elif change == "strided":
        for parameter in made.parameters():
            parameter.data = parameter.data.t().contiguous().t()
    elif change == "meta":
        made.to_empty(device="meta")
    elif change == "freed":
        first.count.untyped_storage().resize_(0)
    elif change == "inference":
        with torch.inference_mode():
            for name, parameter in list(first._parameters.items()):
                if parameter is not None:
                    first._parameters[name] = nn.Parameter(torch.zeros_like(parameter), requires_grad=False)
    return made


CHANGES = ["none", "shape", "type", "missing", "unused", "strided", "meta", "freed", "inference"]


@given(modules(), st.sampled_from(KINDS), st.sampled_from(CHANGES), st.booleans(), st.sampled_from([None, "strict"]))
@settings(max_examples=120, deadline=None)
def test_both_ways_agree(module, kind, change, partial, policy):
    set_param_ids(module, {"list.0.count": 77})

    def save():
        store = kind.from_bytes(None)
        store.collect_from(module)
        return store.get_bytes()

    one, other = each_way(save)
    assert one == other
    if not isinstance(one, bytes):
        return

    def load():
        target = changed(module, change)
        # Nobody may touch the memory of a freed storage.
        state = {name: t for name, t in target.state_dict().items() if not (change == "freed" and "count" in name)}
        with torch.no_grad():
            for tensor in state.values():
                tensor.zero_()
        store = kind.from_bytes(one).allow_partial(partial).allow_unused(not partial)
        if policy is not None:
            store.dtype_policy(policy)
        result = fields(store.apply_to(target))
        found = {name: (tensor.dtype, tensor.tolist()) for name, tensor in target.state_dict().items() if name in state}
        return result, found, {path: given for path, given in param_ids(target).items() if given == 77}

    together, one_by_one = each_way(load)
    assert together == one_by_one


@both
def test_names_that_change_are_saved_alike(kind):
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    def save(configure):
        def call():
            store = configure(kind.from_bytes(None))
            store.collect_from(module)
            return store.get_bytes()

        return call

    for configure in (
        lambda store: store.with_key_remapping("weight", "w"),
        lambda store: store.with_key_remapping(r"^\d\.", ""),  # both layers get the same names: an error
        lambda store: store.with_top_level_key("model"),
        lambda store: store.metadata("a", "b").checksums(True),
        lambda store: store.clear_metadata(),
        lambda store: store.with_regex("weight"),
        lambda store: store.skip_enum_variants(True),
    ):
        one, other = each_way(save(configure))
        assert one == other


def test_tied_tensors_are_written_once():
    module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    module["b"].weight = module["a"].weight
    store = SafetensorsStore.from_bytes(None)
    store.collect_from(module)
    assert store.keys() == ["a.bias", "a.weight", "b.bias"]
    assert store.get_metadata()["b.weight"] == "a.weight"
    copies = BurnpackStore.from_bytes(None)
    copies.collect_from(module)
    assert len(copies.keys()) == 4


def test_a_progress_callback_that_fails_or_stops(tmp_path):
    module = nn.Linear(300, 300)
    store = SafetensorsStore.from_bytes(None)
    store.collect_from(module)

    def load(answer):
        def call():
            made = SafetensorsStore.from_bytes(store.get_bytes())
            return fields(made.progress(answer).apply_to(nn.Linear(300, 300)))

        return call

    def fail(done, total, name):
        raise ValueError("no more")

    seen: list[list[tuple[int, int]]] = []

    def note(done, total, name):
        seen[-1].append((done, total))

    for answer in (fail, lambda *_: False):
        one, other = each_way(load(answer))
        assert one == other

    def load_noted():
        seen.append([])
        return load(note)()

    each_way(load_noted)
    assert seen[0] == seen[1]


def test_a_snapshot_is_made_when_somebody_asks(monkeypatch, tmp_path):
    from weightstore.stores import _reading

    path = tmp_path / "m.safetensors"
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in range(5)))
    SafetensorsStore.from_file(path).collect_from(module)
    made = []

    class Noted(_reading.TensorSnapshot):
        __slots__ = ()

        def __init__(self, name, *args, **options):
            made.append(name)
            super().__init__(name, *args, **options)

    monkeypatch.setattr(_reading, "TensorSnapshot", Noted)
    store = SafetensorsStore.from_file(path)
    assert len(store.keys()) == 10
    load_from(module, store)
    assert made == []
    assert store.get_snapshot("1.bias") is store.get_snapshot("1.bias")
    assert made == ["1.bias"]
    assert store.get_snapshot("none") is None
    assert store.get_all_snapshots()["1.bias"] is store.get_snapshot("1.bias")
    assert list(store.get_all_snapshots()) == store.keys()
    assert len(made) == 10
