"""Lets drivers build programs, and caches the results."""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import NoReturn

from opencl_backend import _source
from opencl_backend._devices import ClDevice
from opencl_backend._errors import status_name
from opencl_backend._library import header
from opencl_backend._source import SourceKernel
from uhal.abi import Check, Library
from uhal.errors import InvalidImageError
from uhal.images.program_cache import ProgramCache, key_of

_RECIPE = "1"
"""Increase this number when the same module gives drivers different input."""
_MAX_LOG = 4000
_BYTES = ctypes.POINTER(ctypes.c_ubyte)
_NO_CALLBACK = header().ctype("cl_program_callback")()


class Programs:
    """The programs of one device. Any thread may use it."""

    def __init__(
        self, library: Library, check: Check, device: ClDevice, context: int, cache: ProgramCache
    ) -> None:
        """Build for `device` in the OpenCL context `context`."""
        self._library = library
        self._check = check
        self._device = device
        self._context = context
        self._cache = cache

    def build(self, module: bytes, what: str) -> int:
        """Return the built program of a SPIR-V module, which the caller releases.

        Raises `InvalidImageError` with the driver's message if the driver refuses it.
        """
        key = key_of(*_identity(self._device), module)
        with self._cache.held(key):
            kept = self._cache.find(key)
            if kept is not None:
                program = self._from_binary(kept)
                if program is not None:
                    return program
                self._cache.forget(key)  # a cached binary of a different driver with the same name
            program = self._create("clCreateProgramWithIL", module, len(module))
            self._build(program, "", what)
            self._cache.keep(key, self._binary(program))
            return program

    def build_source(self, text: str, options: str, what: str) -> int:
        """Return the built program of an OpenCL C text, which the caller releases."""
        content = text.encode()
        lines = (ctypes.c_char_p * 1)(content)
        lengths = (ctypes.c_size_t * 1)(len(content))
        program = self._create("clCreateProgramWithSource", 1, lines, lengths)
        self._build(program, options, what)
        return program

    def _create(self, function: str, *arguments: object) -> int:
        code = ctypes.c_int32()
        create = getattr(self._library, function)
        program = create(self._context, *arguments, ctypes.byref(code))
        if code.value or not program:
            self._check(function, code.value)
        return int(program)

    def _build(self, program: int, options: str, what: str) -> None:
        build = self._library.unchecked("clBuildProgram")
        status = build(program, 0, None, options.encode(), _NO_CALLBACK, None)
        if status:
            log = self._log(program)
            self._library.unchecked("clReleaseProgram")(program)
            _refuse(status, what, self._device, log)

    def _log(self, program: int) -> str:
        about = (program, self._device.handle, "CL_PROGRAM_BUILD_LOG")
        return _decoded(self._info("clGetProgramBuildInfo", *about)).strip()[-_MAX_LOG:]

    def _binary(self, program: int) -> bytes:
        """Binary that the driver built; empty if the driver keeps none."""
        constants = header().constants
        ask = self._library.unchecked("clGetProgramInfo")
        size = ctypes.c_size_t()
        if ask(program, constants["CL_PROGRAM_BINARY_SIZES"], 8, ctypes.byref(size), None):
            return b""
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        binaries = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        status = ask(program, constants["CL_PROGRAM_BINARIES"], 8, binaries, None)
        return b"" if status else buffer.raw[: size.value]

    def _from_binary(self, binary: bytes) -> int | None:
        code, each = ctypes.c_int32(), ctypes.c_int32()
        content = ctypes.create_string_buffer(binary, max(len(binary), 1))
        create = self._library.unchecked("clCreateProgramWithBinary")
        program = create(
            self._context,
            1,
            (ctypes.c_void_p * 1)(self._device.handle),
            (ctypes.c_size_t * 1)(len(binary)),
            (_BYTES * 1)(ctypes.cast(content, _BYTES)),
            ctypes.byref(each),
            ctypes.byref(code),
        )
        if code.value or each.value or not program:
            return None
        if self._library.unchecked("clBuildProgram")(program, 0, None, b"", _NO_CALLBACK, None):
            self._library.unchecked("clReleaseProgram")(program)
            return None
        return int(program)

    def made_of(self, program: int) -> tuple[bytes, str, str]:
        """Return a program's SPIR-V, its text, and its build options."""
        device = self._device.handle
        return (
            self._info("clGetProgramInfo", program, "CL_PROGRAM_IL"),
            _decoded(self._info("clGetProgramInfo", program, "CL_PROGRAM_SOURCE")),
            _decoded(
                self._info("clGetProgramBuildInfo", program, device, "CL_PROGRAM_BUILD_OPTIONS")
            ),
        )

    def _info(self, function: str, *about: int | str) -> bytes:
        """Return a driver's answer about a program; empty without an answer."""
        ask = self._library.unchecked(function)
        key = header().constants[str(about[-1])]
        needed = ctypes.c_size_t()
        if ask(*about[:-1], key, 0, None, ctypes.byref(needed)):
            return b""
        buffer = ctypes.create_string_buffer(needed.value + 1)
        ask(*about[:-1], key, needed.value, buffer, None)
        return buffer.raw[: needed.value]

    def describe(self, program: int) -> dict[str, SourceKernel]:
        """Return the driver's description of the kernels of a program made of source."""
        described = {}
        for name in self._kernel_names(program):
            code = ctypes.c_int32()
            kernel = self._library.clCreateKernel(program, name.encode(), ctypes.byref(code))
            if code.value or not kernel:
                self._check("clCreateKernel", code.value)
            try:
                described[name] = _source.describe(self._library, kernel, name)
            finally:
                self._library.clReleaseKernel(kernel)
        return described

    def retain(self, program: int) -> int:
        """Retain a program and return it."""
        self._library.clRetainProgram(program)
        return program

    def release(self, program: int) -> None:
        """Release a program once."""
        self._library.clReleaseProgram(program)

    def _kernel_names(self, program: int) -> list[str]:
        names = _decoded(self._info("clGetProgramInfo", program, "CL_PROGRAM_KERNEL_NAMES"))
        return [name for name in names.split(";") if name]


def _decoded(text: bytes) -> str:
    return text.partition(b"\0")[0].decode("utf-8", "replace")


def _refuse(status: int, what: str, device: ClDevice, log: str) -> NoReturn:
    raise InvalidImageError(
        f"{what}: {device.name} ({device.driver}) could not build it: {status_name(status)}"
        + (f"\n{log}" if log else ""),
        backend="opencl",
        call="clBuildProgram",
        code=status,
        name=status_name(status),
    )


def _identity(device: ClDevice) -> tuple[str, ...]:
    """Build target of a program, part of the cache's key."""
    reported = (device.vendor, device.name, device.driver, device.version, device.platform_version)
    return (_RECIPE, *reported, " ".join(sorted(device.extensions)), _processor(device))


def _processor(device: ClDevice) -> str:
    """Instruction set of a CPU; the CPU's name does not determine it."""
    return _instructions() if device.is_processor else ""


@cache
def _instructions() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = ""
    return f"{platform.machine()} {flags.partition(':')[2].strip()}"
