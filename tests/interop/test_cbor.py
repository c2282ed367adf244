"""Our CBOR against cbor2, both ways."""

from __future__ import annotations

import math
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

cbor2 = pytest.importorskip("cbor2")

from support.values import MANY, TEXT, same  # noqa: E402
from weightstore import StoreError, _core  # noqa: E402
from weightstore.errors import FormatError  # noqa: E402

INTS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([s * (2**k) + d for k in (0, 4, 5, 8, 16, 32, 62) for d in (-1, 0, 1) for s in (-1, 1)]),
)
FLOATS = st.one_of(st.floats(), st.floats(width=32), st.floats(width=16)).map(lambda x: math.nan if x != x else x)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), INTS, FLOATS, TEXT, st.binary()),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.one_of(TEXT, INTS), inner, max_size=5)),
    max_leaves=12,
)


def head(major: int, n: int, rng: random.Random | None = None) -> bytes:
    """A head in its shortest form, or in any longer one."""
    shortest = 0 if n < 24 else next(i for i in range(1, 5) if n < 1 << (8 << (i - 1)))
    form = shortest if rng is None else rng.randint(shortest, 4)
    if form == 0:
        return bytes([major << 5 | n])
    return bytes([major << 5 | 23 + form]) + n.to_bytes(1 << (form - 1), "big")


def encode(value: object, rng: random.Random | None = None) -> bytes:
    """Our own encoder: shortest forms, or with `rng` any well-formed way to say the same."""
    loose = rng is not None and rng.random() < 0.5
    tags = head(6, rng.choice([40_000, 2**20, 2**40]), rng) if rng is not None and rng.random() < 0.1 else b""
    if value is None or isinstance(value, bool):
        return tags + bytes([{None: 0xF6, False: 0xF4, True: 0xF5}[value]])
    if isinstance(value, int):
        return tags + (head(0, value, rng) if value >= 0 else head(1, -1 - value, rng))
    if isinstance(value, float):
        return tags + encode_float(value, rng)
    if isinstance(value, (str, bytes)):
        major, data = (3, value.encode()) if isinstance(value, str) else (2, value)
        if not loose:
            return tags + head(major, len(data), rng) + data
        pieces = [c.encode() for c in value] if isinstance(value, str) else [data[:1], data[1:]]
        return tags + bytes([major << 5 | 31]) + b"".join(head(major, len(p), rng) + p for p in pieces) + b"\xff"
    entries = [x for pair in value.items() for x in pair] if isinstance(value, dict) else value
    major = 5 if isinstance(value, dict) else 4
    body = b"".join(encode(entry, rng) for entry in entries)
    if loose:
        return tags + bytes([major << 5 | 31]) + body + b"\xff"
    return tags + head(major, len(value), rng) + body


def encode_float(value: float, rng: random.Random | None) -> bytes:
    if math.isnan(value):
        return bytes.fromhex("f97e00")
    forms = []
    for initial, code in ((0xF9, ">e"), (0xFA, ">f"), (0xFB, ">d")):
        try:
            packed = struct.pack(code, value)
        except OverflowError:
            continue
        if struct.unpack(code, packed)[0] == value:
            forms.append(bytes([initial]) + packed)
    return forms[0] if rng is None else rng.choice(forms)


def by_cbor2(data: bytes) -> object:
    return cbor2.loads(data, tag_hook=lambda tag, *_: getattr(tag, "value", tag))


@MANY
@given(VALUES)
def test_encodings_are_the_shortest_and_read_back(value):
    data = _core.cbor_encode(value)
    assert data == encode(value)
    assert same(cbor2.loads(data), value)
    assert same(_core.cbor_decode(data), value)


@MANY
@given(VALUES)
def test_decodes_what_cbor2_encodes(value):
    assert same(_core.cbor_decode(cbor2.dumps(value)), value)


@MANY
@given(VALUES, st.integers(0, 2**32))
def test_every_well_formed_encoding_is_the_same_value(value, seed):
    assert same(_core.cbor_decode(encode(value, random.Random(seed))), value)


@MANY
@given(VALUES, st.integers(0, 2**32))
def test_every_prefix_is_refused(value, seed):
    data = encode(value, random.Random(seed))
    for end in range(len(data)) if len(data) < 64 else random.Random(seed).sample(range(len(data)), 64):
        with pytest.raises(StoreError):
            _core.cbor_decode(data[:end])
    with pytest.raises(StoreError):
        _core.cbor_decode(data + b"\0")


def test_what_is_accepted_of_random_bytes_is_well_formed():
    rng = random.Random(3)
    accepted = 0
    for _ in range(30_000):
        data = rng.randbytes(rng.choice([1, 2, 3, 5, 9, 17]))
        if rng.random() < 0.5:
            data = rng.choice([b"\x9f", b"\x83", b"\xbf", b"\xa1", b"\x7f", b"\x5f"]) + data + b"\xff"
        try:
            found = _core.cbor_decode(data)
        except (StoreError, TypeError):  # a list as key is well-formed, but nothing that Python can hold
            continue
        accepted += 1
        # Every byte mattered: encoding it again gives the same, or the shorter form of it.
        assert same(_core.cbor_decode(_core.cbor_encode(found)), found)
        assert len(encode(found)) <= len(data)
    assert accepted > 1_000


@pytest.mark.parametrize(
    "data",
    [
        "", "18", "19 00", "1a 000000", "1b 00000000000000", "1c", "1f", "3f", "df", "ff", "41", "61", "61 ff", "62 c080",
        "63 eda080", "5b ffffffffffffffff", "7b 0000000100000000", "9b ffffffffffffffff", "bb 8000000000000000", "81", "a1 01",
        "82 01", "9f", "9f 01", "bf 01 ff", "bf 01", "5f 61 61 ff", "7f 41 61 ff", "5f 5f ff ff", "7f 61", "c1", "c1 ff",
        "9f c1 ff", "f8", "f8 14", "f8 18", "f8 ff", "e0", "f3", "fc", "f9 00", "fa 000000", "fb 00000000000000", "00 00",
        "a2 01 02 01 03", "a2 6161 00 7f 61 61 ff 01", "a2 01 00 1801 00", "7f 61 c3 61 a9 ff",
    ],
)  # fmt: skip
def test_refused(data):
    with pytest.raises(FormatError):
        _core.cbor_decode(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["c2 49 010000000000000000", "c3 41 01", "3b 8000000000000000", "3b ffffffffffffffff"])
def test_integers_beyond_64_bits_are_unsupported(data):
    with pytest.raises(StoreError, match="64 bits"):
        _core.cbor_decode(bytes.fromhex(data))


@pytest.mark.parametrize(
    "data",
    ["f97e00", "f9fe00", "f97e01", "fa7fc00001", "faffc00001", "fbfff8000000000001", "fb7ff0000000000001"],
)
def test_the_bits_of_nan_are_kept(data):
    value = _core.cbor_decode(bytes.fromhex(data))
    assert math.isnan(value)
    assert _core.cbor_encode(value).hex() == data


def test_undefined_is_none_and_tags_are_passed_over():
    assert _core.cbor_decode(b"\xf7") is None
    assert _core.cbor_decode(bytes.fromhex("d9d9f7 c0 c1 82 d820 01 c6 6161")) == [1, "a"]


@pytest.mark.parametrize(
    ("opening", "closing"), [(b"\x81", b""), (b"\x9f", b"\xff"), (b"\xa1\x01", b""), (b"\xbf\x01", b"\xff")]
)
def test_nesting_ends_at_128_levels(opening, closing):
    assert by_cbor2(opening * 128 + b"\0" + closing * 128) == _core.cbor_decode(opening * 128 + b"\0" + closing * 128)
    for depth in (129, 200_000):
        with pytest.raises(StoreError, match="levels"):
            _core.cbor_decode(opening * depth + b"\0" + closing * depth)


def test_what_would_be_refused_is_not_encoded():
    deep: list = []
    for _ in range(128):
        deep = [deep]
    for value in (deep, 2**64, -(2**63) - 1):
        with pytest.raises((StoreError, OverflowError)):
            _core.cbor_encode(value)
