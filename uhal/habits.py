"""Advice for names of CuPy, PyCUDA, Numba and PyTorch that uhal lacks or spells differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn


def by_name(table: Mapping[str, str]) -> dict[str, str]:
    """Return a table with a row for each name, from rows for several names."""
    return {name: advice for names, advice in table.items() for name in names.split()}


_COMPILE = "compile a kernel with uhal.compile.cuda and load it with Module.from_bytes"
OF_MODULE = by_name(
    {
        "RawKernel RawModule SourceModule ElementwiseKernel ReductionKernel Program": _COMPILE,
        "jit cuda_jit": f"kernels in Python are in uhal.ptx; or {_COMPILE}",
        "cuda driver autoinit": (
            'the CUDA backend is Api.quick_init(backend="cuda") or Device("cuda")'
        ),
        "init": "the first device is Api.quick_init()",
        "mem_alloc malloc alloc": "DeviceBuffer.uninitialized(count, dtype) allocates memory",
        "to_device to_gpu memcpy_htod": (
            "DeviceBuffer.from_numpy(array) copies an array to the device"
        ),
        "memcpy_dtoh": "buffer.to_numpy() copies to the host",
        "pagelocked_empty pinned_array pinned_empty": "HostBuffer(count, dtype) is pinned memory",
        "synchronize device_synchronize": "device.synchronize() or stream.synchronize() waits",
        "current_device get_current_device": "Device.current() is the current device",
        "is_available": "Api.backends() lists the backends",
    }
)
"""Names in the package `uhal`."""
OF_OTHERS = "functions of arrays are in ubridge"

_OF_TENSORS = "Only tensors have it: make one over the memory, ubridge.DeviceTensor(buffer)."
OF_BUFFER = by_name(
    {
        "get cpu numpy copy_to_host tolist item": "Write buffer.to_numpy().",
        "set copy_": "Write buffer.copy_from(array).",
        "fill fill_": (
            "Write ubridge.DeviceTensor(buffer).fill(value), or buffer.set_32(bits) for bits."
        ),
        "zero_ memset": "Write buffer.set_8(0).",
        "clone copy": (
            "Write other = DeviceBuffer.uninitialized(buffer.size, buffer.dtype), and then "
            "other.copy_from(buffer)."
        ),
        "ptr data_ptr gpudata mem_ptr handle address": "Write buffer.as_device_ptr().",
        "itemsize": "Write buffer.dtype.itemsize.",
        "numel": "Write buffer.size.",
        "free": "Write buffer.close().",
        "to cuda": "Write DeviceBuffer.from_numpy(buffer.to_numpy(), device=device).",
        "shape ndim strides T reshape astype sum mean min max": _OF_TENSORS,
        "empty": "Write DeviceBuffer.uninitialized(count, dtype).",
        "wait synchronize": "Write stream.synchronize(), or device.synchronize() for all streams.",
        "ones full arange": "Write ubridge.ones(shape, dtype), or ubridge.full or ubridge.arange.",
        "to_device to_gpu": "Write DeviceBuffer.from_numpy(array).",
    }
)
"""Names of a `DeviceBuffer`."""
OF_HOST_BUFFER = by_name(
    {
        "to_numpy numpy get copy": "Write buffer.array, the memory as an array of numpy.",
        "fill": "Write buffer.array.fill(value).",
        "copy_from set": "Write buffer.array[:] = values.",
        "shape ndim reshape astype sum mean min max": "Write buffer.array for an array of numpy.",
        "ptr data_ptr": "Write buffer.address.",
        "to cuda": "Write DeviceBuffer.from_numpy(buffer.array).",
    }
)
"""Names of a `HostBuffer`."""
OF_STREAM = by_name(
    {
        "record": "Write stream.record_event().",
        "wait": (
            "The program waits with stream.synchronize(), the stream with stream.wait_event(event)."
        ),
        "wait_stream": "Write stream.wait_event(other.record_event()).",
        "done is_done": "Write stream.query().",
        "sync": "Write stream.synchronize().",
        "use": "Pass stream= to each call.",
        "ptr cuda_stream": "Write stream.handle.",
        "begin_capture end_capture": "Write with stream.capture() as plan.",
        "is_capturing": "Work is captured within with stream.capture() as plan.",
        "launch_host_func add_done_callback": "Write stream.add_callback(function, argument).",
        "null": "Write Stream.legacy().",
    }
)
"""Names of a `Stream`."""
OF_EVENT = by_name(
    {
        "elapsed_time time_since time_till elapsed": (
            "Write end.elapsed_since(start), in milliseconds."
        ),
        "wait": (
            "The program waits with event.synchronize(), a stream with stream.wait_event(event)."
        ),
        "done is_done": "Write event.query().",
        "ptr cuda_event": "Write event.handle.",
    }
)
"""Names of an `Event`."""
OF_DEVICE = by_name(
    {
        "use set_current make_current push make_context": "Write with device:.",
        "pop detach reset": "Write device.close().",
        "id index idx": "Write device.ordinal.",
        "type": "Write device.backend.",
        "sync": "Write device.synchronize().",
        "mem_info mem_get_info total_memory": "Write device.memory_info().",
        "get_attribute get_attributes": "Write device.attributes or device.limits.",
    }
)
"""Names of a `Device`."""
OF_FUNCTION = by_name(
    {
        "launch prepared_call prepared_async_call": "Write kernel[grid, block](argument, …).",
        "prepare": "Write run = kernel[grid, block], and then run(argument, …).",
        "set_arg set_args": "Pass all arguments: kernel[grid, block](argument, …).",
    }
)
"""Names of a kernel."""
KEYWORDS = by_name(
    {
        "non_blocking": "Write Stream(StreamFlags.NON_BLOCKING).",
        "null": "Write Stream.legacy().",
        "ptds": "Write Stream.per_thread().",
        "stream": "Write Event(), and then event.record(stream).",
        "enable_timing disable_timing": (
            "Events have times; write Event(EventFlags.DISABLE_TIMING) for an event without."
        ),
        "block blocking": "Write Event(EventFlags.BLOCKING_SYNC) for waits that sleep.",
        "interprocess": "Write Event(EventFlags.INTERPROCESS | EventFlags.DISABLE_TIMING).",
    }
)
"""Names of keywords for a new `Stream` or `Event`."""


class Elsewhere:
    """An attribute that a class and its objects lack, with advice.

    Unlike `__getattr__`, it does not slow other attributes down. `hasattr` is False for both, so
    that libraries which ask a class for a method of theirs are not misled.
    """

    def __init__(self, name: str, advice: str) -> None:
        """`advice` is a sentence for the error."""
        self.name = name
        self.advice = advice

    def __get__(self, instance: object, owner: type) -> NoReturn:
        message = f"{owner.__name__!r} object has no attribute {self.name!r}. {self.advice}"
        raise AttributeError(message, name=self.name, obj=owner if instance is None else instance)

    def __repr__(self) -> str:
        # `help` shows it beside the attributes that exist.
        return f"<absent: {self.advice}>"


def absent(table: Mapping[str, str]) -> dict[str, object]:
    """Return attributes that refuse a table's names, and a `__dir__` that leaves the names out."""

    def listed(self: object) -> list[str]:
        return [name for name in object.__dir__(self) if name not in table]

    return {**{name: Elsewhere(name, table[name]) for name in table}, "__dir__": listed}
