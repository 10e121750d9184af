"""Resources of each kernel in an image: registers, spills, shared memory, occupancy.

NVIDIA's `ptxas` reports them for PTX, for any target; AMD's code objects have them as metadata.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uhal.errors import ArgumentValueError, InvalidImageError
from uhal.images.fatbin import is_fatbin, read_fatbin
from uhal.images.gzipped import unpacked
from uhal.images.hsaco import HsacoKernel, is_hsaco, read_hsaco
from uhal.images.offload_bundle import is_offload_bundle, read_offload_bundle

WARP = 32


@dataclass(frozen=True)
class Processor:
    """Limits of a multiprocessor (NVIDIA) or of a work-group processor or compute unit (AMD)."""

    warps: int
    """Warps or wavefronts that a processor holds at once."""
    blocks: int
    registers: int
    """32-bit registers of all threads; on AMD, of a single lane in a SIMD."""
    shared: int
    """Bytes for all blocks."""
    parts: int = 4
    """Schedulers or SIMDs that share the warps."""
    granule: int = 256
    """Step of register allocation: registers of a warp, on AMD of a lane."""
    reserved: int = 1024
    """Bytes of shared memory that the driver reserves in each block."""


NVIDIA = {
    70: Processor(64, 32, 65536, 96 << 10, reserved=0),
    75: Processor(32, 16, 65536, 64 << 10, reserved=0),
    80: Processor(64, 32, 65536, 164 << 10),
    86: Processor(48, 16, 65536, 100 << 10),
    87: Processor(48, 16, 65536, 164 << 10),
    89: Processor(48, 24, 65536, 100 << 10),
    90: Processor(64, 32, 65536, 228 << 10),
    100: Processor(64, 32, 65536, 228 << 10),
    120: Processor(48, 24, 65536, 100 << 10),
}
"""Limits by compute capability, from "Technical Specifications" of the CUDA Programming Guide."""

_CDNA = Processor(32, 32, 512, 64 << 10, granule=8, reserved=0)
_RDNA2 = Processor(64, 64, 1024, 128 << 10, granule=16, reserved=0)
_RDNA3 = Processor(64, 64, 1536, 128 << 10, granule=24, reserved=0)
AMD = {
    "gfx90a": _CDNA,
    "gfx942": _CDNA,
    "gfx950": Processor(32, 32, 512, 160 << 10, granule=8, reserved=0),
    "gfx103": _RDNA2,
    "gfx110": _RDNA3,
    "gfx120": _RDNA3,
}
"""Limits by the start of a target's name, from LLVM's AMDGPUBaseInfo.cpp. RDNA: waves of 32."""


@dataclass(frozen=True)
class KernelResources:
    """Resources of a kernel on a target, in bytes; `None` for unknown."""

    kernel: str
    target: str
    registers: int | None
    """Registers of a thread, 32 bits each."""
    spill_stores: int | None
    spill_loads: int | None
    stack: int
    """Local memory or scratch of a thread."""
    shared: int
    """Shared memory or LDS of a block, without a launch's dynamic part."""
    wave: int = WARP
    """Threads of a warp or wavefront."""

    @property
    def spills(self) -> bool:
        """Whether registers are spilled to memory."""
        return bool(self.spill_stores) or bool(self.spill_loads)

    def occupancy(self, threads: int, dynamic_shared: int = 0) -> float | None:
        """Warps of this kernel that a processor holds, as a share of its limit: 0…1.

        `threads` is the size of a block. `None` for a target whose limits are unknown, or where the
        registers are unknown.
        """
        processor = _processor(self.target)
        if processor is None or self.registers is None:
            return None
        warps = -(-threads // self.wave)
        by_shared = processor.blocks
        shared = self.shared + dynamic_shared
        if shared:
            by_shared = processor.shared // (_rounded(shared, 128) + processor.reserved)
        blocks = min(
            processor.blocks,
            processor.warps // warps,
            _warps_by_registers(processor, self.registers, self.wave, self.target) // warps,
            by_shared,
        )
        return blocks * warps / processor.warps


def _warps_by_registers(processor: Processor, registers: int, wave: int, target: str) -> int:
    if target.startswith("sm_"):
        of_warp = _rounded(max(registers, 1) * WARP, processor.granule)
        return processor.registers // processor.parts // of_warp * processor.parts
    # A device with 32 lanes needs two rows of registers for a wavefront of 64.
    rows = 2 if wave == 64 and processor.registers > 512 else 1
    of_lane = _rounded(max(registers, 1), processor.granule // rows) * rows
    return processor.registers // of_lane * processor.parts


def _rounded(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _processor(target: str) -> Processor | None:
    found = re.match(r"sm_(\d+)", target)
    if found is not None:
        return NVIDIA.get(int(found[1]))
    name = target.partition(":")[0]
    return next((one for start, one in AMD.items() if name.startswith(start)), None)


# -- of images -------------------------------------------------------------------------------------


def of_image(image: bytes, target: str | None = None) -> list[KernelResources]:
    """Return a row for each kernel of PTX, a fatbin, a code object or a bundle of these.

    Gzip may have compressed the image.

    `target`, such as `sm_90`, is the device that PTX is compiled for. A code object has its own
    target; in a bundle, `target` chooses a code object, such as `gfx1100`.

    Raises `InvalidImageError` for other images and for PTX that `ptxas` refuses,
    `ArgumentValueError` without a target, and `FileNotFoundError` where there is no `ptxas` in
    `PATH`.
    """
    image = unpacked(image, "resources: the image")
    if is_offload_bundle(image):
        found = [
            row
            for one in read_offload_bundle(image)
            if is_hsaco(one.payload)
            for row in of_image(one.payload)
        ]
        targets = dict.fromkeys(row.target for row in found)
        if target is not None and target not in targets:
            listed = ", ".join(targets) or "no target"
            raise ArgumentValueError(f"resources: expected one of {listed}, got {target!r}")
        return [row for row in found if target in (None, row.target)]
    if is_hsaco(image):
        read = read_hsaco(image)
        return [_of_code_object(one, str(read.target)) for one in read.kernels]
    if target is None:
        raise ArgumentValueError("resources: expected a target for PTX, as in sm_90, got none")
    return of_ptx(_ptx_for(image, target), target)


def of_ptx(text: bytes, target: str, kernels: Sequence[str] = ()) -> list[KernelResources]:
    """Return a row for each kernel of a PTX text, as `ptxas` compiles it for a target.

    With `kernels` only these kernels are compiled. Raises the same errors as `of_image`.
    """
    if shutil.which("ptxas") is None:
        raise FileNotFoundError(
            "resources: expected ptxas in PATH, which comes with the CUDA toolkit"
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.ptx"
        source.write_bytes(text)
        command = ["ptxas", "-v", f"-arch={target}", *(f"--entry={one}" for one in kernels)]
        done = subprocess.run(
            [*command, str(source), "-o", str(Path(folder) / "cubin")],
            capture_output=True,
            encoding="utf-8",
        )
    if done.returncode:
        raise InvalidImageError(f"ptxas refuses it for {target}: {done.stderr.strip()[:500]}")
    return parse(done.stderr, target)


_KERNEL = re.compile(r"Compiling entry function '([^']+)' for")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse(reported: str, target: str) -> list[KernelResources]:
    """Read what `ptxas -v` says; device functions that it compiles apart are left out."""
    found: list[KernelResources] = []
    kernel: str | None = None
    properties = (0, 0, 0)
    is_own = False
    for line in reported.splitlines():
        if (named := _KERNEL.search(line)) is not None:
            kernel, properties = named[1], (0, 0, 0)
        elif "Function properties for" in line:
            is_own = kernel is not None and line.rstrip().endswith(f" {kernel}")
        elif is_own and (spilled := _SPILLS.search(line)) is not None:
            properties = (int(spilled[1]), int(spilled[2]), int(spilled[3]))
        elif kernel is not None and (used := _USED.search(line)) is not None:
            shared = _SHARED.search(used[2])
            stack, stores, loads = properties
            found.append(
                KernelResources(
                    kernel,
                    target,
                    int(used[1]),
                    stores,
                    loads,
                    stack,
                    int(shared[1]) if shared is not None else 0,
                )
            )
            kernel = None
    return found


def _ptx_for(image: bytes, target: str) -> bytes:
    """An image's newest PTX for a target."""
    if not is_fatbin(image):
        return image
    wanted = _number(target)
    texts = [one for one in read_fatbin(image) if one.kind == "PTX"]
    fitting = [one for one in texts if _number(one.target) <= wanted]
    if not fitting:
        listed = ", ".join(one.description for one in texts) or "none"
        raise InvalidImageError(f"resources: expected PTX for {target}, got {listed}")
    return max(fitting, key=lambda one: _number(one.target)).image().rstrip(b"\0")


def _number(target: str) -> int:
    found = re.match(r"sm_(\d+)", target)
    if found is None:
        raise ArgumentValueError(f"resources: expected a target as in sm_90, got {target!r}")
    return int(found[1])


def _of_code_object(kernel: HsacoKernel, target: str) -> KernelResources:
    spills = kernel.vector_spills
    return KernelResources(
        kernel=kernel.name,
        target=target,
        registers=kernel.vector_registers,
        spill_stores=None if spills is None else 4 * spills,
        spill_loads=None,
        stack=kernel.private_bytes,
        shared=kernel.group_bytes,
        wave=kernel.wavefront,
    )


__all__ = ["KernelResources", "of_image", "of_ptx", "parse"]
