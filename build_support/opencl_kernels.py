"""Compiles the kernels of `ubridge/kernels` for OpenCL: `make kernels-opencl`.

The images are committed, so that nobody needs a compiler to use them. Each module becomes one
SPIR-V module, compressed by gzip, for every device. The same sources, compiler and zlib give the
same bytes in any directory; only what changed is compiled.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from build_support.hip_compiler import ROOT, CompilerError, included_files, toolchain
from build_support.kernel_declarations import DeclarationError, declared_signatures, sidecar_text
from build_support.kernel_manifest import (
    MANIFEST,
    digest,
    digests,
    is_current,
    read_manifest,
    write_manifest,
)
from build_support.opencl_compiler import compile_spirv, preprocess
from opencl_backend.spirv import SpirvModule

KERNELS = Path("ubridge", "kernels")
IMAGES = KERNELS / "images" / "opencl"
SUFFIX = ".spv.gz"

KERNEL = re.compile(
    r"__attribute__\(\(global, work_group_size_hint\([^()]*\)\)\)\s+void\s+(\w+)\s*\("
)


def main(destination: Path, root: Path = ROOT, names: Iterable[str] | None = None) -> None:
    """Bring the named modules under `root`, or all, up to date in `destination`."""
    destination.mkdir(parents=True, exist_ok=True)
    before = read_manifest(destination / MANIFEST, compiler())
    modules: dict[str, Mapping[str, Any]] = {}
    for source in sorted((root / KERNELS).glob("*.cu")):
        if names is not None and source.stem not in names:
            continue
        expanded = preprocess(KERNELS / source.name, root=root)
        sources = digests(root, included_files(expanded, root=root))
        known = before.get(source.stem)
        if known is not None and is_current(known, sources, destination):
            modules[source.stem] = known
            continue
        print(f"kernels {source.stem} (OpenCL) …", flush=True)
        built = build_module(source.stem, expanded, destination, root)
        modules[source.stem] = {"sources": sources, **built}
    write_manifest(destination / MANIFEST, compiler(), modules)


def compiler() -> str | None:
    """Return what the images are made with, `None` without the pinned compiler."""
    found = toolchain()
    return None if found is None else f"{found}, zlib {zlib.ZLIB_RUNTIME_VERSION}"


def build_module(name: str, expanded: str, destination: Path, root: Path) -> dict[str, object]:
    """Compile one module; return its part of the manifest, but for the sources."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, name)
        compile_spirv(KERNELS / f"{name}.cu", output, root=root)
        module = output.read_bytes()
    signatures = declared_signatures(expanded, KERNEL, SpirvModule(module, name).signatures)
    image = destination / f"{name}{SUFFIX}"
    image.write_bytes(gzip.compress(module, 9, mtime=0))
    sidecar = destination / f"{image.name}.sig"
    sidecar.write_text(sidecar_text(signatures), encoding="utf-8")
    return {
        "images": {path.name: digest(path) for path in (image, sidecar)},
        "signatures": {entry: told.declaration for entry, told in signatures.items()},
    }


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / IMAGES)
    except (CompilerError, DeclarationError) as error:
        sys.exit(f"make kernels-opencl: {error}")
