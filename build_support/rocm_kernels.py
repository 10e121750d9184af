"""Compiles the kernels of `ubridge/kernels` for AMD's devices: `make kernels`.

The images are committed, so that nobody needs a compiler to use them. Each module becomes one
offload bundle, which HIP loads too, with a code object for every target below. The same sources and
the same compiler give the same bytes in any directory.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from build_support.hip_compiler import (
    ROOT,
    CompilerError,
    compile_hsaco,
    included_files,
    preprocess,
    toolchain,
)
from build_support.kernel_declarations import DeclarationError, declared_signatures
from uhal.images.hsaco import read_hsaco
from uhal.images.offload_bundle import MAGIC
from uhal.signature import Signature

KERNELS = Path("ubridge", "kernels")
IMAGES = KERNELS / "images" / "rocm"
MANIFEST = "manifest.json"
SUFFIX = ".hipfb"

TARGETS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
"""MI200, MI300, and the three generations of RDNA since 2020. Features are left open."""

_HOST_ENTRY = "host-x86_64-unknown-linux-gnu-"
"""HIP expects one, whatever the machine; it is empty."""
_DEVICE_ENTRY = "hipv4-amdgcn-amd-amdhsa--"
_ALIGNMENT = 256
"""Of each code object in the bundle, as of the code in it."""

KERNEL = re.compile(
    r"__attribute__\(\(global, amdgpu_flat_work_group_size\([^()]*\)\)\)\s+void\s+(\w+)\s*\("
)


def main(destination: Path, root: Path = ROOT) -> None:
    """Compile every module under `root` into `destination` and write the manifest there."""
    compiler = toolchain()
    destination.mkdir(parents=True, exist_ok=True)
    modules: dict[str, object] = {}
    for source in sorted((root / KERNELS).glob("*.cu")):
        print(f"kernels {source.stem} (ROCm) …", flush=True)
        modules[source.stem] = build_module(source.stem, destination, root)
    manifest = {"compiler": compiler, "modules": modules}
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (destination / MANIFEST).write_text(text, encoding="utf-8")


def build_module(name: str, destination: Path, root: Path) -> dict[str, object]:
    """Compile one module; return its part of the manifest."""
    source = KERNELS / f"{name}.cu"
    objects: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            output = Path(folder, target)
            compile_hsaco(source, target, output, root=root)
            objects[target] = output.read_bytes()
    signatures = _signatures(source, objects, root)
    bundle = destination / f"{name}{SUFFIX}"
    bundle.write_bytes(_bundle(objects))
    sidecar = destination / f"{bundle.name}.sig"
    lines = [f"{entry}: {signature.declaration}\n" for entry, signature in signatures.items()]
    sidecar.write_text("".join(lines), encoding="utf-8")
    sources = included_files(preprocess(source, TARGETS[0], root=root), root=root)
    return {
        "sources": {path.as_posix(): _digest(root / path) for path in sources},
        "images": {path.name: _digest(path) for path in (bundle, sidecar)},
        "targets": list(objects),
        "signatures": {entry: told.declaration for entry, told in signatures.items()},
    }


def _signatures(source: Path, objects: Mapping[str, bytes], root: Path) -> dict[str, Signature]:
    """What the source declares, the same for every target."""
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


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / IMAGES)
    except (CompilerError, DeclarationError) as error:
        sys.exit(f"make kernels: {error}")
