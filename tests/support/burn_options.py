"""Options of stores as data: the same configuration for Burn's stores and for ours, and the names that come out.

A configuration is a dict: "op" (load, save, keys), "store" (bpk, st, pt), "file" (see make_files), and the options by name. What
comes out is a dict as well: the lists of a load's result, the names that were saved or the keys; or {"error": ...}.
"""

import json
import os
import tempfile
from pathlib import Path
from random import Random

import torch
from torch import nn

import weightstore
import weightstore.torch
from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    FloatCastAdapter,
    HalfPrecisionAdapter,
    KeyRemapper,
    PytorchStore,
    PyTorchToBurnAdapter,
    SafetensorsStore,
    load_from,
    save_into,
)

DATA = Path(__file__).parents[1] / "interop" / "burn" / "options.json"


def configurations() -> list[dict]:
    """Each has "burn", what Burn 0.22 says; and "burn_0.23" where that says something else."""
    return json.loads(DATA.read_text(encoding="utf-8"))


REGEXES = [
    r"^fc\.",
    "weight$",
    r"\.1\.",
    "norm",
    r"^blocks\.[02]",
    "Conv",
    "^(bn|scale)",
    "bias|beta",
    "^$",
    r"\.act\.",
    "gamma",
    "depth$",
]
PATHS = ["scale", "fc.0.bias", "head.weight", "head.BaseConv.weight", "blocks.1.act.point.bias", "nowhere"]
RULES = [
    [r"^model\.", ""], [r"^stem\.", "trunk."], [r"^trunk\.", "stem."], [r"^fc\.(\d)\.", "fc.$1.x."], [r"(\w+)\.bias$", "${1}.b"],
    [r"\.BaseConv", ""], ["e", "E"], [r"^blocks\.0\.", "blocks.5."], ["$", ""], [r"^fc\.", "fc.3."], [r"(\d+)", "1$0"],
]  # fmt: skip
KEPT = ["^fc$", "blocks", "^blocks$", r"^fc\.", "^$"]
FILES = {
    "bpk": ["p", "partial", "bad", "prefix", "torch", "kinds", "half"],
    "st": ["p", "partial", "bad", "prefix", "torch", "torch_nogaps", "kinds", "half"],
    "pt": ["torch", "torch_nogaps", "checkpoint"],
}


def random_configurations(count: int, seed: int) -> list[dict]:
    """Configurations in which the two sides should agree, without those of which the documentation says otherwise."""
    random = Random(seed)
    made = []
    for i in range(count):
        store = random.choice(["bpk", "st", "st", "pt"])
        op = random.choice(["load", "load", "load", "keys", "load" if store == "pt" else "save"])
        config: dict = {"id": f"random {i}", "op": op, "store": store}
        config |= {"partial": random.random() < 0.8, "validate": random.random() < 0.3}
        for option, values, often in (("regex", REGEXES, 0.5), ("full_paths", PATHS, 0.3), ("remap", RULES, 0.4)):
            if random.random() < often:
                config[option] = random.sample(values, random.randint(1, 2))
        if store != "bpk":
            config["map_indices"] = random.random() < 0.5
            config["skip_enum"] = random.random() < 0.5
            if random.random() < 0.3:
                config["map_indices_except"] = random.sample(KEPT, random.randint(1, 2))
            if random.random() < 0.3 and op != "save":
                config["predicate"] = [random.choice(list(PREDICATES))]
        if store != "pt" and random.random() < 0.4:
            config["adapter"] = "torch"
        if op == "save" and (store == "bpk" or "adapter" in config):
            for option in ("remap", "regex", "full_paths"):
                config.pop(option, None)
        if op != "save":
            name = random.choice(FILES[store])
            config["file"] = f"{name}.{ENDINGS[store]}"
            if name == "checkpoint":
                config["top"] = "model"
            if config.get("skip_enum") and name not in ("torch", "torch_nogaps", "checkpoint"):
                config["skip_enum"] = False
        made.append(config)
    return made


# ---- a module as Burn would have it, with Burn's names and layouts -----------------------------------------------------


def parameter(*shape):
    return nn.Parameter(torch.randn(shape))


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = parameter(inputs, outputs)
        self.bias = parameter(outputs)


class LayerNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gamma = parameter(size)
        self.beta = parameter(size)


class BatchNorm(LayerNorm):
    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))


class Embedding(nn.Module):
    def __init__(self, count, size):
        super().__init__()
        self.weight = parameter(count, size)


class Dws(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = Linear(2, 2)
        self.point = Linear(2, 2)


class Block(nn.Module):
    def __init__(self, inputs, outputs, act):
        super().__init__()
        self.lin = Linear(inputs, outputs)
        self.norm = LayerNorm(outputs)
        self.act = nn.ModuleDict(act)  # an enum: the variant is the key


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Linear(3, 4)
        self.fc = nn.ModuleList([Linear(4, 4), Linear(4, 4), Linear(4, 2)])
        self.blocks = nn.ModuleList([Block(2, 3, {"BaseConv": Linear(3, 3)}), Block(3, 2, {"DwsConv": Dws()})])
        self.bn = BatchNorm(4)
        self.head = nn.ModuleDict({"BaseConv": Linear(2, 2)})
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.emb = Embedding(5, 2)


VARIANTS = (".BaseConv", ".DwsConv")


def without_variants(name: str) -> str:
    for variant in VARIANTS:
        name = name.replace(variant, "")
    return name


def torch_state(gaps: bool = True) -> dict[str, torch.Tensor]:
    """The same model as PyTorch would have it: other names and layouts, no enum variants; with gaps between layers."""
    state = {}
    for path, value in Net().state_dict().items():
        name = without_variants(path).replace(".gamma", ".weight").replace(".beta", ".bias")
        owner, *rest = name.split(".")
        if gaps and owner == "fc":
            rest[0] = str(2 * int(rest[0]))
        if gaps and owner == "blocks":
            rest[0] = str(2 * int(rest[0]) + 1)
        transposed = path.endswith(".weight") and owner != "emb"
        state[".".join([owner, *rest])] = value.t().contiguous() if transposed else value.clone()
    state["bn.num_batches_tracked"] = torch.tensor(5)
    return state


def make_files(folder: Path) -> None:
    """The files that configurations name."""
    state = Net().state_dict()
    partial = {name: value for name, value in state.items() if name not in ("emb.weight", "stem.bias")}
    partial["unknown.weight"] = torch.ones(2)
    bad = state | {"fc.1.weight": torch.ones(4, 5), "blocks.0.norm.gamma": torch.ones(9), "scale": torch.ones(2, 1)}
    kinds = state | {"emb.weight": state["emb.weight"].double()}
    kinds |= {name: (10 * state[name]).int() for name in ("scale", "stem.bias")}
    states = {
        "p": state,
        "partial": partial,
        "bad": bad,
        "prefix": {f"model.{name}": value for name, value in state.items()},
        "torch": torch_state(),
        "torch_nogaps": torch_state(gaps=False),
        "half": {name: value.half() for name, value in state.items()},
        "kinds": kinds,
    }
    for name, tensors in states.items():
        weightstore.torch.save_file(tensors, folder / f"{name}.safetensors")
        BurnpackStore.from_file(folder / f"{name}.bpk").collect_from(dict(tensors))
    torch.save(torch_state(), folder / "torch.pt")
    torch.save(torch_state(gaps=False), folder / "torch_nogaps.pt")
    torch.save({"model": torch_state(), "epoch": 1}, folder / "checkpoint.pt")
    torch.save({"model": {"state_dict": torch_state()}, "epoch": 1}, folder / "nested.pt")


# ---- one configuration, with our stores --------------------------------------------------------------------------------

PREDICATES = {
    "linear": lambda path, container: container.endswith("Linear"),
    "norm_path": lambda path, container: "norm" in path,
    "deep": lambda path, container: path.count(".") >= 3,
    "block": lambda path, container: "Block" in container,
    "layernorm": lambda path, container: "LayerNorm" in container,
    "never": lambda path, container: False,
    "weights": lambda path, container: path.endswith("weight") and not container.endswith("Embedding"),
}
STORES = {"bpk": BurnpackStore, "st": SafetensorsStore, "pt": PytorchStore}
ENDINGS = {"bpk": "bpk", "st": "safetensors", "pt": "pt"}


def store_of(config: dict, path: Path):
    store = STORES[config["store"]].from_file(path)
    for pattern in config.get("regex", []):
        store.with_regex(pattern)
    for path in config.get("full_paths", []):
        store.with_full_path(path)
    if config.get("match_all"):
        store.match_all()
    if "remapper" in config:
        store.remap(KeyRemapper.from_patterns(config["remapper"]))
    if "regexes" in config:
        store.with_regexes(config["regexes"])
    if "many_paths" in config:
        store.with_full_paths(config["many_paths"])
    for name in config.get("predicate", []):
        store.with_predicate(PREDICATES[name])
    for pattern, replacement in config.get("remap", []):
        store.with_key_remapping(pattern, replacement)
    for option, method in (
        ("partial", "allow_partial"),
        ("validate", "validate"),
        ("skip_enum", "skip_enum_variants"),
        ("map_indices", "map_indices_contiguous"),
        ("top", "with_top_level_key"),
    ):
        if option in config:
            getattr(store, method)(config[option])
    for pattern in config.get("map_indices_except", []):
        store.map_indices_contiguous_except(pattern)
    half = HalfPrecisionAdapter()
    if config["store"] == "st" and config.get("adapter") == "half":
        half.with_module("BatchNorm").without_module("LayerNorm")
    to_adapter = {
        "torch": BurnToPyTorchAdapter(),
        "half": half,
        "torch half": BurnToPyTorchAdapter().chain(half),
        "bf16": FloatCastAdapter("BF16"),
    }.get(config.get("adapter"))
    if to_adapter is not None and config["store"] != "pt":
        store.with_to_adapter(to_adapter)
    if config.get("adapter") == "torch" or config["store"] == "pt":  # what Burn's PytorchStore always does
        store.with_from_adapter(PyTorchToBurnAdapter())
    return store


def outcome(config: dict, folder: Path, *, filter_missing: bool = False) -> dict:
    """What our stores make of a configuration."""
    try:
        if config["op"] == "save":
            with tempfile.TemporaryDirectory() as place:
                path = Path(place, "saved." + ENDINGS[config["store"]])
                save_into(Net(), store_of(config, path))
                with weightstore.open(path) as file:
                    return {"saved": sorted([name, list(file[name].shape), file[name].dtype] for name in file)}
        store = store_of(config, folder / config["file"]).filter_missing(filter_missing)
        if config["op"] == "keys":
            return {"keys": sorted(store.keys())}
        result = load_from(Net(), store)
    except weightstore.StoreError as error:
        return {"error": str(error).replace(os.fspath(folder), "")}
    kinds = {"ShapeMismatch": "shape", "DTypeMismatch": "dtype"}
    return {
        "applied": sorted(result.applied),
        "skipped": result.skipped,
        "missing": [str(name) for name in result.missing],
        "unused": result.unused,
        "errors": sorted([kinds[type(error).__name__], path] for path, error in result.errors),
    }
