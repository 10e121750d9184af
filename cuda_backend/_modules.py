"""The verbs about modules and functions."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path

from cuda_backend._library import DriverLibrary, header
from cuda_backend.images import select
from cuda_backend.targets import DeviceTarget
from uhal.contract import MESSAGES, Backend, FunctionAttributes, LoadedModule
from uhal.errors import from_code

_LOG_BYTES = 16384
_MOST_INT = (1 << 31) - 1


class ModuleVerbs(Backend):
    """The part of the CUDA backend that deals with code. Any thread may call any method."""

    _library: DriverLibrary

    @abstractmethod
    def _target(self, ordinal: int) -> DeviceTarget:
        """The device for which images are judged."""

    @abstractmethod
    def _bound(self, ordinal: int) -> AbstractContextManager[None]:
        """Make the device current for a call that asks about the current device."""

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        """Choose among the images in PTX, a cubin or a fatbin, and load one."""
        selection = select(image, self._target(ordinal))
        code, handle, log = _load(self._library, selection.payload)
        if code != 0:
            what = "the image" if path is None else path.name
            note = f"{what}, {selection.chosen.description}. {log}".strip()
            raise from_code(self, "cuModuleLoadDataEx", code, note)
        return LoadedModule(
            handle,
            selection.chosen,
            selection.signatures,
            has_messages=MESSAGES in selection.payload,
        )

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """Return address and bytes of a `__device__` or `__constant__` variable."""
        address = ctypes.c_ulonglong()
        size = ctypes.c_size_t()
        call = "cuModuleGetGlobal_v2"
        status = self._library.unchecked(call)(address, size, module, name.encode())
        if status != 0:
            note = f"it was asked for the variable {name!r}; nvcc exports none without -rdc=true"
            raise from_code(self, call, status, note)
        return address.value, size.value

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        """Return a kernel's resources, and the limits of its launches."""

        def of(attribute: str) -> int:
            value = ctypes.c_int()
            number = _constant(f"CU_FUNC_ATTRIBUTE_{attribute}")
            self._library.cuFuncGetAttribute(value, number, function)
            return value.value

        return FunctionAttributes(
            max_threads_per_block=of("MAX_THREADS_PER_BLOCK"),
            static_shared_bytes=of("SHARED_SIZE_BYTES"),
            local_bytes=of("LOCAL_SIZE_BYTES"),
            registers=of("NUM_REGS"),
            max_dynamic_shared_bytes=of("MAX_DYNAMIC_SHARED_SIZE_BYTES"),
        )

    def set_max_dynamic_shared_bytes(
        self, function: int, name: str, nbytes: int
    ) -> FunctionAttributes:
        """Let the kernel take more shared memory than CUDA grants by default."""
        attribute = _constant("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")
        call = "cuFuncSetAttribute"
        status = self._library.unchecked(call)(function, attribute, min(nbytes, _MOST_INT))
        if status != 0:
            raise from_code(self, call, status, self._shared_note(function, name, nbytes))
        return self.function_attributes(function, name)

    def function_layout(self, function: int) -> list[tuple[int, int]] | None:
        """Ask the driver for each parameter until it has no more; `None` before CUDA 12.4."""
        if not self._library.has("cuFuncGetParamInfo"):
            return None
        ask = self._library.unchecked("cuFuncGetParamInfo")
        offset = ctypes.c_size_t()
        size = ctypes.c_size_t()
        layout: list[tuple[int, int]] = []
        while (status := ask(function, len(layout), offset, size)) == 0:
            layout.append((offset.value, size.value))
        # An index past the last parameter is an invalid value; after any other error, the list is
        # unknown.
        return layout if status == _constant("CUDA_ERROR_INVALID_VALUE") else None

    def max_active_blocks(
        self, function: int, ordinal: int, block_threads: int, dynamic_shared_bytes: int
    ) -> int:
        """Return how many blocks of the kernel a multiprocessor holds at once."""
        count = ctypes.c_int()
        with self._bound(ordinal):
            self._library.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                count, function, block_threads, dynamic_shared_bytes
            )
        return count.value

    def _shared_note(self, function: int, name: str, nbytes: int) -> str:
        """The limit of dynamic shared memory, for the message of a refused kernel."""
        device = ctypes.c_int()
        self._library.cuCtxGetDevice(device)
        most = ctypes.c_int()
        number = _constant("CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self._library.cuDeviceGetAttribute(most, number, device)
        static = self.function_attributes(function, name).static_shared_bytes or 0
        return (
            f"{name} asked for {nbytes} bytes of dynamic shared memory; this device gives a block "
            f"{most.value}, and the kernel's own variables take {static} of them"
        )


def _load(library: DriverLibrary, image: bytes) -> tuple[int, int, str]:
    """Load PTX, a cubin or a fatbin into the current context.

    Returns the driver's status, the module's handle, and the compiler's log with folded whitespace:
    the errors, else the remarks.
    """
    constants = library.header.constants
    remarks = ctypes.create_string_buffer(_LOG_BYTES)
    errors = ctypes.create_string_buffer(_LOG_BYTES)
    chosen = {
        "CU_JIT_INFO_LOG_BUFFER": ctypes.addressof(remarks),
        "CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES": _LOG_BYTES,
        "CU_JIT_ERROR_LOG_BUFFER": ctypes.addressof(errors),
        "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": _LOG_BYTES,
    }
    options = (ctypes.c_int * len(chosen))(*(constants[name] for name in chosen))
    # A size is stored in the pointer's own bits; the driver overwrites the size.
    values = (ctypes.c_void_p * len(chosen))(*chosen.values())
    module = ctypes.c_void_p()
    # PTX must end with a NUL, which Python keeps behind the last byte of every bytes object.
    status = library.unchecked("cuModuleLoadDataEx")(
        module, ctypes.cast(ctypes.c_char_p(image), ctypes.c_void_p), len(chosen), options, values
    )
    log = errors.value or remarks.value
    return status, module.value or 0, " ".join(log.decode("utf-8", "replace").split())


def _constant(name: str) -> int:
    return header().constants[name]
