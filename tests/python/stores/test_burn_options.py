"""Stores do what Burn's stores do with the same options, but for the differences that docs/stores.md lists."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support import burn_options
from support.burn_differences import SHOWN, UNCOMPARED, compare
from support.burn_options import configurations, outcome

PAGE = Path(__file__).parents[3] / "docs" / "stores.md"


def documented() -> set[str]:
    """The first column of the table of differences."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## Differences from burn-store\n")
    return set(re.findall(r"^\| ([^|]+) \|", section.partition("\nOther releases")[0], re.MULTILINE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("burn")
    burn_options.make_files(made)
    return made


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
