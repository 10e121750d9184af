"""The ROCm backend's verbs: uhal's backend interface over the HSA runtime.

Launches, copies and waits are in libuhal_hsa, which is reached through `runtime.h` and calls the
runtime itself. Validates nothing but images.
"""

from __future__ import annotations

import ctypes
import os
import platform
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from rocm_backend import _agents
from rocm_backend._agents import Agents, Gpu
from rocm_backend._errors import (
    ADVICE,
    CAPTURE_TEXT,
    CLASS_OF,
    LOST_TEXT,
    STICKY_PREFIX,
    status_name,
)
from rocm_backend._library import CANDIDATES, LIBRARY_VARIABLE, bind, header, initialize
from rocm_backend._modules import ModuleVerbs
from rocm_backend._pools import DevicePools
from rocm_backend._runtime import FUNCTION_OF_SLOT, hand_over, open_runtime, runtime_header
from rocm_backend.targets import DeviceTarget
from uhal._lane import HotTable
from uhal.abi import Library, LibraryBackend, LibraryFacts, LibrarySearch
from uhal.contract import (
    BackendRecord,
    DeviceLimits,
    DeviceSummary,
    ErrorText,
)
from uhal.errors import DeviceError, NotSupportedError, from_code
from uhal.library_graphs import OwnGraphVerbs, own_graph_names

_KERNEL_DRIVER = "/dev/kfd"
_QUEUE_PACKETS = 16384
"""Packets a queue holds. The lane keeps the GIL while a stream has few pending launches. This
capacity is enough for all streams that share a queue."""
_FAULT_BYTES = 512
_MOST_WORK_ITEMS = 0xFFFFFFFF
"""Work-items of a grid along an axis: a packet counts in 32 bits."""

_KINDS = {
    "streams": "UHAL_HSA_KIND_STREAM",
    "events": "UHAL_HSA_KIND_EVENT",
    "modules": "UHAL_HSA_KIND_MODULE",
    "allocations": "UHAL_HSA_KIND_ALLOCATION",
    "pinned": "UHAL_HSA_KIND_PINNED",
    "graphs": "UHAL_HSA_KIND_GRAPH",
    "executable graphs": "UHAL_HSA_KIND_GRAPH_EXEC",
}


class RocmBackend(OwnGraphVerbs, ModuleVerbs, LibraryBackend):
    """AMD's devices. Any thread may call any method."""

    name = "rocm"
    library = LibraryFacts(
        variable=LIBRARY_VARIABLE,
        candidates=CANDIDATES,
        purpose="AMD devices",
        software="HSA",
        install=(
            "install AMD's ROCm runtime (Debian and Ubuntu: libhsa-runtime64-1), or set "
            f"{LIBRARY_VARIABLE} to its libhsa-runtime64.so.1"
        ),
        no_device=f"see {_KERNEL_DRIVER}",
    )
    graph_names = own_graph_names("uhalHsa")
    dlpack_device_type = 10  # kDLROCM
    stream_refusal = (
        "a HIP stream is HIP's own object, not a queue that others may write to; synchronize it, "
        "and launch in a uhal.Stream"
    )

    def __init__(self, search: LibrarySearch) -> None:
        """Initialise an opened library and own it. Callers use `open`."""
        self._runtime = open_runtime(self._fail)
        self._library = bind(search, self._fail)
        status = initialize(search, self._library, self._fail)
        if status != 0:
            self._fail("hsa_init", status)
        self._agents: Agents = _agents.agents(self._library)
        self._pools: dict[int, tuple[int, DevicePools]] = {}
        self._contexts: dict[int, int] = {}
        frequency = ctypes.c_uint64()
        attribute = header().constants["HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY"]
        self._library.hsa_system_get_info(attribute, ctypes.byref(frequency))
        handles = [gpu.handle for gpu in self._agents.gpus]
        hand_over(self._runtime, self._library, frequency.value, handles)
        constants = runtime_header().constants
        self._hot_table = HotTable(
            {slot: self._runtime.address(name) for slot, name in FUNCTION_OF_SLOT.items()},
            not_ready=constants["UHAL_HSA_NOT_READY"],
            out_of_memory=header().constants["HSA_STATUS_ERROR_OUT_OF_RESOURCES"],
            sticky=[code for name, code in constants.items() if name.startswith(STICKY_PREFIX)],
            names=FUNCTION_OF_SLOT,
            frees_wait=False,
            staged_bytes=constants["UHAL_HSA_STAGED_BYTES"],
        )

    # -- finding the library -----------------------------------------------------------------------

    @classmethod
    def _probe_found(cls, search: LibrarySearch) -> BackendRecord:
        """List the runtime's GPUs. The runtime stays initialised, for the backend to use."""
        library = bind(search, _fail_in_probe)
        open_runtime(_fail_in_probe)
        status = initialize(search, library, _fail_in_probe)
        version = _version(library) if status == 0 else None
        gpus = _agents.agents(library).gpus if status == 0 else ()
        if not gpus:
            said = f" (hsa_init: {_words(library, status)})" if status else ""
            reason = f"runtime found, no device{said}"
            return BackendRecord(
                *(cls.name, "absent", reason, _why_no_device(), search.attempts, search.path),
                version,
            )
        devices = tuple(_summary(ordinal, gpu) for ordinal, gpu in enumerate(gpus))
        reason = f"{len(devices)} device{'' if len(devices) == 1 else 's'}, {version}"
        return BackendRecord(
            cls.name, "ok", reason, "", search.attempts, search.path, version, devices
        )

    # -- the process and its devices ---------------------------------------------------------------

    @property
    def hot_table(self) -> HotTable:
        """The addresses of libuhal_hsa."""
        return self._hot_table

    def version(self) -> str:
        """Return the version of HSA the runtime implements, such as `HSA 1.1`."""
        return _version(self._library)

    def device_count(self) -> int:
        """Return how many GPUs the runtime shows this process."""
        return len(self._agents.gpus)

    def device_summary(self, ordinal: int) -> DeviceSummary:
        """Describe a GPU without creating anything on it."""
        return _summary(ordinal, self._agents.gpus[ordinal])

    def device_context(self, ordinal: int) -> int:
        """Open the device: its queues are made with its streams."""
        gpu = self._agents.gpus[ordinal]
        host, pools = self._host_and_pools(ordinal)
        info = runtime_header().ctype("uhalHsaDeviceInfo")()
        info.agent = gpu.handle
        info.host_agent = host
        info.device_pool = pools.device.handle
        info.pinned_pool = pools.pinned.handle
        info.kernarg_pool = pools.kernarg.handle
        info.device_pool_is_host = pools.device_is_host
        most = self._number(ordinal, "HSA_AGENT_INFO_QUEUE_MAX_SIZE")
        info.queue_packets = min(most, _QUEUE_PACKETS)
        info.ordinal = ordinal
        context = ctypes.c_void_p()
        self._runtime.uhalHsaDeviceOpen(context, info)
        self._contexts[ordinal] = context.value or 0
        return self._contexts[ordinal]

    def release_device_context(self, ordinal: int, token: int) -> None:
        """Close the device of `token` and destroy its queues."""
        if self._contexts.get(ordinal) == token:
            del self._contexts[ordinal]
        self._runtime.uhalHsaDeviceClose(token)

    def device_name(self, ordinal: int) -> str:
        """Return the device's product name, or its processor."""
        return self._agents.gpus[ordinal].name

    def device_uuid(self, ordinal: int) -> str:
        """Return the device's own identifier, else its machine and PCI address."""
        agent = self._agents.gpus[ordinal].handle
        reported = _agents.text(self._library, agent, "HSA_AMD_AGENT_INFO_UUID")
        if reported and not reported.endswith("-XX"):
            return str(uuid.uuid5(uuid.NAMESPACE_OID, f"uhal rocm {reported}"))
        try:
            machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            machine = platform.node()
        address = self._number(ordinal, "HSA_AMD_AGENT_INFO_BDFID")
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"uhal rocm {machine} {address}"))

    def device_limits(self, ordinal: int) -> DeviceLimits:
        """Return the limits of a launch; the grid is limited in work-items, not in blocks."""
        agent = self._agents.gpus[ordinal].handle
        block = _agents.extents(
            self._library, agent, "HSA_AGENT_INFO_WORKGROUP_MAX_DIM", ctypes.c_uint16
        )
        grid = _agents.extents(self._library, agent, "HSA_AGENT_INFO_GRID_MAX_DIM", ctypes.c_uint32)
        _, pools = self._host_and_pools(ordinal)
        return DeviceLimits(
            max_grid=grid,
            max_block=block,
            max_threads_per_block=self._number(ordinal, "HSA_AGENT_INFO_WORKGROUP_MAX_SIZE"),
            max_shared_bytes_per_block=pools.group_bytes,
            warp_size=self._number(ordinal, "HSA_AGENT_INFO_WAVEFRONT_SIZE"),
            processors=self._agents.gpus[ordinal].compute_units,
            max_grid_threads=_MOST_WORK_ITEMS,
        )

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        """Return attributes beyond the limits, and the targets whose code the device loads."""
        gpu = self._agents.gpus[ordinal]
        reported = _agents.told_attributes(self._library, gpu.handle)
        return {**reported, "HSA_AGENT_INFO_ISA": ", ".join(map(str, gpu.target.isas))}

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """Return free and total bytes.

        A runtime before ROCm 6 does not report free memory. Then free memory is the total minus
        this process's allocations.
        """
        _, pools = self._host_and_pools(ordinal)
        total = pools.device.bytes
        agent = self._agents.gpus[ordinal].handle
        free = _agents.optional_number(self._library, agent, "HSA_AMD_AGENT_INFO_MEMORY_AVAIL")
        if free is None:
            allocated = ctypes.c_size_t()
            self._runtime.uhalHsaDeviceAllocated(allocated, self._contexts[ordinal])
            free = max(total - allocated.value, 0)
        return min(free, total), total

    def synchronize_device(self, ordinal: int) -> None:
        """Wait for every queue uhal has on the device."""
        self._runtime.uhalHsaDeviceSynchronize(self._contexts[ordinal])

    def host_device_pointer(self, pointer: int) -> int:
        """Return the pointer: host and devices share one space of addresses."""
        return pointer

    def pointer_device(self, address: int) -> int | None:
        """Return the owner of memory that any library in this process allocated."""
        agent = ctypes.c_uint64()
        self._runtime.unchecked("uhalHsaMemGetDevice")(agent, address)
        for ordinal, gpu in enumerate(self._agents.gpus):
            if gpu.handle == agent.value:
                return ordinal
        return None

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Return whether the device can get access to the pool of `peer`."""
        _, pools = self._host_and_pools(peer)
        access = ctypes.c_int32()
        types = self._library.header
        self._library.hsa_amd_agent_memory_pool_get_info(
            types.ctype("hsa_agent_t")(self._agents.gpus[ordinal].handle),
            types.ctype("hsa_amd_memory_pool_t")(pools.device.handle),
            types.constants["HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS"],
            ctypes.byref(access),
        )
        return access.value != types.constants["HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED"]

    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Give the device access to all memory of `peer`, now and in the future."""
        if peer not in self._contexts:
            raise DeviceError(
                f"open {self.name}:{peer} before its memory is shared: Device({peer}, 'rocm')",
                backend=self.name,
            )
        self._runtime.uhalHsaMemAllowAccess(self._contexts[ordinal], self._contexts[peer])

    def live_counts(self) -> Mapping[str, int]:
        """Count the native library's own objects in this process."""
        counts: dict[str, int] = {}
        for kind, constant in _KINDS.items():
            count = ctypes.c_size_t()
            self._runtime.uhalHsaLiveCount(runtime_header().constants[constant], count)
            counts[kind] = count.value
        return counts

    @property
    def _graph_library(self) -> Library:
        return self._runtime

    # -- errors ------------------------------------------------------------------------------------

    def error_text(self, code: int) -> ErrorText:
        """Return the runtime's text for a status, with the known facts of a lost device."""
        constants = runtime_header().constants
        lost = constants["UHAL_HSA_LOST"]
        for name, text in CAPTURE_TEXT.items():
            if code == constants[name]:
                return ErrorText(name, self._detailed(text, "uhalHsaCaptureText"))
        if code < lost:
            name = status_name(header().constants, code)
            return ErrorText(name, _words(self._library, code, name), ADVICE.get(name, ""))
        name = _lost_name(code)
        text = LOST_TEXT.get(name) or _words(self._library, code - lost, name)
        return ErrorText(name, self._detailed(text, "uhalHsaFaultText"), ADVICE.get(name, ""))

    def error_class(self, code: int) -> type[Exception]:
        """Look the code up in the table. A lost device is a `DeviceError` for every code."""
        if code >= runtime_header().constants["UHAL_HSA_LOST"]:
            return DeviceError
        if code == runtime_header().constants["UHAL_HSA_CAPTURE_UNSUPPORTED"]:
            return NotSupportedError
        return CLASS_OF.get(status_name(header().constants, code), DeviceError)

    def _detailed(self, text: str, call: str) -> str:
        """Text of a code, with libuhal_hsa's details of this failure."""
        detail = ctypes.create_string_buffer(_FAULT_BYTES)
        self._runtime.unchecked(call)(detail, len(detail))
        reported = detail.value.decode("utf-8", "replace")
        return f"{text.rstrip('.')}; {reported}" if reported else text

    def _fail(self, call: str, code: int) -> NoReturn:
        raise from_code(self, call, code)

    # -- helpers -----------------------------------------------------------------------------------

    def _target(self, ordinal: int) -> DeviceTarget:
        return self._agents.gpus[ordinal].target

    def _number(self, ordinal: int, attribute: str, of: type[Any] = ctypes.c_uint32) -> int:
        return _agents.number(self._library, self._agents.gpus[ordinal].handle, attribute, of)

    def _host_and_pools(self, ordinal: int) -> tuple[int, DevicePools]:
        found = self._pools.get(ordinal)
        if found is None:
            gpu = self._agents.gpus[ordinal]
            found = _agents.host_and_pools(self._library, gpu, self._agents.cpus)
            self._pools[ordinal] = found
        return found


def _summary(ordinal: int, gpu: Gpu) -> DeviceSummary:
    targets = ", ".join(map(str, gpu.target.isas))
    return DeviceSummary(ordinal, gpu.name, f"{targets}, {gpu.compute_units} compute units")


def _fail_in_probe(call: str, code: int) -> NoReturn:
    """Like `_fail`, for a backend that is not open."""
    name = status_name(header().constants, code)
    advice = f". {ADVICE[name]}" if name in ADVICE else ""
    error = CLASS_OF.get(name, DeviceError)
    raise error(f"{call}: {name} ({code}){advice}", backend="rocm", call=call, code=code)


def _lost_name(code: int) -> str:
    """The status a queue reported, or our own name for other codes."""
    constants = runtime_header().constants
    name = next(
        (
            name
            for name, value in constants.items()
            if value == code and name.startswith(STICKY_PREFIX)
        ),
        f"{code:#x}",
    )
    if name in LOST_TEXT:
        return name
    return status_name(header().constants, code - constants["UHAL_HSA_LOST"])


def _version(library: Library) -> str:
    numbers = []
    for part in ("MAJOR", "MINOR"):
        value = ctypes.c_uint16()
        attribute = library.header.constants[f"HSA_SYSTEM_INFO_VERSION_{part}"]
        library.hsa_system_get_info(attribute, ctypes.byref(value))
        numbers.append(str(value.value))
    return f"HSA {'.'.join(numbers)}"


def _words(library: Library, status: int, name: str = "") -> str:
    """The runtime's text for a status, without the leading name."""
    text = ctypes.c_char_p()
    if library.unchecked("hsa_status_string")(status, ctypes.byref(text)) or text.value is None:
        return f"status {status:#x}"
    return text.value.decode("utf-8", "replace").removeprefix(f"{name}: ")


def _why_no_device() -> str:
    if not os.path.exists(_KERNEL_DRIVER):
        return (
            f"there is no {_KERNEL_DRIVER}: load the amdgpu kernel driver (a container needs "
            f"--device={_KERNEL_DRIVER} --device=/dev/dri)"
        )
    if not os.access(_KERNEL_DRIVER, os.R_OK | os.W_OK):
        return f"{_KERNEL_DRIVER} may not be opened: join the group render"
    return "rocminfo lists the runtime's agents; is ROCR_VISIBLE_DEVICES empty?"
