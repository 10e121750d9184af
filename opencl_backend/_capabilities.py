"""The SPIR-V capabilities of a device, checked before its driver gets a kernel.

Numbers and names come from Khronos's "SPIR-V Specification". The extensions for each capability
come from the "OpenCL SPIR-V Environment Specification".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opencl_backend._devices import ClDevice

_Test = Callable[[ClDevice], bool]


def _extension(name: str) -> tuple[_Test, str]:
    return (lambda device: name in device.extensions), name


_NEEDS: dict[int, tuple[str, _Test, str]] = {
    9: ("Float16", *_extension("cl_khr_fp16")),
    10: ("Float64", lambda device: device.has_doubles, "cl_khr_fp64"),
    12: ("Int64Atomics", *_extension("cl_khr_int64_base_atomics")),
    38: (
        "GenericPointer",
        lambda device: device.has_generic_pointers,
        "pointers to any kind of memory",
    ),
    61: ("GroupNonUniform", *_extension("cl_khr_subgroup_non_uniform_vote")),
    64: ("GroupNonUniformBallot", *_extension("cl_khr_subgroup_ballot")),
    65: ("GroupNonUniformShuffle", *_extension("cl_khr_subgroup_shuffle")),
    66: ("GroupNonUniformShuffleRelative", *_extension("cl_khr_subgroup_shuffle_relative")),
    5568: ("SubgroupShuffleINTEL", *_extension("cl_intel_subgroups")),
    5569: ("SubgroupBufferBlockIOINTEL", *_extension("cl_intel_subgroups")),
}
"""Capabilities that some devices lack. The driver checks all others."""


def missing(capabilities: Iterable[int], device: ClDevice) -> dict[int, str]:
    """Return missing capabilities of a device, each with an extension that adds it."""
    lacking = {}
    for capability in capabilities:
        need = _NEEDS.get(capability)
        if need is not None and not need[1](device):
            lacking[capability] = f"{need[0]} ({need[2]})"
    return lacking
