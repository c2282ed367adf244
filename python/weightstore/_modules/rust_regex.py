"""Regular expressions in the syntax of Rust's regex crate, as Python's `re` spells them.

Burn's users write Rust's syntax, Python's users write Python's. Most patterns mean the same in both. The others are:

- Only one of the two languages has the syntax (`\\z`, `\\x{41}`; look-ahead, backreferences): it means what it means there.
- Both have the syntax, with different meanings, and Rust's meaning can be expressed in Python (`$`, `\\s`, `\\<`,
  `[[:alpha:]]`): it means what it means in Rust.
- Both have the syntax, with different meanings that cannot be expressed (`[a-z&&[^b]]`, `a++`): Unclear is raised.

For names in ASCII the translation is exact. For other names, `\\w`, `\\b` and `(?i)` follow Python's Unicode tables.
"""

from __future__ import annotations

import re


class Unclear(ValueError):
    """The pattern cannot be read as both languages read it. The text says why, and what to write instead."""


_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t\ ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"!-\~",
    "lower": "a-z",
    "print": r"\ -\~",
    "punct": r"!-/:-@\[-`{-\~",
    "space": r"\t-\r\ ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
# Python counts four separators (0x1c to 0x1f) among the whitespace.
_SPACE = r"\t-\r\ \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_NO_SPACE = r"\S\x1c-\x1f"
_BOUNDARIES = {
    "start": r"(?:\b(?=\w))",
    "end": r"(?:\b(?<=\w))",
    "start-half": r"(?<!\w)",
    "end-half": r"(?!\w)",
}

_COUNT = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}")
_FLAGS = re.compile(r"\(\?([A-Za-z-]*)([:)])")
_CODE_POINT = re.compile(r"\\[xuU]\{([0-9A-Fa-f]{1,8})\}")
_BOUNDARY = re.compile(r"\\b\{([^}]*)\}")
_POSIX_CLASS = re.compile(r"\[:(\^?[a-z]+):\]")


def to_python(pattern: str) -> str:
    """The pattern for re.compile(), which may still find mistakes in it. Raises Unclear."""
    return _Translation(pattern).run()


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._made: list[str] = []
        self._multiline = False
        self._verbose = False
        self._outside: list[tuple[bool, bool]] = []  # the flags around each open group
        self._begun = False  # something other than flags was seen
        self._repeats = ""  # the quantifiers right before: "", "+", "+?"

    def run(self) -> str:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        return "".join(self._made)

    def _take(self, length: int, made: str | None = None) -> None:
        """Goes on by `length` characters, which become `made`, or stay."""
        self._made.append(self._text[self._at : self._at + length] if made is None else made)
        self._at += length

    def _step(self, character: str) -> None:
        if self._verbose and (character.isspace() or character == "#"):
            end = self._at + 1 if character != "#" else self._text.find("\n", self._at) + 1
            self._take((end or len(self._text)) - self._at)
            return
        if character in "*+?" or (character == "{" and _COUNT.match(self._text, self._at)):
            self._quantifier(character)
            return
        self._repeats = ""
        if character == "(" and (flags := _FLAGS.match(self._text, self._at)) and flags[0] != "(?:":
            self._flags(flags)
            return
        self._begun = True
        if character == "\\":
            self._escape()
        elif character == "[":
            self._class()
        elif character == "(":
            self._group()
        elif character == ")":
            if self._outside:
                self._multiline, self._verbose = self._outside.pop()
            self._take(1)
        elif character == "$" and not self._multiline:
            self._take(1, r"\Z")  # Python's $ also matches before a newline at the end
        else:
            self._take(1)

    # ---- outside of classes --------------------------------------------------------------------------------------

    def _quantifier(self, character: str) -> None:
        if self._repeats and not (character == "?" and len(self._repeats) == 1):
            raise Unclear(
                f"the quantifier {character!r} after another quantifier repeats it in Rust, and makes it possessive or is "
                "an error in Python; write (?:a+)+ to repeat a repetition"
            )
        self._repeats += character
        count = _COUNT.match(self._text, self._at) if character == "{" else None
        if count is None:
            self._take(1)
        else:  # Rust allows spaces there; to Python the braces are characters then.
            self._take(len(count[0]), "{" + "".join(part or "" for part in count.groups()) + "}")

    def _group(self) -> None:
        self._outside.append((self._multiline, self._verbose))
        following = self._text[self._at + 1 : self._at + 4]
        if following.startswith("?<") and following[2:] not in ("=", "!"):
            self._take(3, "(?P<")
        elif following.startswith(
            ("?#", "?(")
        ):  # a comment, or the condition of (?(1)a|b): nothing in there is a pattern
            if following.startswith("?#"):
                self._outside.pop()
            end = self._text.find(")", self._at) + 1
            self._take((end or len(self._text)) - self._at)
        elif following.startswith("?"):
            self._take(3 if following.startswith(("?P", "?<")) else 2)
            if self._text[self._at - 1 : self._at] == "?":
                self._take(1)
        else:
            self._take(1)

    def _flags(self, flags: re.Match[str]) -> None:
        on, _, off = flags[1].partition("-")
        for flag, why in (("U", "swaps greedy and lazy"), ("R", "makes CRLF the end of a line")):
            if flag in flags[1]:
                raise Unclear(f"the flag {flag!r} {why} in Rust; Python has no such flag")
        if "u" in off:
            raise Unclear("the flag '-u' leaves Unicode in Rust; in Python write (?a:...)")
        scoped = flags[2] == ":"
        if not scoped and (self._begun or off):
            raise Unclear(
                f"{flags[0]!r} changes the flags of what follows; write it as a group: (?{flags[1]}:...), or put flags to turn "
                "on at the very beginning"
            )
        if scoped:
            self._begun = True
            self._outside.append((self._multiline, self._verbose))
        self._multiline = (self._multiline or "m" in on) and "m" not in off
        self._verbose = (self._verbose or "x" in on) and "x" not in off
        self._take(len(flags[0]))

    def _escape(self) -> None:
        letter = self._text[self._at + 1 : self._at + 2]
        boundary = _BOUNDARY.match(self._text, self._at)
        if boundary is not None and not boundary[1].strip().isdecimal():
            if boundary[1] not in _BOUNDARIES:
                raise Unclear(f"{boundary[0]!r} is not one of Rust's word boundaries: {', '.join(_BOUNDARIES)}")
            self._take(len(boundary[0]), _BOUNDARIES[boundary[1]])
        elif letter in ("<", ">"):
            self._take(2, _BOUNDARIES["start" if letter == "<" else "end"])
        elif letter == "z":
            self._take(2, r"\Z")
        elif letter == "B":
            self._take(2, r"(?!\b)")  # Python's \B does not match in empty text
        elif letter == "s":
            self._take(2, f"[{_SPACE}]")
        elif letter == "S":
            self._take(2, f"[{_NO_SPACE}]")
        else:
            self._take(*self._plain_escape())

    def _plain_escape(self) -> tuple[int, str]:
        """An escape that means the same within a class and outside: its length, and what becomes of it."""
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in ("p", "P"):
            raise Unclear(
                f"Python has no Unicode classes such as \\{letter}{{Greek}}; write the characters, as in [A-Za-z]"
            )
        if letter in ("x", "u", "U") and self._text[self._at + 2 : self._at + 3] == "{":
            code = _CODE_POINT.match(self._text, self._at)
            if code is None or int(code[1], 16) > 0x10FFFF:
                raise Unclear(f"what follows \\{letter}{{ is not a character's number in hexadecimal")
            return len(code[0]), f"\\U{int(code[1], 16):08x}"
        return 2, self._text[self._at : self._at + 2]

    # ---- classes -------------------------------------------------------------------------------------------------

    def _class(self) -> None:
        self._take(2 if self._text[self._at + 1 : self._at + 2] == "^" else 1)
        if self._text[self._at : self._at + 1] == "]":
            if self._ranges(self._at + 1):
                raise Unclear(
                    "']-' at the beginning of [...] is a range in Python and not in Rust; write \\]- or \\]\\-"
                )
            self._take(1, r"\]")
        while self._text[self._at : self._at + 1] != "]":
            if self._at >= len(self._text):
                return  # which re.compile() refuses
            single = self._item()
            if not self._ranges(self._at):
                continue
            self._take(1)
            if not (single and self._item()):
                raise Unclear("a range in [...] goes from one character to another")
        self._take(1)

    def _ranges(self, at: int) -> bool:
        """Whether the character there is a dash that makes a range of its neighbours."""
        return self._text[at : at + 1] == "-" and self._text[at + 1 : at + 2] not in ("", "]", "-")

    def _item(self) -> bool:
        """Takes one item of a class; whether it is a single character."""
        character = self._text[self._at]
        if character == "[":
            self._nested()
            return False
        if character in "&-~" and self._text.startswith(character, self._at + 1):
            raise Unclear(
                f"'{character * 2}' inside [...] is an operator between classes in Rust, and two characters in Python; "
                f"write \\{character} for the character"
            )
        if self._verbose and (character.isspace() or character == "#"):
            raise Unclear(
                "with the flag 'x', whitespace and '#' inside [...] count in Python and not in Rust; escape them"
            )
        if character != "\\":
            self._take(1, re.escape(character))
            return True
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in ("s", "S"):
            self._take(2, _SPACE if letter == "s" else _NO_SPACE)
        else:
            self._take(*self._plain_escape())
        return letter not in tuple("sSdDwW")

    def _nested(self) -> None:
        posix = _POSIX_CLASS.match(self._text, self._at)
        if posix is None or posix[1] not in _POSIX:
            raise Unclear(
                "'[' inside [...] begins a nested class in Rust, and is a character in Python; write \\[ for the character"
            )
        self._take(len(posix[0]), _POSIX[posix[1]])
