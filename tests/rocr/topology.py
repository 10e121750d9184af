"""Descriptions of devices in the format of sysfs, from which AMD's runtime reads them.

Such a folder tells a device model its properties. For each target the numbers come from AMD's
specifications of one product; the runtime reads `properties` as `name number` lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Gpu:
    """A product."""

    target: str
    """The runtime's name for the target, features included."""
    version: int
    """Major, minor and stepping of the target, two decimal digits each."""
    device_id: int
    """The device's id on PCI."""
    compute_units: int
    simds_of_unit: int
    waves_of_simd: int
    wavefront: int
    engines: int
    """Shader engines, on all dies."""
    memory_gib: int
    l1_kib: int
    l2_kib: int
    dies: int = 1

    @property
    def processor(self) -> str:
        """The target without features."""
        return self.target.partition(":")[0]


GPUS = (
    Gpu("gfx90a:sramecc+:xnack-", 90010, 0x740F, 104, 4, 8, 64, 8, 64, 16, 8192),  # MI210
    Gpu(
        "gfx942:sramecc+:xnack-", 90402, 0x74A1, 304, 4, 8, 64, 32, 192, 32, 4096, dies=8
    ),  # MI300X
    Gpu("gfx1030", 100300, 0x73BF, 80, 2, 16, 32, 4, 16, 16, 4096),  # RX 6900 XT
    Gpu("gfx1100", 110000, 0x744C, 96, 2, 16, 32, 6, 24, 32, 6144),  # RX 7900 XTX
    Gpu("gfx1201", 120001, 0x7550, 64, 2, 16, 32, 4, 16, 32, 8192),  # RX 9070 XT
)

NO_MODEL = {"gfx90a": "gfx942", "gfx1030": "gfx1100"}
"""Targets without a model in ROCr 7.2, and a substitute for each.

On devices before gfx942 and gfx11 the runtime calls the driver to install a trap handler. The
runtime's model of the driver lacks this call and ends the process.
"""

# Bits of a node's capability, as in hsakmttypes.h.
_WATCH_POINTS = 1 << 7 | 2 << 8
_DOORBELLS_OF_64_BITS = 2 << 12
_SRAM_ECC = 1 << 26
_SHARED_VIRTUAL_MEMORY = 1 << 27
_DEBUG_FIRMWARE = 1 << 29
"""Without this bit a second start of the runtime fails; with it the second start ends the
process."""

_SYSTEM_MEMORY, _PUBLIC_DEVICE_MEMORY = 0, 1
_PCI_EXPRESS = 2
_DATA_CACHE = 1 | 8  # for the GPU
_AMD = 0x1002


def write(folder: Path, gpu: Gpu) -> None:
    """Write the description of a machine with one CPU and this GPU."""
    _write(folder, "generation_id", "1\n")
    _write_properties(
        folder,
        "",
        {"platform_oem": 0, "platform_id": 0, "platform_rev": 0},
        name="system_properties",
    )
    cpu = {"cpu_cores_count": 2, "mem_banks_count": 1, "io_links_count": 1}
    _write_node(folder, 0, gpu_id=0, properties=cpu, heap=_SYSTEM_MEMORY, memory_gib=16)
    _write_node(
        folder,
        1,
        # The runtime's model counts devices from 1 and expects the id of the next device.
        gpu_id=2,
        properties=_properties(gpu),
        heap=_PUBLIC_DEVICE_MEMORY,
        memory_gib=gpu.memory_gib,
    )
    for index, (level, kib) in enumerate(((1, gpu.l1_kib), (2, gpu.l2_kib))):
        cache = {"processor_id_low": 0, "level": level, "size": kib, "cache_line_size": 128}
        _write_properties(folder, f"nodes/1/caches/{index}", {**cache, "type": _DATA_CACHE})


def _properties(gpu: Gpu) -> Mapping[str, int]:
    capability = _WATCH_POINTS | _DOORBELLS_OF_64_BITS | _SHARED_VIRTUAL_MEMORY | _DEBUG_FIRMWARE
    if "sramecc+" in gpu.target:
        capability |= _SRAM_ECC
    return {
        "simd_count": gpu.compute_units * gpu.simds_of_unit,
        "mem_banks_count": 1,
        "caches_count": 2,
        "io_links_count": 1,
        "max_waves_per_simd": gpu.waves_of_simd,
        "lds_size_in_kb": 64,
        "wave_front_size": gpu.wavefront,
        "array_count": gpu.engines,
        "simd_arrays_per_engine": 1,
        "cu_per_simd_array": gpu.compute_units // gpu.engines,
        "simd_per_cu": gpu.simds_of_unit,
        "max_slots_scratch_cu": 32,
        "gfx_target_version": gpu.version,
        "vendor_id": _AMD,
        "device_id": gpu.device_id,
        "location_id": 3 << 8,
        "drm_render_minor": 128,
        "num_sdma_engines": 2,
        "num_sdma_queues_per_engine": 8,
        "num_cp_queues": 24,
        "max_engine_clk_fcompute": 2000,
        "max_engine_clk_ccompute": 3000,
        "fw_version": 2100,
        "capability": capability,
        "unique_id": 0x1234,
        "num_xcc": gpu.dies,
    }


def _write_node(
    folder: Path,
    node: int,
    *,
    gpu_id: int,
    properties: Mapping[str, int],
    heap: int,
    memory_gib: int,
) -> None:
    where = f"nodes/{node}"
    _write(folder, f"{where}/gpu_id", f"{gpu_id}\n")
    _write(folder, f"{where}/name", "\n")
    _write_properties(folder, where, properties)
    bank = {"heap_type": heap, "size_in_bytes": memory_gib << 30, "flags": 0, "width": 64}
    _write_properties(folder, f"{where}/mem_banks/0", {**bank, "mem_clk_max": 2400})
    link = {"type": _PCI_EXPRESS, "node_from": node, "node_to": 1 - node, "weight": 20, "flags": 1}
    _write_properties(folder, f"{where}/io_links/0", link)


def _write_properties(
    folder: Path, where: str, facts: Mapping[str, int], name: str = "properties"
) -> None:
    lines = "".join(f"{fact} {value}\n" for fact, value in facts.items())
    _write(folder, f"{where}/{name}".lstrip("/"), lines)


def _write(folder: Path, where: str, text: str) -> None:
    path = folder / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")
