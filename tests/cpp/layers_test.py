"""What the sources of cpp may use: headers of their own room and of those below it, no header that includes itself by way
of others, and files only through FileOps."""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CPP = Path(__file__).resolve().parents[2] / "cpp"
ROOMS = ["base", "kernels", "codec", "formats", "io", "transform", "table", "file", "pager", "checkpoint"]
ROOMS += ["checkpoint/load", "checkpoint/save/protocol", "checkpoint/save"]
BELOW = {room: set(ROOMS[: i + 1]) for i, room in enumerate(ROOMS)}
BELOW["io"].discard("formats")  # neither knows the other: formats have no files, files no formats
BELOW["pager"].discard("table")
BELOW["checkpoint/save/protocol"].discard("checkpoint/load")  # saving and loading do not know each other
BELOW["checkpoint/save"].discard("checkpoint/load")
HEADERS = {  # the room that implements a public header
    "base": "burn_release byte_producer byte_source checksum dtype error file_bytes file_contents format layout outline "
    "progress quant_scheme read_options tensor text_map typed_metadata value version",
    "formats": "burnpack pytorch safetensors",
    "kernels": "kernels",
    "transform": "transform",
    "table": "hash_table table_snapshot",
    "file": "convert reader rename statistics writer",
    "pager": "pager",
    "checkpoint": "loader saver weightstore",
}
ROOM_OF = {f"weightstore/{name}.h": room for room, names in HEADERS.items() for name in names.split()}

# Who touches files without FileOps, and why.
OUTSIDE = {
    "src/io/file_ops.cc": "the seam itself",
    "src/io/available_memory.cc": "reads /proc and control groups",
    "src/io/locks/liveness.cc": "reads the boot id in /proc",
    "src/io/huge_buffer.cc": "maps memory, not files",
    "src/io/recycled_memory.cc": "advises about memory, not files",
    "src/io/memory/shared_memory.cc": "maps memory that processes share",
}
CALLS = re.compile(
    r"(?<!\w)::(?:open|openat|creat|close|dup\d?|fcntl|read|write|p?readv?|p?writev?|l?stat|fstat|fstatat|f?statvfs|access|"
    r"readlink|realpath|getcwd|opendir|readdir|closedir|scandir|mkdir|rmdir|unlink|link|symlink|rename\w*|truncate|"
    r"ftruncate|fallocate|f?chmod|f?chown|f?sync|fdatasync|flock|mmap|mincore|syscall|\w+xattr|posix_fadvise)\("
    r"|\b(?:i|o)?fstream\b|\bfopen\("
    r"|(?:filesystem|fs)::(?:exists|is_\w+|(?:symlink_)?status|read_symlink|(?:weakly_)?canonical|absolute|relative|"
    r"current_path|create_\w+|remove\w*|rename|copy\w*|permissions|space|file_size|resize_file|last_write_time|"
    r"\w*directory_iterator|temp_directory_path|equivalent|hard_link_count)\b"
)


def room_of(name: str) -> str:
    """The room of a header or source: that of its innermost folder that is a room."""
    folders = [name[:i] for i, letter in enumerate(name) if letter == "/"]
    return ROOM_OF.get(name) or next((folder for folder in reversed(folders) if folder in BELOW), folders[0])


def includes(path: Path) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)


def file_calls() -> list[str]:
    wrong = []
    for path in sorted(CPP.glob("**/*.[ch]*")):
        name = path.relative_to(CPP).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if name not in OUTSIDE and (call := CALLS.search(line.split("//")[0])):
                wrong.append(f"{name}:{number} uses {call.group()} and not FileOps")
        if name.startswith("include/") and "FileOps" in path.read_text():
            wrong.append(f"{name} is installed and mentions FileOps")
    return wrong


def wrong_includes() -> list[str]:
    wrong = []
    graph: dict[str, list[str]] = {}
    for root in (CPP / "src", CPP / "include"):
        for path in sorted(root.glob("**/*.[ch]*")):
            name = path.relative_to(root).as_posix()
            room, graph[name] = room_of(name), includes(path)
            wrong += [f"{name} ({room}) includes {used}" for used in graph[name] if room_of(used) not in BELOW[room]]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        wrong.append("headers include each other: " + " <- ".join(error.args[1]))
    return wrong


def main() -> int:
    wrong = file_calls() + wrong_includes()
    for folder in {path.parent for path in CPP.glob("**/*.cc")}:
        if (count := len(list(folder.glob("*.cc")))) > 20:
            wrong.append(f"{folder.relative_to(CPP)} has {count} sources; at most 20")
    print("\n".join(wrong) or "no include goes up or round, and files are used through FileOps only")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
