"""Chooses an agent's memory pools by their flags, never by their position."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocm_backend._iteration import handles
from uhal.abi import Library
from uhal.errors import NotSupportedError


@dataclass(frozen=True)
class Pool:
    """A pool of an agent."""

    handle: int
    segment: int
    flags: int
    """Bits of `hsa_amd_memory_pool_global_flag_t`; 0 outside of the global segment."""
    bytes: int
    allocates: bool


@dataclass(frozen=True)
class DevicePools:
    """Memory pools of a GPU."""

    device: Pool
    device_is_host: bool
    """True for a device without memory of its own: it uses the host's."""
    pinned: Pool
    """Host memory that the host and the device may access while kernels run."""
    kernarg: Pool
    group_bytes: int
    """LDS of a work-group."""


def pools(library: Library, agent: int) -> tuple[Pool, ...]:
    """List an agent's pools, in the runtime's order."""
    agent_type = library.header.ctype("hsa_agent_t")

    def iterate(callback: Any, data: Any) -> None:
        library.hsa_amd_agent_iterate_memory_pools(agent_type(agent), callback, data)

    return tuple(
        _pool(library, handle)
        for handle in handles(library, "hsa_amd_memory_pool_callback_t", iterate)
    )


def choose_pools(library: Library, of_gpu: Sequence[Pool], of_host: Sequence[Pool]) -> DevicePools:
    """Choose a GPU's pools among its own and its CPU's.

    `NotSupportedError` when a needed pool is missing.
    """
    constant = library.header.constants

    def global_pools(found: Sequence[Pool], flag: str) -> list[Pool]:
        bit = constant[f"HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_{flag}"]
        segment = constant["HSA_AMD_SEGMENT_GLOBAL"]
        return [
            pool
            for pool in found
            if pool.segment == segment and pool.allocates and pool.flags & bit
        ]

    kernarg = global_pools(of_host, "KERNARG_INIT")
    # Put other pools before the pool for arguments, which is often fine-grained too.
    fine = sorted(global_pools(of_host, "FINE_GRAINED"), key=lambda pool: pool in kernarg)
    own = global_pools(of_gpu, "COARSE_GRAINED") or global_pools(of_gpu, "FINE_GRAINED")
    device = own or global_pools(of_host, "COARSE_GRAINED") or fine
    for what, found in (("device", device), ("pinned", fine), ("kernel argument", kernarg)):
        if not found:
            raise NotSupportedError(
                f"the HSA runtime lists no pool for {what} memory", backend="rocm"
            )
    group = constant["HSA_AMD_SEGMENT_GROUP"]
    return DevicePools(
        device=max(device, key=lambda pool: pool.bytes) if own else device[0],
        device_is_host=not own,
        pinned=fine[0],
        kernarg=kernarg[0],
        group_bytes=sum(pool.bytes for pool in of_gpu if pool.segment == group),
    )


def _pool(library: Library, handle: int) -> Pool:
    def ask(attribute: str, of: type[Any]) -> Any:
        value = of()
        number = library.header.constants[f"HSA_AMD_MEMORY_POOL_INFO_{attribute}"]
        pool = library.header.ctype("hsa_amd_memory_pool_t")(handle)
        library.hsa_amd_memory_pool_get_info(pool, number, ctypes.byref(value))
        return value.value

    segment = ask("SEGMENT", ctypes.c_uint32)
    in_global = segment == library.header.constants["HSA_AMD_SEGMENT_GLOBAL"]
    return Pool(
        handle,
        segment,
        ask("GLOBAL_FLAGS", ctypes.c_uint32) if in_global else 0,
        ask("SIZE", ctypes.c_size_t),
        ask("RUNTIME_ALLOC_ALLOWED", ctypes.c_bool) if in_global else False,
    )
