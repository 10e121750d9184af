"""A library to preload, which refuses allocations and threads in tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.host_kernels import compiler


def build_refusals(folder: Path) -> Path:
    """Compile refusals.cpp, which documents its functions, and return the library."""
    source = Path(__file__).with_suffix(".cpp")
    library = folder / "librefusals.so"
    options = ("-std=c++17", "-O1", "-fPIC", "-shared")
    subprocess.run([*compiler(), *options, str(source), "-o", str(library), "-ldl"], check=True)
    return library
