"""Stores do what Burn's stores do with the same options, but for the differences that docs/stores.md lists."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support import burn_options
from support.burn_options import configurations, outcome, without_variants
from weightstore._modules.indices import contiguous_names

PAGE = Path(__file__).parents[3] / "docs" / "stores.md"


def documented() -> set[str]:
    """The first column of the table of differences."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## Differences from burn-store\n")
    return set(re.findall(r"^\| ([^|]+) \|", section.partition("\nOther releases")[0], re.MULTILINE))


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
            names = contiguous_names([prefix + name for name in burn_options.torch_state()])
            ours[key] = sorted(names.get(name, name) for name in ours[key])


# Differences in how things are shown.
SHOWN = {"variants in results": show_with_variants, "numbers in lists": show_numbers}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("burn")
    burn_options.make_files(made)
    return made


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


@pytest.mark.parametrize("config", configurations(), ids=lambda config: config["id"])
def test_as_in_burn(config, folder):
    compare(config, config["burn"], outcome(config, folder))


@pytest.mark.parametrize("config", [c for c in configurations() if c["op"] == "load"], ids=lambda config: config["id"])
def test_as_in_burn_0_23(config, folder):
    compare(config, config.get("burn_0.23", config["burn"]), outcome(config, folder, filter_missing=True))


def test_every_difference_is_documented_and_occurs(folder):
    names = {*UNCOMPARED, *SHOWN}
    assert names <= documented()
    found = {compare(config, config["burn"], outcome(config, folder)) for config in configurations()}
    assert set(UNCOMPARED) <= found


def test_the_comparison_tells_results_apart(folder):
    config = next(c for c in configurations() if c["op"] == "load" and c["burn"].get("applied"))
    changed = {**config["burn"], "applied": config["burn"]["applied"][1:]}
    with pytest.raises(AssertionError):
        compare(config, changed, outcome(config, folder))
