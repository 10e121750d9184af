"""The runtime's agents: which are GPUs that run kernels, and what they say of themselves."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocm_backend.targets import DeviceTarget
from uhal.abi import Library
from uhal.errors import InvalidImageError
from uhal.images.amd_target import TargetId

_NAME_BYTES = 64
_MAX_ISA_NAME_BYTES = 1024


@dataclass(frozen=True)
class Gpu:
    """A GPU agent."""

    handle: int
    name: str
    """What it is sold as, or its processor."""
    target: DeviceTarget
    compute_units: int


def gpus(library: Library) -> tuple[Gpu, ...]:
    """List the GPUs that run kernels, in the runtime's order. It is initialised.

    They are told by what they say they are, never by their position: CPUs, and on newer chips other
    processors, are agents too.
    """
    constant = library.header.constants
    found: list[Gpu] = []
    for agent in _handles(library, "hsa_agent_callback_t", library.hsa_iterate_agents):
        features = _number(library, agent, "HSA_AGENT_INFO_FEATURE", ctypes.c_uint32)
        if (
            _number(library, agent, "HSA_AGENT_INFO_DEVICE", ctypes.c_int32)
            == constant["HSA_DEVICE_TYPE_GPU"]
            and features & constant["HSA_AGENT_FEATURE_KERNEL_DISPATCH"]
        ):
            found.append(_gpu(library, agent, len(found)))
    return tuple(found)


def _gpu(library: Library, agent: int, ordinal: int) -> Gpu:
    processor = _text(library, agent, "HSA_AGENT_INFO_NAME")
    sold_as = _text(library, agent, "HSA_AMD_AGENT_INFO_PRODUCT_NAME")
    units = _number(library, agent, "HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT", ctypes.c_uint32)
    return Gpu(
        agent, sold_as or processor, DeviceTarget(f"rocm:{ordinal}", _isas(library, agent)), units
    )


def _isas(library: Library, agent: int) -> tuple[TargetId, ...]:
    """The targets whose code the agent runs; those that this version cannot read are left out."""
    constant = library.header.constants
    handle_type = library.header.ctype("hsa_isa_t")

    def iterate(callback: Any, data: Any) -> None:
        agent_type = library.header.ctype("hsa_agent_t")
        library.hsa_agent_iterate_isas(agent_type(agent), callback, data)

    found: list[TargetId] = []
    for isa in _handles(library, "hsa_isa_callback_t", iterate):
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


def _handles(
    library: Library, callback_type: str, iterate: Callable[[Any, Any], object]
) -> list[int]:
    """Collect what an iterating function of the runtime visits."""
    found: list[int] = []

    def visit(handle: Any, _: object) -> int:
        found.append(handle.handle)
        return 0

    iterate(library.header.ctype(callback_type)(visit), None)
    return found


def _number(library: Library, agent: int, attribute: str, of: type[Any]) -> int:
    value = of()
    _ask(library, agent, attribute, ctypes.byref(value))
    return int(value.value)


def _text(library: Library, agent: int, attribute: str) -> str:
    value = ctypes.create_string_buffer(_NAME_BYTES + 1)
    _ask(library, agent, attribute, value)
    return value.value.decode("utf-8", "replace").strip()


def _ask(library: Library, agent: int, attribute: str, value: Any) -> None:
    handle = library.header.ctype("hsa_agent_t")(agent)
    library.hsa_agent_get_info(handle, library.header.constants[attribute], value)
