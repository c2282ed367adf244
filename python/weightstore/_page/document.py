"""Puts the viewer and its data into one HTML document.

The document needs nothing else: no network, no other file. Its content security policy lets the browser run the viewer's script
and nothing else, whatever the data says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

# The sources of the viewer. Each imports only from those before it.
MODULES = (
    "text",
    "data",
    "table",
    "tree",
    "search",
    "treemap",
    "window",
    "dom",
    "colours",
    "pictures",
    "details",
    "rows",
    "tiles",
    "app",
    "start",
)
# What tells a page of weightstore from other files; near its beginning.
MARK = '<meta name="generator" content="weightstore">'
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.mjs";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|function|class) )", re.MULTILINE)
# JSON allows these inside strings; they end a script element, or begin a comment in one.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def document(data: dict[str, Any], title: str) -> str:
    """The page of data in the format of docs/page.md. Text of the data cannot become markup or a script."""
    style, script = _viewer()
    policy = f"default-src 'none'; style-src {_source_hash(style)}; script-src {_source_hash(script)}"
    return _source("page.html").format(
        mark=MARK, policy=policy, title=escaped(title), style=style, data=script_json(data), script=script
    )


def escaped(text: str) -> str:
    """Text as HTML. A path may have bytes that are no UTF-8; they are shown as \\udc80."""
    return escape(text.encode("utf-8", "backslashreplace").decode())


def script_json(data: Any) -> str:
    """JSON that can stand inside a script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT)


@cache
def _viewer() -> tuple[str, str]:
    """The style, and all modules as one script."""
    modules = (_EXPORT.sub("", _IMPORT.sub("", _source(f"{name}.mjs"))) for name in MODULES)
    return _source("viewer.css"), '"use strict";\n(() => {\n' + "\n".join(modules) + "})();\n"


def _source(name: str) -> str:
    return Path(__file__).with_name("viewer").joinpath(name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
