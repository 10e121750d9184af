"""Adapters: in wgpu, a device together with its driver."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from uhal import environment
from uhal.abi import Library
from uhal.contract import DeviceSummary
from webgpu_backend._library import header
from webgpu_backend._runtime import runtime_header

SOFTWARE_VARIABLE = "UHAL_WEBGPU_SOFTWARE"
"""The value `1` also allows adapters on this machine's CPUs."""

_INTERFACES = {
    "WGPUBackendType_D3D12": "Direct3D 12",
    "WGPUBackendType_Metal": "Metal",
    "WGPUBackendType_Vulkan": "Vulkan",
}
_TYPES = {
    "WGPUAdapterType_DiscreteGPU": "discrete GPU",
    "WGPUAdapterType_IntegratedGPU": "integrated GPU",
    "WGPUAdapterType_CPU": "software",
}


@dataclass(frozen=True)
class Adapter:
    """One adapter that uhal uses."""

    index: int
    """Index among all adapters of wgpu."""
    name: str
    driver: str
    interface: str
    """Metal, Vulkan or Direct3D 12."""
    kind: str
    is_software: bool
    facts: Any
    """`uhalWgAdapterInfo`."""

    @property
    def description(self) -> str:
        """Kind, interface, driver and features, in one line."""
        has = [
            name
            for name, there in (
                ("int64", self.facts.has_int64),
                ("f16", self.facts.has_f16),
                ("subgroups", self.facts.has_subgroups),
                ("immediates", self.facts.has_immediates),
                ("times", self.facts.has_times),
            )
            if there
        ]
        return f"{self.kind}, {self.interface}, {', '.join(has) or 'no features'}"

    def summary(self, ordinal: int) -> DeviceSummary:
        """Return the adapter's summary for the backend's record."""
        kind = "processor" if self.is_software else "accelerator"
        return DeviceSummary(ordinal, self.name, self.description, kind)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Found:
    """Adapters that wgpu lists on this machine."""

    adapters: tuple[Adapter, ...]
    """The best first."""
    refused: tuple[str, ...]
    """A reason for each adapter that uhal does not use."""


def look(runtime: Library) -> Found:
    """List the adapters. Creates no object on any adapter."""
    count = ctypes.c_uint()
    runtime.uhalWgAdapterCount(ctypes.byref(count))
    software = environment.read(SOFTWARE_VARIABLE) == "1"
    adapters: list[Adapter] = []
    refused: list[str] = []
    for index in range(count.value):
        adapter = _describe(runtime, index)
        reason = _refusal(adapter, software)
        if reason:
            refused.append(f"{adapter.name}: {reason}")
        else:
            adapters.append(adapter)
    return Found(tuple(adapters), tuple(refused))


def _describe(runtime: Library, index: int) -> Adapter:
    facts = runtime_header().ctype("uhalWgAdapterInfo")()
    runtime.uhalWgAdapterGetInfo(ctypes.byref(facts), index)
    constants = header().constants
    interfaces = {constants[name]: said for name, said in _INTERFACES.items()}
    types = {constants[name]: said for name, said in _TYPES.items()}
    return Adapter(
        index,
        _decoded(facts.name),
        _decoded(facts.driver),
        interfaces.get(facts.backend, f"interface {facts.backend}"),
        types.get(facts.type, "GPU"),
        facts.type == constants["WGPUAdapterType_CPU"],
        facts,
    )


def _refusal(adapter: Adapter, software: bool) -> str:
    facts = adapter.facts
    if adapter.is_software and not software:
        return f"it is a processor; {SOFTWARE_VARIABLE}=1 uses it"
    if not facts.has_int64:
        return "it has no integers of 64 bits (SHADER_INT64), which most kernels need"
    if facts.max_threads < 256 or facts.max_shared_bytes < 16384:
        return (
            f"expected blocks of 256 threads and 16,384 bytes of shared memory, got "
            f"{facts.max_threads} and {facts.max_shared_bytes}"
        )
    return ""


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip()
