"""Call graphs between the C files of a runtime, read from the sources.

A file calls another file if it names one of that file's functions with external linkage. A call
through a pointer counts only for the file that passes the function's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from build_support.imports import ROOT

_NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_DEFINED = re.compile(
    r"^(?!static\b|typedef\b)[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE
)
_NAME = re.compile(r"[A-Za-z_]\w*")


def runtimes() -> Iterator[Path]:
    """Yield every folder of the product and the simulators that has more than one C file."""
    for package in ("*_backend", "uhal", "simulators"):
        for top in sorted(ROOT.glob(package)):
            folders = {path.parent for path in top.rglob("*.c") if "build" not in path.parts}
            yield from sorted(one for one in folders if len(list(one.glob("*.c"))) > 1)


def calls_of(folder: Path) -> dict[str, set[str]]:
    """Return, for each C file of a folder, the other files whose functions it uses."""
    codes = {
        path.name: _NO_CODE.sub(" ", path.read_text("utf-8")) for path in sorted(folder.glob("*.c"))
    }
    homes = {name: file for file, code in codes.items() for name in _DEFINED.findall(code)}
    return {
        file: {homes[name] for name in _NAME.findall(code) if homes.get(name, file) != file}
        for file, code in codes.items()
    }
