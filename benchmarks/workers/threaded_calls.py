"""One library's calls made by several threads at once: `threaded_calls LIBRARY DRIVER`."""

from __future__ import annotations

import ctypes
import json
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable

from benchmarks import kernels
from benchmarks.measuring import loop
from benchmarks.workers.opened import open_driver, values

THREADS = (1, 2, 4, 8)
ROUNDS = 15
CALLS = 24_000
"""Number of calls by all threads of a round together."""

Run = Callable[[int], None]
Maker = Callable[[], dict[str, Run]]
"""Makes a thread's loops by name; each thread has its own stream."""


def of_uhal(library: str) -> Maker:
    import uhal
    from uhal import DeviceBuffer, Module, Stream

    device = uhal.Api.quick_init(0, backend="cuda")
    kernel = Module.from_bytes(kernels.ptx()).get_function("eight")

    def make() -> dict[str, Run]:
        with device:
            stream = Stream()
            x, out = (DeviceBuffer.uninitialized(1024, "f32") for _ in range(2))
        return {
            "launch": loop(
                "bound(1000, 1, None, x, out, 1.0, 2.0, 3)",
                bound=kernel[8, 256, 0, stream],
                x=x,
                out=out,
            ),
            "alloc+free": loop("make(1024, 'f32')", make=DeviceBuffer.uninitialized),
        }

    return make


def of_ctypes(library: str) -> Maker:
    opened = open_driver("cuda", library)

    def make() -> dict[str, Run]:
        given = values("eight", opened.x, opened.out)
        stream, address = ctypes.c_void_p(), ctypes.c_uint64()
        opened.driver.cuStreamCreate(ctypes.byref(stream), 1)
        sizes = [ctypes.c_uint(n) for n in (8, 1, 1, 256, 1, 1, 0)]
        return {
            "launch": loop(
                "launch(function, *sizes, stream, pointers, None)",
                launch=opened.driver.cuLaunchKernel,
                function=ctypes.c_void_p(opened.functions["eight"]),
                sizes=sizes,
                stream=stream,
                pointers=(ctypes.c_void_p * len(given))(*map(ctypes.addressof, given)),
            ),
            "alloc+free": loop(
                "alloc(pointer, nbytes); free(address)",
                alloc=opened.driver.cuMemAlloc_v2,
                free=opened.driver.cuMemFree_v2,
                pointer=ctypes.byref(address),
                address=address,
                nbytes=ctypes.c_size_t(4096),
            ),
        }

    return make


def of_cuda_bindings(library: str) -> Maker:
    from cuda.bindings import driver

    opened = open_driver("cuda", library)
    driver.cuInit(0)

    def make() -> dict[str, Run]:
        given = values("eight", opened.x, opened.out)
        pointers = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        _, stream = driver.cuStreamCreate(1)
        return {
            "launch": loop(
                "launch(function, 8, 1, 1, 256, 1, 1, 0, stream, parameters, 0)",
                launch=driver.cuLaunchKernel,
                function=driver.CUfunction(opened.functions["eight"]),
                stream=stream,
                parameters=ctypes.addressof(pointers),
                kept=(given, pointers),
            ),
            "alloc+free": loop(
                "free(alloc(4096)[1])", alloc=driver.cuMemAlloc, free=driver.cuMemFree
            ),
        }

    return make


LIBRARIES = {"uhal": of_uhal, "ctypes": of_ctypes, "cuda.bindings": of_cuda_bindings}


def together(runs: list[Run]) -> float:
    """Wall nanoseconds of a call, while every thread makes its share of CALLS."""
    share = CALLS // len(runs)
    barrier = threading.Barrier(len(runs) + 1)

    def work(run: Run) -> None:
        barrier.wait()
        run(share)

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter_ns()
    for thread in threads:
        thread.join()
    return (time.perf_counter_ns() - start) / (share * len(runs))


def main(name: str, library: str) -> None:
    make = LIBRARIES[name](library)
    made = [make() for _ in range(max(THREADS))]
    rows = []
    for what in made[0]:
        # counts of threads in turn, so that disturbances of the machine affect all of them
        found: dict[int, list[float]] = {count: [] for count in THREADS}
        for _ in range(ROUNDS):
            for count in THREADS:
                found[count].append(together([runs[what] for runs in made[:count]]))
        rows += [
            {"library": name, "what": what, "threads": n, "ns": statistics.median(times)}
            for n, times in found.items()
        ]
    print(json.dumps({"rows": rows, "python": platform.python_version()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
