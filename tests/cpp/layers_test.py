"""No include goes up or round: every file of cpp includes only what stands in its own room or in one below."""

import re
import sys
from pathlib import Path

CPP = Path(__file__).resolve().parents[2] / "cpp"
ROOMS = ["base", "codec", "formats", "io", "transform", "table", "file", "pager", "checkpoint"]
BELOW = {room: set(ROOMS[: i + 1]) for i, room in enumerate(ROOMS)}
BELOW["io"].discard("formats")  # neither knows the other: formats have no files, files no formats
BELOW["pager"].discard("table")
HEADERS = {  # the room that implements a public header
    "base": "byte_producer byte_source checksum dtype error file_contents format layout progress quant_scheme "
    "read_options tensor text_map value version",
    "formats": "burnpack pytorch safetensors",
    "transform": "transform",
    "table": "hash_table table_snapshot",
    "file": "convert reader rename writer",
    "pager": "pager",
    "checkpoint": "loader saver weightstore",
}
ROOM_OF = {f"weightstore/{name}.h": room for room, names in HEADERS.items() for name in names.split()}


def includes(path: Path) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)


def main() -> int:
    wrong = []
    for path in sorted([*CPP.glob("src/**/*.[ch]*"), *CPP.glob("include/weightstore/*.h")]):
        name = path.relative_to(CPP / ("src" if "src" in path.parts else "include")).as_posix()
        room = ROOM_OF.get(name) or name.split("/")[0]
        for included in includes(path):
            if (ROOM_OF.get(included) or included.split("/")[0]) not in BELOW[room]:
                wrong.append(f"{path.relative_to(CPP)} ({room}) includes {included}")
    for folder in {path.parent for path in CPP.glob("src/**/*.cc")}:
        if (count := len(list(folder.glob("*.cc")))) > 20:
            wrong.append(f"{folder.relative_to(CPP)} has {count} sources; at most 20")
    print("\n".join(wrong) or "no include goes up or round")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
