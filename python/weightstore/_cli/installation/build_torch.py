"""``weightstore build-torch``: builds the library behind `torch.classes.store` for the installed torch."""

from __future__ import annotations

import argparse
import sys

from .. import options
from ..output import print_json, safe


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "build-torch",
        _build_torch,
        "build the library behind torch.classes.store for the installed torch, if the package has none for it; it is kept in a "
        "cache of the user (WEIGHTSTORE_CACHE_DIR), and needs a C++20 compiler (CXX)",
        ("weightstore build-torch", "weightstore build-torch --check", "CXX=clang++ weightstore build-torch --force"),
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only say which library would be loaded, and why; status 1 if there is none",
    )
    parser.add_argument("--force", action="store_true", help="build it also if there is one")
    options.add_json(parser)


def _build_torch(arguments: argparse.Namespace) -> int:
    from ..._torch_library.build import BuildError, build
    from ..._torch_library.choice import candidates
    from ..._torch_library.running_torch import running_torch

    try:
        torch = running_torch()
    except ImportError as error:
        print(f"weightstore: torch cannot be imported in this environment: {safe(str(error))}", file=sys.stderr)
        return 2
    found = candidates(torch)
    if not arguments.check and (arguments.force or all(candidate.problem for candidate in found)):
        try:
            build(torch, force=arguments.force, say=lambda line: print(f"weightstore: {line}", file=sys.stderr))
        except BuildError as error:
            if arguments.debug:
                raise
            print(f"weightstore: {error}", file=sys.stderr)
            return 2
        found = candidates(torch)
    used = next((candidate for candidate in found if candidate.problem is None), None)
    if arguments.json:
        libraries = [{"kind": each.kind, "path": str(each.place), "problem": each.problem} for each in found]
        print_json(
            {
                "torch": torch.version,
                "old_abi": torch.old_abi,
                "used": str(used.place) if used else None,
                "libraries": libraries,
            }
        )
    else:
        print(
            f"torch {torch.version} in {safe(str(torch.package))}"
            + (", with the C++ ABI from before GCC 5" * torch.old_abi)
        )
        for each in found:
            verdict = each.problem or ("is used" if each is used else "would do, too")
            print(f"{each.kind}: {safe(str(each.place))}: {safe(verdict)}")
    return 0 if used else 1
