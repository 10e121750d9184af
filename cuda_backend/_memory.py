"""The verbs about memory that reaches beyond one buffer: pitched copies, peers, processes, pins."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from typing import Literal

from cuda_backend._library import DriverLibrary, header
from uhal.contract import Backend
from uhal.errors import NotSupportedError, from_code

_MEMORY_TYPES = {"h": "CU_MEMORYTYPE_HOST", "d": "CU_MEMORYTYPE_DEVICE"}


class MemoryVerbs(Backend):
    """The part of the CUDA backend that deals with memory. Any thread may call any method."""

    _library: DriverLibrary
    _contexts: dict[int, int]
    """Maps the ordinal of every device that was opened to its primary context."""

    @abstractmethod
    def _device(self, ordinal: int) -> int:
        """The driver's handle of a device."""

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """Return free and total bytes of the current device."""
        free = ctypes.c_size_t()
        total = ctypes.c_size_t()
        self._library.cuMemGetInfo_v2(free, total)
        return free.value, total.value

    def copy_2d(
        self,
        direction: Literal["h2d", "d2h", "d2d"],
        destination: int,
        destination_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        stream: int,
    ) -> None:
        """Enqueue a copy of `height` rows of `width` bytes."""
        constants = header().constants
        copy = header().ctype("CUDA_MEMCPY2D")()
        copy.srcMemoryType = constants[_MEMORY_TYPES[direction[0]]]
        copy.dstMemoryType = constants[_MEMORY_TYPES[direction[-1]]]
        if direction[0] == "h":
            copy.srcHost = source
        else:
            copy.srcDevice = source
        if direction[-1] == "h":
            copy.dstHost = destination
        else:
            copy.dstDevice = destination
        copy.srcPitch = source_pitch
        copy.dstPitch = destination_pitch
        copy.WidthInBytes = width
        copy.Height = height
        self._library.cuMemcpy2DAsync_v2(copy, stream)

    # -- pinned and foreign memory -----------------------------------------------------------------

    def host_device_pointer(self, pointer: int) -> int:
        """Return where the current device sees pinned memory."""
        address = ctypes.c_ulonglong()
        self._library.cuMemHostGetDevicePointer_v2(address, pointer, 0)
        return address.value

    def pointer_device(self, address: int) -> int | None:
        """Return the device that owns the memory; `None` for memory unknown to the driver.

        `NotSupportedError` for managed memory.
        """
        if self._pointer_attribute("IS_MANAGED", address):
            raise NotSupportedError(
                "managed memory (cuMemAllocManaged) is not taken: it moves between host and "
                "devices in page faults that no stream orders; copy it into a DeviceBuffer",
                backend=self.name,
            )
        kind = self._pointer_attribute("MEMORY_TYPE", address)
        if kind != header().constants["CU_MEMORYTYPE_DEVICE"]:
            return None
        return self._pointer_attribute("DEVICE_ORDINAL", address)

    def _pointer_attribute(self, name: str, address: int) -> int | None:
        value = ctypes.c_int()
        number = header().constants[f"CU_POINTER_ATTRIBUTE_{name}"]
        status = self._library.unchecked("cuPointerGetAttribute")(
            ctypes.addressof(value), number, address
        )
        return value.value if status == 0 else None

    # -- other devices and processes ---------------------------------------------------------------

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Return whether one device's kernels can access another's memory."""
        answer = ctypes.c_int()
        self._library.cuDeviceCanAccessPeer(answer, self._device(ordinal), self._device(peer))
        return answer.value != 0

    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Let kernels of the current device use memory of `peer`, which is open."""
        call = "cuCtxEnablePeerAccess"
        status = self._library.unchecked(call)(self._contexts[peer], 0)
        if status not in (0, header().constants["CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"]):
            raise from_code(self, call, status)

    def ipc_export(self, address: int) -> bytes:
        """Return the driver's handle of an allocation, for another process."""
        handle = header().ctype("CUipcMemHandle")()
        self._library.cuIpcGetMemHandle(handle, address)
        return bytes(handle)

    def ipc_open(self, handle: bytes) -> int:
        """Map another process's allocation into the current context."""
        native = header().ctype("CUipcMemHandle").from_buffer_copy(handle)
        address = ctypes.c_ulonglong()
        flags = header().constants["CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS"]
        self._library.cuIpcOpenMemHandle_v2(address, native, flags)
        return address.value

    def ipc_close(self, address: int) -> None:
        """Undo one `ipc_open`."""
        self._library.cuIpcCloseMemHandle(address)
