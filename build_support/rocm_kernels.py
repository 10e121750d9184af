"""Compiles the kernels of `ubridge/kernels` for AMD's devices: `make kernels`.

The images are committed, so that nobody needs a compiler to use them. Each module becomes one
compressed offload bundle, which HIP loads too, with a code object for every target below. The same
sources, compiler and zlib give the same bytes in any directory; only changed modules are compiled.
"""

from __future__ import annotations

import re
import struct
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from build_support.hip_compiler import (
    ROOT,
    CompilerError,
    compile_hsaco,
    included_files,
    preprocess,
    toolchain,
)
from build_support.kernel_declarations import DeclarationError, declared_signatures, sidecar_text
from build_support.kernel_manifest import digest
from build_support.kernel_modules import run_command, update_modules
from uhal.images.hsaco import read_hsaco
from uhal.images.offload_bundle import COMPRESSED_MAGIC, MAGIC
from uhal.signature import Signature

KERNELS = Path("ubridge", "kernels")
IMAGES = KERNELS / "images" / "rocm"
SUFFIX = ".hipfb"

TARGETS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
"""MI200, MI300, and the three generations of RDNA since 2020. Features are left open."""

_HOST_ENTRY = "host-x86_64-unknown-linux-gnu-"
"""HIP expects this entry on any machine; it is empty."""
_DEVICE_ENTRY = "hipv4-amdgcn-amd-amdhsa--"
_ALIGNMENT = 256
"""Alignment of each code object in the bundle, as of the code in it."""

KERNEL = re.compile(
    r"__attribute__\(\(global, amdgpu_flat_work_group_size\([^()]*\)\)\)\s+void\s+(\w+)\s*\("
)


def main(destination: Path, root: Path = ROOT, names: Iterable[str] | None = None) -> None:
    """Bring the named modules under `root`, or all, up to date in `destination`."""
    names = {source.stem for source in (root / KERNELS).glob("*.cu")} if names is None else names
    update_modules(
        "ROCm",
        destination,
        root,
        compiler(),
        ((name, _sources(name, root)) for name in sorted(names)),
        lambda name: build_module(name, destination, root),
    )


def _sources(name: str, root: Path) -> Iterable[Path]:
    expanded = preprocess(KERNELS / f"{name}.cu", TARGETS[0], root=root)
    return included_files(expanded, root=root)


def compiler() -> str | None:
    """Return the compiler of the images, `None` without the pinned compiler."""
    found = toolchain()
    return None if found is None else f"{found}, zlib {zlib.ZLIB_RUNTIME_VERSION}"


def build_module(name: str, destination: Path, root: Path) -> dict[str, object]:
    """Compile a module; return its part of the manifest without the sources."""
    source = KERNELS / f"{name}.cu"
    objects: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            output = Path(folder, target)
            compile_hsaco(source, target, output, root=root)
            objects[target] = output.read_bytes()
    signatures = _signatures(source, objects, root)
    bundle = destination / f"{name}{SUFFIX}"
    bundle.write_bytes(_compressed(_bundle(objects)))
    sidecar = destination / f"{bundle.name}.sig"
    sidecar.write_text(sidecar_text(signatures), encoding="utf-8")
    return {
        "images": {path.name: digest(path) for path in (bundle, sidecar)},
        "targets": list(objects),
        "signatures": {entry: reported.declaration for entry, reported in signatures.items()},
    }


def _signatures(source: Path, objects: Mapping[str, bytes], root: Path) -> dict[str, Signature]:
    """The source's declarations, the same for every target."""
    found: dict[str, Signature] = {}
    for target, image in objects.items():
        expanded = preprocess(source, target, root=root)
        declared = declared_signatures(expanded, KERNEL, read_hsaco(image).signatures)
        if found and declared != found:
            raise DeclarationError(f"{source} declares other kernels for {target}")
        found = declared
    return found


def _bundle(objects: Mapping[str, bytes]) -> bytes:
    """The offload bundle of code objects by target."""
    entries = [(_HOST_ENTRY, b"")]
    entries += [(f"{_DEVICE_ENTRY}{target}", image) for target, image in objects.items()]
    table_bytes = len(MAGIC) + 8 + sum(24 + len(name) for name, _ in entries)
    table = MAGIC + struct.pack("<Q", len(entries))
    body = b""
    start = -(-table_bytes // _ALIGNMENT) * _ALIGNMENT
    for name, image in entries:
        body += bytes(-len(body) % _ALIGNMENT)
        table += struct.pack("<QQQ", start + len(body), len(image), len(name)) + name.encode()
        body += image
    return table.ljust(start, b"\0") + body


def _compressed(bundle: bytes) -> bytes:
    """The bundle as clang's --offload-compress writes it with zlib, in version 2 of that header.

    Readers do not use the digest of the contents; clang's own differs between its versions.
    """
    packed = zlib.compress(bundle, 9)
    header = struct.Struct("<4sHHIIQ")
    unused_digest = 0
    size = header.size + len(packed)
    return header.pack(COMPRESSED_MAGIC, 2, 0, size, len(bundle), unused_digest) + packed


if __name__ == "__main__":
    run_command(__doc__, main, ROOT / IMAGES, (CompilerError, DeclarationError))
