"""The suite's kernels, compiled for a backend: shipped images, a vendor's images, or on the host
the output of this machine's compiler."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from pathlib import Path

import uhal
from uhal import Device, compile
from uhal.images import cpu_level
from uhal.images.amd_target import TargetId

_HERE = Path(__file__).resolve().parent
ROOT = _HERE.parent
SUITE = next(
    folder for folder in (_HERE / "suite", ROOT / "tests" / "conformance") if folder.is_dir()
)
"""Folder of the tests: in the package, or in a checkout beside the other tests."""
KERNELS = SUITE / "kernels"
IMAGES = _HERE / "images"
"""Packaged images: `<backend>/<kernel>.<suffix>`; AMD's images have a folder per target."""
FOLDERS = {"webgpu": "opencl"}
"""Backends that use another backend's images; WebGPU translates SPIR-V."""


class NoImageError(Exception):
    """A kernel has no image, and no compiler here can make it."""


def image_for(
    backend: str, ordinal: int, source: Path, folder: Path, given: Path | None = None
) -> Path:
    """Return an image of one of the suite's kernels.

    `given` is a folder with an image of every kernel, named after its source; sidecars lie beside
    the images. `folder` keeps compiled files. Raises `NoImageError`.
    """
    if given is not None:
        return _only(given, source, f"--images {given}")
    shipped = IMAGES / FOLDERS.get(backend, backend)
    if backend == "rocm":
        isas = str(Device(ordinal, "rocm").attributes["HSA_AGENT_INFO_ISA"])
        shipped = shipped / TargetId.parse(isas.split(", ")[0]).processor
    if shipped.is_dir():
        return _only(shipped, source, str(shipped))
    if backend == "host":
        return compile_for_host(source, folder)
    raise NoImageError(
        f"no image of {source.name} for backend {backend!r}"
        f"{f' and {shipped.name}' if backend == 'rocm' else ''} came with uhal: compile every .cu "
        f"file of {KERNELS} for it and pass the folder of the images as --images"
    )


def _only(folder: Path, source: Path, reported: str) -> Path:
    found = [path for path in sorted(folder.glob(f"{source.stem}.*")) if path.suffix != ".sig"]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise NoImageError(f"{reported}: expected one image of {source.name}, got {names}")
    return found[0]


def compile_for_host(source: Path, folder: Path) -> Path:
    """Compile with this machine's C++ compiler; an equal earlier build is reused."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(shlex.split(compiler)[0]) is None:
        raise NoImageError(
            f"{source.name} for the host needs a C++ compiler, and {compiler} is not here"
        )
    recipe = f"{compiler} {' '.join(cpu_level.compile_flags())}"
    image = folder / f"{source.stem}-{digest_of(source, recipe)}.so"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(compile.host(source, checked=False))
        unfinished.replace(image)
    return image


def digest_of(source: Path, recipe: str) -> str:
    """Digest of a source, its possible headers, and the compiler command."""
    digest = hashlib.sha256(recipe.encode())
    headers = Path(uhal.__file__).resolve().parent / "include"
    for path in [source, *sorted(headers.rglob("*.h"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
