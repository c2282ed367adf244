"""Burnpack is written for the release of Burn that shall read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weightstore
from weightstore import BurnpackStore, _core, errors
from weightstore import numpy as wn
from weightstore._cli.main import main

PLAIN = b"edtypedBool"  # "dtype": "Bool"
NATIVE = b"edtype\xa1dBoolfNative"  # "dtype": {"Bool": "Native"}
MASK = {"b": np.array([True, False])}


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (None, NATIVE),
        ("0.20", PLAIN),
        ("0.20.1", PLAIN),
        ("0.21.0", NATIVE),
        ("0.22", NATIVE),
        ("0.23.0-pre.1", NATIVE),
    ],
)
def test_every_way_to_write_takes_a_release(tmp_path: Path, release: str | None, expected: bytes) -> None:
    wn.save_file(MASK, tmp_path / "saved.bpk", burn=release)
    wn.save_file(MASK, tmp_path / "b.safetensors")
    weightstore.convert(tmp_path / "b.safetensors", tmp_path / "converted.bpk", burn=release)
    option = [] if release is None else ["--burn", release]
    assert main(["convert", str(tmp_path / "b.safetensors"), str(tmp_path / "command.bpk"), *option]) == 0
    store = BurnpackStore.from_file(tmp_path / "store.bpk")
    (store if release is None else store.for_burn(release)).collect_from(MASK)
    for name in ("saved", "converted", "command", "store"):
        data = (tmp_path / f"{name}.bpk").read_bytes()
        assert expected in data
        assert weightstore.open(data)["b"].dtype == "BOOL"


@pytest.mark.parametrize("release", ["0.20", "0.21"])
def test_a_native_boolean_goes_out_as_its_source_has_it(tmp_path: Path, release: str) -> None:
    wn.save_file(MASK, tmp_path / "a.bpk", burn=release, param_ids={"b": 5})
    weightstore.convert(tmp_path / "a.bpk", tmp_path / "b.bpk")
    assert (tmp_path / "b.bpk").read_bytes() == (tmp_path / "a.bpk").read_bytes()
    copy = BurnpackStore.from_bytes(None).clear_metadata()
    copy.collect_from(BurnpackStore.from_file(tmp_path / "a.bpk").get_all_snapshots())
    assert copy.get_bytes() == (tmp_path / "a.bpk").read_bytes()
    weightstore.convert(tmp_path / "a.bpk", tmp_path / "c.bpk", burn="0.23" if release == "0.20" else "0.20")
    assert (NATIVE if release == "0.20" else PLAIN) in (tmp_path / "c.bpk").read_bytes()


def test_of_several_sources_the_newest_release_counts(tmp_path: Path) -> None:
    wn.save_file(MASK, tmp_path / "old.bpk", burn="0.20")
    wn.save_file({"c": MASK["b"]}, tmp_path / "new.bpk", burn="0.21")
    both = BurnpackStore.from_bytes(None)
    both.collect_from(
        {**BurnpackStore.from_file(tmp_path / "old.bpk").get_all_snapshots(), **weightstore.open(tmp_path / "new.bpk")}
    )
    assert both.get_bytes().count(b"fNative") == 2


@pytest.mark.parametrize("release", ["", "0.19", "0.24", "1.0", "burn", "0.2"])
def test_other_releases_are_refused(tmp_path: Path, release: str) -> None:
    wn.save_file(MASK, tmp_path / "b.safetensors")
    with pytest.raises(errors.StoreError, match=r"'0\.20' to '0\.23'"):
        wn.save_file(MASK, tmp_path / "x.bpk", burn=release)
    with pytest.raises(errors.StoreError, match=r"'0\.20' to '0\.23'"):
        weightstore.convert(tmp_path / "b.safetensors", tmp_path / "x.bpk", burn=release)
    with pytest.raises(errors.StoreError, match=r"'0\.20' to '0\.23'"):
        BurnpackStore.from_bytes(None).for_burn(release)
    assert not (tmp_path / "x.bpk").exists()


def test_a_release_is_for_burnpack_only(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreError, match=r"\.bpk"):
        wn.save_file(MASK, tmp_path / "x.safetensors", burn="0.22")
    wn.save_file(MASK, tmp_path / "a.bpk")
    with pytest.raises(errors.StoreError, match=r"\.bpk"):
        weightstore.convert(tmp_path / "a.bpk", tmp_path / "x.safetensors", burn="0.22")
    with pytest.raises(TypeError, match="burn"):
        wn.save_file(MASK, tmp_path / "x.bpk", burn=0.22)  # type: ignore[arg-type]
    assert not (tmp_path / "x.safetensors").exists()


def test_a_type_that_the_release_lacks_is_refused_by_name(tmp_path: Path, write_raw) -> None:
    write_raw({"deep.b": ("BoolU32", (1,), b"\1\0\0\0")}, "burnpack", path=tmp_path / "a.bpk", burn="0.21")
    with pytest.raises(errors.BurnpackError, match="four bytes") as refused:
        weightstore.convert(tmp_path / "a.bpk", tmp_path / "x.bpk", burn="0.20")
    assert refused.value.tensor == "deep.b"
    assert not (tmp_path / "x.bpk").exists()


# ---- scalars ---------------------------------------------------------------------------------------------------------


def scalars_file(tmp_path: Path) -> Path:
    writer = _core.Writer()
    writer.set_scalar("step", 7, unsigned=True)
    writer.set_scalar("most", 2**64 - 1)
    writer.set_scalar("sign", 7)
    writer.set_scalar("below", -7)
    writer.set_scalar("rate", 0.5)
    writer.set_scalar("done", True)
    writer.write_file(tmp_path / "s.bpk", "burnpack")
    return tmp_path / "s.bpk"


def test_scalars_are_copied_as_they_were(tmp_path: Path) -> None:
    path = scalars_file(tmp_path)
    scalars = weightstore.open(path).scalars
    assert scalars == {"step": 7, "most": 2**64 - 1, "sign": 7, "below": -7, "rate": 0.5, "done": True}
    assert type(scalars["step"]) is int
    assert scalars.unsigned == {"step", "most"}
    wn.save_file({}, tmp_path / "copy.bpk", scalars=scalars)
    assert (tmp_path / "copy.bpk").read_bytes() == path.read_bytes()
    store = BurnpackStore.from_bytes(None).clear_metadata().scalars(BurnpackStore.from_file(path).get_scalars())
    store.collect_from({})
    assert store.get_bytes() == path.read_bytes()
    # The last one of a name counts.
    store.scalar("step", 7).scalar("sign", 7, unsigned=True).collect_from({})
    assert store.get_scalars().unsigned == {"most", "sign"}


def test_unsigned_scalars_are_whole_numbers_without_a_sign() -> None:
    with pytest.raises(errors.StoreError, match="step"):
        BurnpackStore.from_bytes(None).scalar("step", -1, unsigned=True).collect_from({})
    with pytest.raises(TypeError, match="step"):
        BurnpackStore.from_bytes(None).scalar("step", 1.0, unsigned=True).collect_from({})
