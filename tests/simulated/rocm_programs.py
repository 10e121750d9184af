"""Programs on the ROCm backend, each in its own process, because some lose their device."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simulated.hsa import CONSTANT
from uhal import (
    Api,
    Device,
    DeviceBuffer,
    DevicePointer,
    Event,
    EventFlags,
    Function,
    HostBuffer,
    Module,
    Stream,
    diagnostics,
)
from uhal.errors import DeviceError

SOURCE = """
#include <uhal/kernel.h>
DEVICE_GLOBAL(u32, table, 4);
KERNEL(step, (u64 n, u32 multiply, u32 add, u32 *x)) {
    GRID_STRIDE(i, n) { x[i] = x[i] * multiply + add; }
}
KERNEL(mix, (u8 a, f64 b, u16 c, f32 *out)) {
    THREADS(t) {
        if (t == 0) {
            out[0] = a;
            out[1] = f32(b);
            out[2] = c;
        }
    }
}
KERNEL(where, (u32 *out)) {
    if (blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1) {
        THREADS(t) {
            if (t == 0) {
                out[0] = gridDim.x;
                out[1] = gridDim.y;
                out[2] = blockDim.x;
            }
        }
    }
}
KERNEL(one, (u32 bits, u32 *out)) {
    THREADS(t) {
        if (t == 0) {
            out[0] = bits;
        }
    }
}
"""
LARGE = 3 << 20
"""Size of a pageable copy that the runtime pins temporarily."""


def simulated() -> ctypes.CDLL:
    """Return the simulated library that the backend has opened."""
    library = ctypes.CDLL(os.environ["UHAL_ROCM_LIBRARY"])
    library.uhal_sim_live.restype = ctypes.c_long
    return library


def fail(call: str, nth: int, name: str) -> None:
    """Make the nth call from now on return an error."""
    simulated().uhal_sim_fail(call.encode(), nth, CONSTANT[name])


class Bench:
    """A device, a module of SOURCE and a generator."""

    def __init__(self, image: str, seed: int) -> None:
        self.device = Api.quick_init(0, "rocm")
        self.rng = np.random.default_rng(seed)
        self.module = Module.from_file(image)
        self.step = self.module.get_function("step", "u64 n, u32 multiply, u32 add, u32* x")

    def values(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        return self.rng.integers(0, 2**32, count, "u4")


def use_everything(device: Device, image: str, seed: int) -> None:
    """Call every slot once or more, and check the results."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 2**32, 1000, "u4")
    large = rng.integers(0, 2**32, LARGE // 4, "u4")
    called = threading.Event()
    with device, Stream() as first, Stream() as second, Module.from_file(image) as module:
        step = module.get_function("step", "u64 n, u32 multiply, u32 add, u32* x")
        start, end = Event(), Event()
        x = DeviceBuffer.from_numpy(small)
        y = DeviceBuffer.from_numpy(large)
        start.record(first)
        step[4, 64, 0, first](x.size, 3, 5, x)
        end.record(first)
        second.wait_event(end)
        step[4, 64, 0, second](x.size, 7, 11, x)
        with HostBuffer(1000, "u4") as pinned:
            x.copy_to_async(pinned, second)
            second.synchronize()
            assert np.array_equal(pinned.array, (small * np.uint32(3) + 5) * np.uint32(7) + 11)
        assert end.elapsed_since(start) >= 0
        assert np.array_equal(y.to_numpy(), large)
        y[1:100].set_8(0xAB)
        y[:-1].copy_from(y[1:])
        assert (y.to_numpy()[:98] == 0xABABABAB).all()
        table = module.get_global("table", "u32")
        table.copy_from(small[:4])
        assert np.array_equal(table.to_numpy(), small[:4])
        first.add_callback(called.set)
        first.synchronize()
        assert called.wait(20)


CALLS = (
    "hsa_signal_create",
    "hsa_amd_signal_create",
    "hsa_queue_create",
    "hsa_amd_memory_pool_allocate",
    "hsa_amd_agents_allow_access",
    "hsa_amd_memory_async_copy",
    "hsa_amd_memory_lock",
    "hsa_amd_signal_async_handler",
    "hsa_amd_profiling_set_profiler_enabled",
    "hsa_amd_profiling_get_dispatch_time",
    "hsa_code_object_reader_create_from_memory",
    "hsa_executable_create_alt",
    "hsa_executable_load_agent_code_object",
    "hsa_executable_freeze",
    "hsa_executable_get_symbol_by_name",
    "hsa_executable_symbol_get_info",
)


def survive_failures(image: str, seed: int, calls: int) -> None:
    """Let each call fail in turn: an error has the right class, and nothing is lost."""
    Api.quick_init(0, "host")
    refused = 0
    for call in CALLS:
        for nth in range(1, calls + 1):
            device = Device(0, "rocm")
            simulated().uhal_sim_fail(
                call.encode(), nth, CONSTANT["HSA_STATUS_ERROR_OUT_OF_RESOURCES"]
            )
            try:
                use_everything(device, image, seed)
            except DeviceError as error:
                assert isinstance(error, MemoryError), (call, nth, error)
                refused += 1
            simulated().uhal_sim_fail(call.encode(), 1, 0)
            gc.collect()
            use_everything(device, image, seed)
            device.close()
            del device
            gc.collect()
            live = diagnostics()["native"]["rocm"]
            assert not any(live.values()), (call, nth, live)
            assert simulated().uhal_sim_live(b"queue") == 0, (call, nth)
    assert refused >= len(CALLS) - 2, refused
    print(refused, "refused")


def expect_loss(act: Callable[[], Any]) -> DeviceError:
    try:
        act()
    except DeviceError as error:
        assert "is lost: it takes no more work" in str(error), error
        return error
    raise AssertionError("the loss was not reported")


def expect_lost(bench: Bench) -> None:
    for act in (bench.device.synchronize, lambda: DeviceBuffer.zeros(1, "u8"), Stream):
        try:
            act()
        except DeviceError as error:
            assert "was lost earlier" in str(error), error
        else:
            raise AssertionError("not refused")


def lose_a_queue(image: str, seed: int) -> None:
    """The queue stops at a packet: the error names the first launch of this queue alone."""
    bench = Bench(image, seed)
    x = DeviceBuffer.from_numpy(bench.values(100))
    streams = [Stream() for _ in range(3)]
    for stream in streams:
        own = x if stream is streams[0] else DeviceBuffer.zeros(100, "u32")
        bench.step[1, 64, 0, stream](100, 1, 1, own)
        stream.synchronize()
    bench.device.synchronize()
    fail("packet", 1, "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION")

    def go_on() -> None:
        # Any call after the first may raise the fault.
        bench.step[1, 64, 0, streams[1]](7, 3, 5, x)
        bench.step[2, 64, 0, streams[1]](7, 3, 5, x)
        streams[1].synchronize()

    error = expect_loss(go_on)
    assert error.name == "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION"
    (only,) = error.candidates
    assert (only.kernel, only.grid) == ("step", (1, 1, 1)) and only.arguments.startswith("n=7")
    assert "It was this one" in str(error)
    expect_lost(bench)


def lose_by_a_fault(image: str, seed: int) -> None:
    """The message of a page fault has the address and the nearest allocation."""
    bench = Bench(image, seed)
    x = DeviceBuffer.from_numpy(bench.values(1 << 20))
    bench.step[1, 64](1 << 24, 3, 5, x)
    error = expect_loss(bench.device.synchronize)
    assert error.name == "HSA_STATUS_ERROR_MEMORY_FAULT", error
    assert "at address 0x" in str(error) and "past the end of an allocation of" in str(error)
    (only,) = error.candidates
    assert only.arguments.startswith("n=16777216")
    expect_lost(bench)


def lose_by_a_copy(image: str, seed: int) -> None:
    """A failed copy sets its signal to a negative value; no wait hangs."""
    bench = Bench(image, seed)
    x = DeviceBuffer.from_numpy(bench.values(1000))
    bench.device.synchronize()
    fail("copy", 1, "HSA_STATUS_ERROR")
    with HostBuffer(1000, "u4") as pinned:
        stream = Stream()

        def go_on() -> None:
            x.copy_to_async(pinned, stream)
            bench.step[1, 64, 0, stream](1000, 3, 5, x)
            stream.synchronize()

        error = expect_loss(go_on)
        assert error.name == "UHAL_HSA_LOST_COPY" and "4000 bytes" in str(error), error
        expect_lost(bench)


def give_up_at_the_deadline(image: str) -> None:
    """With UHAL_ROCM_DEADLINE no wait lasts forever."""
    Api.quick_init(0, "rocm")
    stream, event = Stream(), Event(EventFlags.DISABLE_TIMING)
    flag = HostBuffer(1, "u4")
    watched = flag.array
    watched[0] = 0
    gate = Module.from_file(image).get_function("gate", "ptr flag, ptr opened")
    out = DeviceBuffer.zeros(1, "u32")
    gate[1, 1, 0, stream](DevicePointer(flag.address), out)
    event.record(stream)
    began = time.monotonic()
    error = expect_loss(event.synchronize)
    assert error.name == "UHAL_HSA_LOST_DEADLINE" and time.monotonic() - began < 20
    watched[0] = 1  # lets the simulated device shut down when the process ends


def storm(image: str, seed: int, launches: int) -> None:
    """Eight threads launch on 4 streams in any order, chained by events; every launch counts
    once."""
    bench = Bench(image, seed)
    streams = [Stream() for _ in range(4)]
    counters = [DeviceBuffer.zeros(1, "u32") for _ in range(8)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        rng = np.random.default_rng([seed, number])
        counter = counters[number]
        stream = streams[number % 4]
        expected = np.uint32(0)
        multiply = np.uint32(3)
        try:
            with bench.device:
                for turn in range(launches):
                    bench.step[1, 1, 0, stream](1, 3, turn, counter)
                    with np.errstate(over="ignore"):
                        expected = expected * multiply + np.uint32(turn)
                    choice = int(rng.integers(200))
                    if choice < 20:
                        following = streams[int(rng.integers(4))]
                        flags = EventFlags.DISABLE_TIMING if choice % 2 else EventFlags.DEFAULT
                        event = Event(flags)
                        event.record(stream)
                        following.wait_event(event)
                        stream = following
                    elif choice == 20:
                        stream.synchronize()
                stream.synchronize()
                assert counter.to_numpy()[0] == expected, number
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    bench.device.synchronize()
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.25, "an idle device keeps a processor busy"


def permuted(images: list[str], seed: int) -> None:
    """Arguments go to the offsets in the metadata."""
    Api.quick_init(0, "rocm")
    rng = np.random.default_rng(seed)
    for image in images:
        mix = Module.from_file(image).get_function("mix", "u8 a, f64 b, u16 c, f32* out")
        a, c = int(rng.integers(256)), int(rng.integers(65536))
        b = float(np.float32(rng.normal()))
        out = DeviceBuffer.from_numpy(rng.random(3, "f4"))
        mix[1, 64](a, b, c, out)
        assert out.to_numpy().tolist() == [a, b, c], image


def geometry(images: list[str]) -> None:
    """Kernels see their geometry with and without hidden arguments, in two code object versions."""
    Api.quick_init(0, "rocm")
    for image in images:
        where: Function = Module.from_file(image).get_function("where")
        out = DeviceBuffer.from_numpy(np.full(3, 9, "u4"))
        where[(5, 3), 32](out)
        assert out.to_numpy().tolist() == [5, 3, 32], image


def untyped_scalars(image: str, typed: str) -> None:
    """An argument of 4 bytes without a type refuses ints and floats; a sidecar gives its type."""
    Api.quick_init(0, "rocm")
    one = Module.from_file(image).get_function("one")
    out = DeviceBuffer.zeros(1, "u32")
    for value in (3, 3.0):
        try:
            one[1, 64](value, out)
        except DeviceError as error:
            assert isinstance(error, TypeError) and "The kernel was not launched" in str(error)
        else:
            raise AssertionError(f"{value!r} was taken")
    one[1, 64](np.float32(3), out)
    assert out.view("f32").to_numpy()[0] == 3.0
    one = Module.from_file(typed).get_function("one")
    one[1, 64](3, out)
    assert out.to_numpy()[0] == 3


def refuse_grids_of_too_many_work_items(image: str) -> None:
    Api.quick_init(0, "rocm")
    where = Module.from_file(image).get_function("where")
    out = DeviceBuffer.zeros(3, "u32")
    for grid, axis in (((1 << 22, 1), "x"), ((1, 1 << 29), "y")):
        try:
            where[grid, (1024 if axis == "x" else 1, 1 if axis == "x" else 8)](out)
        except DeviceError as error:
            assert isinstance(error, ValueError)
            assert f"grid {axis}: expected at most 4294967295 threads along an axis" in str(error)
        else:
            raise AssertionError("not refused")


def copy_through_three_backends(seed: int) -> None:
    """Bytes are equal after copies host → cuda → rocm → host in one process."""
    rng = np.random.default_rng(seed)
    for count in (1, 1000, 1_000_003):
        values = rng.integers(0, 256, count, "u1")
        host, cuda, rocm = (Device(0, name) for name in ("host", "cuda", "rocm"))
        chain = [DeviceBuffer.from_numpy(values, device=host)]
        for device in (cuda, rocm, host):
            chain.append(DeviceBuffer.uninitialized(count, "u8", device=device))
            chain[-1].copy_from(chain[-2])
        assert np.array_equal(chain[-1].to_numpy(), values)
    print("bit-exact")


def use_after_fork(image: str, seed: int) -> None:
    bench = Bench(image, seed)
    x = DeviceBuffer.from_numpy(bench.values(10))
    child = os.fork()
    if child == 0:
        try:
            bench.step[1, 1](10, 1, 1, x)
        except DeviceError as error:
            told = "initialised before fork at rocm_programs.py:" in str(error)
            os._exit(0 if told else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    bench.step[1, 1](10, 1, 0, x)
    bench.device.synchronize()


def run_images(images: list[str], seed: int) -> None:
    """Run the kernels of conformance/kernels/basic.cu from each compiler and code object
    version."""
    Api.quick_init(0, "rocm")
    rng = np.random.default_rng(seed)
    for image in images:
        module = Module.from_file(image)
        x, y = rng.random((2, 1000), "f4")
        a = np.float32(rng.random())
        on_device = DeviceBuffer.from_numpy(y)
        saxpy = module.get_function("saxpy", "u64 n, f32 a, const f32* x, f32* y")
        saxpy[4, 64](1000, a, DeviceBuffer.from_numpy(x), on_device)
        expected = a.astype("f8") * x + y
        assert np.allclose(on_device.to_numpy(), expected, rtol=1e-6), image
        reverse = module.get_function("reverse", "const f32* x, f32* y")
        out = DeviceBuffer.from_numpy(np.full(1000, np.nan, "f4"))
        reverse[10, 100, 400](DeviceBuffer.from_numpy(x), out)
        assert np.array_equal(out.to_numpy(), x.reshape(10, 100)[:, ::-1].ravel()), image


class HipTensor:
    """Imitates torch's tensors on ROCm: memory by DLPack, and torch's calls."""

    def __init__(self, memory: DeviceBuffer) -> None:
        self.memory = memory
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()

    def __dlpack__(self, **asked: Any) -> object:
        self.asked.append(asked)
        return self.memory.__dlpack__(**asked)


def use_memory_of_hip(image: str, seed: int) -> None:
    """Memory of other libraries is used in place; their streams are refused with the reason."""
    bench = Bench(image, seed)
    values = bench.values(100)
    tensor = HipTensor(DeviceBuffer.from_numpy(values))
    assert tensor.__dlpack_device__() == (10, 0)
    bench.step[1, 64](100, 3, 5, tensor)
    assert tensor.asked and "stream" not in tensor.asked[0]
    ours = DeviceBuffer.from_dlpack(tensor)
    assert ours.as_device_ptr() == tensor.memory.as_device_ptr()
    assert np.array_equal(ours.to_numpy(), values * np.uint32(3) + 5)

    class HipStream:
        cuda_stream = 0x1234

    for act in (
        lambda: bench.step[1, 64, 0, HipStream()](100, 3, 5, tensor),
        lambda: Stream.from_handle(HipStream()),
        lambda: ours.copy_to_async(HostBuffer(100, "u4"), HipStream()),
    ):
        try:
            act()
        except DeviceError as error:
            assert "a HIP stream is HIP's own object" in str(error), error
        else:
            raise AssertionError("the stream was taken")


def go_round_the_rings(image: str, seed: int, launches: int) -> None:
    """Launch more often than the queue and the argument memory hold, without a wait in between."""
    bench = Bench(image, seed)
    counter = DeviceBuffer.zeros(1, "u32")
    launch = bench.step[1, 1]
    for _ in range(launches):
        launch(1, 1, 3, counter)
    assert counter.to_numpy()[0] == 3 * launches
