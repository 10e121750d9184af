"""Compiles the kernels of the conformance suite for devices: `make kernels` runs it.

    python -m build_support.conformance_images cuda|rocm|opencl

The images are committed, so that the suite runs without a compiler; `sources.json` beside them has
the digests of their sources. Images for the host are built with a wheel.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from build_support import cuda_kernels, hip_compiler, opencl_compiler, opencl_kernels, rocm_kernels
from build_support.kernel_declarations import declared_signatures
from uhal.images.hsaco import read_hsaco
from uhal.images.spirv import SpirvModule
from uhal.signature import Signature

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "tests" / "conformance" / "kernels"
IMAGES = ROOT / "uhal_conformance" / "images"


def compile_cuda(source: Path, image: Path) -> None:
    """Compile to PTX; `source` is relative to the checkout."""
    # Without -rdc=true, variables are invisible to other files and to Module.get_global.
    cuda_kernels.compile_ptx(source, image, "-rdc=true")


def compile_rocm(target: str, source: Path, image: Path) -> dict[str, Signature]:
    """Compile to a code object for a target; return signatures the object lacks."""
    hip_compiler.compile_hsaco(source, target, image)
    return declared_signatures(
        hip_compiler.preprocess(source, target),
        rocm_kernels.KERNEL,
        read_hsaco(image.read_bytes()).signatures,
    )


def compile_opencl(source: Path, image: Path) -> dict[str, Signature]:
    """Compile to SPIR-V; return signatures that the module lacks."""
    opencl_compiler.compile_spirv(source, image)
    return declared_signatures(
        opencl_compiler.preprocess(source),
        opencl_kernels.KERNEL,
        SpirvModule(image.read_bytes()).signatures,
    )


def write_sidecar(image: Path, signatures: Mapping[str, Signature]) -> None:
    """Write `<image>.sig`."""
    lines = [f"{entry}: {reported.declaration}\n" for entry, reported in signatures.items()]
    image.with_name(f"{image.name}.sig").write_text("".join(lines), encoding="utf-8")


def source_digests() -> dict[str, str]:
    """Return a digest of each source, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(KERNELS.glob("*.cu"))
    }


def main(backend: str) -> None:
    """Compile every source for one backend."""
    folder = IMAGES / backend
    shutil.rmtree(folder, ignore_errors=True)
    for source in sorted(KERNELS.glob("*.cu")):
        place = source.relative_to(ROOT)
        for target in rocm_kernels.TARGETS if backend == "rocm" else ("",):
            suffix = {"cuda": ".ptx", "rocm": ".hsaco", "opencl": ".spv"}[backend]
            image = folder / target / f"{source.stem}{suffix}"
            image.parent.mkdir(parents=True, exist_ok=True)
            if backend == "cuda":
                compile_cuda(place, image)
            elif backend == "rocm":
                write_sidecar(image, compile_rocm(target, place, image))
            else:
                write_sidecar(image, compile_opencl(place, image))
            print(image.relative_to(ROOT), image.stat().st_size)
    made_of = folder / "sources.json"
    made_of.write_text(json.dumps(source_digests(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
