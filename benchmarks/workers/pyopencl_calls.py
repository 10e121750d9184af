"""PyOpenCL: kernels called, and enqueued after their arguments are set."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from benchmarks import kernels
from benchmarks.measuring import (
    Form,
    Gap,
    control,
    launch_form,
    load,
    loop,
    measure,
    pin,
    report,
    spelled,
)
from benchmarks.workers.opened import PAGE, TellingCounts

GAPS = (Gap("launch", "Python ints and floats", "takes numpy's sized scalars"),)


def main(library: str, backend: str) -> None:
    os.environ.setdefault("OCL_ICD_VENDORS", library)  # its wheel has a loader of its own
    pin()
    cl: Any = load("pyopencl")
    context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, kernels.opencl_c()).build("-cl-std=CL2.0")
    x, out = (cl.Buffer(context, cl.mem_flags.READ_WRITE, PAGE) for _ in range(2))
    reported = cl.Buffer(context, cl.mem_flags.READ_WRITE, 16)
    tell_kernel = cl.Kernel(program, "tell")

    def tell() -> tuple[int, int]:
        tell_kernel(queue, (1,), (1,), reported)
        found = np.zeros(2, np.uint64)
        cl.enqueue_copy(queue, found, reported)
        queue.finish()
        return int(found[0]), int(found[1])

    counts = TellingCounts(tell)
    rows = measure("PyOpenCL", forms_of(cl, program, queue, x, out, counts), counts)
    report(rows, gaps=GAPS, versions={"pyopencl": cl.VERSION_TEXT})


def forms_of(
    cl: Any, program: Any, queue: Any, x: Any, out: Any, counts: TellingCounts
) -> list[Form]:
    scalars = (np.uint64(1000), np.uint64(1), None, x, out)
    eight = (*scalars, np.float32(1), np.float32(2), np.uint32(3))
    arguments = {"none": (), "three": (np.uint64(1000), x, out), "eight": eight}
    arguments["sixteen"] = 2 * eight
    forms = [control()]
    for entry, given in arguments.items():
        kernel = cl.Kernel(program, entry)
        listed, names = spelled(given)
        call = loop(
            f"kernel(queue, (1,), (1,){', ' + listed if listed else ''})",
            kernel=kernel,
            queue=queue,
            **names,
        )
        # Only the kernel knows a buffer's address.
        counts.take()
        call(1)
        checksum = counts.take()["checksum"]
        sizes = kernels.sizes(entry)
        arrived = [(size, checksum if index == 0 else 0) for index, size in enumerate(sizes)]
        forms.append(launch_form("kernel()", call, arrived))
    return forms


if __name__ == "__main__":
    main(*sys.argv[1:])
