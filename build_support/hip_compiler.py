"""Compiles HIP sources to AMD code objects without ROCm, with the compiler of the ziglang wheel.

The wheel holds clang and lld with every target, for any machine, and needs no rights to install.
Its version is pinned, because another compiler makes other bytes. It reads only the sources of this
machine: no system headers, no device libraries.

As a program: `python -m build_support.hip_compiler TARGET VERSION SOURCE OUTPUT`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rocm_backend.compile import LANGUAGE, OBJECT, front_end, write_linker
from uhal.images.kernel_source import INFLUENCES, PACKAGE, builtin_headers

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = Path("uhal", "include")
PINNED = "0.17.0"

_BESIDE = "-DUHAL_SIGNATURES=0"
"""Signatures lie beside our images, not in them."""
_LINE_MARKER = re.compile(r'^# \d+ "([^"]+)"', re.MULTILINE)
_ANALYZE = (*LANGUAGE, _BESIDE)


class CompilerError(Exception):
    """The compiler is missing or failed; the exception has its message."""


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
        linker = write_linker(Path(folder))
        run_compiler(
            [
                *_clang(),
                f"-B{linker}",
                *options,
                *LANGUAGE,
                *OBJECT,
                str(source),
                "-o",
                str(output),
            ],
            root,
        )
    # The linker turns the object into a loadable code object.
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

    Headers of the compiler are excluded, wherever it is installed: its version represents them.
    """
    named = (root / name for name in set(_LINE_MARKER.findall(expanded)))
    builtin = builtin_headers("rocm", "AMD devices")
    # The compiler also marks parts that are in no file.
    paths = (path.resolve() for path in named if path.is_file())
    own = (path for path in paths if not path.is_relative_to(builtin))
    return sorted(path.relative_to(root) for path in own if path.is_relative_to(root))


def _clang() -> list[str]:
    if toolchain() is None:
        raise CompilerError(f"needs pip install {PACKAGE}=={PINNED}")
    return front_end(str(INCLUDE))


def run_compiler(command: Sequence[str], root: Path) -> str:
    """Run a compiler's command in `root`; return its output. Raises `CompilerError`."""
    # Run from the root, so that the compiler's output has no path of this machine.
    environment = {name: value for name, value in os.environ.items() if name not in INFLUENCES}
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", env=environment)
    if done.returncode != 0:
        raise CompilerError(f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    wanted, object_version, given, made = sys.argv[1:]
    try:
        compile_hsaco(
            Path(given).resolve(), wanted, Path(made).resolve(), code_object=int(object_version)
        )
    except CompilerError as error:
        sys.exit(str(error))
