"""The OpenCL backend's verbs: uhal's backend interface over an OpenCL runtime.

Launches, copies and waits are in libuhal_opencl, which is reached through `runtime.h` and calls
OpenCL itself. Validates nothing but images.
"""

from __future__ import annotations

import ctypes
import os
import platform
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from opencl_backend import _devices
from opencl_backend._devices import MEMORIES, ClDevice, Found
from opencl_backend._errors import ADVICE, CLASS_OF, status_name, text_of
from opencl_backend._library import LIBRARY_VARIABLE, bind, header, searches
from opencl_backend._modules import ModuleVerbs, OpenDevice
from opencl_backend._programs import Programs
from opencl_backend._runtime import FUNCTION_OF_SLOT, hand_over, open_runtime, runtime_header
from uhal._lane import HotTable
from uhal.abi import Library, LibrarySearch
from uhal.contract import (
    Backend,
    BackendRecord,
    DeviceLimits,
    DeviceSummary,
    ErrorText,
    LibraryAttempt,
    joined_reasons,
)
from uhal.errors import (
    DeviceError,
    InvalidHandleError,
    LibraryNotFoundError,
    NotSupportedError,
    from_code,
)
from uhal.images.program_cache import ProgramCache
from uhal.python_slots import PythonSlots

_MOST_BLOCKS = 0x7FFFFFFF
"""Work-items of a grid along an axis: kernels count in 32 bits. OpenCL has no limit."""
_ALIGNMENT = 128
"""Bytes of alignment of allocations: OpenCL C's largest type, 16 numbers of 8 bytes."""
_KINDS = {
    "streams": "UHAL_CL_KIND_STREAM",
    "events": "UHAL_CL_KIND_EVENT",
    "functions": "UHAL_CL_KIND_FUNCTION",
    "allocations": "UHAL_CL_KIND_ALLOCATION",
    "pinned": "UHAL_CL_KIND_PINNED",
}
_INSTALL = (
    "install the OpenCL runtime of the device's vendor; for Intel and AMD CPUs "
    "pip install intel-opencl-rt intel-cmplr-lib-rt (both of one version: the first needs the "
    f"second and does not say so); or set {LIBRARY_VARIABLE} to a runtime's library"
)
_ATTRIBUTES = (
    "CL_DEVICE_VENDOR_ID",
    "CL_DEVICE_MAX_CLOCK_FREQUENCY",
    "CL_DEVICE_MAX_MEM_ALLOC_SIZE",
    "CL_DEVICE_GLOBAL_MEM_SIZE",
)


class OpenClBackend(ModuleVerbs, Backend):
    """Devices of every OpenCL platform. Any thread may call any method."""

    name = "opencl"
    stream_refusal = "a queue of OpenCL comes in by Stream.from_handle(its address)"

    def __init__(self, search: LibrarySearch) -> None:
        """Own an opened library. Callers use `open`."""
        self._runtime = open_runtime(self._fail)
        self._library = bind(search, self._fail)
        self._found = _devices.look(self._library)
        self._opened: dict[int, OpenDevice] = {}
        self._cache = ProgramCache.of_user(self.name)
        self._start_modules()
        hand_over(self._runtime, self._library)
        constants = runtime_header().constants
        out_of_memory = header().constants["CL_OUT_OF_RESOURCES"]
        self._slots = PythonSlots(
            {"get_function": self._get_function, "module_unload": self._module_unload},
            out_of_memory=out_of_memory,
        )
        native = {slot: self._runtime.address(name) for slot, name in FUNCTION_OF_SLOT.items()}
        self._hot_table = HotTable(
            {**native, **self._slots.addresses},
            not_ready=constants["UHAL_CL_NOT_READY"],
            out_of_memory=out_of_memory,
            names=FUNCTION_OF_SLOT,
            staged_bytes=constants["UHAL_CL_STAGED_BYTES"],
        )

    # -- finding a library -------------------------------------------------------------------------

    @classmethod
    def probe(cls) -> BackendRecord:
        """List the devices of the first library with a usable device."""
        search, found, attempts, reasons = _first_with_a_device()
        if search is None or found is None:
            if not reasons:
                return BackendRecord(
                    cls.name, "absent", joined_reasons(attempts), _INSTALL, attempts
                )
            return BackendRecord(cls.name, "refused", "; ".join(reasons), _INSTALL, attempts)
        devices = tuple(_summary(*numbered) for numbered in enumerate(found.devices))
        platform_version = found.devices[0].platform_version
        count = f"{len(devices)} device{'' if len(devices) == 1 else 's'}, {platform_version}"
        reason = "; ".join((count, *(f"not used: {one}" for one in found.refused)))
        version = found.devices[0].driver
        return BackendRecord(cls.name, "ok", reason, "", attempts, search.path, version, devices)

    @classmethod
    def open(cls) -> OpenClBackend:
        """Open the library that `probe` names."""
        search, _, attempts, reasons = _first_with_a_device()
        if search is None:
            tried = "; ".join(reasons) or joined_reasons(attempts)
            raise LibraryNotFoundError(f"{tried}. To use OpenCL, {_INSTALL}.", backend=cls.name)
        return cls(search)

    # -- the process and its devices ---------------------------------------------------------------

    def opened(self, ordinal: int) -> OpenDevice:
        """Return a device that is open."""
        return self._opened[ordinal]

    @property
    def hot_table(self) -> HotTable:
        """The addresses of libuhal_opencl's functions, and two Python functions."""
        return self._hot_table

    def version(self) -> str:
        """Return the driver's version, of the first device."""
        return self._found.devices[0].driver

    def device_count(self) -> int:
        """Return how many devices there are on all platforms."""
        return len(self._found.devices)

    def device_context(self, ordinal: int) -> int:
        """Make a context of the device alone."""
        device = self._found.devices[ordinal]
        code = ctypes.c_int32()
        handles = (ctypes.c_void_p * 1)(device.handle)
        context = self._library.clCreateContext(
            None, 1, handles, _NO_CALLBACK, None, ctypes.byref(code)
        )
        if code.value or not context:
            self._fail("clCreateContext", code.value)
        info = runtime_header().ctype("uhalClDeviceInfo")()
        info.context, info.device = context, device.handle
        info.memory = MEMORIES[device.memory]
        info.alignment = _ALIGNMENT
        functions = _devices.memory_functions(self._library, device.platform, device.memory)
        for field, address in functions.items():
            setattr(info, field, address)
        token = ctypes.c_void_p()
        self._runtime.uhalClDeviceOpen(token, info)
        programs = Programs(self._library, self._fail, device, context, self._cache)
        self._opened[ordinal] = OpenDevice(device, context, token.value or 0, programs)
        return token.value or 0

    def release_device_context(self, ordinal: int, token: int) -> None:
        """Release the context of a device."""
        self._runtime.uhalClDeviceClose(token)
        opened = self._opened.get(ordinal)
        if opened is not None and opened.token == token:
            del self._opened[ordinal]
            self._library.clReleaseContext(opened.context)

    def device_name(self, ordinal: int) -> str:
        """Return the device's name as its driver says it."""
        return self._found.devices[ordinal].name

    def device_uuid(self, ordinal: int) -> str:
        """Return the device's own identifier, else its position in this machine."""
        device = self._found.devices[ordinal]
        raw = _devices.raw(self._library, device.handle, "CL_DEVICE_UUID_KHR")
        if "cl_khr_device_uuid" in device.extensions and any(raw) and len(raw) == 16:
            return str(uuid.UUID(bytes=raw))
        try:
            machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            machine = platform.node()
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"uhal opencl {machine} {ordinal}"))

    def device_limits(self, ordinal: int) -> DeviceLimits:
        """Return the limits of a launch."""
        device = self._found.devices[ordinal]

        def limit(attribute: str) -> int:
            return _devices.number(self._library, device.handle, attribute)

        block = _devices.numbers(self._library, device.handle, "CL_DEVICE_MAX_WORK_ITEM_SIZES")
        return DeviceLimits(
            max_grid=(_MOST_BLOCKS, _MOST_BLOCKS, _MOST_BLOCKS),
            max_block=(block[0], block[1], block[2]),
            max_threads_per_block=limit("CL_DEVICE_MAX_WORK_GROUP_SIZE"),
            max_shared_bytes_per_block=limit("CL_DEVICE_LOCAL_MEM_SIZE"),
            warp_size=self._sub_group(device),
            processors=limit("CL_DEVICE_MAX_COMPUTE_UNITS"),
            max_parameter_bytes=limit("CL_DEVICE_MAX_PARAMETER_SIZE"),
        )

    def _sub_group(self, device: ClDevice) -> int:
        """The smallest sub-group of a GPU; 1 for CPUs, where compilers choose."""
        key = "CL_DEVICE_SUB_GROUP_SIZES_INTEL"
        sizes = _devices.numbers(self._library, device.handle, key)
        return 1 if device.is_processor or not sizes else min(sizes)

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        """Return attributes beyond the limits, and the kind of memory."""
        device = self._found.devices[ordinal]
        versions = sorted(device.il_versions)
        return {
            **{
                name: _devices.number(self._library, device.handle, name, 0) for name in _ATTRIBUTES
            },
            "CL_DEVICE_VENDOR": device.vendor,
            "CL_DEVICE_VERSION": device.version,
            "CL_DRIVER_VERSION": device.driver,
            "CL_PLATFORM_VERSION": device.platform_version,
            "CL_DEVICE_IL_VERSION": " ".join(
                f"SPIR-V_{major}.{minor}" for major, minor in versions
            ),
            "CL_DEVICE_EXTENSIONS": " ".join(sorted(device.extensions)),
            "memory": device.memory,
            "memories": " ".join(device.memories),
            "program cache": str(self._cache.folder or f"none: {self._cache.refusal}"),
        }

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """Return free and total bytes.

        OpenCL does not report free memory. The estimate is the total minus this process's
        allocations. On a CPU it is at most the system's free memory.
        """
        device = self._found.devices[ordinal]
        total = _devices.number(self._library, device.handle, "CL_DEVICE_GLOBAL_MEM_SIZE")
        allocated = ctypes.c_size_t()
        self._runtime.uhalClDeviceAllocated(allocated, self.opened(ordinal).token)
        free = max(total - allocated.value, 0)
        if device.is_processor:
            free = min(free, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        return free, total

    def host_device_pointer(self, pointer: int) -> int:
        """Return the pointer, where devices see pinned memory under its address."""
        for opened in self._opened.values():
            if opened.device.memory in ("svm-coarse", "buffer-address"):
                raise NotSupportedError(
                    f"opencl: with memory of the kind {opened.device.memory!r} devices do not "
                    "reach host memory; copy it",
                    backend=self.name,
                )
        return pointer

    def live_counts(self) -> Mapping[str, int]:
        """Count the native library's own objects in this process, and the modules."""
        counts: dict[str, int] = {"modules": len(self._modules)}
        for kind, constant in _KINDS.items():
            count = ctypes.c_size_t()
            self._runtime.uhalClLiveCount(runtime_header().constants[constant], count)
            counts[kind] = count.value
        return counts

    def foreign_stream(self, ordinal: int, handle: int) -> tuple[int, object]:
        """Make a stream over another library's queue; the queue keeps its owner."""
        opened = self.opened(ordinal)
        if self._queue_fact(handle, "CL_QUEUE_CONTEXT") != opened.context:
            raise InvalidHandleError(
                "handle: expected a queue of the context that uhal uses, got one of another; make "
                "it in the context of opencl_backend.interop.context(device)",
                backend=self.name,
            )
        out_of_order = header().constants["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
        if self._queue_fact(handle, "CL_QUEUE_PROPERTIES") & out_of_order:
            raise NotSupportedError(
                "handle: expected a queue that runs in order, got one that does not",
                backend=self.name,
            )
        stream = ctypes.c_void_p()
        self._runtime.uhalClStreamWrapQueue(stream, opened.token, handle)
        native = stream.value or 0
        return native, WrappedQueue(self._runtime, native)

    def share_queue(self, stream: int) -> int:
        """Return the queue of a native stream, which others may use from now on."""
        found = ctypes.c_void_p()
        self._runtime.uhalClStreamShareQueue(found, stream)
        return found.value or 0

    def _queue_fact(self, queue: int, name: str) -> int:
        value = ctypes.c_uint64()
        key = header().constants[name]
        self._library.clGetCommandQueueInfo(queue, key, 8, ctypes.byref(value), None)
        return value.value

    # -- errors ------------------------------------------------------------------------------------

    def error_text(self, code: int) -> ErrorText:
        """Return the text of a code. OpenCL has names only."""
        name = status_name(code)
        return ErrorText(name, text_of(name), ADVICE.get(name, ""))

    def error_class(self, code: int) -> type[Exception]:
        """Look the code up in the table."""
        return CLASS_OF.get(status_name(code), DeviceError)

    def _fail(self, call: str, code: int) -> NoReturn:
        raise from_code(self, call, code)


class WrappedQueue:
    """A native stream over another library's queue; it lives as long as this object."""

    def __init__(self, runtime: Library, stream: int) -> None:
        """Take it over."""
        self._runtime, self._stream = runtime, stream

    def __del__(self) -> None:
        self._runtime.unchecked("uhalClStreamDestroy")(self._stream)


_NO_CALLBACK = header().ctype("cl_context_callback")()


def _first_with_a_device() -> tuple[
    LibrarySearch | None, Found | None, tuple[LibraryAttempt, ...], list[str]
]:
    """The first library with a usable device, the library's devices, the attempts, and failures."""
    attempts: list[LibraryAttempt] = []
    reasons: list[str] = []
    for search in searches():
        if search.handle is None:
            attempts += search.attempts
            continue
        found = _devices.look(bind(search, _fail_in_probe))
        if found.devices:
            return search, found, (*attempts, *search.attempts), reasons
        path = search.attempts[-1].path
        why = "; ".join(found.refused) or "it shows no platform with a device"
        attempts.append(LibraryAttempt(path, f"opened, but {why}"))
        reasons += found.refused
    return None, None, tuple(attempts), reasons


def _summary(ordinal: int, device: ClDevice) -> DeviceSummary:
    described = f"{device.kind}, {device.version}, {device.memory}"
    kind = "processor" if device.is_processor else "accelerator"
    return DeviceSummary(ordinal, device.name, described, kind)  # type: ignore[arg-type]


def _fail_in_probe(call: str, code: int) -> NoReturn:
    """Like `_fail`, for a backend that is not open."""
    name = status_name(code)
    error = CLASS_OF.get(name, DeviceError)
    raise error(f"{call}: {name} ({code}): {text_of(name)}", backend="opencl", call=call, code=code)
