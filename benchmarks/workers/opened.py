"""A driver opened without any binding, and the arguments every library passes.

The do-nothing drivers of all vendors and the host runtime have functions of one shape. So one
description serves callers in C and callers by ctypes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import kernels
from benchmarks.measuring import Counts, Driver, NullDriver, as_dict

GRID, BLOCK = 8, 256
PAGE = 4096


@dataclass(frozen=True)
class Names:
    """A vendor's names of the functions of a launch loop."""

    launch: str
    alloc: str
    free: str
    copy: str
    """This function takes an address, host memory and bytes, and a stream if
    `copy_takes_stream`."""
    sync: str
    record: str
    copy_takes_stream: bool = False


@dataclass
class Opened:
    """A driver with a stream, an event, the kernels and two allocations."""

    driver: ctypes.CDLL
    names: Names
    functions: dict[str, int]
    stream: int
    event: int
    x: int
    out: int
    counts: Driver
    grid: int = GRID
    block: int = BLOCK
    module: int = 0

    def __getattr__(self, role: str) -> ctypes._NamedFuncPointer:
        return getattr(self.driver, getattr(self.names, role))  # type: ignore[no-any-return]


def open_driver(backend: str, library: str) -> Opened:
    """Load the library as a separate program would; check every step."""
    return OPENERS[backend](library)


def _cuda(library: str) -> Opened:
    driver = ctypes.CDLL(library)
    _check(driver.cuInit(0))
    context = _made(driver.cuDevicePrimaryCtxRetain, 0)
    _check(driver.cuCtxSetCurrent(ctypes.c_void_p(context)))
    module = _made(driver.cuModuleLoadData, kernels.ptx())
    names = Names(
        *("cuLaunchKernel", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2"),
        *("cuStreamSynchronize", "cuEventRecord"),
    )
    return Opened(
        driver,
        names,
        _functions(driver.cuModuleGetFunction, module),
        _made(driver.cuStreamCreate, 1),
        _made(driver.cuEventCreate, 0),
        *(_made(driver.cuMemAlloc_v2, ctypes.c_size_t(PAGE)) for _ in range(2)),
        NullDriver(library),
        module=module,
    )


def _rocm(library: str) -> Opened:
    driver = ctypes.CDLL(library)
    names = Names(
        *("hipModuleLaunchKernel", "hipMalloc", "hipFree", "hipMemcpyHtoD"),
        *("hipStreamSynchronize", "hipEventRecord"),
    )
    return Opened(
        driver,
        names,
        _functions(driver.hipModuleGetFunction, 0),
        _made(driver.hipStreamCreate),
        _made(driver.hipEventCreate),
        *(_made(driver.hipMalloc, ctypes.c_size_t(PAGE)) for _ in range(2)),
        NullDriver(library),
    )


def _tops(library: str) -> Opened:
    driver = ctypes.CDLL(library)
    _check(driver.topsSetDevice(0))
    module = _made(driver.topsModuleLoadData, kernels.topsfb())
    names = Names(
        *("topsModuleLaunchKernel", "topsMalloc", "topsFree", "topsMemcpyHtoD"),
        *("topsStreamSynchronize", "topsEventRecord"),
    )
    return Opened(
        driver,
        names,
        _functions(driver.topsModuleGetFunction, module),
        _made(driver.topsStreamCreateWithFlags, 1),
        _made(driver.topsEventCreateWithFlags, 0),
        *(_made(driver.topsMalloc, ctypes.c_size_t(PAGE)) for _ in range(2)),
        NullDriver(library),
        block=4,
    )


def _host(library: str) -> Opened:
    driver = ctypes.CDLL(library)
    _check(driver.uhalHostInit(0))
    context = _made(driver.uhalHostDeviceGetContext, 0)
    _check(driver.uhalHostCtxSetCurrent(ctypes.c_void_p(context)))
    image = kernels.host()
    module = _made(driver.uhalHostModuleLoadData, image, ctypes.c_size_t(len(image)))
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    _check(
        driver.uhalHostModuleGetGlobal(
            *(ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(module), b"counts")
        )
    )
    stream = _made(driver.uhalHostStreamCreateWithPriority, 1, 0)
    names = Names(
        *("uhalHostLaunchKernel", "uhalHostMemAlloc", "uhalHostMemFree"),
        *("uhalHostMemcpyHtoDAsync", "uhalHostStreamSynchronize", "uhalHostEventRecord"),
        copy_takes_stream=True,
    )
    return Opened(
        driver,
        names,
        _functions(driver.uhalHostModuleGetFunction, module),
        stream,
        _made(driver.uhalHostEventCreate, 0),
        *(_made(driver.uhalHostMemAlloc, ctypes.c_size_t(PAGE)) for _ in range(2)),
        HostCounts(
            address.value, lambda: driver.uhalHostStreamSynchronize(ctypes.c_void_p(stream))
        ),
        grid=1,
        block=1,
    )


OPENERS = {"cuda": _cuda, "rocm": _rocm, "tops": _tops, "host": _host}


class HostCounts:
    """Counts that the host's kernels keep of their launches, in a module variable."""

    def __init__(self, address: int, wait: Callable[[], object]) -> None:
        """`wait` returns once all launches are done."""
        self._counts = (ctypes.c_uint64 * 2).from_address(address)
        self._wait = wait

    def expect(self, sizes: object) -> None:
        """The kernels know their own parameters."""

    def take(self) -> dict[str, int]:
        self._wait()
        taken = Counts(launches=self._counts[0], checksum=self._counts[1])
        self._counts[0] = self._counts[1] = 0
        return as_dict(taken)


class TellingCounts:
    """Counts that the kernels of `kernels.opencl_c` keep of their launches."""

    def __init__(self, tell: Callable[[], tuple[int, int]]) -> None:
        """`tell` waits for all launches and resets the counts."""
        self._tell = tell

    def expect(self, sizes: object) -> None:
        """The kernels know their own parameters."""

    def take(self) -> dict[str, int]:
        launches, checksum = self._tell()
        return as_dict(Counts(launches=launches, checksum=checksum))


def values(entry: str, x: int, out: int) -> list[ctypes._SimpleCData[object]]:
    """The arguments every library passes, as C objects."""
    eight: list[object] = [
        *(ctypes.c_uint64(1000), ctypes.c_uint64(1), ctypes.c_uint64(0)),
        *(ctypes.c_uint64(x), ctypes.c_uint64(out)),
        *(ctypes.c_float(1.0), ctypes.c_float(2.0), ctypes.c_uint32(3)),
    ]
    made = {
        "none": [],
        "three": [eight[0], eight[3], eight[4]],
        "eight": eight,
        "sixteen": 2 * eight,
    }
    return made[entry]  # type: ignore[return-value]


def as_seen(given: list[ctypes._SimpleCData[object]]) -> list[tuple[int, int]]:
    """Sizes and bits of the arguments as a driver reads them."""
    return [(ctypes.sizeof(value), int.from_bytes(bytes(value), "little")) for value in given]


def pointers_to(given: list[ctypes._SimpleCData[object]]) -> ctypes.Array[ctypes.c_void_p]:
    """Kernel parameters as drivers take them; valid as long as the objects."""
    return (ctypes.c_void_p * max(1, len(given)))(*map(ctypes.addressof, given))


def _functions(look_up: Callable[..., int], module: int) -> dict[str, int]:
    return {
        entry: _made(look_up, ctypes.c_void_p(module), entry.encode()) for entry in kernels.KERNELS
    }


def _made(call: Callable[..., int], *arguments: object) -> int:
    """The handle or address that a call writes to its first argument."""
    output = ctypes.c_uint64()
    _check(call(ctypes.byref(output), *arguments))
    return output.value


def _check(status: int) -> None:
    if status != 0:
        raise SystemExit(f"the do-nothing driver answered {status}")
