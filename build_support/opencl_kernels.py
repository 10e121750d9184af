"""Compiles the kernels of `ubridge/kernels` for OpenCL: `make kernels-opencl`.

The images are committed, so users need no compiler. Each module becomes one
SPIR-V module, compressed by gzip, for every device. The same sources, compiler and zlib give the
same bytes in any directory; only changed modules are compiled.
"""

from __future__ import annotations

import gzip
import re
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from build_support.hip_compiler import ROOT, CompilerError, included_files, toolchain
from build_support.kernel_declarations import DeclarationError, declared_signatures, sidecar_text
from build_support.kernel_manifest import digest
from build_support.kernel_modules import run_command, update_modules
from build_support.opencl_compiler import compile_spirv, preprocess
from uhal.images.spirv import SpirvModule

KERNELS = Path("ubridge", "kernels")
IMAGES = KERNELS / "images" / "opencl"
SUFFIX = ".spv.gz"

KERNEL = re.compile(
    r"__attribute__\(\(global, work_group_size_hint\([^()]*\)\)\)\s+void\s+(\w+)\s*\("
)


def main(destination: Path, root: Path = ROOT, names: Iterable[str] | None = None) -> None:
    """Bring the named modules under `root`, or all, up to date in `destination`."""
    names = {source.stem for source in (root / KERNELS).glob("*.cu")} if names is None else names
    update_modules(
        "OpenCL",
        destination,
        root,
        compiler(),
        ((name, _sources(name, root)) for name in sorted(names)),
        lambda name: build_module(name, destination, root),
    )


def _sources(name: str, root: Path) -> Iterable[Path]:
    return included_files(preprocess(KERNELS / f"{name}.cu", root=root), root=root)


def compiler() -> str | None:
    """Return the compiler of the images, `None` without the pinned compiler."""
    found = toolchain()
    return None if found is None else f"{found}, zlib {zlib.ZLIB_RUNTIME_VERSION}"


def build_module(name: str, destination: Path, root: Path) -> dict[str, object]:
    """Compile a module; return its part of the manifest without the sources."""
    source = KERNELS / f"{name}.cu"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, name)
        compile_spirv(source, output, root=root)
        module = output.read_bytes()
    expanded = preprocess(source, root=root)
    signatures = declared_signatures(expanded, KERNEL, SpirvModule(module, name).signatures)
    image = destination / f"{name}{SUFFIX}"
    image.write_bytes(gzip.compress(module, 9, mtime=0))
    sidecar = destination / f"{image.name}.sig"
    sidecar.write_text(sidecar_text(signatures), encoding="utf-8")
    return {
        "images": {path.name: digest(path) for path in (image, sidecar)},
        "signatures": {entry: reported.declaration for entry, reported in signatures.items()},
    }


if __name__ == "__main__":
    run_command(__doc__, main, ROOT / IMAGES, (CompilerError, DeclarationError))
