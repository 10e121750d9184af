"""The backend class: finding wgpu-native, the process, its devices.

Launches, copies and waits are in libuhal_webgpu, which is reached through `runtime.h` and calls
wgpu-native. Kernels are made in `_modules.py`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from uhal._lane import HotTable
from uhal.abi import LibraryBackend, LibraryFacts, LibrarySearch
from uhal.contract import BackendRecord, DeviceLimits, DeviceSummary, ErrorText
from uhal.emulation import complete
from uhal.errors import DeviceError, LibraryNotFoundError, from_code
from uhal.images.program_cache import ProgramCache
from uhal.python_slots import PythonSlots
from webgpu_backend import _library
from webgpu_backend._adapters import Adapter, look
from webgpu_backend._errors import ADVICE, CLASS_OF, TEXT, code_name
from webgpu_backend._library import LIBRARY_VARIABLE, bind, refusal_of, release_of
from webgpu_backend._modules import ModuleVerbs, OpenDevice
from webgpu_backend._runtime import FUNCTION_OF_SLOT, error_text, open_runtime, runtime_header

_MOST_BLOCKS_X = 0x7FFFFFFF
"""Most blocks along x: a launch beyond one dispatch is split."""
_KINDS = {
    "streams": "UHAL_WG_KIND_STREAM",
    "events": "UHAL_WG_KIND_EVENT",
    "functions": "UHAL_WG_KIND_FUNCTION",
    "allocations": "UHAL_WG_KIND_ALLOCATION",
    "pinned": "UHAL_WG_KIND_PINNED",
}


class WebGpuBackend(ModuleVerbs, LibraryBackend):
    """Adapters that wgpu-native shows. Any thread may call any method."""

    name = "webgpu"
    stream_refusal = "wgpu has no streams: uhal makes them of its one queue"
    library = LibraryFacts(
        variable=LIBRARY_VARIABLE,
        candidates=(),
        purpose="WebGPU",
        software="wgpu-native",
        install='pip install "uhal-py[webgpu]"',
        no_device="install the GPU's driver for Vulkan",
    )

    def __init__(self, search: LibrarySearch) -> None:
        """Own an opened library. Callers use `open`."""
        wgpu = bind(search, self._fail)
        refusal = refusal_of(wgpu)
        if refusal:
            raise LibraryNotFoundError(
                f"{wgpu.path}: {refusal}. {self.library.install}", backend=self.name
            )
        self._version = release_of(wgpu)
        self._runtime = open_runtime(wgpu, self._fail)
        self._found = look(self._runtime)
        self._opened: dict[int, OpenDevice] = {}
        self._cache = ProgramCache.of_user(self.name)
        self._start_modules()
        constants = runtime_header().constants
        codes = {
            "not_ready": constants["UHAL_WG_NOT_READY"],
            "out_of_memory": constants["UHAL_WG_OUT_OF_MEMORY"],
        }
        self._slots = PythonSlots(
            {"get_function": self._get_function, "module_unload": self._module_unload},
            out_of_memory=codes["out_of_memory"],
        )
        native = {slot: self._runtime.address(name) for slot, name in FUNCTION_OF_SLOT.items()}
        self._hot_table = HotTable(
            complete({**native, **self._slots.addresses}, backend=self.name, **codes),
            sticky=[constants["UHAL_WG_DEVICE_LOST"]],
            names=FUNCTION_OF_SLOT,
            staged_bytes=constants["UHAL_WG_STAGED_BYTES"],
            frees_wait=False,
            **codes,
        )

    # -- finding the library -----------------------------------------------------------------------

    @classmethod
    def probe(cls) -> BackendRecord:
        """Open the library and list its adapters. Creates nothing on any."""
        search = _library.search()
        if search.handle is None:
            return cls._absent(search)
        try:
            opened = cls(search)
        except DeviceError as error:
            return BackendRecord(cls.name, "refused", str(error), "", search.attempts, search.path)
        devices = tuple(one.summary(ordinal) for ordinal, one in enumerate(opened.adapters))
        count = f"{len(devices)} device{'' if len(devices) == 1 else 's'}"
        refused = (f"not used: {one}" for one in opened._found.refused)
        return BackendRecord(
            cls.name,
            "ok" if devices else "absent",
            "; ".join((f"{count}, wgpu-native {opened.version()}", *refused)),
            "" if devices else cls.library.no_device,
            search.attempts,
            search.path,
            opened.version(),
            devices,
        )

    @classmethod
    def _absent(cls, search: LibrarySearch) -> BackendRecord:
        reason = "; ".join(f"{one.path}: {one.outcome}" for one in search.attempts)
        return BackendRecord(cls.name, "absent", reason, cls.library.install, search.attempts)

    @classmethod
    def open(cls) -> WebGpuBackend:
        """Open the library that `probe` names."""
        search = _library.search()
        if search.handle is None:
            raise LibraryNotFoundError(
                f"{cls._absent(search).reason}. To use WebGPU, {cls.library.install}.",
                backend=cls.name,
            )
        return cls(search)

    # -- the process and its devices ---------------------------------------------------------------

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """The adapters that are devices, by ordinal."""
        return self._found.adapters

    def opened(self, ordinal: int) -> OpenDevice:
        """Return a device that is open."""
        return self._opened[ordinal]

    @property
    def hot_table(self) -> HotTable:
        """Addresses of libuhal_webgpu's functions, two Python functions and an emulation."""
        return self._hot_table

    def version(self) -> str:
        """Return the version of wgpu-native."""
        return self._version

    def device_count(self) -> int:
        """Return how many adapters are used."""
        return len(self.adapters)

    def device_summary(self, ordinal: int) -> DeviceSummary:
        """Describe an adapter."""
        return self.adapters[ordinal].summary(ordinal)

    def device_context(self, ordinal: int) -> int:
        """Open the adapter's device."""
        token = ctypes.c_void_p()
        self._runtime.uhalWgDeviceOpen(token, self.adapters[ordinal].index)
        self._opened[ordinal] = OpenDevice(self.adapters[ordinal], token.value or 0, self._cache)
        return token.value or 0

    def release_device_context(self, ordinal: int, token: int) -> None:
        """Close the adapter's device."""
        self._runtime.uhalWgDeviceClose(token)
        opened = self._opened.get(ordinal)
        if opened is not None and opened.token == token:
            del self._opened[ordinal]

    def device_name(self, ordinal: int) -> str:
        """Return the adapter's name as its driver says it."""
        return self.adapters[ordinal].name

    def device_uuid(self, ordinal: int) -> str:
        """Return an identifier made of the adapter and this machine: WebGPU has none."""
        try:
            machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            machine = platform.node()
        one = self.adapters[ordinal]
        known = f"uhal webgpu {machine} {one.index} {one.interface} {one.name}"
        return str(uuid.uuid5(uuid.NAMESPACE_OID, known))

    def device_limits(self, ordinal: int) -> DeviceLimits:
        """Return the limits of a launch."""
        facts = self.adapters[ordinal].facts
        return DeviceLimits(
            max_grid=(_MOST_BLOCKS_X, facts.max_blocks, facts.max_blocks),
            max_block=tuple(facts.max_block),
            max_threads_per_block=facts.max_threads,
            max_shared_bytes_per_block=facts.max_shared_bytes,
            warp_size=max(facts.subgroup_min, 1),
            processors=1,  # unknown in WebGPU
        )

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        """Return attributes beyond the limits."""
        one = self.adapters[ordinal]
        names = (
            "vendor_id device_id has_immediates has_int64 has_f16 has_subgroups has_times "
            "subgroup_min subgroup_max max_storage_buffers max_immediate_bytes max_binding_bytes "
            "max_buffer_bytes"
        )
        return {
            "interface": one.interface,
            "kind": one.kind,
            "driver": one.driver,
            "wgpu-native": self._version,
            **{name: int(getattr(one.facts, name)) for name in names.split()},
            "kernel cache": str(self._cache.folder or f"none: {self._cache.refusal}"),
        }

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """Return free and total bytes.

        WebGPU reports neither. The total is the machine's memory for a processor, else four times
        the largest buffer; free is the total without this process's allocations.
        """
        one = self.adapters[ordinal]
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        total = pages if one.is_software else 4 * int(one.facts.max_buffer_bytes)
        allocated = ctypes.c_size_t()
        self._runtime.uhalWgDeviceAllocated(allocated, self.opened(ordinal).token)
        return max(total - allocated.value, 0), total

    def host_device_pointer(self, pointer: int) -> int:
        """Return the address of the device's copy of page-locked memory."""
        address = ctypes.c_uint64()
        self._runtime.uhalWgMemHostGetDevicePointer(address, pointer)
        return address.value

    def live_counts(self) -> Mapping[str, int]:
        """Count the native library's own objects in this process, and the modules."""
        counts: dict[str, int] = {"modules": len(self._modules)}
        for kind, constant in _KINDS.items():
            count = ctypes.c_size_t()
            self._runtime.uhalWgLiveCount(runtime_header().constants[constant], count)
            counts[kind] = count.value
        return counts

    # -- errors ------------------------------------------------------------------------------------

    def error_text(self, code: int) -> ErrorText:
        """Return wgpu's text of this thread's last error, else the code's text."""
        name = code_name(code)
        said = error_text(self._runtime) if hasattr(self, "_runtime") else ""
        return ErrorText(name, said or TEXT.get(name, name), ADVICE.get(name, ""))

    def error_class(self, code: int) -> type[Exception]:
        """Look the code up in the table."""
        return CLASS_OF.get(code_name(code), DeviceError)

    def _fail(self, call: str, code: int) -> NoReturn:
        raise from_code(self, call, code)
