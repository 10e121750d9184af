"""The shortest backend: copy it, replace `ctypes` by your library, run the conformance.

The backend's library is this process, which runs host kernels on the calling thread. Eight slots
are Python functions of the backend; the other slots are emulated. `docs/guide/writing-a-backend.md`
explains the backend.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from _ctypes import dlclose
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from uhal._lane import HotTable
from uhal.contract import (
    Backend,
    BackendRecord,
    Chosen,
    DeviceLimits,
    DeviceSummary,
    ErrorText,
    FunctionAttributes,
    LoadedModule,
)
from uhal.emulation import complete
from uhal.errors import DeviceError, InvalidImageError, NotFoundError, OutOfMemoryError
from uhal.images import cpu_level
from uhal.images.host_module import ParameterFacts, require_host_module, signature_of
from uhal.python_slots import PythonSlots
from uhal.signature import Signature

OUT_OF_MEMORY, NOT_READY, ALIGNMENT = 1, 2, 256
MAGIC = int.from_bytes(b"UHModule", "little")
LIMITS = DeviceLimits(
    max_grid=(0x7FFFFFFF, 65535, 65535),
    max_block=(1024, 1024, 64),
    max_threads_per_block=1024,
    max_shared_bytes_per_block=49152,
    warp_size=1,
    processors=1,
)


# -- the image format: uhal/host_module.h


class Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint32) for axis in "xyz"]


class Block(ctypes.Structure):
    _fields_ = [(name, Dim3) for name in ("index", "block", "grid")] + [
        ("shared_bytes", ctypes.c_uint32),
        ("shared", ctypes.c_void_p),
    ]


RUN = ctypes.CFUNCTYPE(None, ctypes.POINTER(Block), ctypes.c_uint64, ctypes.c_void_p)


class Kernel(ctypes.Structure):
    _fields_ = [
        ("entry", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
        ("facts", ctypes.POINTER(ctypes.c_uint32 * 4)),
        ("parameter_count", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("run", RUN),
    ]

    def signature(self) -> Signature:
        facts = [ParameterFacts(*self.facts[index]) for index in range(self.parameter_count)]
        return signature_of(self.entry.decode(), self.parameters.decode(), facts)


class Global(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
    ]


class Tables(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version_and_level", ctypes.c_uint32 * 2),
        ("kernels", ctypes.c_void_p * 2),
        ("globals", ctypes.c_void_p * 2),
    ]


def listed(kind: Any, begin: int, end: int) -> Iterator[Any]:
    """Return the structures that a range of pointers points to; null pointers are padding."""
    for at in range(begin, end, ctypes.sizeof(ctypes.c_void_p)):
        address = ctypes.c_void_p.from_address(at).value
        if address:
            yield kind.from_address(address)


class Module:
    """A loaded kernel library, with variables of its own."""

    def __init__(self, image: bytes, what: str) -> None:
        # The system's loader trusts every byte.
        require_host_module(image, what, cpu_level.best_level().number)
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(image)
            file.flush()
            try:
                self.library = ctypes.CDLL(file.name)
                tables = Tables.in_dll(self.library, "uhal_host_module")
            except (OSError, ValueError) as error:
                raise InvalidImageError(f"{what} cannot be loaded: {error}") from error
        if (tables.magic, tables.version_and_level[0]) != (MAGIC, 1):
            raise InvalidImageError(f"{what} has another version of the kernel table")
        kernels = listed(Kernel, *tables.kernels)
        self.kernels = {kernel.entry.decode(): kernel for kernel in kernels}
        variables = listed(Global, *tables.globals)
        self.globals = {one.name.decode(): (one.address, one.bytes) for one in variables}


# -- the backend


class SkeletonBackend(Backend):
    """One device: this process. Any thread may call any method."""

    name = "skeleton"
    dlpack_device_type = 1  # kDLCPU

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a stream runs its work in order
        self._memory: dict[int, Any] = {}
        self._modules: dict[int, Module] = {}
        self._slots = PythonSlots(
            {
                "launch": self._launch,
                "alloc": self._alloc,
                "free": self._free,
                "copy_h2d": self._copy,
                "copy_d2h": self._copy,
                "copy_d2d": self._copy,
                "get_function": self._get_function,
                "module_unload": self._module_unload,
            },
            out_of_memory=OUT_OF_MEMORY,
        )
        codes = {"not_ready": NOT_READY, "out_of_memory": OUT_OF_MEMORY}
        slots = complete(self._slots.addresses, backend=self.name, **codes)
        self._hot_table = HotTable(slots, **codes)

    # -- slots: handles are addresses, so that nothing is looked up

    def _launch(self, function: int, *launch: Any) -> None:
        *geometry, shared_bytes, _, parameters, _ = launch
        kernel = Kernel.from_address(function)
        scratch = ctypes.create_string_buffer(shared_bytes + ALIGNMENT)
        shared = -(-ctypes.addressof(scratch) // ALIGNMENT) * ALIGNMENT
        grid, block = Dim3(*geometry[:3]), Dim3(*geometry[3:])
        run = Block(Dim3(), block, grid, shared_bytes, shared)
        with self._lock:
            kernel.run(run, grid.x * grid.y * grid.z, parameters)

    def _alloc(self, nbytes: int) -> int:
        memory = ctypes.create_string_buffer(nbytes + ALIGNMENT)
        address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
        self._memory[address] = memory
        return address

    def _free(self, address: int) -> None:
        del self._memory[address]

    def _copy(self, destination: int, source: int, nbytes: int, stream: int | None) -> None:
        with self._lock:
            ctypes.memmove(destination, source, nbytes)

    def _get_function(self, module: int, name: int) -> int:
        spelled = ctypes.string_at(name).decode()
        kernel = self._modules[module].kernels.get(spelled)
        if kernel is None:
            raise NotFoundError(f"the module has no kernel {spelled!r}", backend=self.name)
        return ctypes.addressof(kernel)

    def _module_unload(self, module: int) -> None:
        dlclose(self._modules.pop(module).library._handle)

    # -- cold verbs

    @classmethod
    def probe(cls) -> BackendRecord:
        device = DeviceSummary(0, "skeleton", "this process, one thread", "processor")
        return BackendRecord(cls.name, "ok", "it is part of Python", version="0", devices=(device,))

    @classmethod
    def open(cls) -> SkeletonBackend:
        return cls()

    @property
    def hot_table(self) -> HotTable:
        return self._hot_table

    def version(self) -> str:
        return "0"

    def device_count(self) -> int:
        return 1

    def device_context(self, ordinal: int) -> int:
        return ordinal + 1

    def device_name(self, ordinal: int) -> str:
        return "skeleton"

    def device_uuid(self, ordinal: int) -> str:
        return f"00000000-0000-0000-0000-{ordinal:012}"

    def device_limits(self, ordinal: int) -> DeviceLimits:
        return LIMITS

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        module = Module(image, str(path) if path is not None else "the image")
        handle = module.library._handle
        self._modules[handle] = module
        signatures = {name: kernel.signature() for name, kernel in module.kernels.items()}
        return LoadedModule(handle, Chosen("host kernels", "the only kind there is"), signatures)

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        found = self._modules[module].globals.get(name)
        if found is None:
            raise NotFoundError(f"the module has no variable {name!r}", backend=self.name)
        return found

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        return FunctionAttributes(Kernel.from_address(function).max_threads)

    def error_text(self, code: int) -> ErrorText:
        return ErrorText("OUT_OF_MEMORY", "there is no memory left")

    def error_class(self, code: int) -> type[Exception]:
        return OutOfMemoryError if code == OUT_OF_MEMORY else DeviceError
