"""What Burn's stores and ours make of one configuration, compared but for the differences that docs/stores.md lists."""

from support.burn_options import torch_state, without_variants
from weightstore._modules.indices import contiguous_names


def skips_variants(config: dict) -> bool:
    return config.get("skip_enum", config["store"] == "pt")


# Differences for which a configuration is not compared at all, by the name that the table gives them.
UNCOMPARED = {
    "a filter that matches nothing": lambda config, ours: "the filter matches none" in ours.get("error", ""),
    "enum variants on both sides": lambda config, ours: (
        skips_variants(config)
        and config.get("file", "torch").split(".")[0] not in ("torch", "torch_nogaps", "checkpoint", "nested")
    ),
    "keys with dots": lambda config, ours: "." in config.get("top", ""),
    "renaming what is saved": lambda config, ours: (
        config["op"] == "save" and config["store"] == "bpk" and "remap" in config
    ),
    "predicates and saving": lambda config, ours: config["op"] == "save" and "predicate" in config,
}


def show_with_variants(config: dict, burn: dict, ours: dict) -> None:
    """Ours as Burn shows them."""
    if skips_variants(config) and config["op"] == "load":
        for key in ours.keys() & {"applied", "skipped", "missing"}:
            ours[key] = sorted(map(without_variants, ours[key]))
        for error in ours.get("errors", ()):
            error[1] = without_variants(error[1])


def show_numbers(config: dict, burn: dict, ours: dict) -> None:
    """Ours as Burn shows them."""
    if config["store"] == "pt" and "map_indices" not in config:
        for key in ours.keys() & {"unused", "keys"}:
            prefix = "model.state_dict." if config["file"] == "nested.pt" else ""
            prefix = prefix.removeprefix(config.get("top", "") + ".")
            names = contiguous_names([prefix + name for name in torch_state()])
            ours[key] = sorted(names.get(name, name) for name in ours[key])


# Differences in how things are shown.
SHOWN = {"variants in results": show_with_variants, "numbers in lists": show_numbers}


def compare(config: dict, burn: dict, ours: dict) -> str | None:
    """The name of the difference that keeps the two from being compared, if there is one. Raises if they are not equal."""
    if "error" in burn and "error" in ours:
        return None
    for name, applies in UNCOMPARED.items():
        if applies(config, ours):
            assert name != "a filter that matches nothing" or not (burn.get("applied") or burn.get("saved"))
            return name
    for show in SHOWN.values():
        show(config, burn, ours)
    assert ours == {key: sorted(value) for key, value in burn.items()}
    return None
