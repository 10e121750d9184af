"""Cost of a launch by OpenCL's own calls from C: the lower bound of every other row."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import kernels
from benchmarks.measuring import control, launch_form, measure, pin, report
from benchmarks.workers.opened import PAGE, TellingCounts, as_seen, values
from opencl_backend._library import header
from uhal.abi import Library

SOURCE = Path(__file__).with_name("opencl_floor.c")


class Opened:
    """A device, a queue, the kernels and two allocations, without any binding."""

    def __init__(self, library: str) -> None:
        def fail(call: str, code: int) -> None:
            raise SystemExit(f"{call} answered {code}")

        self.cl = Library(ctypes.CDLL(library), library, header(), status="cl_status", check=fail)
        platform, device, code = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int32()
        self.cl.clGetPlatformIDs(1, ctypes.byref(platform), None)
        every = header().constants["CL_DEVICE_TYPE_ALL"]
        self.cl.clGetDeviceIDs(platform, every, 1, ctypes.byref(device), None)
        one = (ctypes.c_void_p * 1)(device)
        no_callback = header().ctype("cl_context_callback")()
        status = ctypes.byref(code)
        self.context = self.cl.clCreateContext(None, 1, one, no_callback, None, status)
        self.queue = self.cl.clCreateCommandQueueWithProperties(self.context, device, None, status)
        text = (ctypes.c_char_p * 1)(kernels.opencl_c().encode())
        program = self.cl.clCreateProgramWithSource(self.context, 1, text, None, status)
        no_callback = header().ctype("cl_program_callback")()
        self.cl.clBuildProgram(program, 0, None, b"-cl-std=CL2.0", no_callback, None)
        self.kernels = {
            entry: self.cl.clCreateKernel(program, entry.encode(), status)
            for entry in ("tell", *kernels.KERNELS)
        }
        find = self.cl.clGetExtensionFunctionAddressForPlatform
        kinds = ctypes.CFUNCTYPE(
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
            *(ctypes.c_size_t, ctypes.c_uint32, ctypes.c_void_p),
        )
        alloc = kinds(find(platform, b"clDeviceMemAllocINTEL"))
        self.x, self.out, self._output = (
            int(alloc(self.context, device, None, PAGE, 0, None)) for _ in range(3)
        )
        self.set_pointer = find(platform, b"clSetKernelArgMemPointerINTEL")
        if code.value:
            raise SystemExit(f"OpenCL answered {code.value}")

    def tell(self) -> tuple[int, int]:
        point = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
        point(self.set_pointer)(self.kernels["tell"], 0, self._output)
        one = (ctypes.c_size_t * 1)(1)
        self.cl.clEnqueueNDRangeKernel(
            self.queue, self.kernels["tell"], 1, None, one, one, 0, None, None
        )
        self.cl.clFinish(self.queue)
        found = (ctypes.c_uint64 * 2).from_address(self._output)
        return found[0], found[1]


def main(library: str, backend: str) -> None:
    pin()
    loops = build()
    opened = Opened(library)
    set_argument = ctypes.c_void_p(opened.cl.address("clSetKernelArg"))
    enqueue = ctypes.c_void_p(opened.cl.address("clEnqueueNDRangeKernel"))
    point = ctypes.c_void_p(opened.set_pointer)
    queue = ctypes.c_void_p(opened.queue)
    forms = [control()]
    for entry, parameters in kernels.KERNELS.items():
        given = values(entry, opened.x, opened.out)
        sizes = (ctypes.c_size_t * max(1, len(given)))(
            *(
                0 if "*" in parameter else ctypes.sizeof(value)
                for parameter, value in zip(parameters, given, strict=True)
            )
        )
        words = (ctypes.c_uint64 * max(1, len(given)))(
            *(int.from_bytes(bytes(value), "little") for value in given)
        )
        kernel = ctypes.c_void_p(opened.kernels[entry])
        run = partial(
            *(loops.launch_loop, set_argument, point, enqueue, queue, kernel, len(given)),
            *(sizes, words),
        )
        forms.append(launch_form("C loop", run, as_seen(given)))
    report(measure("floor", forms, TellingCounts(opened.tell)), versions={})


def build() -> ctypes.CDLL:
    """Compile the loops."""
    with tempfile.TemporaryDirectory(prefix="uhal-floor-") as folder:
        library = Path(folder, "floor.so")
        command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(SOURCE)]
        subprocess.run([*command, "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


if __name__ == "__main__":
    main(*sys.argv[1:])
