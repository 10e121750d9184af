"""Exchange of queues, memory and programs between pyopencl and uhal, on one context."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opencl_backend import compile as opencl_compile
from opencl_backend import interop
from tests.children import check_child
from tests.requirements import missing
from uhal import Device, DeviceBuffer, Module, Stream
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    NotFoundError,
    NotSupportedError,
)

TEXT = """
kernel void twice(ulong n, global const float *x, global float *y) {
    for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) y[i] = FACTOR * x[i];
}
kernel void slow(ulong rounds, global float *y) {
    float x = y[0];
    for (ulong i = 0; i < rounds; ++i) x = x * 0.5f + 1.0f;
    y[0] = x;
}
"""
SOURCE = """
#include <uhal/kernel.h>
KERNEL(twice, (u64 n, const f32 *x, f32 *y)) { GRID_STRIDE(i, n) { y[i] = 2 * x[i]; } }
"""
SIGNATURE = "u64 n, const f32* x, f32* y"
COUNT = 5000
ROUNDS = 100_000_000


@pytest.fixture
def theirs(device: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return pyopencl on uhal's context: the module, the context and a queue."""
    # pyopencl would load a known program from its cache, as a binary.
    monkeypatch.setenv("PYOPENCL_NO_CACHE", "1")
    try:
        import pyopencl as cl
    except ImportError:
        missing("needs pyopencl: pip install pyopencl")
    context = cl.Context.from_int_ptr(interop.context(device))
    return cl, context, cl.CommandQueue(context)


@pytest.fixture
def values(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.standard_normal(COUNT).astype("f4")


def test_the_context_has_the_device(theirs: Any, device: Device) -> None:
    cl, context, _ = theirs
    found = cl.Device.from_int_ptr(interop.device_id(device))
    assert context.devices == [found]
    assert found.name.strip() == device.name


def test_a_launch_in_their_queue(theirs: Any, device: Device, values: Any) -> None:
    """The launch runs in order with pyopencl's work; closing our stream keeps pyopencl's queue."""
    cl, context, queue = theirs
    program = cl.Program(context, TEXT).build("-DFACTOR=3.0f")
    x, y = DeviceBuffer.from_numpy(values), DeviceBuffer.zeros(COUNT, "f32")
    device.synchronize()
    with Module.from_bytes(opencl_compile.kernels(SOURCE)) as module:
        twice = module.get_function("twice", SIGNATURE)
        for _ in range(3):
            stream = Stream.from_handle(queue.int_ptr, owner=queue)
            cl.Kernel(program, "slow")(queue, (1,), None, np.uint64(1000), _svm(cl, y))
            twice[8, 64, 0, stream](COUNT, x, y)
            cl.Kernel(program, "twice")(
                queue, (8,), None, np.uint64(COUNT), _svm(cl, y), _svm(cl, x)
            )
            stream.synchronize()
            values = 6 * values
            stream.close()
            del stream
        queue.finish()
        assert np.array_equal(x.to_numpy(), values)


def test_their_work_counts_as_pending(theirs: Any, device: Device) -> None:
    """Work counts as pending in pyopencl's queue, and in uhal's queue once pyopencl has it."""
    cl, context, queue = theirs
    program = cl.Program(context, TEXT).build("-DFACTOR=3.0f")
    wrapped = Stream.from_handle(queue.int_ptr, owner=queue)
    with Stream() as ours:
        given = cl.CommandQueue.from_int_ptr(interop.queue(ours))
        for stream, into in ((wrapped, queue), (ours, given)):
            y = DeviceBuffer.zeros(1, "f32")
            device.synchronize()
            done = cl.Kernel(program, "slow")(into, (1,), None, np.uint64(ROUNDS), _svm(cl, y))
            stream.synchronize()
            assert done.command_execution_status == cl.command_execution_status.COMPLETE
            assert y.to_numpy()[0] == 2


def test_their_memory_is_an_argument_of_ours(theirs: Any, device: Device, values: Any) -> None:
    cl, context, queue = theirs
    memory = cl.SVMAllocation(context, 4 * COUNT, 64, cl.svm_mem_flags.READ_WRITE, queue=queue)
    cl.enqueue_copy(queue, memory, values)
    queue.finish()
    x = DeviceBuffer.from_raw(memory.svm_ptr, COUNT, "f32", device=device, owner=memory)
    y = DeviceBuffer.zeros(COUNT, "f32")
    with Module.from_bytes(opencl_compile.kernels(SOURCE)) as module:
        module.get_function("twice", SIGNATURE)[8, 64](COUNT, x, y)
        assert np.array_equal(y.to_numpy(), 2 * values)


def test_our_memory_is_a_buffer_of_theirs(theirs: Any, device: Device, values: Any) -> None:
    cl, context, queue = theirs
    x, y = DeviceBuffer.from_numpy(values), DeviceBuffer.zeros(COUNT, "f32")
    device.synchronize()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    read, written = (cl.Buffer(context, flags, hostbuf=interop.memory(one)) for one in (x, y))
    program = cl.Program(context, TEXT).build("-DFACTOR=3.0f")
    cl.Kernel(program, "twice")(queue, (8,), None, np.uint64(COUNT), read, written)
    cl.enqueue_map_buffer(queue, written, cl.map_flags.READ, 0, (COUNT,), np.float32)
    queue.finish()
    assert np.array_equal(y.to_numpy(), 3 * values)


@pytest.mark.parametrize("made_of", ["text", "SPIR-V"])
def test_their_program_is_a_module(theirs: Any, device: Device, values: Any, made_of: str) -> None:
    cl, context, _ = theirs
    source: str | bytes = TEXT if made_of == "text" else opencl_compile.kernels(SOURCE)
    program = cl.Program(context, source).build("-DFACTOR=2.0f")
    y = DeviceBuffer.zeros(COUNT, "f32")
    with Module.from_bytes(interop.image(program.int_ptr, device)) as module:
        twice = module.get_function("twice", SIGNATURE)
        twice[8, 64](COUNT, DeviceBuffer.from_numpy(values), y)
        assert np.array_equal(y.to_numpy(), 2 * values)


def test_our_program_is_theirs(theirs: Any, device: Device, values: Any) -> None:
    cl, _, queue = theirs
    x, y = DeviceBuffer.from_numpy(values), DeviceBuffer.zeros(COUNT, "f32")
    device.synchronize()
    with Module.from_bytes(opencl_compile.kernels(SOURCE)) as module:
        program = cl.Program.from_int_ptr(interop.program(module.get_function("twice")))
    # the program lives on after its module
    twice = cl.Kernel(program, "twice")
    twice(queue, (64,), (8,), np.uint64(COUNT), _svm(cl, x), _svm(cl, y))
    queue.finish()
    assert np.array_equal(y.to_numpy(), 2 * values)


def test_what_cannot_be_taken_is_refused(theirs: Any, device: Device) -> None:
    cl, context, _ = theirs
    elsewhere = cl.CommandQueue(cl.Context([cl.Device.from_int_ptr(interop.device_id(device))]))
    with pytest.raises(InvalidHandleError, match=r"interop\.context\(device\)"):
        Stream.from_handle(elsewhere.int_ptr)
    unordered = cl.CommandQueue(
        context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    with pytest.raises(NotSupportedError, match="runs in order"):
        Stream.from_handle(unordered.int_ptr)
    built = cl.Program(context, TEXT).build("-DFACTOR=2.0f")
    binary = cl.Program(context, context.devices, [built.binaries[0]]).build()
    with pytest.raises(NotFoundError, match="made of a binary"):
        interop.image(binary.int_ptr, device)


def refuse_memory() -> None:
    with Device(0, "opencl"), DeviceBuffer.zeros(3, "u8") as buffer:
        try:
            interop.memory(buffer)
        except ArgumentValueError as error:
            print(error)


def test_memory_without_pointers_is_refused(layer: Any) -> None:
    said = check_child(refuse_memory, environment=layer(memory="buffer-address"))
    assert "memory of the kind 'buffer-address'" in said


def test_what_is_none_of_opencls_is_refused(device: Device) -> None:
    for call in (
        lambda: interop.context(Device(0, "host")),
        lambda: interop.queue("x"),  # type: ignore[arg-type]
        lambda: interop.program(3),  # type: ignore[arg-type]
        lambda: interop.memory(b"x"),  # type: ignore[arg-type]
        lambda: interop.image("x", device),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentTypeError, match="expected"):
            call()


def _svm(cl: Any, buffer: DeviceBuffer) -> Any:
    return cl.SVM(np.ctypeslib.as_array(interop.memory(buffer)))
