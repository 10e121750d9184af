"""The CUDA backend's verbs: uhal's backend interface over the CUDA driver API.

The hot table holds the driver's own addresses: every slot has the prototype of the function it is
named after. Validates nothing but images.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

from cuda_backend._errors import (
    ADVICE,
    CLASS_OF,
    MISSING_FUNCTION,
    MISSING_NAME,
    MISSING_TEXT,
    STICKY,
    advice_for,
)
from cuda_backend._graphs import CudaGraphVerbs
from cuda_backend._library import (
    CANDIDATES,
    LIBRARY_VARIABLE,
    DriverLibrary,
    function_type,
    header,
)
from cuda_backend._memory import MemoryVerbs
from cuda_backend._modules import ModuleVerbs
from cuda_backend.targets import DeviceTarget, Version
from uhal._lane import HotTable
from uhal.abi import LibraryFacts, LibrarySearch
from uhal.adapters import SlotAdapters
from uhal.contract import DeviceLimits, DeviceSummary, ErrorText
from uhal.errors import DeviceError, LibraryNotFoundError, from_code

FUNCTION_OF_SLOT = {
    "current": "cuCtxGetCurrent",
    "bind": "cuCtxSetCurrent",
    "launch": "cuLaunchKernel",
    "launch_ex": "cuLaunchKernelEx",
    "alloc": "cuMemAlloc_v2",
    "free": "cuMemFree_v2",
    "alloc_async": "cuMemAllocAsync",
    "free_async": "cuMemFreeAsync",
    "host_alloc": "cuMemHostAlloc",
    "host_free": "cuMemFreeHost",
    "copy_h2d": "cuMemcpyHtoDAsync_v2",
    "copy_d2h": "cuMemcpyDtoHAsync_v2",
    "copy_d2d": "cuMemcpyDtoDAsync_v2",
    "copy_peer": "cuMemcpyPeerAsync",
    "memset_8": "cuMemsetD8Async",
    "memset_16": "cuMemsetD16Async",
    "memset_32": "cuMemsetD32Async",
    "stream_create": "cuStreamCreateWithPriority",
    "stream_destroy": "cuStreamDestroy_v2",
    "stream_synchronize": "cuStreamSynchronize",
    "stream_query": "cuStreamQuery",
    "stream_wait_event": "cuStreamWaitEvent",
    "stream_callback": "cuLaunchHostFunc",
    "event_create": "cuEventCreate",
    "event_destroy": "cuEventDestroy_v2",
    "event_record": "cuEventRecord",
    "event_synchronize": "cuEventSynchronize",
    "event_query": "cuEventQuery",
    "event_elapsed": "cuEventElapsedTime",
    "get_function": "cuModuleGetFunction",
    "module_unload": "cuModuleUnload",
    "graph_launch": "cuGraphLaunch",
    "graph_update_kernel": "cuGraphExecKernelNodeSetParams",
}
ADAPTER_OF_SLOT = {
    "launch_ex": "cuda_launch_ex",
    "graph_update_kernel": "cuda_graph_update_kernel",
}
"""Adapters of the slots whose CUDA functions take structures."""
OPTIONAL_SLOTS = frozenset(
    ("launch_ex", "alloc_async", "free_async", "copy_peer", "graph_launch", "graph_update_kernel")
)

_LARGE_PARAMETERS_DRIVER = (12, 1)
_LARGE_PARAMETERS_CAPABILITY = (7, 0)
_LARGE_PARAMETER_BYTES = 32764
_SMALL_PARAMETER_BYTES = 4096
_PORTABLE_CLUSTER_BLOCKS = 8
"""Blocks per cluster, supported by every device with clusters (Programming Guide,
"Clusters")."""


class CudaBackend(CudaGraphVerbs, ModuleVerbs, MemoryVerbs):
    """NVIDIA's devices. Any thread may call any method."""

    name = "cuda"
    dlpack_device_type = 2  # kDLCUDA
    library = LibraryFacts(
        variable=LIBRARY_VARIABLE,
        candidates=CANDIDATES,
        purpose="CUDA",
        software="driver for CUDA",
        install=(
            "install the NVIDIA driver (nvidia-smi then lists the device; a container needs "
            f"--gpus all), or set {LIBRARY_VARIABLE} to its libcuda.so.1"
        ),
        no_device=ADVICE["CUDA_ERROR_NO_DEVICE"],
    )

    def __init__(self, search: LibrarySearch) -> None:
        """Initialise an opened library and own it. Callers use `open`."""
        self._library = DriverLibrary(search, self._fail)
        self._adapters = SlotAdapters(Path(__file__).resolve().parent, self.name)
        self._library.cuInit(0)
        self._driver = self._driver_version()
        oldest = self._constant("UHAL_CUDA_OLDEST_DRIVER")
        if self._driver < _version(oldest):
            raise DeviceError(
                f"{self._library.path} is for CUDA {self.version()}, and a driver for CUDA "
                f"{_dotted(_version(oldest))} or later is needed",
                backend=self.name,
            )
        self._contexts: dict[int, int] = {}
        self._stand_ins: list[object] = []
        self._table: HotTable | None = None

    # -- the process and its devices ---------------------------------------------------------------

    @property
    def hot_table(self) -> HotTable:
        """The driver's addresses; calls of a missing function are refused by name."""
        if self._table is None:
            constants = header().constants
            self._table = HotTable(
                {slot: self._slot_address(slot) for slot in FUNCTION_OF_SLOT},
                not_ready=constants["CUDA_ERROR_NOT_READY"],
                out_of_memory=constants["CUDA_ERROR_OUT_OF_MEMORY"],
                sticky=[constants[name] for name in STICKY],
                names=FUNCTION_OF_SLOT,
            )
        return self._table

    def version(self) -> str:
        """Return the CUDA version the driver is made for, such as `12.4`."""
        return _dotted(self._driver)

    def device_count(self) -> int:
        """Return how many devices the driver shows this process."""
        count = ctypes.c_int()
        self._library.cuDeviceGetCount(count)
        return count.value

    def device_context(self, ordinal: int) -> int:
        """Retain the device's primary context, which every library in the process shares."""
        context = ctypes.c_void_p()
        self._library.cuDevicePrimaryCtxRetain(context, self._device(ordinal))
        self._contexts[ordinal] = context.value or 0
        return self._contexts[ordinal]

    def release_device_context(self, ordinal: int, token: int) -> None:
        """Release the primary context; it exists while other libraries retain it."""
        self._library.cuDevicePrimaryCtxRelease_v2(self._device(ordinal))

    def device_name(self, ordinal: int) -> str:
        """Return the product's name."""
        name = ctypes.create_string_buffer(256)
        self._library.cuDeviceGetName(name, len(name), self._device(ordinal))
        return name.value.decode("utf-8", "replace")

    def device_uuid(self, ordinal: int) -> str:
        """Return the identifier of the device or MIG instance."""
        found = header().ctype("CUuuid")()
        self._library.cuDeviceGetUuid_v2(found, self._device(ordinal))
        return str(uuid.UUID(bytes=bytes(found)))

    def device_summary(self, ordinal: int) -> DeviceSummary:
        """Describe a device; no context is made on it."""
        total = ctypes.c_size_t()
        self._library.cuDeviceTotalMem_v2(total, self._device(ordinal))
        processors = self._attribute(ordinal, "MULTIPROCESSOR_COUNT")
        capability = _dotted(self._capability(ordinal))
        description = (
            f"compute capability {capability}, {processors} multiprocessors, "
            f"{total.value / 2**30:.0f} GB"
        )
        return DeviceSummary(ordinal, self.device_name(ordinal), description)

    def device_limits(self, ordinal: int) -> DeviceLimits:
        """Return the limits of a launch, without opting in to more shared memory."""

        def of(attribute: str) -> int:
            return self._attribute(ordinal, attribute)

        large = (
            self._driver >= _LARGE_PARAMETERS_DRIVER
            and self._capability(ordinal) >= _LARGE_PARAMETERS_CAPABILITY
        )
        return DeviceLimits(
            max_grid=(of("MAX_GRID_DIM_X"), of("MAX_GRID_DIM_Y"), of("MAX_GRID_DIM_Z")),
            max_block=(of("MAX_BLOCK_DIM_X"), of("MAX_BLOCK_DIM_Y"), of("MAX_BLOCK_DIM_Z")),
            max_threads_per_block=of("MAX_THREADS_PER_BLOCK"),
            max_shared_bytes_per_block=of("MAX_SHARED_MEMORY_PER_BLOCK"),
            warp_size=of("WARP_SIZE"),
            processors=of("MULTIPROCESSOR_COUNT"),
            max_parameter_bytes=_LARGE_PARAMETER_BYTES if large else _SMALL_PARAMETER_BYTES,
            max_cluster_blocks=self._cluster_blocks(ordinal),
            max_threads_per_processor=of("MAX_THREADS_PER_MULTIPROCESSOR"),
        )

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        """Return every attribute in abi.h that this driver knows, and the PCI address."""
        ask = self._library.unchecked("cuDeviceGetAttribute")
        device = self._device(ordinal)
        value = ctypes.c_int()
        found: dict[str, int | str] = {}
        for name, number in header().constants.items():
            if name.startswith("CU_DEVICE_ATTRIBUTE_") and ask(value, number, device) == 0:
                found[name] = value.value
        address = ctypes.create_string_buffer(32)
        if self._library.unchecked("cuDeviceGetPCIBusId")(address, len(address), device) == 0:
            found["PCI_BUS_ADDRESS"] = address.value.decode("ascii", "replace")
        return found

    def synchronize_device(self, ordinal: int) -> None:
        """Wait for every stream of the current context, including other libraries' streams."""
        self._library.cuCtxSynchronize()

    def priority_range(self, ordinal: int) -> tuple[int, int]:
        """Return (least, greatest); both 0 where streams have no priorities."""
        least = ctypes.c_int()
        greatest = ctypes.c_int()
        with self._bound(ordinal):
            self._library.cuCtxGetStreamPriorityRange(least, greatest)
        return least.value, greatest.value

    def special_stream(self, kind: Literal["legacy", "per_thread"]) -> int:
        """Return CUDA's handle for one of the two implicit streams."""
        return self._constant("CU_STREAM_LEGACY" if kind == "legacy" else "CU_STREAM_PER_THREAD")

    # -- errors ------------------------------------------------------------------------------------

    def error_text(self, code: int) -> ErrorText:
        """Return the driver's text for a code, else the code's name in abi.h."""
        if code == MISSING_FUNCTION:
            return ErrorText(MISSING_NAME, MISSING_TEXT, ADVICE[MISSING_NAME])
        name = self._said("cuGetErrorName", code) or _name_of(code)
        text = self._said("cuGetErrorString", code) or "this driver says no more"
        return ErrorText(name, text, advice_for(name, text))

    def error_class(self, code: int) -> type[Exception]:
        """Look the code up in the table."""
        return CLASS_OF.get(self.error_text(code).name, DeviceError)

    def _said(self, function: str, code: int) -> str:
        text = ctypes.c_char_p()
        try:
            status = self._library.unchecked(function)(code, text)
        except LibraryNotFoundError:
            return ""
        return (text.value or b"").decode("utf-8", "replace") if status == 0 else ""

    def _fail(self, call: str, code: int) -> NoReturn:
        raise from_code(self, call, code)

    # -- helpers -----------------------------------------------------------------------------------

    def _slot_address(self, slot: str) -> int:
        """The address for a slot: 0 for an optional function the driver lacks."""
        name = FUNCTION_OF_SLOT[slot]
        if self._library.has(name):
            address = self._library.address(name)
            adapter = ADAPTER_OF_SLOT.get(slot)
            return address if adapter is None else self._adapters.over(adapter, address)
        if slot in OPTIONAL_SLOTS:
            return 0
        stand_in = function_type(name)(lambda *_: MISSING_FUNCTION)
        self._stand_ins.append(stand_in)
        return ctypes.cast(stand_in, ctypes.c_void_p).value or 0

    def _constant(self, name: str) -> int:
        return header().constants[name]

    def _driver_version(self) -> Version:
        version = ctypes.c_int()
        self._library.cuDriverGetVersion(version)
        return _version(version.value)

    def _device(self, ordinal: int) -> int:
        device = ctypes.c_int()
        self._library.cuDeviceGet(device, ordinal)
        return device.value

    def _attribute(self, ordinal: int, name: str) -> int:
        value = ctypes.c_int()
        number = self._constant(f"CU_DEVICE_ATTRIBUTE_{name}")
        self._library.cuDeviceGetAttribute(value, number, self._device(ordinal))
        return value.value

    def _cluster_blocks(self, ordinal: int) -> int:
        value = ctypes.c_int()
        number = self._constant("CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH")
        # A driver older than clusters does not know the attribute.
        ask = self._library.unchecked("cuDeviceGetAttribute")
        known = ask(value, number, self._device(ordinal)) == 0
        return _PORTABLE_CLUSTER_BLOCKS if known and value.value else 1

    def _capability(self, ordinal: int) -> Version:
        return (
            self._attribute(ordinal, "COMPUTE_CAPABILITY_MAJOR"),
            self._attribute(ordinal, "COMPUTE_CAPABILITY_MINOR"),
        )

    def _target(self, ordinal: int) -> DeviceTarget:
        return DeviceTarget(f"cuda:{ordinal}", self._capability(ordinal), self._driver)

    @contextmanager
    def _bound(self, ordinal: int) -> Iterator[None]:
        """Make the device current for a call that asks about the current device."""
        self._library.cuCtxPushCurrent_v2(self._contexts[ordinal])
        try:
            yield
        finally:
            popped: Any = ctypes.c_void_p()
            self._library.unchecked("cuCtxPopCurrent_v2")(popped)


def _version(number: int) -> Version:
    """Split CUDA's 1000 * major + 10 * minor."""
    return number // 1000, number % 1000 // 10


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _name_of(code: int) -> str:
    for name, number in header().constants.items():
        if number == code and name.startswith("CUDA_ERROR_"):
            return name
    return "unknown"
