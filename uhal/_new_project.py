"""`python -m uhal new DIR`: a new project with kernels, tests and debugger settings.

It copies the folder `project` beside this file. The paths of this interpreter and of gdb's script
are written into VS Code's settings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_FILES = {
    "kernels.cu": "kernels.cu",
    "program.py": "program.py",
    "test_program.py": "test_program.py",
    "Makefile": "Makefile",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "vscode/tasks.json": ".vscode/tasks.json",
    "vscode/launch.json": ".vscode/launch.json",
}
"""File names in the copied folder to file names in a new project."""
GDB_SCRIPT = _PACKAGE / "debugger" / "uhal_gdb.py"


def create(folder: Path) -> int:
    """Write the project's files; return the exit status. A file that exists is never touched."""
    there = [name for name in _FILES.values() if (folder / name).exists()]
    if there:
        print(f"{folder / there[0]} exists: nothing was written", file=sys.stderr)
        return 1
    for source, name in _FILES.items():
        text = (_PACKAGE / "project" / source).read_text(encoding="utf-8")
        text = text.replace("@PYTHON@", _quoted(sys.executable))
        text = text.replace("@GDB@", _quoted(str(GDB_SCRIPT)))
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        print(target)
    print(f"\ncd {folder} && make && python program.py")
    return 0


def _quoted(path: str) -> str:
    """A path inside the quotes of a JSON text."""
    return json.dumps(path)[1:-1]
