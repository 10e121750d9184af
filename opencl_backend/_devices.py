"""OpenCL's platforms and devices: the usable ones in order, and reasons against the others."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opencl_backend._library import header
from uhal import environment
from uhal.abi import Library
from uhal.errors import ArgumentValueError, LibraryNotFoundError

MEMORY_VARIABLE = "UHAL_OPENCL_MEMORY"
MEMORIES = {"usm": 0, "svm-fine": 1, "svm-coarse": 2, "buffer-address": 3}
"""Kinds of memory with addresses, best first, and libuhal_opencl's number for each."""

_FUNCTIONS = {
    "usm": {
        "device_alloc": "clDeviceMemAllocINTEL",
        "host_alloc": "clHostMemAllocINTEL",
        "blocking_free": "clMemBlockingFreeINTEL",
        "memcpy": "clEnqueueMemcpyINTEL",
        "fill": "clEnqueueMemFillINTEL",
        "set_pointer": "clSetKernelArgMemPointerINTEL",
    },
    "buffer-address": {
        "create_buffer": "clCreateBufferWithProperties",
        "set_address": "clSetKernelArgDevicePointerEXT",
    },
}
"""Extensions beyond OpenCL 2.1 that a kind of memory needs."""
_MAX_TEXT = 1 << 16


@dataclass(frozen=True)
class ClDevice:
    """A device that uhal uses."""

    platform: int
    handle: int
    name: str
    type: int
    version: str
    driver: str
    vendor: str
    platform_version: str
    extensions: frozenset[str]
    il_versions: frozenset[tuple[int, int]]
    """Versions of SPIR-V."""
    memory: str
    """One of `MEMORIES`."""
    memories: tuple[str, ...]
    """All kinds of memory that the device could have."""
    has_doubles: bool
    has_generic_pointers: bool

    @property
    def is_processor(self) -> bool:
        """Whether the device is a CPU."""
        return bool(self.type & header().constants["CL_DEVICE_TYPE_CPU"])

    @property
    def is_pocl(self) -> bool:
        """Whether the device's runtime is PoCL."""
        return "PoCL" in self.platform_version

    @property
    def kind(self) -> str:
        """The device's kind: GPU, CPU or accelerator."""
        constants = header().constants
        if self.type & constants["CL_DEVICE_TYPE_GPU"]:
            return "GPU"
        return "CPU" if self.is_processor else "accelerator"


@dataclass(frozen=True)
class Found:
    """Platforms and devices of a library."""

    devices: tuple[ClDevice, ...]
    """GPUs, then accelerators, then CPUs, each in the runtime's order."""
    refused: tuple[str, ...]
    """A reason for each device that uhal does not use."""


def look(library: Library) -> Found:
    """List the devices of every platform. Creates no object on any device."""
    devices: list[ClDevice] = []
    refused: list[str] = []
    for platform in platforms(library):
        for handle in _device_handles(library, platform):
            device = _describe(library, platform, handle)
            if isinstance(device, ClDevice):
                devices.append(device)
            else:
                refused.append(device)
    order = ("GPU", "accelerator", "CPU")
    devices.sort(key=lambda one: order.index(one.kind))
    return Found(tuple(devices), tuple(refused))


def platforms(library: Library) -> list[int]:
    """Return a library's runtimes: one, or all runtimes that are registered with a loader."""
    count = ctypes.c_uint32()
    # A loader without runtimes answers with an error; so may a runtime without devices.
    status = library.unchecked("clGetPlatformIDs")(0, None, ctypes.byref(count))
    if status or not count.value:
        return []
    handles = (ctypes.c_void_p * count.value)()
    library.clGetPlatformIDs(count.value, handles, None)
    return [handle for handle in handles if handle]


def _device_handles(library: Library, platform: int) -> list[int]:
    count = ctypes.c_uint32()
    every = header().constants["CL_DEVICE_TYPE_ALL"]
    status = library.unchecked("clGetDeviceIDs")(platform, every, 0, None, ctypes.byref(count))
    if status or not count.value:
        return []
    handles = (ctypes.c_void_p * count.value)()
    library.clGetDeviceIDs(platform, every, count.value, handles, None)
    return [handle for handle in handles if handle]


def _describe(library: Library, platform: int, handle: int) -> ClDevice | str:
    """The device, or why uhal does not use it."""

    def info(attribute: str) -> int:
        return number(library, handle, attribute, 0)

    name = text(library, handle, "CL_DEVICE_NAME")
    platform_version = _platform_text(library, platform, "CL_PLATFORM_VERSION")
    what = f"{name} ({_platform_text(library, platform, 'CL_PLATFORM_NAME')}, {platform_version})"
    if not info("CL_DEVICE_AVAILABLE"):
        return f"{what} is not available"
    if info("CL_DEVICE_ADDRESS_BITS") != 64:
        return f"{what} has addresses of {info('CL_DEVICE_ADDRESS_BITS')} bits, 64 are needed"
    if not info("CL_DEVICE_ENDIAN_LITTLE"):
        return f"{what} is big-endian"
    il_versions = _il_versions(text(library, handle, "CL_DEVICE_IL_VERSION"))
    if not il_versions:
        return f"{what} takes no SPIR-V (CL_DEVICE_IL_VERSION is empty)"
    extensions = frozenset(text(library, handle, "CL_DEVICE_EXTENSIONS").split())
    memories = _memories(library, platform, handle, extensions)
    if not memories:
        return (
            f"{what} gives no memory with addresses: neither cl_intel_unified_shared_memory nor "
            "shared virtual memory nor cl_ext_buffer_device_address"
        )
    version = text(library, handle, "CL_DEVICE_VERSION")
    generic = info("CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT")
    return ClDevice(
        platform,
        handle,
        name,
        info("CL_DEVICE_TYPE"),
        version,
        text(library, handle, "CL_DRIVER_VERSION"),
        text(library, handle, "CL_DEVICE_VENDOR"),
        platform_version,
        extensions,
        il_versions,
        _chosen_memory(memories, what),
        memories,
        bool(info("CL_DEVICE_DOUBLE_FP_CONFIG")),
        # OpenCL 2 always has them; from 3.0 on they are queried.
        bool(generic) or version.startswith("OpenCL 2."),
    )


def _memories(
    library: Library, platform: int, handle: int, extensions: frozenset[str]
) -> tuple[str, ...]:
    constants = header().constants
    found = []
    if "cl_intel_unified_shared_memory" in extensions:
        access = constants["CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL"]
        kinds = ("CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL", "CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL")
        reached = all(number(library, handle, kind, 0) & access for kind in kinds)
        if reached and all(memory_functions(library, platform, "usm").values()):
            found.append("usm")
    shared = number(library, handle, "CL_DEVICE_SVM_CAPABILITIES", 0)
    if shared & constants["CL_DEVICE_SVM_FINE_GRAIN_BUFFER"]:
        found.append("svm-fine")
    if shared & constants["CL_DEVICE_SVM_COARSE_GRAIN_BUFFER"]:
        found.append("svm-coarse")
    if "cl_ext_buffer_device_address" in extensions and all(
        memory_functions(library, platform, "buffer-address").values()
    ):
        found.append("buffer-address")
    return tuple(found)


def _chosen_memory(memories: tuple[str, ...], what: str) -> str:
    wanted = environment.read(MEMORY_VARIABLE)
    if not wanted:
        return memories[0]
    if wanted not in memories:
        raise ArgumentValueError(
            f"{MEMORY_VARIABLE}: expected one of {', '.join(memories)}, which {what} has, got "
            f"{wanted!r}",
            backend="opencl",
        )
    return wanted


def memory_functions(library: Library, platform: int, memory: str) -> Mapping[str, int]:
    """Return the addresses of the functions for a kind of memory, 0 for a missing one.

    `uhalClDeviceInfo` uses the same names.
    """
    wanted = _FUNCTIONS.get(memory, {})
    return {field: _address(library, platform, name) for field, name in wanted.items()}


def _address(library: Library, platform: int, name: str) -> int:
    """The address of a platform's function, else of the library's; 0 if both lack it."""
    found = library.clGetExtensionFunctionAddressForPlatform(platform, name.encode())
    if found:
        return int(found)
    try:
        return library.address(name)
    except LibraryNotFoundError:
        return 0


def number(library: Library, device: int, attribute: str, default: int | None = None) -> int:
    """Return a number that a device reports; `default`, if given, for an unknown attribute."""
    value = ctypes.c_uint64()
    key = header().constants[attribute]
    if default is None:
        library.clGetDeviceInfo(device, key, 8, ctypes.byref(value), None)
        return value.value
    status = library.unchecked("clGetDeviceInfo")(device, key, 8, ctypes.byref(value), None)
    return default if status else value.value


def numbers(library: Library, device: int, attribute: str) -> tuple[int, ...]:
    """Return a device's list of sizes, empty for an unknown attribute."""
    raw = _bytes(library, "clGetDeviceInfo", device, attribute)
    return tuple((ctypes.c_size_t * (len(raw) // 8)).from_buffer_copy(raw))


def text(library: Library, device: int, attribute: str) -> str:
    """Return a device's text for an attribute, "" for an unknown attribute."""
    return _decoded(_bytes(library, "clGetDeviceInfo", device, attribute))


def raw(library: Library, device: int, attribute: str) -> bytes:
    """Return a device's raw bytes for an attribute, none for an unknown attribute."""
    return _bytes(library, "clGetDeviceInfo", device, attribute)


def _platform_text(library: Library, platform: int, attribute: str) -> str:
    return _decoded(_bytes(library, "clGetPlatformInfo", platform, attribute))


def _bytes(library: Library, function: str, handle: int, attribute: str) -> bytes:
    ask: Any = library.unchecked(function)
    key = header().constants[attribute]
    needed = ctypes.c_size_t()
    if ask(handle, key, 0, None, ctypes.byref(needed)) or not 0 < needed.value <= _MAX_TEXT:
        return b""
    buffer = ctypes.create_string_buffer(needed.value)
    return b"" if ask(handle, key, needed.value, buffer, None) else buffer.raw


def _decoded(text: bytes) -> str:
    return text.partition(b"\0")[0].decode("utf-8", "replace").strip()


def _il_versions(text: str) -> frozenset[tuple[int, int]]:
    """`SPIR-V_1.0 SPIR-V_1.2` as numbers; other languages are ignored."""
    found = set()
    for word in text.split():
        name, _, version = word.rpartition("_")
        major, dot, minor = version.partition(".")
        if name == "SPIR-V" and dot and major.isdigit() and minor.isdigit():
            found.add((int(major), int(minor)))
    return frozenset(found)
