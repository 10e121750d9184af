"""The runtime's agents: GPUs that run kernels, and their properties."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocm_backend._iteration import handles
from rocm_backend._pools import DevicePools, choose_pools, pools
from rocm_backend.targets import DeviceTarget
from uhal.abi import Library
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images.amd_target import TargetId

_NAME_BYTES = 64
_MAX_ISA_NAME_BYTES = 1024


@dataclass(frozen=True)
class Gpu:
    """A GPU agent."""

    handle: int
    name: str
    """The GPU's product name, or its processor."""
    target: DeviceTarget
    compute_units: int


@dataclass(frozen=True)
class Agents:
    """The agents that uhal uses."""

    gpus: tuple[Gpu, ...]
    """GPUs that run kernels, in the runtime's order."""
    cpus: tuple[int, ...]


def agents(library: Library) -> Agents:
    """List GPUs that run kernels, and CPUs. The runtime is initialised.

    Agents are identified by their properties, never by position: on newer chips other processors
    are agents too.
    """
    constant = library.header.constants
    gpus: list[Gpu] = []
    cpus: list[int] = []
    for agent in handles(library, "hsa_agent_callback_t", library.hsa_iterate_agents):
        kind = number(library, agent, "HSA_AGENT_INFO_DEVICE", ctypes.c_int32)
        features = number(library, agent, "HSA_AGENT_INFO_FEATURE", ctypes.c_uint32)
        if kind == constant["HSA_DEVICE_TYPE_CPU"]:
            cpus.append(agent)
        elif (
            kind == constant["HSA_DEVICE_TYPE_GPU"]
            and features & constant["HSA_AGENT_FEATURE_KERNEL_DISPATCH"]
        ):
            gpus.append(_gpu(library, agent, len(gpus)))
    return Agents(tuple(gpus), tuple(cpus))


def host_and_pools(library: Library, gpu: Gpu, cpus: tuple[int, ...]) -> tuple[int, DevicePools]:
    """Return the CPU agent for a GPU's copies, and the GPU's memory pools.

    The agent is the nearest CPU if the runtime reports it, else the first CPU. `NotSupportedError`
    without one.
    """
    if not cpus:
        raise NotSupportedError("the HSA runtime lists no CPU agent", backend="rocm")
    nearest = optional_number(library, gpu.handle, "HSA_AMD_AGENT_INFO_NEAREST_CPU")
    host = nearest if nearest in cpus else cpus[0]
    return host, choose_pools(library, pools(library, gpu.handle), pools(library, host))


def number(library: Library, agent: int, attribute: str, of: type[Any]) -> int:
    """Return a numeric attribute of an agent."""
    value = of()
    _ask(library, agent, attribute, value)
    return int(value.value)


def optional_number(library: Library, agent: int, attribute: str) -> int | None:
    """Return an attribute of 64 bits, `None` if the runtime lacks it."""
    value = ctypes.c_uint64()
    handle = library.header.ctype("hsa_agent_t")(agent)
    ask = library.unchecked("hsa_agent_get_info")
    status = ask(handle, library.header.constants[attribute], ctypes.byref(value))
    return value.value if status == 0 else None


def extents(library: Library, agent: int, attribute: str, of: type[Any]) -> tuple[int, int, int]:
    """Return an attribute of three numbers."""
    value = (of * 3)()
    _ask(library, agent, attribute, value)
    return int(value[0]), int(value[1]), int(value[2])


def text(library: Library, agent: int, attribute: str) -> str:
    """Return an attribute that is a text of at most 64 bytes."""
    value = ctypes.create_string_buffer(_NAME_BYTES + 1)
    _ask(library, agent, attribute, value)
    return value.value.decode("utf-8", "replace").strip()


def told_attributes(library: Library, agent: int) -> Mapping[str, int | str]:
    """Return the runtime's facts of an agent beyond its limits, under its own names."""
    found: dict[str, int | str] = {}
    ask = library.unchecked("hsa_agent_get_info")
    handle = library.header.ctype("hsa_agent_t")(agent)
    for name, of in _ATTRIBUTES.items():
        value = of()
        status = ask(handle, library.header.constants[name], ctypes.byref(value))
        if status == 0:
            raw = value.value
            found[name] = raw.decode("utf-8", "replace").strip() if of is _Text else int(raw)
    return found


_Text = ctypes.c_char * (_NAME_BYTES + 1)

# The runtime defines the sizes, and would write past the end of a smaller buffer.
_ATTRIBUTES: dict[str, type[Any]] = {
    "HSA_AGENT_INFO_NAME": _Text,
    "HSA_AGENT_INFO_VENDOR_NAME": _Text,
    "HSA_AGENT_INFO_WAVEFRONT_SIZE": ctypes.c_uint32,
    "HSA_AGENT_INFO_WORKGROUP_MAX_SIZE": ctypes.c_uint32,
    "HSA_AGENT_INFO_GRID_MAX_SIZE": ctypes.c_uint32,
    "HSA_AGENT_INFO_QUEUES_MAX": ctypes.c_uint32,
    "HSA_AGENT_INFO_QUEUE_MIN_SIZE": ctypes.c_uint32,
    "HSA_AGENT_INFO_QUEUE_MAX_SIZE": ctypes.c_uint32,
    "HSA_AGENT_INFO_NODE": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_CHIP_ID": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_CACHELINE_SIZE": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_BDFID": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_DOMAIN": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_MEMORY_WIDTH": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_PRODUCT_NAME": _Text,
    "HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_UUID": _Text,
    "HSA_AMD_AGENT_INFO_ASIC_REVISION": ctypes.c_uint32,
    "HSA_AMD_AGENT_INFO_MEMORY_AVAIL": ctypes.c_uint64,
    "HSA_AMD_AGENT_INFO_NUM_XCC": ctypes.c_uint32,
}


def _gpu(library: Library, agent: int, ordinal: int) -> Gpu:
    processor = text(library, agent, "HSA_AGENT_INFO_NAME")
    sold_as = text(library, agent, "HSA_AMD_AGENT_INFO_PRODUCT_NAME")
    units = number(library, agent, "HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT", ctypes.c_uint32)
    return Gpu(
        agent, sold_as or processor, DeviceTarget(f"rocm:{ordinal}", _isas(library, agent)), units
    )


def _isas(library: Library, agent: int) -> tuple[TargetId, ...]:
    """Targets whose code the agent runs, without targets unknown to this version."""
    constant = library.header.constants
    handle_type = library.header.ctype("hsa_isa_t")

    def iterate(callback: Any, data: Any) -> None:
        agent_type = library.header.ctype("hsa_agent_t")
        library.hsa_agent_iterate_isas(agent_type(agent), callback, data)

    found: list[TargetId] = []
    for isa in handles(library, "hsa_isa_callback_t", iterate):
        length = ctypes.c_uint32()
        asked = constant["HSA_ISA_INFO_NAME_LENGTH"]
        library.hsa_isa_get_info_alt(handle_type(isa), asked, ctypes.byref(length))
        if length.value >= _MAX_ISA_NAME_BYTES:
            continue
        name = ctypes.create_string_buffer(_MAX_ISA_NAME_BYTES)
        library.hsa_isa_get_info_alt(handle_type(isa), constant["HSA_ISA_INFO_NAME"], name)
        try:
            found.append(TargetId.parse(name.value.decode("ascii", "replace")))
        except InvalidImageError:
            continue
    return tuple(found)


def _ask(library: Library, agent: int, attribute: str, value: Any) -> None:
    handle = library.header.ctype("hsa_agent_t")(agent)
    number = library.header.constants[attribute]
    library.hsa_agent_get_info(handle, number, ctypes.byref(value))
