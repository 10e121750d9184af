"""Style of files outside ruff: clang-format for C and C++, cython-lint for Cython.

    python -m build_support.formatting [--check]

formats C and C++; with `--check` it writes nothing, and a difference is an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LEFT_AS_WRITTEN = (
    # lists compared line by line with the vendors' headers
    *("abi.h", "nccl_abi.h", "cublaslt_abi.h"),
    # kernels: bodies behind macros, which clang-format does not recognize
    *("ubridge/kernels/", "uhal/include/", "simulators/tops/kernels/", "tests/"),
)


def sources(*patterns: str) -> list[str]:
    """Tracked files of these patterns, without `LEFT_AS_WRITTEN`."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [
        name
        for name in listed
        if not name.startswith(LEFT_AS_WRITTEN) and Path(name).name not in LEFT_AS_WRITTEN
    ]


def main(arguments: Sequence[str]) -> int:
    """Format, or check with `--check`; return 1 if manual changes are needed."""
    tools = Path(sys.executable).parent
    # cython-lint calls pycodestyle by name
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    what = ("--dry-run", "-Werror") if "--check" in arguments else ("-i",)
    commands = (
        ("clang-format", *what, *sources("*.c", "*.h", "*.cpp")),
        ("cython-lint", *sources("*.pyx", "*.pxi")),
    )
    codes = [
        subprocess.run([str(tools / name), *options], cwd=ROOT, env=environment).returncode
        for name, *options in commands
    ]
    return int(any(codes))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
