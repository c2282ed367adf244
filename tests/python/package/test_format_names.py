"""What the package knows about formats is what the core's registry says."""

import io
from contextlib import redirect_stdout

import pytest

from weightstore import _core, errors
from weightstore._cli.main import main
from weightstore._files.formats import FORMATS, INDEX, endings, format_to_save, format_to_write, title_of
from weightstore.stores import FileStore
from weightstore.stores._reading import store_of


def test_every_format_has_a_title_and_endings():
    assert list(FORMATS) == [format.name for format in _core.FORMATS]
    for name, format in FORMATS.items():
        assert title_of(name) == format.title
        assert all(ending.startswith(".") and ending == ending.lower() for ending in format.endings)


def test_names_lead_to_the_format_that_writes_them():
    for name, format in FORMATS.items():
        for ending in format.endings:
            path = f"folder.with.dots/model{ending.upper()}"
            if format.writable:
                assert format_to_write(path) == format_to_save(path) == name
                continue
            for function in (format_to_write, format_to_save):
                with pytest.raises(errors.InvalidArgument, match=r"does not write.*\.safetensors"):
                    function(path)
    assert format_to_save("folder.pt/model") == format_to_save("\udcff") == "safetensors"
    assert format_to_write("\udcff.bpk") == "burnpack"
    with pytest.raises(errors.InvalidArgument, match="cannot tell the format"):
        format_to_write("folder.bpk/model")
    with pytest.raises(errors.InvalidArgument, match="cannot tell the format"):
        format_to_write("\udcff")


def test_every_format_has_a_store():
    for name in FORMATS:
        if name == INDEX:
            continue
        assert store_of(name)._format in (name, "")
    assert store_of("a format of tomorrow") is FileStore


def test_errors_about_a_file_of_any_format():
    for name in [*FORMATS, "a format of tomorrow"]:
        error = errors.make("corrupt", "no good", format=name)
        assert isinstance(error, errors.FormatError)
        assert isinstance(errors.placed(errors.make("corrupt", "no good"), name), errors.FormatError)
    assert isinstance(errors.make("corrupt", "no good", format=INDEX), errors.SafetensorsError)
    assert type(errors.make("corrupt", "no good", format="a format of tomorrow")) is errors.FormatError


def test_the_help_of_the_command_names_all_endings():
    printed = io.StringIO()
    with redirect_stdout(printed), pytest.raises(SystemExit):
        main(["convert", "--help"])
    text = " ".join(printed.getvalue().split())
    for format in FORMATS.values():
        assert all(ending in text for ending in format.endings)
    assert endings(writable=True) in text
