"""The host runtime libuhal_host as tests call it: by its header and ctypes, without the lane."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uhal.abi import Header, Library, find_library

ROOT = Path(__file__).resolve().parents[2]
HEADER = Header.load(ROOT / "host_backend" / "abi.h")
CODES = {value: name for name, value in HEADER.constants.items() if "_ERROR_" in name}
HOST_FUNCTION = HEADER.ctype("uhal_host_function")


class HostFailure(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {CODES.get(code, code)}")
        self.code = code
        self.name = CODES.get(code, "").removeprefix("UHAL_HOST_ERROR_")


def _fail(call: str, code: int) -> None:
    raise HostFailure(call, code)


class Driver:
    """The opened library with device 0 current on the calling thread."""

    def __init__(self) -> None:
        search = find_library("UHAL_HOST_LIBRARY", [str(ROOT / "host_backend" / "libuhal_host.so")])
        assert search.handle is not None, search.attempts
        self.api = Library(
            search.handle, str(search.path), HEADER, status="uhalHostResult", check=_fail
        )
        self._sizes: dict[int, int] = {}
        self.use()

    def use(self, ordinal: int = 0) -> None:
        context = ctypes.c_void_p()
        self.api.uhalHostDeviceGetContext(context, ordinal)
        self.api.uhalHostCtxSetCurrent(context)

    def live(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for kind in ("STREAM", "EVENT", "MODULE", "ALLOCATION", "PINNED", "GRAPH", "GRAPH_EXEC"):
            count = ctypes.c_size_t()
            self.api.uhalHostLiveCount(HEADER.constants[f"UHAL_HOST_KIND_{kind}"], count)
            counts[kind.lower()] = count.value
        return counts

    @contextmanager
    def stream(self, priority: int = 0) -> Iterator[ctypes.c_void_p]:
        stream = ctypes.c_void_p()
        self.api.uhalHostStreamCreateWithPriority(stream, 0, priority)
        try:
            yield stream
        finally:
            self.api.uhalHostStreamDestroy(stream)

    @contextmanager
    def event(self, flags: int = 0) -> Iterator[ctypes.c_void_p]:
        event = ctypes.c_void_p()
        self.api.uhalHostEventCreate(event, flags)
        try:
            yield event
        finally:
            self.api.uhalHostEventDestroy(event)

    @contextmanager
    def memory(self, nbytes: int) -> Iterator[int]:
        address = ctypes.c_uint64()
        self.api.uhalHostMemAlloc(address, nbytes)
        self._sizes[address.value] = nbytes
        try:
            yield address.value
        finally:
            del self._sizes[address.value]
            self.api.uhalHostMemFree(address.value)

    @contextmanager
    def pinned(self, nbytes: int) -> Iterator[npt.NDArray[np.uint8]]:
        pointer = ctypes.c_void_p()
        self.api.uhalHostMemHostAlloc(pointer, nbytes, 0)
        assert pointer.value is not None
        try:
            yield np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(pointer.value))
        finally:
            self.api.uhalHostMemFreeHost(pointer)

    @contextmanager
    def module(self, image: bytes) -> Iterator[ctypes.c_void_p]:
        module = self.load(image)
        try:
            yield module
        finally:
            self.api.uhalHostModuleUnload(module)

    def load(self, image: bytes) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self.api.uhalHostModuleLoadData(module, image, len(image))
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self.api.uhalHostModuleGetFunction(function, module, name.encode())
        return function

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        stream: ctypes.c_void_p,
        *values: Any,
        shared: int = 0,
    ) -> None:
        """Launch a function; `values` are ctypes objects that may change after the call."""
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in values)
        )
        self.api.uhalHostLaunchKernel(function, *grid, *block, shared, stream, pointers, None)

    def _require_room(self, address: int, nbytes: int) -> None:
        """Check that a copy stays inside its memory: the runtime trusts its callers."""
        room = self._sizes.get(address, nbytes)
        assert nbytes <= room, f"the test copies {nbytes} bytes of memory of {room}"

    def write(self, address: int, array: npt.NDArray[Any], stream: ctypes.c_void_p) -> None:
        self._require_room(address, array.nbytes)
        self.api.uhalHostMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, stream)

    def read(self, array: npt.NDArray[Any], address: int, stream: ctypes.c_void_p) -> None:
        self._require_room(address, array.nbytes)
        self.api.uhalHostMemcpyDtoHAsync(array.ctypes.data, address, array.nbytes, stream)

    @contextmanager
    def held(self, stream: ctypes.c_void_p) -> Iterator[None]:
        """Hold a stream: work queued within the block runs after the block."""
        gate = threading.Event()
        began = threading.Event()

        def wait(_: object) -> None:
            began.set()
            gate.wait(60)

        callback = HOST_FUNCTION(wait)
        self.api.uhalHostLaunchHostFunc(stream, callback, None)
        assert began.wait(60)
        try:
            yield
        finally:
            gate.set()
            self.api.uhalHostStreamSynchronize(stream)
