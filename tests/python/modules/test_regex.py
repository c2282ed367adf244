"""Regular expressions: Rust's syntax and Python's, and what is refused because the two differ."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightstore import BurnpackStore, InvalidArgument, KeyRemapper, PathFilter, SafetensorsStore

# Made by Rust's regex crate 1.13: pattern, name, and the name with every match in braces.
AS_RUST_READS_THEM = [
    (r"^fc\.(?<i>\d+)\.", "fc.0.weight", "{fc.0.}weight"),
    (r"^[[:alpha:]]+\.", "fc.0.weight", "{fc.}0.weight"),
    (r"[[:alpha:]_[:digit:]]+", "Aab[x]-&~ _1", "{Aab}[{x}]-&~ {_1}"),
    (r"[^[:punct:]]+", "Aab[x]-&~ _1", "{Aab}[{x}]-&~{ }_{1}"),
    (r"[[:space:]]", "w eight\n", "w{ }eight{\n}"),
    (r"weight$", "fc.0.weight", "fc.0.{weight}"),
    (r"weight\z", "fc.0.weight", "fc.0.{weight}"),
    (r"eight$", "w eight\n", "w eight\n"),
    (r"(?m)eight$", "w eight\n", "w {eight}\n"),
    (r"(?m:eight$)|w$", "w eight\n", "w {eight}\n"),
    (r"eight\s\z", "w eight\n", "w {eight\n}"),
    (r"\<\w", "fc.0.weight", "{f}c.{0}.{w}eight"),
    (r"\w\>", "fc.0.weight", "f{c}.{0}.weigh{t}"),
    (r"\b{start}w", "fc.0.weight", "fc.0.{w}eight"),
    (r"t\b{end}", "fc.0.weight", "fc.0.weigh{t}"),
    (r"\b{start-half}.", "Aab[x]-&~ _1", "{A}ab[{x}]{-}{&}{~}{ }{_}1"),
    (r".\b{end-half}", "Aab[x]-&~ _1", "Aa{b}[{x}{]}{-}{&}{~} _{1}"),
    (r"\x{66}c", "fc.0.weight", "{fc}.0.weight"),
    (r"f\u{63}", "fc.0.weight", "{fc}.0.weight"),
    (r"[\x{61}-\U{63}]", "fc.0.weight", "f{c}.0.weight"),
    (r"\x66c", "fc.0.weight", "{fc}.0.weight"),
    (r"e*", "fc.0.weight", "{}f{}c{}.{}0{}.{}w{e}i{}g{}h{}t{}"),
    (r"", "fc.0.weight", "{}f{}c{}.{}0{}.{}w{}e{}i{}g{}h{}t{}"),
    (r"|f", "fc.0.weight", "{}f{}c{}.{}0{}.{}w{}e{}i{}g{}h{}t{}"),
    (r"\w*?", "fc.0.weight", "{}f{}c{}.{}0{}.{}w{}e{}i{}g{}h{}t{}"),
    (r"\B", "", "{}"),
    (r"\Bc", "fc.0.weight", "f{c}.0.weight"),
    (r"\s", "x\x1cy z", "x\x1cy{ }z"),
    (r"[\S]", "x\x1c ", "{x}{\x1c} "),
    (r"a{1, 2}", "aaa{1, 2}", "{aa}{a}{1, 2}"),
    (r"a{ 2 }", "aaa{ 2 }", "{aa}a{ 2 }"),
    (r"[a|b||x]+", "Aab[x]-&~ _1", "A{ab}[{x}]-&~ _1"),
    (r"[&~-]+", "Aab[x]-&~ _1", "Aab[x]{-&~} _1"),
    (r"[\[\]]", "Aab[x]-&~ _1", "Aab{[}x{]}-&~ _1"),
    (r"[]x]", "Aab[x]-&~ _1", "Aab[{x}{]}-&~ _1"),
    (r"[^]x]+", "Aab[x]-&~ _1", "{Aab[}x]{-&~ _1}"),
    (r"(?i)AAB", "Aab[x]-&~ _1", "{Aab}[x]-&~ _1"),
    (r"(?i:A)a", "Aab[x]-&~ _1", "{Aa}b[x]-&~ _1"),
    (r"(?i-s:A.)", "Aab[x]-&~ _1", "{Aa}b[x]-&~ _1"),
    (r"(?x) f c  # two letters", "fc.0.weight", "{fc}.0.weight"),
    (r"(?s).+", "w eight\n", "{w eight\n}"),
    (r".+", "w eight\n", "{w eight}\n"),
    (r"(?u)\w", "fc.0.weight", "{f}{c}.{0}.{w}{e}{i}{g}{h}{t}"),
    (r"(?P<a>f)|(?P<b>c)", "fc.0.weight", "{f}{c}.0.weight"),
    (r"[a-z-9]+", "fc.0.weight", "{fc}.0.{weight}"),
    (r"[-a]+", "Aab[x]-&~ _1", "A{a}b[x]{-}&~ _1"),
    (r"\.|\/|\-|\#", "Aab[x]-&~ _1", "Aab[x]{-}&~ _1"),
]


@pytest.mark.parametrize(("pattern", "name", "expected"), AS_RUST_READS_THEM)
def test_a_pattern_means_what_it_means_in_rust(pattern, name, expected):
    assert KeyRemapper().add_pattern(pattern, "{$0}").rename(name) == expected
    assert PathFilter().with_regex(pattern).matches(name) == (expected != name)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (r"^fc\.(?=0)", "fc.0", "{fc.}0"),
        (r"(?<!x)c", "fc.xc", "f{c}.xc"),
        (r"(.)\1", "foo", "f{oo}"),
        (r"(?P<a>.)(?P=a)", "foo", "f{oo}"),
        (r"weight\Z", "weight", "{weight}"),
        (r"a(?#[)b", "ab", "{ab}"),
        (r"(a)?(?(1)b|c)", "ab.c", "{ab}.{c}"),
        (r"a{,2}b", "aab", "{aab}"),
        (r"(?>a)b", "ab", "{ab}"),
        (r"(?a:\w)", "aé", "{a}é"),
        (r"x{", "x{", "{x{}"),
    ],
)
def test_syntax_that_only_python_has(pattern, name, expected):
    assert KeyRemapper().add_pattern(pattern, "{$0}").rename(name) == expected


REFUSED = [
    (r"[a-z&&[^b]]", r"'&&' inside \[...\] is an operator"),
    (r"[a-z--b]", "'--' inside"),
    (r"[a-z~~b]", "'~~' inside"),
    (r"[[a-z]0]", "nested class"),
    (r"[a[b]", "nested class"),
    (r"[[:nope:]]", "nested class"),
    (r"[[:^alpha:]]", "nested class"),
    (r"[]-a]", "is a range in Python and not in Rust"),
    (r"[[:alpha:]-z]", "from one character to another"),
    (r"[a-\s]", "from one character to another"),
    (r"\p{Greek}", "no Unicode classes"),
    (r"\pL", "no Unicode classes"),
    (r"[\P{L}]", "no Unicode classes"),
    (r"\x{110000}", "number in hexadecimal"),
    (r"\u{}", "number in hexadecimal"),
    (r"\b{begin}", "word boundaries"),
    (r"a(?i)b", r"write it as a group: \(\?i:...\)"),
    (r"(?-i)a", "write it as a group"),
    (r"(?R)a$", "the flag 'R'"),
    (r"(?U)a+", "the flag 'U'"),
    (r"(?-u:\w)", r"write \(\?a:...\)"),
    (r"(?x)[a b]", "with the flag 'x'"),
    (r"fc\.++", "after another quantifier"),
    (r"a*+", "after another quantifier"),
    (r"a{2}{3}", "after another quantifier"),
    (r"a+??", "after another quantifier"),
]


@pytest.mark.parametrize(("pattern", "why"), REFUSED)
def test_what_the_languages_read_differently_is_refused_at_once(pattern, why):
    chosen, rules = PathFilter(), KeyRemapper()
    store = SafetensorsStore.from_bytes(None)
    for add in (
        lambda: chosen.with_regex(pattern),
        lambda: rules.add_pattern(pattern, "x"),
        lambda: store.with_regex(pattern),
        lambda: store.with_key_remapping(pattern, "x"),
    ):
        with pytest.raises(InvalidArgument, match=why) as caught:
            add()
        assert repr(pattern) in str(caught.value)
        assert "re.compile" in str(caught.value)
    assert chosen.is_empty()
    assert rules.is_empty()


def test_a_compiled_pattern_is_pythons():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        python = re.compile("[a-z&&[^b]]")
    assert PathFilter().with_regex(python).matches("&]")
    assert PathFilter().with_regex(re.compile("weight$")).matches("weight\n")
    assert not PathFilter().with_regex("weight$").matches("weight\n")
    assert PathFilter().with_regex(re.compile("f C", re.VERBOSE | re.IGNORECASE)).matches("fc")


def test_patterns_are_shown_as_they_were_written():
    assert "regex 'weight$'" in repr(PathFilter().with_regex("weight$"))
    assert r"'\\<fc$' -> 'x'" in repr(KeyRemapper().add_pattern(r"\<fc$", "x"))


WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def test_white_space_is_unicodes():
    everything = "".join(map(chr, range(0x110000)))
    for pattern in (r"\s", r"[\s]", r"[^\S]"):
        regex = KeyRemapper().add_pattern(pattern, "x").to_regex_pairs()[0][0]
        assert "".join(regex.findall(everything)) == WHITE_SPACE


@given(st.text(alphabet="ab[]()-^&~|:\\{}1,?*+$.< #=!PxsSpzi", max_size=12))
def test_any_text_is_a_pattern_or_an_invalid_argument(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            chosen = PathFilter().with_regex(text)
        except InvalidArgument:
            return
    chosen.matches("ab.1")


@given(st.text(max_size=20), st.text(max_size=20))
def test_escaped_text_is_itself(text, name):
    assert PathFilter().with_regex(re.escape(text)).matches(name + text)
    assert PathFilter().with_regex(f"^{re.escape(text)}$").matches(name) == (text == name)


# ---- replacements ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "replacement", "why"),
    [
        (r"layer(\d+)", "stage$1_x", r"Write \$\{1\}_x"),
        (r"layer(\d+)", "$1x", r"Write \$\{1\}x"),
        (r"layer(\d+)", "$12", r"group 12.*it has \$0, \$1"),
        (r"(?<n>\d+)", "$nth", r"Write \$\{n\}th"),
        (r"(?<n>\d+)(?<no>\w)", "$nope", r"Write \$\{no\}pe"),
        (r"(a)", "$3", r"group 3, which '\(a\)' does not have; it has \$0, \$1"),
        ("a", "$1", r"it has \$0"),
        (r"(a)", "${3}", "group 3"),
        (r"(a)", "${}", "group ''"),
        (r"(a)", "$missing", "group 'missing'"),
        (r"(a)", "${1", "not closed"),
        (r"(\d+)", r"stage\1", r"a backslash means nothing there; write \$1"),
        (r"(\d+)", r"\g<1>", "backslash"),
        (r"(\d+)", r"layers\.0", "write.*'.' for a dot"),
    ],
)
@pytest.mark.parametrize(
    "add",
    [
        lambda pattern, replacement: KeyRemapper().add_pattern(pattern, replacement),
        lambda pattern, replacement: KeyRemapper.from_patterns([(pattern, replacement)]),
        lambda pattern, replacement: SafetensorsStore.from_bytes(None).with_key_remapping(pattern, replacement),
        lambda pattern, replacement: BurnpackStore.from_bytes(None).with_remap_pattern(pattern, replacement),
    ],
)
def test_a_replacement_that_makes_wrong_names_is_refused_at_once(add, pattern, replacement, why):
    with pytest.raises(InvalidArgument, match=why) as caught:
        add(pattern, replacement)
    assert repr(replacement) in str(caught.value)


def test_what_is_advised_works():
    assert KeyRemapper().add_pattern(r"layer(\d+)", "stage${1}_x").rename("layer3.w") == "stage3_x.w"
