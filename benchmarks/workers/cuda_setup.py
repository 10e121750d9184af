"""What the workers that speak to the driver themselves share: a context, a module, arguments."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from benchmarks import kernels

GRID, BLOCK = 8, 256


@dataclass
class Opened:
    """A driver opened by ctypes, with a context, the kernels and two pieces of memory."""

    driver: ctypes.CDLL
    functions: dict[str, int]
    module: int
    stream: int
    x: int
    out: int


def open_driver(library: str) -> Opened:
    """Load the library as a program of its own would; every step is checked."""
    driver = ctypes.CDLL(library)
    context = ctypes.c_void_p()
    module = ctypes.c_void_p()
    stream = ctypes.c_void_p()
    _check(driver.cuInit(0))
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check(driver.cuCtxSetCurrent(context))
    _check(driver.cuModuleLoadData(ctypes.byref(module), kernels.ptx()))
    _check(driver.cuStreamCreate(ctypes.byref(stream), 1))
    functions = {}
    for entry in kernels.KERNELS:
        function = ctypes.c_void_p()
        _check(driver.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()))
        functions[entry] = function.value or 0
    buffers = []
    for _ in range(2):
        address = ctypes.c_uint64()
        _check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)))
        buffers.append(address.value)
    return Opened(driver, functions, module.value or 0, stream.value or 0, *buffers)


def values(entry: str, x: int, out: int) -> list[ctypes._SimpleCData[object]]:
    """The arguments every library passes, as C objects."""
    eight: list[object] = [
        *(ctypes.c_uint64(1000), ctypes.c_uint64(1), ctypes.c_uint64(0)),
        *(ctypes.c_uint64(x), ctypes.c_uint64(out)),
        *(ctypes.c_float(1.0), ctypes.c_float(2.0), ctypes.c_uint32(3)),
    ]
    made = {"none": [], "three": [eight[0], eight[3], eight[4]], "eight": eight}
    return made[entry]  # type: ignore[return-value]


def as_seen(given: list[ctypes._SimpleCData[object]]) -> list[tuple[int, int]]:
    """Sizes and bits of the arguments as a driver reads them."""
    return [(ctypes.sizeof(value), int.from_bytes(bytes(value), "little")) for value in given]


def _check(status: int) -> None:
    if status != 0:
        raise SystemExit(f"the do-nothing driver answered {status}")
