"""Programs that use AMD's runtime itself: queues, signals, pools, executables."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from tests.simulated.hsa import (
    BARRIER_OR,
    COARSE,
    CONSTANT,
    FINE,
    HEADER,
    KERNARG,
    AnyHsa,
    header,
)


def opened() -> AnyHsa:
    hsa = AnyHsa(Path(os.environ["UHAL_ROCM_LIBRARY"]))
    hsa.open()
    return hsa


def pools(seed: int) -> None:
    """Check that each kind of memory exists, is writable as described, and is known by address."""
    hsa = opened()
    rng = np.random.default_rng(seed)
    gpu, cpu = hsa.gpus[0], hsa.cpu
    for agent, flags in ((cpu, FINE), (cpu, COARSE), (cpu, KERNARG), (gpu, COARSE)):
        size = int(rng.integers(1, 1 << 22))
        address = hsa.allocate(agent, flags, size)
        if agent is cpu:
            hsa.allow(address, gpu)
        values = rng.integers(0, 256, size).astype(np.uint8)
        ctypes.memmove(address, values.ctypes.data, size)
        assert ctypes.string_at(address, size) == values.tobytes()
        assert owner(hsa, address + size // 2) == agent.handle
        hsa.call.hsa_amd_memory_pool_free(address)
    elsewhere = ctypes.create_string_buffer(64)
    assert owner(hsa, ctypes.addressof(elsewhere)) is None


def owner(hsa: AnyHsa, address: int) -> int | None:
    """Return the agent of the memory at an address, or `None` if the runtime does not know it."""
    info = HEADER.ctype("hsa_amd_pointer_info_t")()
    info.size = ctypes.sizeof(info)
    nothing = HEADER.argtypes("hsa_amd_pointer_info")[2]()
    hsa.call.hsa_amd_pointer_info(address, ctypes.byref(info), nothing, None, None)
    known = info.type == CONSTANT["HSA_EXT_POINTER_TYPE_HSA"]
    return int(info.agentOwner.handle) if known else None


def signals() -> None:
    """Values change, waits end, and handlers are called on the runtime's thread."""
    hsa = opened()
    signal = hsa.signal(3)
    hsa.call.hsa_signal_store_screlease(signal, 2)
    assert (hsa.value(signal), hsa.wait(signal, below=3)) == (2, 2)
    hsa.call.hsa_signal_destroy(signal)
    for _ in range(100):
        handle(hsa, hsa.signal(1))


def handle(hsa: AnyHsa, signal: Any) -> None:
    called: list[tuple[int, int]] = []
    done = threading.Event()

    def handler(value: int, _: Any) -> bool:
        called.append((value, threading.get_ident()))
        done.set()
        return False

    kept = HEADER.ctype("hsa_amd_signal_handler")(handler)
    less = CONSTANT["HSA_SIGNAL_CONDITION_LT"]
    hsa.call.hsa_amd_signal_async_handler(signal, less, 1, kept, None)
    assert not called
    hsa.call.hsa_signal_store_screlease(signal, 0)
    assert done.wait(20)
    assert [value for value, _ in called] == [0] and called[0][1] != threading.get_ident()
    hsa.call.hsa_signal_destroy(signal)
    hsa.kept.append(kept)


def queues() -> int:
    """Order queues by barrier packets; return the number of packets unknown to the device."""
    hsa = opened()
    first, second = hsa.queue(size=64), hsa.queue(size=64)
    held, early, late, either = (hsa.signal() for _ in range(4))
    second.barrier(late, after=[held, early])
    first.barrier(early)
    hsa.finish(early)
    assert hsa.wait(late, seconds=0.01) == 1, "it did not wait for the other signal"
    hsa.call.hsa_signal_store_screlease(held, 0)
    hsa.finish(late)
    never = hsa.signal()
    second.barrier(either, after=[never, early], start=header(BARRIER_OR))
    hsa.finish(either)
    # The packets exceed the size of the queue.
    for _ in range(200):
        first.barrier()
    first.drain()
    # The queues are not destroyed: over a model the runtime sometimes waits forever for its own
    # handler of the queue's errors.
    assert not first.errors and not second.errors
    for signal in (held, early, late, either, never):
        hsa.call.hsa_signal_destroy(signal)
    return int(ctypes.CDLL(os.environ["HSA_MODEL_LIB"]).model_unknown_packets())
