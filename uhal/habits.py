"""Advice for names of CuPy, PyCUDA, Numba and PyTorch that uhal lacks or spells differently."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn


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
        "current_device get_current_device get_device": "Device.current() is the current device",
        "set_device": "a device is current within with device:",
        "device_count devices list_devices": "Device.count() counts the devices of a backend",
        "is_available": "Api.backends() lists the backends",
        "stream current_stream default_stream": "Stream() makes a stream; Stream.default() exists",
        "Buffer GPUArray DeviceArray Memory": "DeviceBuffer is memory of a device",
        "Tensor DeviceTensor ndarray": "tensors are in ubridge: ubridge.asarray(array)",
        "Kernel Program RawFunction": "module.get_function(name) returns a kernel",
        "Context Queue CommandQueue": "Device(ordinal, backend) and Stream() do this",
        "load load_kernel load_module open_module": (
            "Module.from_file(path) loads an image, ubridge.load_module(name) kernels of ubridge"
        ),
        "compile_kernel compile_module": _COMPILE,
        "Error CudaError CUDAError": "DeviceError is the base of errors of devices",
        "OutOfMemory MemoryError": "OutOfMemoryError is that error",
        "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 f16 "
        "bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64": (
            'a dtype is a text, such as "f32", or numpy\'s, np.float32'
        ),
    }
)
"""Names in the package `uhal`."""
OF_OTHERS = "functions of arrays are in ubridge"
OF_API = by_name(
    {
        "default_device get_default_device device get_device first_device open create": (
            "Write Api.quick_init()."
        ),
        "set_device set_default_device use": "Write Api.quick_init(ordinal), or with device:.",
        "devices list_devices get_devices device_count get_device_count count": (
            "Write Device.count(), and Device(ordinal, backend) for each."
        ),
        "available_backends list_backends get_backends is_available": "Write Api.backends().",
        "backend current_backend get_backend": "Write Api.current().",
        "synchronize": "Write device.synchronize().",
        "version driver_version": "Write Api.get_api_version().",
        "shutdown close finalize": "Write device.close().",
    }
)
"""Names of `Api`."""
OF_SOURCE = by_name(
    {
        "__global__": (
            "Write KERNEL(name, (parameters)) { … } instead of __global__. uhal.compile.cuda "
            "compiles a source of CUDA as it is."
        ),
        "__device__": "Write DEVICE_FUNCTION instead of __device__.",
        "__shared__": (
            "Write SHARED(type, name, count) or DYNAMIC_SHARED(type, name) instead of __shared__."
        ),
        "__constant__": "Write DEVICE_GLOBAL(type, name, count) instead of __constant__.",
        "__syncthreads": "Write BARRIER() between regions THREADS(t) { … }.",
        "threadIdx": "Write a region THREADS(t) { … }, and THREAD_X(t) instead of threadIdx.x.",
        "atomicAdd": "Write #include <uhal/atomics.h>, and atomic_add(address, value).",
        "atomic_add atomic_min atomic_max atomic_exchange": "Write #include <uhal/atomics.h>.",
        "ASSERT PRINTF": "Write #include <uhal/messages.h>.",
    }
)
"""Names that a source for `<uhal/kernel.h>` lacks."""
OF_COMPILE = by_name(
    {
        "opencl": "Write opencl_backend.compile.kernels(source).",
        "rocm amd": "Write rocm_backend.compile.kernels(source), or uhal.compile.hip(source).",
        "nvrtc ptx cubin": "Write uhal.compile.cuda(source).",
        "cpu cpp c gcc": "Write uhal.compile.host(source).",
    }
)
"""Names in the module `uhal.compile`."""
_FROM_SOURCE = "Compile it first: Module.from_bytes(uhal.compile.host(source)), or compile.cuda."
OF_LOADED_MODULE = by_name(
    {
        "load load_file from_path open": "Write Module.from_file(path).",
        "compile from_source from_string from_text": _FROM_SOURCE,
        "from_image from_data from_buffer from_ptx from_cubin load_data": (
            "Write Module.from_bytes(image)."
        ),
        "functions get_functions list_functions names entries": "Write module.kernels.",
        "get get_kernel function kernel": "Write module.get_function(name).",
        "global_ get_variable get_symbol": "Write module.get_global(name, dtype).",
        "unload free": "Write module.close().",
    }
)
"""Names of a `Module`."""

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
        "empty alloc malloc allocate create new": (
            "Write DeviceBuffer.uninitialized(count, dtype)."
        ),
        "wait synchronize": "Write stream.synchronize(), or device.synchronize() for all streams.",
        "ones full arange": "Write ubridge.ones(shape, dtype), or ubridge.full or ubridge.arange.",
        "to_device to_gpu from_array from_list from_host asarray array": (
            "Write DeviceBuffer.from_numpy(array)."
        ),
        "from_torch from_tensor from_cupy from_jax": "Write DeviceBuffer.from_dlpack(tensor).",
        "from_bytes from_buffer frombuffer": (
            "Write DeviceBuffer.from_numpy(numpy.frombuffer(data, dtype))."
        ),
        "from_ptr from_pointer from_address": (
            "Write DeviceBuffer.from_raw(address, count, dtype)."
        ),
        "upload write": "Write buffer.copy_from(array).",
        "download read": "Write buffer.to_numpy().",
        "resize append extend": "The size of a DeviceBuffer is fixed: make another one.",
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
        "zeros ones empty uninitialized alloc": "Write HostBuffer(count, dtype).",
        "from_numpy from_array": (
            "Write HostBuffer(array.size, array.dtype), and then buffer.array[:] = array."
        ),
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
        "current get_current get_default": "Write Stream.default().",
        "new create": "Write Stream().",
        "launch": "Write kernel[grid, block, 0, stream](argument, …).",
        "memcpy copy": "Write buffer.copy_from_async(source, stream).",
    }
)
"""Names of a `Stream`."""
OF_EVENT = by_name(
    {
        "elapsed_time time_since time_till elapsed time timestamp": (
            "Write end.elapsed_since(start), in milliseconds."
        ),
        "wait": (
            "The program waits with event.synchronize(), a stream with stream.wait_event(event)."
        ),
        "done is_done": "Write event.query().",
        "ptr cuda_event": "Write event.handle.",
        "now": "Write stream.record_event().",
        "new create": "Write Event().",
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
        "get_attribute get_attributes properties get_properties compute_capability": (
            "Write device.attributes or device.limits."
        ),
        "list all enumerate devices get_devices": (
            "Write Device.count(backend), and Device(ordinal, backend) for each."
        ),
        "get_count device_count num_devices": "Write Device.count().",
        "get_current default get_default get open": (
            "Write Device.current(), or Device(ordinal, backend)."
        ),
        "stream create_stream default_stream": "Write Stream(device=device).",
        "alloc malloc allocate empty zeros": (
            "Write DeviceBuffer.zeros(count, dtype, device=device)."
        ),
        "load load_module": "Write Module.from_file(path, device=device).",
    }
)
"""Names of a `Device`."""
OF_FUNCTION = by_name(
    {
        "launch run call execute enqueue prepared_call prepared_async_call": (
            "Write kernel[grid, block](argument, …)."
        ),
        "args arguments params parameters": "Write kernel.signature.",
        "max_threads max_threads_per_block num_regs": "Write kernel.attributes.",
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
        who = (
            f"type object {owner.__name__!r}" if instance is None else f"{owner.__name__!r} object"
        )
        message = f"{who} has no attribute {self.name!r}. {self.advice}"
        raise AttributeError(message, name=self.name, obj=owner if instance is None else instance)

    def __repr__(self) -> str:
        # `help` shows it beside the attributes that exist.
        return f"<absent: {self.advice}>"


class Guessed(type):
    """The type of a class that has no objects: it answers any other name."""

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(cls, name: str) -> NoReturn:
            """Refuse a missing name, with the names that exist."""
            message = f"type object {cls.__name__!r} has no attribute {name!r}"
            if not name.startswith("_"):
                listed = ", ".join(one for one in dir(cls) if not one.startswith("_"))
                message = f"{message}. {OF_API.get(name, f'It has {listed}.')}"
            raise AttributeError(message, name=name, obj=cls)


class NotCallable(ModuleType):
    """A module with the name of a function of another library, or of a guessed function."""

    called: str
    """Advice for a call."""

    def __call__(self, *given: object, **settings: object) -> NoReturn:
        """Raise a `TypeError` that names the function instead."""
        raise TypeError(f"{self.__name__} is a module, no function. {self.called}")


def refuse_call(module: str, advice: str) -> None:
    """Let a module give advice when it is called."""
    found = sys.modules[module]
    found.__class__ = NotCallable
    vars(found)["called"] = advice


def refuse_names(owner: type, table: Mapping[str, str]) -> None:
    """Let a class and its objects give a table's advice for names that they lack."""
    for name, value in absent(table).items():
        setattr(owner, name, value)


def absent(table: Mapping[str, str]) -> dict[str, object]:
    """Return attributes that refuse a table's names, and a `__dir__` that leaves the names out."""

    def listed(self: object) -> list[str]:
        return [name for name in object.__dir__(self) if name not in table]

    return {**{name: Elsewhere(name, table[name]) for name in table}, "__dir__": listed}
