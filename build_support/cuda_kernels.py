"""Compiles the kernels of `ubridge/kernels` for NVIDIA's devices: `make kernels`.

The images are committed, so that nobody needs nvcc to use them. Each module becomes PTX for every
device from compute capability 7.5 on and binaries for the most common devices, in one fatbin that
gzip compresses. Some fatbins also have PTX for later devices. Sources in a folder `sm_80` are for
devices from 8.0 on, and not for other vendors. The same sources, nvcc and zlib give the same bytes
in any directory.

Only changes are compiled: a module is skipped if the manifest has its sources, its compiler and its
images.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from build_support.kernel_declarations import DeclarationError, declared_signatures, sidecar_text
from build_support.kernel_manifest import digest
from build_support.kernel_modules import run_command, update_modules
from uhal.images.fatbin import read_fatbin
from uhal.images.ptx import SIGNATURE_MARK, read_ptx
from uhal.signature import Signature

ROOT = Path(__file__).resolve().parents[1]
KERNELS = Path("ubridge", "kernels")
IMAGES = KERNELS / "images" / "cuda"
INCLUDE = Path("uhal", "include")
SUFFIX = ".fatbin.gz"

PTX_TARGET = "75"
"""Target of sources outside the folders of targets."""
FURTHER_PTX = {"quantized": ("80",)}
"""Modules with other instructions on later devices: tensor cores of 8.0 multiply more at once.
Devices without a binary of their own compile the newest PTX that they can."""
CUBIN_TARGETS = ("80", "90")
PTX_VERSIONS = (
    *("6.3", "6.4", "6.5", "7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8"),
    *("8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0"),
)
"""Every version since devices of compute capability 7.5, oldest first."""

RECIPE = 2
"""Increase this number when the same sources and nvcc give other images."""

COMPILE = ("nvcc", "-std=c++17", "-O3", f"-I{INCLUDE}", "-DUHAL_SIGNATURES=0")
"""Comments and sidecar files hold the signatures, so images need not carry them."""

_FAULT_CHANNEL = re.compile(r"^\.global [^;]*\buhal_fault\b", re.MULTILINE)
_USED_BYTES = re.compile(r'^\s*\.pragma "used_bytes_mask \w+";\n', re.MULTILINE)
_VERSION_LINE = re.compile(r"^\.version .*$", re.MULTILINE)
_KERNEL = re.compile(
    r"__attribute__\(\(global\)\)\s+void\s+__attribute__\(\(launch_bounds\([^()]*\)\)\)\s*(\w+)\s*\("
)


class BuildError(Exception):
    """A compiler failed or is missing."""


def main(destination: Path, names: Iterable[str] | None = None) -> None:
    """Update the named modules in `destination`, or all, and its manifest."""
    if shutil.which("nvcc") is None:
        raise BuildError("nvcc is not on the PATH: install the CUDA toolkit")
    found = module_sources()
    update_modules(
        "CUDA",
        destination,
        ROOT,
        compiler(),
        ((name, _sources(found[name])) for name in sorted(found if names is None else names)),
        lambda name: build_module(name, destination),
    )


def module_sources() -> dict[str, Path]:
    """Return the source of every module, relative to the repository's root."""
    found = [*(ROOT / KERNELS).glob("*.cu"), *(ROOT / KERNELS).glob("sm_*/*.cu")]
    return {source.stem: source.relative_to(ROOT) for source in found}


def ptx_target(source: Path) -> str:
    """Return the least compute capability (`75`) that a source is compiled for."""
    folder = source.parent.name
    return folder.removeprefix("sm_") if folder.startswith("sm_") else PTX_TARGET


def build_module(name: str, destination: Path) -> dict[str, object]:
    """Compile a module; return its part of the manifest without the sources."""
    source = module_sources()[name]
    with tempfile.TemporaryDirectory() as folder:
        parts = Path(folder)
        ptx = parts / f"{name}.ptx"
        signatures = compile_ptx(source, ptx)
        images = [f"--image3=kind=ptx,sm={ptx_target(source)},file={ptx}"]
        for target in FURTHER_PTX.get(name, ()):
            further = parts / f"{name}-{target}.ptx"
            compile_ptx(source, further, target=target)
            images.append(f"--image3=kind=ptx,sm={target},file={further}")
        for target in CUBIN_TARGETS:
            cubin = parts / f"{target}.cubin"
            compile_cubin(source, target, cubin)
            images.append(f"--image3=kind=elf,sm={target},file={cubin}")
        fatbin = parts / f"{name}.fatbin"
        _run(["fatbinary", "-64", "--compress-mode=none", f"--create={fatbin}", *images])
        image = destination / f"{name}{SUFFIX}"
        # fatbinary's LZ4 is larger, and Python would decode it. Every Python has gzip.
        image.write_bytes(gzip.compress(fatbin.read_bytes(), 9, mtime=0))
        # fatbinary drops PTX comments, including the signatures.
        sidecar = destination / f"{image.name}.sig"
        sidecar.write_text(sidecar_text(signatures), encoding="utf-8")
        return {
            "images": {path.name: digest(path) for path in (image, sidecar)},
            "targets": [entry.description for entry in read_fatbin(fatbin.read_bytes())],
            "signatures": {entry: reported.declaration for entry, reported in signatures.items()},
        }


def compile_cubin(source: Path, target: str, output: Path) -> None:
    """Compile a source for one compute capability (`80`), through PTX."""
    ptx = output.with_suffix(".ptx")
    _run([*COMPILE, "--ptx", f"-arch=compute_{target}", str(source), "-o", str(ptx)])
    ptx.write_text(_with_visible_globals(ptx.read_text(encoding="ascii")), encoding="ascii")
    _run(["ptxas", "-O3", f"-arch=sm_{target}", str(ptx), "-o", str(output)])


def compile_ptx(
    source: Path, output: Path, *options: str, target: str | None = None
) -> dict[str, Signature]:
    """Compile a source to PTX with its signatures, in the lowest version that ptxas takes.

    `source` is relative to the repository's root, `target` (`80`) the least compute capability,
    by default the source's own. Returns the signatures by entry.
    """
    least = target or ptx_target(source)
    arch = f"-arch=compute_{least}"
    _run([*COMPILE, *options, "--ptx", arch, str(source), "-o", str(output)])
    text = _with_visible_globals(output.read_text(encoding="ascii"))
    # Directives that only new versions of ptxas accept.
    text = _USED_BYTES.sub("", text)
    expanded = _run([*COMPILE, *options, "-E", arch, str(source)])
    signatures = declared_signatures(expanded, _KERNEL, read_ptx(text.encode()).signatures)
    lines = [
        f"{SIGNATURE_MARK}{name}: {reported.declaration}\n" for name, reported in signatures.items()
    ]
    for version in PTX_VERSIONS:
        lowered = _VERSION_LINE.sub(f".version {version}", text, count=1)
        output.write_text("".join(lines) + lowered, encoding="ascii")
        check = ["ptxas", "-c", f"-arch=sm_{least}", str(output), "-o", os.devnull]
        if subprocess.run(check, capture_output=True).returncode == 0:
            return signatures
    raise BuildError(f"ptxas takes {source.name} under no version of PTX")


def _with_visible_globals(ptx: str) -> str:
    """Make `uhal_fault` readable from a loaded module.

    Without -rdc=true nvcc hides every global; with it, a cubin must still be linked.
    """
    return _FAULT_CHANNEL.sub(r".visible \g<0>", ptx)


def _sources(source: Path) -> list[Path]:
    """The files of this repository that an image depends on, relative to its root."""
    rule = _run([*COMPILE, "-M", f"-arch=compute_{ptx_target(source)}", str(source)])
    words = rule.partition(":")[2].replace("\\\n", " ").split()
    relative = (os.path.relpath((ROOT / word).resolve(), ROOT) for word in words)
    return sorted({Path(path) for path in relative if not path.startswith("..")})


def compiler() -> str:
    """Return the compiler of the images, without details that differ between machines."""
    found = re.search(r"release [\d.]+, (V[\d.]+)", _run(["nvcc", "--version"]))
    if found is None:
        raise BuildError("nvcc --version names no release")
    return f"nvcc {found[1]}, zlib {zlib.ZLIB_RUNTIME_VERSION}, recipe {RECIPE}"


def _run(command: Sequence[str]) -> str:
    # Run from the root, so that the command line in an image has no path of this machine.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        raise BuildError(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    run_command(__doc__, main, ROOT / IMAGES, (BuildError, DeclarationError))
