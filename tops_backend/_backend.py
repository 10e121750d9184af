"""The Tops backend's verbs: uhal's backend interface over TopsRuntime.

The runtime has no contexts: a thread has a current device, and the token of a device is its
ordinal + 1. Validates nothing but images. Structures whose size differs between versions of the
library are over-allocated, and trusted only as far as they can be checked.
"""

from __future__ import annotations

import ctypes
import platform
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from tops_backend._errors import (
    ADVICE,
    CLASS_OF,
    MISSING_FUNCTION,
    MISSING_NAME,
    MISSING_TEXT,
    STICKY,
)
from tops_backend._graphs import TopsGraphVerbs
from tops_backend._library import (
    CANDIDATES,
    LIBRARY_VARIABLE,
    LaunchForms,
    TopsLibrary,
    header,
)
from tops_backend._texts import name_of, words_of
from tops_backend.images import select
from tops_backend.launch_rules import Told, architecture, device_limits
from uhal._lane import HotTable
from uhal.abi import LibraryFacts, LibrarySearch
from uhal.contract import (
    MESSAGES,
    DeviceLimits,
    DeviceSummary,
    ErrorText,
    FunctionAttributes,
    LoadedModule,
)
from uhal.errors import DeviceError, from_code
from uhal.images.topsfb import target_of_id

_MOST_CLUSTERS = 4096


class TopsBackend(TopsGraphVerbs):
    """Enflame's GCUs. Any thread may call any method."""

    name = "tops"
    library = LibraryFacts(
        variable=LIBRARY_VARIABLE,
        candidates=CANDIDATES,
        purpose="a GCU",
        software="TopsRuntime",
        install=(
            "install TopsRider, whose runtime is in /opt/tops/lib (efsmi then lists the device; a "
            f"container needs /dev/gcu0), or set {LIBRARY_VARIABLE} to its libtopsrt.so"
        ),
        no_device=ADVICE["topsErrorNoDevice"],
    )

    def __init__(self, search: LibrarySearch) -> None:
        """Initialise an opened library and own it. Callers use `open`."""
        self._library = TopsLibrary(search, self._fail)
        self._library.topsInit(0)
        self._table: HotTable | None = None

    # -- the process and its devices ---------------------------------------------------------------

    @property
    def hot_table(self) -> HotTable:
        """The runtime's addresses; calls of a missing function are refused by name."""
        if self._table is None:
            constants = header().constants
            forms = LaunchForms.told(sub_threads=self._has_sub_threads())
            functions = forms.functions()
            self._table = HotTable(
                self._library.slots(functions, forms),
                not_ready=constants["topsErrorNotReady"],
                out_of_memory=constants["topsErrorOutOfMemory"],
                sticky=[constants[name] for name in STICKY],
                names=functions,
            )
        return self._table

    def version(self) -> str:
        """Return the runtime's version, such as `2.5`."""
        version = ctypes.c_int()
        self._library.topsRuntimeGetVersion(version)
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def device_count(self) -> int:
        """Return how many devices the runtime shows this process."""
        count = ctypes.c_int()
        call = "topsGetDeviceCount"
        code = self._library.unchecked(call)(count)
        if code == header().constants["topsErrorNoDevice"]:
            return 0
        if code != 0:
            self._fail(call, code)
        return count.value

    def device_context(self, ordinal: int) -> int:
        """Return the token that stands for the device, which is never 0."""
        return ordinal + 1

    def device_name(self, ordinal: int) -> str:
        """Return the product's name."""
        name = ctypes.create_string_buffer(256)
        self._library.topsDeviceGetName(name, len(name), self._device(ordinal))
        return name.value.decode("utf-8", "replace")

    def device_uuid(self, ordinal: int) -> str:
        """Return an identifier from this machine's identifier and the device's bus address.

        The offset of the runtime's own identifier is certain for one version only.
        """
        address = self._bus_address(ordinal) or str(ordinal)
        try:
            machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            machine = platform.node()
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"uhal tops {machine} {address}"))

    def device_summary(self, ordinal: int) -> DeviceSummary:
        """Describe a device; nothing is created on it."""
        total = ctypes.c_size_t()
        self._library.topsDeviceTotalMem(total, self._device(ordinal))
        reported = self._told(ordinal)
        limits = device_limits(reported)
        product = architecture(reported.target).product
        parts = (
            " ".join(word for word in (reported.target or "unknown architecture", product) if word),
            f"{limits.processors} clusters of {limits.block_for_elements} SIPs",
            f"{total.value / 2**30:.0f} GB",
        )
        return DeviceSummary(ordinal, self.device_name(ordinal), ", ".join(parts))

    def device_limits(self, ordinal: int) -> DeviceLimits:
        """Return the limits of a launch: the device's values where the runtime tells them."""
        return device_limits(self._told(ordinal))

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        """Return every attribute the runtime answers, the architecture and the PCI address."""
        found: dict[str, int | str] = {}
        for name in header().constants:
            if name.startswith("topsDeviceAttribute"):
                value = self._attribute(ordinal, name)
                if value is not None:
                    found[name] = value
        target = self._target(ordinal)
        if target is not None:
            found["gcuArchName"] = target
        address = self._bus_address(ordinal)
        if address:
            found["PCI_BUS_ADDRESS"] = address
        return found

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """Return free and total bytes of the current device."""
        free = ctypes.c_size_t()
        total = ctypes.c_size_t()
        self._library.topsMemGetInfo(free, total)
        return free.value, total.value

    def synchronize_device(self, ordinal: int) -> None:
        """Wait for every stream of the current device, other libraries' too."""
        self._library.topsDeviceSynchronize()

    def special_stream(self, kind: Literal["legacy", "per_thread"]) -> int | None:
        """Return the handle of the stream of each thread. The default stream has no handle:
        NULL.
        """
        return header().constants["topsStreamPerThread"] if kind == "per_thread" else None

    def host_device_pointer(self, pointer: int) -> int:
        """Return where the current device sees pinned memory."""
        address = ctypes.c_void_p()
        self._library.topsHostGetDevicePointer(address, pointer, 0)
        return address.value or 0

    def device_address(self, pointer: int) -> int:
        """Return the hardware's address of memory of the current device.

        A pointer is a handle, and launches convert pointer parameters. A kernel that takes an
        address inside an integer or a structure needs the hardware's address.
        """
        # The number of written bytes is documented for some attributes only.
        address = ctypes.c_uint64()
        attribute = header().constants["TOPS_POINTER_ATTRIBUTE_DEVICE_POINTER"]
        self._library.topsPointerGetAttribute(ctypes.byref(address), attribute, pointer)
        return address.value

    def ipc_export(self, address: int) -> bytes:
        """Return the runtime's handle of an allocation, for another process."""
        handle = header().ctype("topsIpcMemHandle_t")()
        self._library.topsIpcGetMemHandle(handle, address)
        return bytes(handle)

    def ipc_open(self, handle: bytes) -> int:
        """Map another process's allocation on the current device."""
        native = header().ctype("topsIpcMemHandle_t").from_buffer_copy(handle)
        address = ctypes.c_void_p()
        self._library.topsIpcOpenMemHandle(address, native, 0)
        return address.value or 0

    def ipc_close(self, address: int) -> None:
        """Undo one `ipc_open`."""
        self._library.topsIpcCloseMemHandle(address)

    # -- modules -----------------------------------------------------------------------------------

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        """Choose among the images of a `.topsfb`, and load one."""
        selection = select(image, f"tops:{ordinal}", self._target(ordinal))
        module = ctypes.c_void_p()
        call = "topsModuleLoadData"
        # The function takes no size and trusts the container, so every range was checked before.
        code = self._library.unchecked(call)(module, selection.payload)
        if code != 0:
            what = "the image" if path is None else path.name
            raise from_code(self, call, code, f"{what}, {selection.chosen.description}")
        return LoadedModule(
            module.value or 0,
            selection.chosen,
            selection.signatures,
            has_messages=MESSAGES in selection.payload,
        )

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """Return address and bytes of a variable of the module."""
        address = ctypes.c_void_p()
        size = ctypes.c_size_t()
        call = "topsModuleGetGlobal"
        code = self._library.unchecked(call)(address, size, module, name.encode())
        if code != 0:
            raise from_code(self, call, code, f"it was asked for the variable {name!r}")
        return address.value or 0, size.value

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        """Return the runtime's facts of a kernel; the device's limits replace missing facts."""
        most = self._current_limits().max_threads_per_block
        # The attribute counts SIPs; if the SIPs of a device have threads, the limits count those
        # threads.
        sips = self._function_attribute(function, "MAX_THREADS_PER_BLOCK")
        threads = sips * max(architecture(self._current_target()).sub_threads, 1) if sips else most
        return FunctionAttributes(
            max_threads_per_block=threads,
            static_shared_bytes=self._function_attribute(function, "SHARED_SIZE_BYTES"),
            local_bytes=self._function_attribute(function, "LOCAL_SIZE_BYTES"),
            registers=self._function_attribute(function, "NUM_REGS"),
            # 0 may mean that the attribute is not set: then the device's limit holds.
            max_dynamic_shared_bytes=(
                self._function_attribute(function, "MAX_DYNAMIC_SHARED_SIZE_BYTES") or None
            ),
        )

    # -- errors ------------------------------------------------------------------------------------

    def error_text(self, code: int) -> ErrorText:
        """Return a code's name in abi.h, and the runtime's text or else ours."""
        if code == MISSING_FUNCTION:
            return ErrorText(MISSING_NAME, MISSING_TEXT, ADVICE[MISSING_NAME])
        name = name_of(code)
        said = self._said(code)
        # The runtime mostly says the name again.
        text = words_of(name) if said in ("", name) else said
        return ErrorText(name, text, ADVICE.get(name, ""))

    def error_class(self, code: int) -> type[Exception]:
        """Look the code up in the table."""
        return CLASS_OF.get(
            MISSING_NAME if code == MISSING_FUNCTION else name_of(code), DeviceError
        )

    def _said(self, code: int) -> str:
        if not self._library.has("topsGetErrorString"):
            return ""
        text: bytes | None = self._library.unchecked("topsGetErrorString")(code)
        return (text or b"").decode("utf-8", "replace")

    def _fail(self, call: str, code: int) -> NoReturn:
        raise from_code(self, call, code)

    # -- helpers -----------------------------------------------------------------------------------

    def _device(self, ordinal: int) -> int:
        device = ctypes.c_int()
        self._library.topsDeviceGet(device, ordinal)
        return device.value

    def _attribute(self, ordinal: int, name: str) -> int | None:
        value = ctypes.c_int()
        number = header().constants[name]
        status = self._library.unchecked("topsDeviceGetAttribute")(value, number, ordinal)
        return value.value if status == 0 else None

    def _function_attribute(self, function: int, name: str) -> int | None:
        value = ctypes.c_int()
        number = header().constants[f"TOPS_FUNC_ATTRIBUTE_{name}"]
        status = self._library.unchecked("topsFuncGetAttribute")(value, number, function)
        return value.value if status == 0 and value.value >= 0 else None

    def _current_limits(self) -> DeviceLimits:
        return self.device_limits(self._current())

    def _current_target(self) -> str | None:
        return self._target(self._current())

    def _current(self) -> int:
        ordinal = ctypes.c_int()
        self._library.topsGetDevice(ordinal)
        return ordinal.value

    def _bus_address(self, ordinal: int) -> str:
        text = ctypes.create_string_buffer(64)
        status = self._library.unchecked("topsDeviceGetPCIBusId")(text, len(text), ordinal)
        return text.value.decode("ascii", "replace") if status == 0 else ""

    def _has_sub_threads(self) -> bool:
        targets = [self._target(ordinal) for ordinal in range(self.device_count())]
        return bool(targets) and all(architecture(target).sub_threads for target in targets)

    def _properties(self, ordinal: int) -> Any:
        """Return the properties, or `None` when the structure has an unknown layout."""
        room = ctypes.create_string_buffer(header().constants["UHAL_TOPS_PROPERTIES_BYTES"])
        record = header().ctype("topsDeviceProp_t")
        properties = record.from_buffer(room)
        if self._library.unchecked("topsGetDeviceProperties")(properties, ordinal) != 0:
            return None
        return properties if target_of_id(_text(properties.gcuArchName)) else None

    def _target(self, ordinal: int) -> str | None:
        """Return `gcu300`, by the properties, else by the compute capability."""
        properties = self._properties(ordinal)
        if properties is not None:
            return target_of_id(_text(properties.gcuArchName))
        major = self._attribute(ordinal, "topsDeviceAttributeComputeCapabilityMajor") or 0
        minor = self._attribute(ordinal, "topsDeviceAttributeComputeCapabilityMinor") or 0
        return f"gcu{100 * major + 10 * minor}" if 1 <= major <= 9 and 0 <= minor <= 9 else None

    def _told(self, ordinal: int) -> Told:
        def of(attribute: str) -> int:
            return max(self._attribute(ordinal, f"topsDeviceAttribute{attribute}") or 0, 0)

        properties = self._properties(ordinal)
        clusters = of("MultiprocessorCount")
        return Told(
            target=self._target(ordinal),
            clusters=clusters if clusters <= _MOST_CLUSTERS else 0,
            sips=max(properties.maxThreadsPerMultiProcessor, 0) if properties is not None else 0,
            max_threads_per_block=of("MaxThreadsPerBlock"),
            max_block=(of("MaxBlockDimX"), of("MaxBlockDimY"), of("MaxBlockDimZ")),
            max_grid=(of("MaxGridDimX"), of("MaxGridDimY"), of("MaxGridDimZ")),
            shared_bytes=of("MaxSharedMemoryPerBlock"),
        )


def _text(field: bytes) -> str:
    return field.decode("ascii", "replace")
