"""Prints the end of a command of an OpenCL queue in nanoseconds; 0 if unknown.

python marker_times.py fill|marker|barrier

It calls OpenCL directly by ctypes, so uhal cannot cause the gaps it finds.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

ALL_DEVICES, QUEUE_PROPERTIES, PROFILING, READ_WRITE, COMMAND_END = 0xFFFFFFFF, 0x1093, 2, 1, 0x1283


def main(command: str) -> int:
    """Enqueue the command after a fill, wait, and return the time of its end."""
    cl = ctypes.CDLL(os.environ["UHAL_OPENCL_LIBRARY"])
    for name in ("clCreateContext", "clCreateCommandQueueWithProperties", "clCreateBuffer"):
        getattr(cl, name).restype = c_void_p
    platform, device, code = c_void_p(), c_void_p(), c_int32()
    assert cl.clGetPlatformIDs(1, byref(platform), None) == 0
    assert cl.clGetDeviceIDs(platform, c_uint64(ALL_DEVICES), 1, byref(device), None) == 0
    context = c_void_p(cl.clCreateContext(None, 1, byref(device), None, None, byref(code)))
    properties = (c_uint64 * 3)(QUEUE_PROPERTIES, PROFILING, 0)
    queue = c_void_p(
        cl.clCreateCommandQueueWithProperties(context, device, properties, byref(code))
    )
    size = c_size_t(1 << 16)
    buffer = c_void_p(cl.clCreateBuffer(context, c_uint64(READ_WRITE), size, None, byref(code)))
    filled, event = c_void_p(), c_void_p()
    zero = (byref(c_uint32()), c_size_t(4), c_size_t(0))
    assert cl.clEnqueueFillBuffer(queue, buffer, *zero, size, 0, None, byref(filled)) == 0
    if command == "marker":
        assert cl.clEnqueueMarkerWithWaitList(queue, 0, None, byref(event)) == 0
    elif command == "barrier":
        assert cl.clEnqueueBarrierWithWaitList(queue, 0, None, byref(event)) == 0
    else:
        event = filled
    assert cl.clFinish(queue) == 0
    end = c_uint64()
    status = cl.clGetEventProfilingInfo(event, COMMAND_END, c_size_t(8), byref(end), None)
    return 0 if status else end.value


if __name__ == "__main__":
    print(main(sys.argv[1]))
