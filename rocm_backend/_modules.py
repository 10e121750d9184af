"""The verbs about modules and functions."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from pathlib import Path
from typing import Any

from rocm_backend._runtime import runtime_header
from rocm_backend.images import select
from rocm_backend.targets import DeviceTarget
from uhal.abi import Library
from uhal.contract import MESSAGES, Backend, FunctionAttributes, LoadedModule
from uhal.errors import NotSupportedError, from_code
from uhal.images.hsaco import HsacoKernel

_DYNAMIC_STACK_BYTES = 16384
"""Scratch of a work-item for calls whose depth the compiler does not know.

HIP gives such kernels the same stack by default (hipLimitStackSize).
"""


class ModuleVerbs(Backend):
    """The module and kernel functions of the ROCm backend. Any thread may call any method."""

    _runtime: Library

    @abstractmethod
    def _target(self, ordinal: int) -> DeviceTarget:
        """The device target that images are compared with."""

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        """Choose among the code objects of the image, and load one."""
        selection = select(image, self._target(ordinal))
        # The runtime finds only exported kernels.
        kernels = [kernel for kernel in selection.contents.kernels if kernel.exported]
        infos = (runtime_header().ctype("uhalHsaKernelInfo") * len(kernels))()
        kept = [_describe(info, kernel) for info, kernel in zip(infos, kernels, strict=True)]
        module = ctypes.c_void_p()
        call = ctypes.c_char_p()
        load = self._runtime.unchecked("uhalHsaModuleLoad")
        payload = selection.payload
        code = load(module, payload, len(payload), infos, len(kernels), call)
        del kept
        if code != 0:
            what = "the image" if path is None else path.name
            failed = (call.value or b"").decode()
            raise from_code(self, failed, code, f"{what}, {selection.chosen.description}")
        return LoadedModule(
            module.value or 0,
            selection.chosen,
            {kernel.name: kernel.signature for kernel in kernels},
            has_messages=MESSAGES in payload,
        )

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """Return address and bytes of a variable of the module."""
        address = ctypes.c_uint64()
        size = ctypes.c_size_t()
        call = "uhalHsaModuleGetGlobal"
        code = self._runtime.unchecked(call)(address, size, module, name.encode())
        if code != 0:
            raise from_code(self, call, code, f"it was asked for the variable {name!r}")
        return address.value, size.value

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        """Return the code object's description of a kernel.

        `NotSupportedError` if the kernel needs arguments that only OpenCL's launcher provides.
        """
        info = self._info(function)
        if info.foreign:
            raise NotSupportedError(
                f"{name} takes arguments that only OpenCL's launcher makes, such as images, "
                "samplers, queues or pointers to local memory",
                backend=self.name,
            )
        return FunctionAttributes(
            max_threads_per_block=info.max_block_threads,
            static_shared_bytes=info.group_bytes,
            local_bytes=info.private_bytes,
            registers=info.vector_registers or None,
        )

    def function_layout(self, function: int) -> list[tuple[int, int]]:
        """Return the offset of each parameter in the code object's layout."""
        info = self._info(function)
        return [(one.offset, one.size) for one in info.parameters[: info.parameter_count]]

    def _info(self, function: int) -> Any:
        info = runtime_header().ctype("uhalHsaKernelInfo")()
        self._runtime.uhalHsaFuncGetInfo(info, function)
        return info


def _describe(info: Any, kernel: HsacoKernel) -> list[Any]:
    """Fill in the native library's description of a kernel; return objects to keep for the call."""
    header = runtime_header()
    parameters = (header.ctype("uhalHsaParameter") * len(kernel.signature))()
    for row, parameter in zip(parameters, kernel.signature, strict=True):
        row.offset = parameter.offset or 0
        row.size = parameter.size or 0
        row.is_pointer = parameter.is_pointer is True
    hidden = (header.ctype("uhalHsaHidden") * len(kernel.hidden))()
    for row, argument in zip(hidden, kernel.hidden, strict=True):
        row.kind = argument.kind.encode()
        row.offset = argument.offset
    info.name = kernel.name.encode()
    info.symbol = kernel.symbol.encode()
    info.parameters = ctypes.cast(parameters, type(info.parameters))
    info.hidden = ctypes.cast(hidden, type(info.hidden))
    info.parameter_count = len(parameters)
    info.hidden_count = len(hidden)
    info.kernarg_bytes = kernel.kernarg_bytes
    info.group_bytes = kernel.group_bytes
    info.private_bytes = kernel.private_bytes + (
        _DYNAMIC_STACK_BYTES if kernel.dynamic_stack else 0
    )
    info.max_block_threads = kernel.max_block_threads
    info.vector_registers = kernel.vector_registers or 0
    info.foreign = bool(kernel.foreign)
    return [parameters, hidden]
