"""Exchange handles with other libraries over OpenCL, such as pyopencl.

    import pyopencl
    context = pyopencl.Context.from_int_ptr(interop.context(device))

OpenCL's memory, queues and programs belong to a context, so both libraries use uhal's context.
To pass a queue to uhal, call `uhal.Stream.from_handle(queue.int_ptr, owner=queue)`. For shared
virtual memory, call `uhal.DeviceBuffer.from_raw(address, size, dtype, owner=allocation)`. To pass a
program, call `image`.

A handle is a borrowed `int`. To keep a handle, retain it (`from_int_ptr` does) or keep the object
that owns the handle. Any thread may call every function.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from opencl_backend import compile as opencl_compile
from uhal._lane import Device, DeviceBuffer, Function, Stream
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotFoundError

if TYPE_CHECKING:
    from opencl_backend._backend import OpenClBackend

__all__ = ["context", "device_id", "image", "memory", "program", "queue"]


def context(device: Device) -> int:
    """Return the `cl_context` of a device, which must stay open while the context is used.

    Raises `ArgumentTypeError` unless `device` is an opencl device.
    """
    return _of(device).opened(device.ordinal).context


def device_id(device: Device) -> int:
    """Return the `cl_device_id` of a device."""
    return _of(device).opened(device.ordinal).device.handle


def queue(stream: Stream) -> int:
    """Return the `cl_command_queue` of a stream.

    Waits also cover work that others put into the queue. From now on, each query of the stream and
    each wait asks the driver.
    """
    if not isinstance(stream, Stream):
        raise ArgumentTypeError(f"stream: expected a uhal.Stream, got {type(stream).__name__}")
    return _of(stream.device).share_queue(stream.handle)


def program(function: Function) -> int:
    """Return the `cl_program` of a kernel; the program has only that kernel.

    After the caller's parameters, the kernel may have others: dynamic shared memory as a local
    argument, and variables of the kernel's module.
    """
    if not isinstance(function, Function):
        raise ArgumentTypeError(
            f"function: expected a uhal.Function, got {type(function).__name__}"
        )
    return _of(function.device).program_of(function.handle)


def memory(buffer: DeviceBuffer) -> ctypes.Array[ctypes.c_ubyte]:
    """Return the buffer's memory as an object for `pyopencl.SVM(…)`.

    The result also works as `hostbuf` of a `pyopencl.Buffer` with `USE_HOST_PTR`. The result keeps
    the buffer. Only on a CPU may the host read the memory. Raises `ArgumentValueError` for memory
    of the kind `buffer-address`, because its addresses are valid only on the device.
    """
    if not isinstance(buffer, DeviceBuffer):
        raise ArgumentTypeError(
            f"buffer: expected a uhal.DeviceBuffer, got {type(buffer).__name__}"
        )
    backend = _of(buffer.device)
    kind = backend.opened(buffer.device.ordinal).device.memory
    if kind == "buffer-address":
        raise ArgumentValueError(
            "buffer: its device gives memory of the kind 'buffer-address', which others cannot "
            "point at; UHAL_OPENCL_MEMORY chooses another kind where there is one"
        )
    address = int(buffer.as_device_ptr())
    found = (ctypes.c_ubyte * buffer.nbytes).from_address(address)
    found._uhal_buffer = buffer  # type: ignore[attr-defined]
    return found


def image(program: int, device: Device) -> bytes:
    """Return the image of another library's `cl_program`, for `uhal.Module.from_bytes`.

    The image holds the program's SPIR-V or OpenCL C text, and the build options for the device.
    uhal builds the program again. Raises `NotFoundError` for a program made from a binary. pyopencl
    caches texts as binaries unless `build(cache_dir=False)`.
    """
    if isinstance(program, bool) or not isinstance(program, int):
        raise ArgumentTypeError(
            f"program: expected the address of a cl_program, got {type(program).__name__}"
        )
    programs = _of(device).opened(device.ordinal).programs
    language, text, options = programs.made_of(program)
    if language:
        return language
    if not text:
        raise NotFoundError(
            "program: it was made of a binary, which tells nothing of its kernels; give the "
            "SPIR-V or the text. pyopencl keeps binaries of texts: build(cache_dir=False)",
            backend="opencl",
        )
    return opencl_compile.opencl_c(text, " ".join(options.split()))


def _of(device: Device) -> OpenClBackend:
    """The backend of a device, which must be an opencl device."""
    if not isinstance(device, Device) or device.backend != "opencl":
        named = f"{device.backend}:{device.ordinal}" if isinstance(device, Device) else repr(device)
        raise ArgumentTypeError(f"device: expected a device of opencl, got {named}")
    found: OpenClBackend = device.context.backend  # type: ignore[assignment]
    return found
