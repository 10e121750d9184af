"""The simulated HSA runtime's packet processor: order, dependencies, fences, waiting, times."""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.sampling import SOAK
from tests.simulated.conftest import OpenHsa
from tests.simulated.hsa import (
    AGENT,
    BARRIER_AND,
    BARRIER_OR,
    CONSTANT,
    DISPATCH,
    FOR_EVER,
    HEADER,
    NONE,
    SYSTEM,
    Failure,
    Hsa,
    Queue,
    add_one,
    header,
)

UNORDERED = header(DISPATCH, barrier=False)


def zeros(hsa: Hsa, count: int) -> int:
    address = hsa.vram(4 * count)
    hsa.upload(address, np.zeros(count, np.float32))
    return address


# Order


def test_the_barrier_bit_waits_for_everything_before_it(open_hsa: OpenHsa) -> None:
    orders = set()
    for seed in range(12):
        hsa = open_hsa(SCHEDULE=f"random:{seed}")
        kernel = hsa.kernel(hsa.load(), "add_one")
        queue = hsa.queue()
        hsa.call.hsa_amd_profiling_set_profiler_enabled(queue.pointer, 1)
        # No packet starts before all are written; otherwise the first rung would always run first.
        gate = hsa.signal()
        queue.barrier(after=[gate])
        signals = [hsa.signal() for _ in range(4)]
        for done, start in zip(
            signals, (UNORDERED, UNORDERED, UNORDERED, header(DISPATCH)), strict=True
        ):
            arguments = hsa.kernarg(add_one(1, zeros(hsa, 1)))
            queue.dispatch(kernel, arguments, start=start, done=done)
        hsa.call.hsa_signal_store_screlease(gate, 0)
        queue.drain()
        starts = [started(hsa, signal) for signal in signals]
        assert max(starts) == starts[3]
        orders.add(tuple(np.argsort(starts[:3])))
    assert len(orders) > 1, "kernels without a barrier bit ran in one order only"


def started(hsa: Hsa, signal: Any) -> int:
    times = HEADER.ctype("hsa_amd_profiling_dispatch_time_t")()
    hsa.call.hsa_amd_profiling_get_dispatch_time(hsa.gpus[0], signal, ctypes.byref(times))
    return int(times.start)


def test_kernels_that_nothing_orders_must_not_share_what_they_write(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(SCHEDULE="lazy")
    kernel = hsa.kernel(hsa.load(), "add_one")
    arguments = hsa.kernarg(add_one(1, zeros(hsa, 1)))
    queue = hsa.queue()
    done = hsa.signal()
    queue.dispatch(kernel, arguments, start=UNORDERED)
    queue.dispatch(kernel, arguments, start=UNORDERED)
    queue.barrier(done)
    hsa.wait(done, seconds=0.1)
    assert "argument 1 may be old" in queue.error()[1]


def test_nothing_starts_behind_a_barrier_packet_that_waits(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    kernel = hsa.kernel(hsa.load(), "add_one")
    address = zeros(hsa, 1)
    gate, passed, before = hsa.signal(), hsa.signal(), hsa.signal()
    queue = hsa.queue()
    arguments = hsa.kernarg(add_one(1, address))
    queue.dispatch(kernel, arguments, done=before)
    queue.barrier(after=[gate], start=header(BARRIER_AND, barrier=False))
    queue.dispatch(kernel, arguments, done=passed, start=UNORDERED)
    hsa.finish(before)
    assert hsa.wait(passed, seconds=0.01) == 1
    hsa.call.hsa_signal_store_screlease(gate, 0)
    hsa.finish(passed)
    queue.drain()
    assert hsa.download(address, 1)[0] == 2


def test_and_waits_for_all_signals_and_or_for_one(open_hsa: OpenHsa, schedule: str) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    gates = [hsa.signal() for _ in range(5)]
    all_of, one_of = hsa.signal(), hsa.signal()
    first, second = hsa.queue(), hsa.queue()
    first.barrier(all_of, gates)
    second.barrier(one_of, gates, start=header(BARRIER_OR))
    hsa.call.hsa_signal_store_relaxed(gates[3], 0)
    hsa.finish(one_of)
    for gate in (gates[0], gates[1], gates[4]):
        hsa.call.hsa_signal_store_relaxed(gate, 0)
    assert hsa.wait(all_of, seconds=0.01) == 1
    hsa.call.hsa_signal_subtract_screlease(gates[2], 1)
    hsa.finish(all_of)
    # A barrier without signals passes at once.
    nothing = hsa.signal()
    second.barrier(nothing, start=header(BARRIER_OR))
    hsa.finish(nothing)


def test_queues_wait_for_each_other(
    open_hsa: OpenHsa, schedule: str, rng: np.random.Generator
) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    executable = hsa.load()
    add, double = (hsa.kernel(executable, name) for name in ("add_one", "double_it"))
    address = zeros(hsa, 16)
    arguments = hsa.kernarg(add_one(16, address))
    queues = [hsa.queue() for _ in range(3)]
    expected, before = 0.0, None
    # The chain is far longer than the depth of any call stack.
    for turn in rng.integers(0, 3, 3000 if SOAK else 300):
        queue = queues[turn]
        if before is not None:
            queue.barrier(after=[before])
        if expected > 1000:
            expected = 0.0
            queue.dispatch(hsa.kernel(executable, "scale"), scale(hsa, address, 16, 0.0))
        queue.dispatch(double if turn == 1 else add, arguments)
        expected = expected * 2 if turn == 1 else expected + 1
        before = hsa.signal()
        queue.barrier(before)
    hsa.finish(before)
    assert (hsa.download(address, 16) == expected).all()
    assert not any(queue.errors for queue in queues)


def scale(hsa: Hsa, address: int, count: int, by: float) -> int:
    return hsa.kernarg(struct.pack("<QIxxxxd", address, count, by))


# Copies


def test_copies_wait_for_signals_and_the_queue_for_copies(
    open_hsa: OpenHsa, schedule: str, rng: np.random.Generator
) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    (gpu,) = hsa.gpus
    kernel = hsa.kernel(hsa.load(), "add_one")
    source, given = hsa.host(500)
    target, result = hsa.host(500)
    given[:] = rng.standard_normal(500)
    result[:] = np.nan
    memory = hsa.vram(2000)
    queue = hsa.queue()
    uploaded = hsa.copy(memory, gpu, source, hsa.cpu, 2000)
    queue.barrier(after=[uploaded])
    queue.dispatch(kernel, hsa.kernarg(add_one(500, memory)))
    computed = hsa.signal()
    queue.barrier(computed)
    downloaded = hsa.copy(target, hsa.cpu, memory, gpu, 2000, after=[computed])
    hsa.finish(downloaded)
    np.testing.assert_array_equal(result, given + np.float32(1))


def test_copies_of_rectangles(open_hsa: OpenHsa, rng: np.random.Generator) -> None:
    hsa = open_hsa()
    shape = (4, 6, 32)
    data = rng.standard_normal(shape).astype(np.float32)
    address, host = hsa.host(data.size)
    host[:] = data.ravel()
    memory = zeros(hsa, data.size)
    pitched, extent = HEADER.ctype("hsa_pitched_ptr_t"), HEADER.ctype("hsa_dim3_t")
    done = hsa.signal()
    hsa.call.hsa_amd_memory_async_copy_rect(
        ctypes.byref(pitched(memory, 128, 128 * 6)),
        ctypes.byref(extent(16, 1, 1)),
        ctypes.byref(pitched(address, 128, 128 * 6)),
        ctypes.byref(extent(32, 2, 0)),
        ctypes.byref(extent(40, 3, 2)),
        hsa.gpus[0],
        CONSTANT["hsaHostToDevice"],
        0,
        None,
        done,
    )
    hsa.finish(done)
    expected = np.zeros(shape, np.float32)
    expected[1:3, 1:4, 4:14] = data[0:2, 2:5, 8:18]
    np.testing.assert_array_equal(hsa.download(memory, data.size).reshape(shape), expected)
    rows = hsa.status(
        "hsa_amd_memory_async_copy_rect",
        ctypes.byref(pitched(memory, 64, 128 * 6)),
        ctypes.byref(extent(40, 0, 0)),
        ctypes.byref(pitched(address, 128, 128 * 6)),
        ctypes.byref(extent(0, 0, 0)),
        ctypes.byref(extent(40, 2, 1)),
        *(hsa.gpus[0], 1, 0, None, done),
    )
    assert rows == CONSTANT["HSA_STATUS_ERROR_INVALID_ARGUMENT"]


def test_a_copy_of_nothing_leaves_its_signal_alone(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    memory, _ = hsa.host(4)
    assert hsa.value(hsa.copy(hsa.vram(4), hsa.gpus[0], memory, hsa.cpu, 0)) == 1


def test_copies_are_refused_or_fault_where_the_engine_cannot_reach(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    (gpu,) = hsa.gpus
    memory, (host, _) = hsa.vram(4096), hsa.host(1024)
    with pytest.raises(Failure, match="INVALID_ARGUMENT: the memory is not of the agent"):
        hsa.copy(memory, hsa.cpu, host, hsa.cpu, 16)
    with pytest.raises(Failure, match="INVALID_SIGNAL"):
        hsa.call.hsa_amd_memory_async_copy(
            memory, gpu, host, hsa.cpu, 16, 0, None, HEADER.ctype("hsa_signal_t")(64)
        )
    with pytest.raises(Failure, match="INVALID_ARGUMENT: dependencies must be NULL"):
        hsa.call.hsa_amd_memory_async_copy(
            *(memory, gpu, host, hsa.cpu, 16, 0),
            (HEADER.ctype("hsa_signal_t") * 1)(),
            hsa.signal(),
        )
    with pytest.raises(Failure, match="INVALID_ARGUMENT: the source of a copy"):
        hsa.call.hsa_memory_copy(memory, memory + 4096 * 50, 16)
    events = hsa.on_event()
    pageable = np.zeros(16, np.float32)
    done = hsa.copy(memory, gpu, pageable.ctypes.data, hsa.cpu, 64)
    assert hsa.wait(done, seconds=0.1) == 1
    assert events == [(0, gpu.handle, pageable.ctypes.data, 1)]


@pytest.mark.parametrize("allowed", [False, True])
def test_fills_are_of_words_unless_no_gpu_uses_the_memory(open_hsa: OpenHsa, allowed: bool) -> None:
    hsa = open_hsa()
    address, data = hsa.host(10)
    if not allowed:
        hsa.allow(address, hsa.cpu)
    hsa.call.hsa_amd_memory_fill(address + 4, 0x3F800001, 8)
    filled = 0x3F800001 if allowed else 0x01010101
    assert list(data.view(np.uint32)) == [0xFFFFFFFF, *[filled] * 8, 0xFFFFFFFF]
    memory = zeros(hsa, 10)
    hsa.call.hsa_amd_memory_fill(memory, 0x40000000, 10)
    assert (hsa.download(memory, 10) == 2).all()
    hsa.call.hsa_amd_memory_fill(memory, 0, 0)
    for wrong in ((memory + 2, 0, 1), (memory, 0, 1 << 40), (0x10000, 0, 4)):
        assert hsa.status("hsa_amd_memory_fill", *wrong) != 0


# Signals


def test_waits_end_with_the_condition_or_the_time(open_hsa: OpenHsa, schedule: str) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    signal = hsa.signal(5)
    wait = hsa.call.hsa_signal_wait_scacquire
    for condition, compared in ((0, 5), (1, 4), (2, 6), (3, 5)):
        assert wait(signal, condition, compared, FOR_EVER, 0) == 5
    for condition, compared in ((0, 4), (1, 5), (2, 5), (3, 6)):
        assert wait(signal, condition, compared, 1000, 1) == 5
    seen: list[int] = []
    waiter = threading.Thread(target=lambda: seen.append(wait(signal, 2, 0, FOR_EVER, 0)))
    waiter.start()
    for value in (3, 1, -2):
        hsa.call.hsa_signal_store_screlease(signal, value)
    waiter.join(20)
    assert seen == [-2]
    dll, handle = hsa.dll, ctypes.c_uint64(signal.handle)
    dll.hsa_signal_cas_scacq_screl.restype = ctypes.c_int64
    assert dll.hsa_signal_cas_scacq_screl(handle, ctypes.c_int64(-2), ctypes.c_int64(9)) == -2
    dll.hsa_signal_add_screlease(handle, ctypes.c_int64(3))
    assert hsa.value(signal) == 12


def test_handlers_run_once_or_as_long_as_they_say(open_hsa: OpenHsa, schedule: str) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    kernel = hsa.kernel(hsa.load(), "add_one")
    address = zeros(hsa, 1)
    seen: list[tuple[int, int]] = []
    three = threading.Event()

    def handler(value: int, data: int | None) -> bool:
        seen.append((value, data or 0))
        if len(seen) == 3:
            three.set()
        # The condition is false again, so the handler waits for the next change.
        hsa.call.hsa_signal_store_relaxed(done, 1)
        return len(seen) < 3

    callback = HEADER.ctype("hsa_amd_signal_handler")(handler)
    done = hsa.signal()
    hsa.call.hsa_amd_signal_async_handler(done, 2, 1, callback, 77)
    queue = hsa.queue()
    arguments = hsa.kernarg(add_one(1, address))
    for count in range(1, 4):
        queue.dispatch(kernel, arguments, done=done)
        for _ in range(2000):
            if len(seen) >= count:
                break
            time.sleep(0.01)
    assert three.wait(20)
    assert seen == [(0, 77)] * 3
    queue.dispatch(kernel, arguments, done=done)
    queue.drain()
    assert len(seen) == 3


def test_polling_gets_there_and_not_looking_does_not(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(SCHEDULE="lazy")
    kernel = hsa.kernel(hsa.load(), "add_one")
    address = zeros(hsa, 1)
    arguments = hsa.kernarg(add_one(1, address))
    queue = hsa.queue()
    done = hsa.signal()
    for _ in range(20):
        queue.dispatch(kernel, arguments)
    queue.dispatch(kernel, arguments, done=done)
    wakes = hsa.dll.uhal_sim_wakes()
    assert hsa.call.hsa_queue_load_read_index_relaxed(queue.pointer) == 0
    polls = 0
    while hsa.value(done) > 0:
        polls += 1
        time.sleep(0.001)
    assert polls >= 20
    assert hsa.dll.uhal_sim_wakes() > wakes
    queue.drain()
    assert hsa.download(address, 1)[0] == 21


# Producers


def test_many_producers_share_a_small_queue(open_hsa: OpenHsa, schedule: str) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    kernel = hsa.kernel(hsa.load(), "add_one")
    threads, launches = 8, 2000 if SOAK else 200
    address = zeros(hsa, threads)
    queue = hsa.queue(size=64)

    def produce(number: int) -> None:
        arguments = hsa.kernarg(add_one(1, address + 4 * number))
        for _ in range(launches):
            queue.dispatch(kernel, arguments)

    together = [threading.Thread(target=produce, args=(number,)) for number in range(threads)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    queue.drain()
    assert (hsa.download(address, threads) == launches).all()
    assert hsa.call.hsa_queue_load_read_index_relaxed(queue.pointer) == threads * launches + 1
    assert not queue.errors


def test_producers_may_ring_out_of_order(open_hsa: OpenHsa, schedule: str) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    executable = hsa.load()
    add, double = (hsa.kernel(executable, name) for name in ("add_one", "double_it"))
    address = zeros(hsa, 1)
    arguments = hsa.kernarg(add_one(1, address))
    done = hsa.signal()
    queue = hsa.queue()
    call = hsa.call
    first = call.hsa_queue_add_write_index_screlease(queue.pointer, 1)
    queue.dispatch(double, arguments, done=done)
    # The processor sleeps at the packet that is not written; it does not poll.
    assert hsa.wait(done, seconds=0.01) == 1
    wakes = hsa.dll.uhal_sim_wakes()
    time.sleep(0.05)
    assert hsa.dll.uhal_sim_wakes() == wakes
    body = struct.pack("<4H5IQQQQ", 64, 1, 1, 0, 64, 1, 1, 0, 0, add, arguments, 0, 0)
    slot = queue.packets + first * 64
    ctypes.memmove(slot + 4, body, 60)
    ctypes.c_uint32.from_address(slot).value = header(DISPATCH) | 3 << 16
    queue.ring(first)
    hsa.finish(done)
    # A doorbell for a finished packet does no harm.
    queue.ring(first)
    queue.drain()
    assert hsa.download(address, 1)[0] == 2


def test_an_idle_device_does_not_wake(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    kernel = hsa.kernel(hsa.load(), "add_one")
    queue = hsa.queue()
    queue.dispatch(kernel, hsa.kernarg(add_one(1, zeros(hsa, 1))))
    queue.barrier(after=[hsa.signal()])
    time.sleep(0.05)
    wakes = hsa.dll.uhal_sim_wakes()
    time.sleep(0.2)
    assert hsa.dll.uhal_sim_wakes() == wakes


# Fences


@pytest.mark.parametrize(
    ("release", "acquire", "seen"),
    [
        (SYSTEM, SYSTEM, True),
        (AGENT, AGENT, True),
        (AGENT, SYSTEM, True),
        (NONE, SYSTEM, False),
        (AGENT, NONE, False),
        (NONE, NONE, False),
    ],
)
def test_a_kernel_sees_what_the_kernel_before_it_wrote(
    open_hsa: OpenHsa, release: int, acquire: int, seen: bool
) -> None:
    hsa = open_hsa()
    kernel = hsa.kernel(hsa.load(), "add_one")
    arguments = hsa.kernarg(add_one(8, zeros(hsa, 8)))
    queue = hsa.queue()
    queue.dispatch(kernel, arguments, start=header(DISPATCH, release=release), ring=False)
    queue.dispatch(kernel, arguments, start=header(DISPATCH, acquire=acquire))
    if seen:
        queue.drain()
    else:
        status, words = queue.error()
        assert status == CONSTANT["HSA_STATUS_ERROR_EXCEPTION"]
        assert "argument 1 may be old: what" in words
        assert ("not released to the agent" if release == NONE else "not acquired") in words


def test_arguments_need_an_acquire_from_the_system(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    kernel = hsa.kernel(hsa.load(), "add_one")
    address = zeros(hsa, 8)
    near = header(DISPATCH, acquire=AGENT)
    queue = hsa.queue()
    # A packet announced together with an acquiring packet may rely on that acquire.
    queue.barrier(ring=False)
    queue.dispatch(kernel, hsa.kernarg(add_one(8, address)), start=near)
    queue.drain()
    # A later packet may not rely on it: arguments could have been written in between.
    queue.dispatch(kernel, hsa.kernarg(add_one(8, address)), start=near)
    status, words = queue.error()
    assert status == CONSTANT["HSA_STATUS_ERROR_EXCEPTION"]
    assert "its arguments may be old" in words


def test_a_copy_needs_a_release_to_the_system(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    (gpu,) = hsa.gpus
    kernel = hsa.kernel(hsa.load(), "add_one")
    memory = zeros(hsa, 64)
    host, _ = hsa.host(64)
    arguments = hsa.kernarg(add_one(8, memory + 64))
    queue = hsa.queue()
    done = hsa.signal()
    queue.dispatch(kernel, arguments, start=header(DISPATCH, release=AGENT), done=done)
    hsa.finish(done)
    early = hsa.copy(host, hsa.cpu, memory, gpu, 256)
    assert hsa.wait(early, below=0) == -1
    assert "not released to the system" in hsa.message()
    with pytest.raises(Failure, match="EXCEPTION: a copy may read what is old"):
        hsa.download(memory, 64)
    # Stale bytes outside the copy do not matter, and a barrier packet releases them.
    hsa.finish(hsa.copy(host, hsa.cpu, memory, gpu, 64))
    queue.drain()
    hsa.finish(hsa.copy(host, hsa.cpu, memory, gpu, 256))


@pytest.mark.parametrize("acquire", [AGENT, SYSTEM])
def test_a_kernel_needs_an_acquire_after_a_copy(open_hsa: OpenHsa, acquire: int) -> None:
    hsa = open_hsa()
    kernel = hsa.kernel(hsa.load(), "copy_it")
    source, target = zeros(hsa, 64), zeros(hsa, 64)
    host, data = hsa.host(64)
    data[:] = 5
    queue = hsa.queue()
    passed, gate, done = hsa.signal(), hsa.signal(), hsa.signal()
    # The packets are announced together, so the arguments are valid; the acquire precedes the copy.
    queue.barrier(passed, ring=False)
    queue.barrier(after=[gate], start=header(BARRIER_AND, acquire=NONE), ring=False)
    arguments = hsa.kernarg(struct.pack("<QQQ", 64, source, target))
    queue.dispatch(kernel, arguments, start=header(DISPATCH, acquire=acquire), done=done)
    hsa.finish(passed)
    hsa.finish(hsa.copy(source, hsa.gpus[0], host, hsa.cpu, 256))
    hsa.call.hsa_signal_store_screlease(gate, 0)
    if acquire == SYSTEM:
        hsa.finish(done)
        assert (hsa.download(target, 64) == 5).all()
    else:
        assert "argument 1 may be old: what lies at" in queue.error()[1]


def test_another_queue_takes_over_what_it_acquired(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    kernel = hsa.kernel(hsa.load(), "add_one")
    memory = zeros(hsa, 8)
    first, second = hsa.queue(), hsa.queue()
    done = hsa.signal()
    arguments = hsa.kernarg(add_one(8, memory))
    first.dispatch(kernel, arguments, start=header(DISPATCH, release=AGENT), done=done)
    second.barrier(after=[done])
    hsa.finish(done)
    second.drain()
    assert (hsa.download(memory, 8) == 1).all()


# Times


def test_profiled_packets_and_copies_have_times(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    (gpu,) = hsa.gpus
    kernel = hsa.kernel(hsa.load(), "add_one")
    memory = zeros(hsa, 64)
    host, _ = hsa.host(64)
    times = HEADER.ctype("hsa_amd_profiling_dispatch_time_t")()
    copy_times = HEADER.ctype("hsa_amd_profiling_async_copy_time_t")()
    queue = hsa.queue()
    unprofiled = hsa.signal()
    queue.barrier(unprofiled)
    hsa.finish(unprofiled)
    dispatch_time = hsa.call.hsa_amd_profiling_get_dispatch_time
    with pytest.raises(Failure, match="nothing that was profiled"):
        dispatch_time(gpu, unprofiled, ctypes.byref(times))
    hsa.call.hsa_amd_profiling_set_profiler_enabled(queue.pointer, 1)
    stamps = [timestamp(hsa)]
    signals = [hsa.signal() for _ in range(3)]
    queue.barrier(signals[0])
    queue.dispatch(kernel, hsa.kernarg(add_one(64, memory)), done=signals[1])
    queue.barrier(signals[2])
    hsa.finish(signals[2])
    for signal in signals:
        dispatch_time(gpu, signal, ctypes.byref(times))
        stamps += [times.start, times.end]
        assert times.start < times.end
    stamps.append(timestamp(hsa))
    assert stamps[0] <= stamps[1]
    assert stamps[2] <= stamps[4] <= stamps[6]
    hsa.call.hsa_amd_profiling_async_copy_enable(True)
    done = hsa.copy(host, hsa.cpu, memory, gpu, 256)
    hsa.finish(done)
    hsa.call.hsa_amd_profiling_get_async_copy_time(done, ctypes.byref(copy_times))
    assert stamps[-1] <= copy_times.start < copy_times.end
    with pytest.raises(Failure, match="nothing that was profiled"):
        dispatch_time(gpu, done, ctypes.byref(times))
    converted = ctypes.c_uint64()
    convert = hsa.call.hsa_amd_profiling_convert_tick_to_system_domain
    convert(gpu, 12345, ctypes.byref(converted))
    assert converted.value == 12345


def timestamp(hsa: Hsa) -> int:
    value, frequency = ctypes.c_uint64(), ctypes.c_uint64()
    hsa.call.hsa_system_get_info(CONSTANT["HSA_SYSTEM_INFO_TIMESTAMP"], ctypes.byref(value))
    hsa.call.hsa_system_get_info(
        CONSTANT["HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY"], ctypes.byref(frequency)
    )
    assert frequency.value == 10**8
    return value.value


def test_several_queues_and_threads_lose_nothing(open_hsa: OpenHsa, schedule: str) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    kernel = hsa.kernel(hsa.load(), "add_one")
    queues: list[Queue] = [hsa.queue() for _ in range(4)]
    rounds = 300 if SOAK else 40
    address = zeros(hsa, len(queues))

    def work(number: int) -> None:
        queue = queues[number]
        arguments = hsa.kernarg(add_one(1, address + 4 * number))
        done = hsa.signal()
        for turn in itertools.count(1):
            queue.dispatch(kernel, arguments)
            if turn % 10 == 0:
                hsa.call.hsa_signal_store_relaxed(done, 1)
                queue.barrier(done)
                hsa.finish(done)
            if turn == 10 * rounds:
                return

    together = [threading.Thread(target=work, args=(number,)) for number in range(len(queues))]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert (hsa.download(address, len(queues)) == 10 * rounds).all()
