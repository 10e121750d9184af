"""A runtime's agents and their pools, for comparing two runtimes."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from tests.simulated.hsa import CONSTANT, AnyHsa

_BYTES = 256
"""Larger than any attribute."""


def describe(library: str | None = None) -> dict[str, Any]:
    """Return every attribute in abi.h of the CPU and the GPU: its bytes, or the error's status.

    Pools are listed by segment and flags, as programs choose them.
    """
    hsa = AnyHsa(Path(library or os.environ["UHAL_ROCM_LIBRARY"]))
    hsa.open()
    return {
        name: {
            "attributes": {
                attribute: _ask(hsa, "hsa_agent_get_info", agent, attribute)
                for attribute in CONSTANT
                if attribute.startswith(("HSA_AGENT_INFO_", "HSA_AMD_AGENT_INFO_"))
            },
            "pools": _pools(hsa, agent),
        }
        for name, agent in (("cpu", hsa.cpu), ("gpu", hsa.gpus[0]))
    }


def _pools(hsa: AnyHsa, agent: Any) -> list[dict[str, str]]:
    pools = hsa.visit(
        "hsa_amd_memory_pool_callback_t", hsa.call.hsa_amd_agent_iterate_memory_pools, agent
    )
    asked = [name for name in CONSTANT if name.startswith("HSA_AMD_MEMORY_POOL_INFO_")]
    return [
        {name: _ask(hsa, "hsa_amd_memory_pool_get_info", pool, name) for name in asked}
        for pool in pools
    ]


def _ask(hsa: AnyHsa, function: str, handle: Any, attribute: str) -> str:
    buffer = ctypes.create_string_buffer(_BYTES)
    status = hsa.status(function, handle, CONSTANT[attribute], buffer)
    return f"status {status:#x}" if status else buffer.raw.rstrip(b"\0").hex()
