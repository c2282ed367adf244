"""`_core.FORMATS`: what the package knows about formats."""

from __future__ import annotations

import pytest

from weightstore import _core

FORMATS = {format.name: format for format in _core.FORMATS}


def test_every_format_is_described():
    assert set(FORMATS) == {"safetensors", "safetensors index", "burnpack", "gguf", "pytorch", "numpy"}
    for format in _core.FORMATS:
        assert format.title
        assert all(ending.startswith(".") and ending == ending.lower() for ending in format.endings)
        assert set(format.dtypes) <= set(_core.DTYPES)
        assert repr(format) == f"<Format {format.name}>"


def test_what_formats_hold():
    assert {name for name, format in FORMATS.items() if format.writable} == {
        "safetensors",
        "safetensors index",
        "burnpack",
        "gguf",
    }
    assert [name for name, format in FORMATS.items() if format.is_index] == ["safetensors index"]
    assert [name for name, format in FORMATS.items() if format.has_scalars] == ["burnpack"]
    assert [name for name, format in FORMATS.items() if format.has_param_ids] == ["burnpack"]
    assert [name for name, format in FORMATS.items() if format.has_typed_metadata] == ["gguf"]
    assert "C64" in FORMATS["safetensors"].dtypes
    assert "Q4_K" in FORMATS["gguf"].dtypes
    assert not any(set(_core.BLOCKS) & set(format.dtypes) for name, format in FORMATS.items() if name != "gguf")
    assert "C64" not in FORMATS["burnpack"].dtypes
    assert FORMATS["safetensors"].renamed_dtypes == {"Flex32": "F32", "BoolU8": "BOOL"}
    assert FORMATS["burnpack"].renamed_dtypes == {}


def test_endings_ask_for_formats():
    for name, format in FORMATS.items():
        for ending in format.endings:
            if format.writable and not format.is_index:
                assert _core.format_of_name("model" + ending) == name
            else:
                with pytest.raises(ValueError, match=r"use \.bpk or \.gguf or \.safetensors"):
                    _core.format_of_name("model" + ending)


def test_formats_come_from_the_core_alone():
    with pytest.raises(TypeError):
        _core.Format()
    with pytest.raises(AttributeError):
        FORMATS["burnpack"].title = "another"
