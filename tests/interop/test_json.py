"""Our JSON against Python's, on generated values and on texts that parsers disagree about."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.values import MANY, TEXT, same
from weightstore import StoreError, _core

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXT,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXT, inner, max_size=5)),
    max_leaves=12,
)


@MANY
@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_decodes_what_python_encodes(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert same(_core.json_decode(text), value)


@MANY
@given(VALUES)
def test_python_decodes_what_we_encode(value):
    text = _core.json_encode(value)
    assert same(json.loads(text), value)
    assert same(_core.json_decode(text), value)


@MANY
@given(VALUES, st.data())
def test_damaged_text_is_refused_or_read_as_python_reads_it(value, data):
    text = bytearray(json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.one_of(st.sampled_from(list(b'{}[]",:\\0e-.ntfu \x00\x7f\xff')), st.integers(0, 255)))
    try:
        found = _core.json_decode(bytes(text))
    except StoreError:
        return
    expected = json.loads(bytes(text).decode(), parse_int=number, parse_constant=refuse)
    assert same(found, expected)


def number(digits: str) -> int | float:
    """An integer where 64 bits hold it, as ours are."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else float(digits)


def refuse(name: str) -> None:
    raise AssertionError(f"accepted {name}")


ACCEPTED = {
    "0": 0,
    "-0": 0,
    "-0.0": -0.0,
    " \t\r\n1 \n": 1,
    "18446744073709551615": 2**64 - 1,
    "-9223372036854775808": -(2**63),
    "18446744073709551616": 2.0**64,
    "-9223372036854775809": -(2.0**63),
    "1E+2": 100.0,
    "1e-400": 0.0,
    "-1e-400": -0.0,
    "1.7976931348623157e308": 1.7976931348623157e308,
    "0e999999999999": 0.0,
    "0.0000000001e310": 1e300,
    "123456789012345678901234567890": 1.2345678901234568e29,
    r'"\u0000\u001F\/\b\f\n\r\t\"\\"': '\0\x1f/\b\f\n\r\t"\\',
    r'"\ud83d\uDE00"': "\U0001f600",
    '"\x7f\u2028é\U0010ffff"': "\x7f\u2028é\U0010ffff",
    r'{"":{"":[]}}': {"": {"": []}},
    "[[],{},null,true,false]": [[], {}, None, True, False],
}

REFUSED = """
{ } [ ] , : {] [} [1,] [,1] [1,,2] [1 {"a":1,} {"a"} {"a":} {"a",1} {,} {a:1} {'a':1} {1:2} {"a":1 [1;2] nul nulll True
NaN Infinity -Infinity inf + - -- +1 01 -01 00 1. .1 -.1 1.e1 1e 1e+ 1e+- 0x10 1_000 1a 1e400 -1e400 1.8e308 0b1 ٣ 1/2
" "a "\\" "\\x" "\\u" "\\u12" "\\u12g4" "\\U0041" "\\ud800" "\\udc00" "\\ud800\\u0041" "\\udc00\\ud800" "\\ud800x" "\\'" "a"b
{"a":1}{} 1,2 []] {}} // /**/1 1// #1 'a' `a` "a":1 {"a":1,"a":2} {"a":1,"\\u0061":2} {"x":{"a":1,"a":2}}
""".split()


@pytest.mark.parametrize("text", ACCEPTED, ids=ascii)
def test_accepted(text):
    assert same(_core.json_decode(text.encode()), ACCEPTED[text])


@pytest.mark.parametrize(
    "text",
    [
        *(text.encode() for text in REFUSED),
        b"",
        b" ",
        b"1 2",
        b"tr ue",
        b'"\x1f"',
        b'"\n"',
        b'"\0"',
        b"\xef\xbb\xbf1",
        b"1\0",
        b"\x0c1",
        b"\xc2\xa01",
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xe2\x82"',
        b'"\xc3',
    ],
    ids=ascii,
)
def test_refused(text):
    with pytest.raises(StoreError):
        _core.json_decode(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_ends_at_127_levels(opening, closing):
    inner = "0" if closing == "}" else ""
    assert _core.json_decode((opening * 127 + inner + closing * 127).encode())
    for depth in (128, 1_000_000):
        with pytest.raises(StoreError, match="nested"):
            _core.json_decode((opening * depth + inner + closing * depth).encode())


@pytest.mark.parametrize("value", [b"bytes", math.nan, math.inf, {1: 2}, {"a": [b""]}])
def test_what_json_cannot_say_is_not_encoded(value):
    with pytest.raises(StoreError):
        _core.json_encode(value)
