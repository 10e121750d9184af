"""Compiles kernel sources for the host in tests, with the flags users get."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from uhal.images import cpu_level

INCLUDE = Path(__file__).resolve().parents[1] / "uhal" / "include"


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


def has_compiler() -> bool:
    return shutil.which(compiler()[0]) is not None


@cache
def build(source: str, *flags: str) -> bytes:
    """Return the kernel library built from a source; an AssertionError has the compiler's
    output."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "k.cpp")
        path.write_text(source, encoding="utf-8")
        library = Path(folder, "k.so")
        command = [*compiler(), *cpu_level.compile_flags(), f"-I{INCLUDE}", *flags]
        done = subprocess.run(
            [*command, str(path), "-o", str(library)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return library.read_bytes()


def refusal(source: str, *flags: str) -> str:
    """Return the compiler's message for a source that it must refuse."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "k.cpp")
        path.write_text(source, encoding="utf-8")
        command = [*compiler(), *cpu_level.compile_flags(), f"-I{INCLUDE}", *flags]
        done = subprocess.run(
            [*command, "-fsyntax-only", str(path)], capture_output=True, text=True
        )
        assert done.returncode != 0, "the compiler took it"
        return done.stderr
