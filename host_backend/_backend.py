"""The host backend's verbs: uhal's backend interface over libuhal_host.

This module validates only images. Kernels run in `host_backend/runtime`, which is called through
`abi.h` like any vendor's driver.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from host_backend._errors import ADVICE, CLASS_OF, DETAILED, LOST, STICKY
from uhal import environment
from uhal._lane import HotTable
from uhal.abi import Header, Library, LibrarySearch, find_library
from uhal.contract import (
    MESSAGES,
    BackendRecord,
    Chosen,
    DeviceLimits,
    DeviceSummary,
    ErrorText,
    FunctionAttributes,
    ImageCandidate,
    LoadedModule,
    Report,
    Reports,
    joined_reasons,
)
from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    LibraryNotFoundError,
    OutOfMemoryError,
    from_code,
)
from uhal.images import cpu_level
from uhal.images.host_module import ParameterFacts, require_host_module, signature_of
from uhal.library_graphs import OwnGraphVerbs, own_graph_names
from uhal.signature import Signature

LIBRARY_VARIABLE = "UHAL_HOST_LIBRARY"

FUNCTION_OF_SLOT = {
    "current": "uhalHostCtxGetCurrent",
    "bind": "uhalHostCtxSetCurrent",
    "launch": "uhalHostLaunchKernel",
    "alloc": "uhalHostMemAlloc",
    "free": "uhalHostMemFree",
    "alloc_async": "uhalHostMemAllocAsync",
    "free_async": "uhalHostMemFreeAsync",
    "host_alloc": "uhalHostMemHostAlloc",
    "host_free": "uhalHostMemFreeHost",
    "copy_h2d": "uhalHostMemcpyHtoDAsync",
    "copy_d2h": "uhalHostMemcpyDtoHAsync",
    "copy_d2d": "uhalHostMemcpyDtoDAsync",
    "copy_peer": "uhalHostMemcpyPeerAsync",
    "memset_8": "uhalHostMemsetD8Async",
    "memset_16": "uhalHostMemsetD16Async",
    "memset_32": "uhalHostMemsetD32Async",
    "stream_create": "uhalHostStreamCreateWithPriority",
    "stream_destroy": "uhalHostStreamDestroy",
    "stream_synchronize": "uhalHostStreamSynchronize",
    "stream_synchronize_while": "uhalHostStreamSynchronizeWhile",
    "stream_query": "uhalHostStreamQuery",
    "stream_progress": "uhalHostStreamProgress",
    "stream_wait_event": "uhalHostStreamWaitEvent",
    "stream_callback": "uhalHostLaunchHostFunc",
    "event_create": "uhalHostEventCreate",
    "event_destroy": "uhalHostEventDestroy",
    "event_record": "uhalHostEventRecord",
    "event_synchronize": "uhalHostEventSynchronize",
    "event_synchronize_while": "uhalHostEventSynchronizeWhile",
    "event_query": "uhalHostEventQuery",
    "event_elapsed": "uhalHostEventElapsedTime",
    "get_function": "uhalHostModuleGetFunction",
    "module_unload": "uhalHostModuleUnload",
    "graph_launch": "uhalHostGraphLaunch",
    "graph_update_kernel": "uhalHostGraphExecKernelNodeSetParams",
}

_FOLDER = Path(__file__).resolve().parent
_BLOCK_FOR_ELEMENTS = 1024
# One thread runs a block: a few blocks per core balance the load, and more blocks add cost. From
# `_BLOCKS` on, the runtime can tell a short launch from a long launch by the number of blocks.
_BLOCKS_PER_CORE = 8
_BLOCKS = 128
_ENTRY_BYTES = 128


class HostBackend(OwnGraphVerbs):
    """The CPU's cores as a device. Any thread may call any method."""

    name = "host"
    survives_fork = True
    takes_calls = True
    dlpack_device_type = 1  # kDLCPU: numpy reads the memory in place
    graph_names = own_graph_names("uhalHost")

    def __init__(self, library: Library) -> None:
        """Own an opened library. Callers use `open`."""
        self._library = library
        constants = library.header.constants
        self._hot_table = HotTable(
            {slot: library.address(name) for slot, name in FUNCTION_OF_SLOT.items()},
            not_ready=constants["UHAL_HOST_ERROR_NOT_READY"],
            out_of_memory=constants["UHAL_HOST_ERROR_OUT_OF_MEMORY"],
            sticky=[constants[name] for name in STICKY],
            names=FUNCTION_OF_SLOT,
            staged_bytes=constants["UHAL_HOST_STAGED_BYTES"],
        )

    # -- finding the library -----------------------------------------------------------------------

    @classmethod
    def probe(cls) -> BackendRecord:
        """Open libuhal_host and list its devices; starts no thread."""
        search = _find()
        if search.handle is None:
            return BackendRecord(
                cls.name,
                "absent",
                joined_reasons(search.attempts),
                f"unset {LIBRARY_VARIABLE}" if _overridden(search) else _BUILD_ADVICE,
                search.attempts,
            )
        try:
            environment.check("UHAL_HOST_")
        except DeviceError as error:
            return BackendRecord(cls.name, "refused", str(error), "", search.attempts, search.path)
        try:
            opened = cls._over(search)
        except DeviceError as error:
            # The runtime's own refusals already end with advice; a new build would not help.
            advice = _BUILD_ADVICE if error.code is None else ""
            return BackendRecord(
                cls.name, "refused", str(error), advice, search.attempts, search.path
            )
        count = opened.device_count()
        devices = tuple(opened._summary(ordinal) for ordinal in range(count))
        return BackendRecord(
            cls.name,
            "ok",
            devices[0].description,
            "",
            search.attempts,
            search.path,
            opened.version(),
            devices,
        )

    @classmethod
    def open(cls) -> HostBackend:
        """Open and initialise the runtime. `LibraryNotFoundError` when it was not built."""
        search = _find()
        if search.handle is None:
            raise LibraryNotFoundError(
                f"{joined_reasons(search.attempts)}. {_BUILD_ADVICE}", backend=cls.name
            )
        return cls._over(search)

    @classmethod
    def _over(cls, search: LibrarySearch) -> HostBackend:
        assert search.handle is not None
        header = _header()
        path = search.path or search.attempts[-1].path
        backend: HostBackend | None = None

        def check(call: str, code: int) -> None:
            if backend is not None:
                backend._fail(call, code)

        library = Library(search.handle, path, header, status="uhalHostResult", check=check)
        missing = library.missing()
        if missing:
            raise LibraryNotFoundError(f"{path} has no function {missing[0]}", backend=cls.name)
        version = ctypes.c_int()
        library.uhalHostGetVersion(version)
        expected = header.constants["UHAL_HOST_ABI_VERSION"]
        if version.value != expected:
            raise LibraryNotFoundError(
                f"{path} has version {version.value} of its interface, expected {expected}",
                backend=cls.name,
            )
        backend = cls(library)
        library.uhalHostInit(0)
        return backend

    # -- the process and its devices ---------------------------------------------------------------

    @property
    def hot_table(self) -> HotTable:
        """The addresses of libuhal_host."""
        return self._hot_table

    def version(self) -> str:
        """Return the version of the runtime's interface."""
        version = ctypes.c_int()
        self._library.uhalHostGetVersion(version)
        return str(version.value)

    def device_count(self) -> int:
        """Return 1, or what `UHAL_HOST_DEVICES` asks for."""
        count = ctypes.c_int()
        self._library.uhalHostDeviceGetCount(count)
        return count.value

    def device_context(self, ordinal: int) -> int:
        """Return the device's token; nothing is retained."""
        context = ctypes.c_void_p()
        self._library.uhalHostDeviceGetContext(context, ordinal)
        return context.value or 0

    def device_name(self, ordinal: int) -> str:
        """Return the processor's name as the system gives it."""
        name = ctypes.create_string_buffer(256)
        self._library.uhalHostDeviceGetName(name, len(name), ordinal)
        return name.value.decode("utf-8", "replace")

    def device_uuid(self, ordinal: int) -> str:
        """Return an identifier that is the same in every process on this machine."""
        try:
            machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            machine = platform.node()
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"uhal host {machine} {ordinal}"))

    def device_limits(self, ordinal: int) -> DeviceLimits:
        """Return a GPU's limits, so that kernels that run here fit on GPUs."""
        properties = self._properties(ordinal)
        return DeviceLimits(
            max_grid=(properties.max_grid[0], properties.max_grid[1], properties.max_grid[2]),
            max_block=(properties.max_block[0], properties.max_block[1], properties.max_block[2]),
            max_threads_per_block=properties.max_threads_per_block,
            max_shared_bytes_per_block=properties.max_shared_bytes,
            warp_size=1,
            processors=properties.processors,
            max_parameter_bytes=properties.max_parameter_bytes,
            block_for_elements=_BLOCK_FOR_ELEMENTS,
            max_blocks_for_elements=max(_BLOCKS, _BLOCKS_PER_CORE * properties.processors),
        )

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        """Return the attributes in abi.h beyond the limits."""
        properties = self._properties(ordinal)
        return {
            "processors": properties.processors,
            "instruction_level": _level().name,
            "vectors": _level().vectors,
            "queue_depth": properties.queue_depth,
            "total_memory": properties.total_memory,
        }

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """Return free and total bytes of the system, within the control group."""
        free = ctypes.c_size_t()
        total = ctypes.c_size_t()
        self._library.uhalHostMemGetInfo(free, total)
        return free.value, total.value

    def synchronize_device(self, ordinal: int) -> None:
        """Wait for the current work of every stream of the current device."""
        self._library.uhalHostCtxSynchronize()

    def host_device_pointer(self, pointer: int) -> int:
        """Return the pointer: kernels run in this process."""
        return pointer

    def device_reports(self, ordinal: int) -> Reports:
        """Return the address of the flag for launches that got no memory."""
        word = ctypes.c_void_p()
        self._library.uhalHostDeviceGetReportWord(word, ordinal)
        return word.value or 0, lambda: self._take_reports(ordinal)

    def _take_reports(self, ordinal: int) -> list[Report]:
        take = self._library.unchecked("uhalHostDeviceTakeReport")
        stream, launch = ctypes.c_uint64(), ctypes.c_uint64()
        entry = ctypes.create_string_buffer(_ENTRY_BYTES)
        reports: list[Report] = []
        while take(stream, launch, entry, len(entry), ordinal) == 0:
            name = entry.value.decode("utf-8", "replace")
            error = OutOfMemoryError(
                f"kernel {name}: expected memory for its own use, got none. Its results are not "
                "valid, the device goes on. Free memory and launch it again.",
                backend=self.name,
            )
            reports.append((error, stream.value, launch.value))
        return reports

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Return True: every host device is memory of this process."""
        return True

    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Nothing needs enabling."""

    def launch_call(
        self, stream: int, function: int, arguments: Sequence[int], status: int
    ) -> None:
        """Enqueue the call; a thread that may block makes it."""
        call = self._library.header.ctype("uhalHostCall")()
        call.function, call.status = function, status
        call.arguments[: len(arguments)] = arguments
        self._library.uhalHostLaunchCall(stream, call)

    def half_reduction(self, dtype: str, op: str) -> int:
        """Return the runtime's function; each result is rounded."""
        function = ctypes.c_uint64()
        self._library.uhalHostGetReduction(function, dtype.encode(), op.encode())
        return function.value

    def live_counts(self) -> Mapping[str, int]:
        """Count the runtime's own objects in this process."""
        return {kind: self._live_count(kind) for kind in _KINDS}

    def priority_range(self, ordinal: int) -> tuple[int, int]:
        """Return two levels: a ready stream of the greater level is served first."""
        constants = self._library.header.constants
        return (
            constants["UHAL_HOST_STREAM_PRIORITY_LEAST"],
            constants["UHAL_HOST_STREAM_PRIORITY_GREATEST"],
        )

    # -- modules -----------------------------------------------------------------------------------

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        """Check and load a kernel library; each load has its own globals."""
        what = str(path) if path is not None else "the image"
        level = self._properties(ordinal).instruction_level
        require_host_module(image, what, level)
        handle = ctypes.c_void_p()
        self._library.uhalHostModuleLoadData(handle, image, len(image))
        try:
            signatures = self._signatures(handle)
        except BaseException:
            self._library.uhalHostModuleUnload(handle)
            raise
        chosen = f"host kernel library, {len(signatures)} kernels"
        reason = "it is for this machine and its CPU runs it"
        return LoadedModule(
            handle=handle.value or 0,
            chosen=Chosen(chosen, reason, (ImageCandidate(chosen, True, reason),)),
            signatures=signatures,
            has_messages=MESSAGES in image,
        )

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """Return where a `DEVICE_GLOBAL` is, and its bytes."""
        address = ctypes.c_uint64()
        size = ctypes.c_size_t()
        call = "uhalHostModuleGetGlobal"
        code = self._library.unchecked(call)(address, size, module, name.encode())
        if code != 0:
            raise from_code(self, call, code, f"The module has no DEVICE_GLOBAL '{name}'")
        return address.value, size.value

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        """Return the launch bounds that the kernel declares."""
        attributes = self._structure("uhalHostFuncAttributes")
        self._library.uhalHostFuncGetAttributes(attributes, function)
        return FunctionAttributes(
            max_threads_per_block=attributes.max_threads_per_block,
            max_dynamic_shared_bytes=attributes.max_dynamic_shared_bytes,
        )

    # -- errors ------------------------------------------------------------------------------------

    def error_text(self, code: int) -> ErrorText:
        """Return the runtime's text for a code."""
        name = ctypes.c_char_p()
        text = ctypes.c_char_p()
        if self._library.unchecked("uhalHostGetErrorName")(code, name) != 0:
            return ErrorText("unknown", "a code this runtime does not define")
        self._library.unchecked("uhalHostGetErrorString")(code, text)
        spelled = (name.value or b"").decode()
        words = (text.value or b"").decode()
        if spelled == LOST:
            said = (self._library.uhalHostLastErrorText() or b"").decode("utf-8", "replace")
            words += f". {said}" if said else ""
        return ErrorText(spelled, words, ADVICE.get(spelled, ""))

    def error_class(self, code: int) -> type[Exception]:
        """Look the code up in the table."""
        return CLASS_OF.get(self.error_text(code).name, DeviceError)

    def _fail(self, call: str, code: int) -> NoReturn:
        note = ""
        if call == "uhalHostInit" or self.error_text(code).name in DETAILED:
            said = self._library.uhalHostLastErrorText()
            note = (said or b"").decode("utf-8", "replace")
        raise from_code(self, call, code, note)

    # -- helpers -----------------------------------------------------------------------------------

    def _structure(self, name: str) -> Any:
        return self._library.header.ctype(name)()

    def _properties(self, ordinal: int) -> Any:
        properties = self._structure("uhalHostDeviceProperties")
        self._library.uhalHostDeviceGetProperties(properties, ordinal)
        return properties

    def _summary(self, ordinal: int) -> DeviceSummary:
        properties = self._properties(ordinal)
        cores = properties.processors
        parts = [
            "1 core" if cores == 1 else f"{cores} cores",
            _level().vectors,
            f"{properties.total_memory / 2**30:.0f} GB",
        ]
        description = ", ".join(part for part in parts if part)
        return DeviceSummary(ordinal, self.device_name(ordinal), description, "processor")

    def _live_count(self, kind: str) -> int:
        count = ctypes.c_size_t()
        self._library.uhalHostLiveCount(self._library.header.constants[_KINDS[kind]], count)
        return count.value

    def _signatures(self, module: ctypes.c_void_p) -> dict[str, Signature]:
        count = ctypes.c_uint()
        self._library.uhalHostModuleGetKernelCount(count, module)
        signatures: dict[str, Signature] = {}
        for index in range(count.value):
            info = self._structure("uhalHostKernelInfo")
            self._library.uhalHostModuleGetKernel(info, index, module)
            facts = [
                ParameterFacts(fact.size, fact.alignment, fact.flags, fact.dtype)
                for fact in info.parameters[: info.parameter_count]
            ]
            entry = info.entry.decode()
            signatures[entry] = signature_of(entry, info.parameter_text.decode(), facts)
        return signatures


_KINDS = {
    "streams": "UHAL_HOST_KIND_STREAM",
    "events": "UHAL_HOST_KIND_EVENT",
    "modules": "UHAL_HOST_KIND_MODULE",
    "allocations": "UHAL_HOST_KIND_ALLOCATION",
    "pinned": "UHAL_HOST_KIND_PINNED",
    "graphs": "UHAL_HOST_KIND_GRAPH",
    "executable graphs": "UHAL_HOST_KIND_GRAPH_EXEC",
}
_BUILD_ADVICE = "build it: python setup.py build_ext --inplace"


@cache
def _header() -> Header:
    return Header.load(_FOLDER / "abi.h")


def _find() -> LibrarySearch:
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    return find_library(LIBRARY_VARIABLE, [str(_FOLDER / f"libuhal_host{suffix}")])


def _overridden(search: LibrarySearch) -> bool:
    return not any(attempt.path.startswith(str(_FOLDER)) for attempt in search.attempts)


def _level() -> cpu_level.Level:
    """The instruction level of the kernels, which `UHAL_HOST_LEVEL` may limit."""
    try:
        return cpu_level.best_level()
    except ValueError as error:
        raise ArgumentValueError(str(error)) from None
