"""Compiles HIP sources to AMD code objects without ROCm, with the compiler of the ziglang wheel.

The wheel holds clang and lld with every target, for any machine, and needs no rights to install.
One version of it is pinned: another compiler makes other bytes. Nothing of this machine is read
but the sources: no system headers, no device libraries.

As a program: `python -m build_support.hip_compiler TARGET VERSION SOURCE OUTPUT`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = Path("uhal", "include")
FREESTANDING = INCLUDE / "uhal" / "hip"
"""Our stand-ins for the headers of a C library that device code uses."""

PACKAGE = "ziglang"
PINNED = "0.17.0"

COMPILE = (
    *("-x", "hip", "-std=c++17", "-O3", "--cuda-device-only", "--no-gpu-bundle-output"),
    # Without these clang wants a ROCm installation.
    *("-nogpuinc", "-nogpulib"),
    # The default identifier of a compilation is made of the path.
    "-fuse-cuid=none",
    # The runtime finds kernels in `.symtab`, so that stays. The compiler's notes there of each
    # kernel's registers repeat the metadata.
    *("-Xoffload-linker", "--discard-all"),
)

_BESIDE = "-DUHAL_SIGNATURES=0"
"""Signatures lie beside our images, not in them."""
_LINE_MARKER = re.compile(r'^# \d+ "([^"]+)"', re.MULTILINE)
_ANALYZE = ("-x", "hip", "-std=c++17", "--cuda-device-only", "-nogpuinc", "-nogpulib", _BESIDE)


class CompilerError(Exception):
    """The compiler is missing, or failed; the message has its words."""


def toolchain() -> str | None:
    """Return the name and version of the compiler if it is the pinned one, otherwise `None`."""
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        return None
    return f"{PACKAGE} {found}" if found == PINNED else None


def compile_hsaco(
    source: Path,
    target: str,
    output: Path,
    *,
    code_object: int = 4,
    root: Path = ROOT,
    tells_signatures: bool = False,
) -> None:
    """Compile a source for one target id (`gfx90a`, `gfx90a:xnack-`) to a code object.

    `source` is relative to `root`, a folder laid out as this repository. The image has its kernels'
    signatures if `tells_signatures`. Raises `CompilerError`.
    """
    reported = () if tells_signatures else (_BESIDE,)
    options = (f"--offload-arch={target}", f"-mcode-object-version={code_object}", *reported)
    with tempfile.TemporaryDirectory() as folder:
        _write_linker(Path(folder))
        run_compiler(
            [*_clang(), f"-B{folder}", *options, *COMPILE, str(source), "-o", str(output)], root
        )
    # The linker makes a program of it.
    output.chmod(0o644)


def preprocess(source: Path, target: str, *, root: Path = ROOT) -> str:
    """Return the preprocessor's output for a source. Raises `CompilerError`."""
    return run_compiler([*_clang(), f"--offload-arch={target}", *_ANALYZE, "-E", str(source)], root)


def representation(source: Path, target: str, *, root: Path = ROOT) -> str:
    """Return the optimizer's output for a source, as LLVM's text. Raises `CompilerError`."""
    options = (f"--offload-arch={target}", *_ANALYZE, "-O1", "-S", "-emit-llvm")
    return run_compiler([*_clang(), *options, str(source), "-o", "-"], root)


def included_files(expanded: str, *, root: Path = ROOT) -> list[Path]:
    """Return the files under `root` that a preprocessed source was made of, relative to `root`.

    Headers of the compiler are none of them, wherever it is installed: its version stands for them.
    """
    named = (root / name for name in set(_LINE_MARKER.findall(expanded)))
    builtin = _builtin_headers()
    # The compiler also marks pieces that lie in no file.
    paths = (path.resolve() for path in named if path.is_file())
    own = (path for path in paths if not path.is_relative_to(builtin))
    return sorted(path.relative_to(root) for path in own if path.is_relative_to(root))


def _clang() -> list[str]:
    if toolchain() is None:
        raise CompilerError(f"needs pip install {PACKAGE}=={PINNED}")
    builtin = str(_builtin_headers())
    headers = ("-nostdinc", f"-I{INCLUDE}", "-isystem", str(FREESTANDING), "-isystem", builtin)
    return [sys.executable, "-m", PACKAGE, "clang", *headers]


def _builtin_headers() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None and found.origin is not None
    return Path(found.origin).resolve().parent / "lib" / "include"


def _write_linker(folder: Path) -> None:
    """The `lld` that clang's driver calls; it has another name in the wheel."""
    linker = folder / "lld"
    python = shlex.quote(sys.executable)
    # The driver passes `-flavor gnu` first.
    text = f'#!/bin/sh\nshift 2\nexec {python} -m {PACKAGE} ld.lld "$@"\n'
    linker.write_text(text, encoding="utf-8")
    linker.chmod(0o755)


def run_compiler(command: Sequence[str], root: Path) -> str:
    """Run a compiler's command in `root`; return its output. Raises `CompilerError`."""
    # From the root, so that the compiler's output has no path of this machine.
    environment = {name: value for name, value in os.environ.items() if name not in _INFLUENCES}
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", env=environment)
    if done.returncode != 0:
        raise CompilerError(f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


_INFLUENCES = frozenset(("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "SOURCE_DATE_EPOCH"))
"""Environment variables that would change clang's output."""


if __name__ == "__main__":
    wanted, object_version, given, made = sys.argv[1:]
    try:
        compile_hsaco(
            Path(given).resolve(), wanted, Path(made).resolve(), code_object=int(object_version)
        )
    except CompilerError as error:
        sys.exit(str(error))
