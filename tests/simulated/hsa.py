"""Drives an HSA runtime through ctypes, as the backend's header declares it."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import hsaco_writer
from tests.hsaco_writer import Argument, Kernel
from uhal.abi import Header, Library

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "simulators" / "build" / "libhsa-runtime64.so.1"
HEADER = Header.load(ROOT / "rocm_backend" / "abi.h")
CONSTANT = HEADER.constants
FOR_EVER = 2**64 - 1
PATIENCE = 20.0
"""Seconds that a test waits for an expected event."""

FINE = CONSTANT["HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED"]
COARSE = CONSTANT["HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED"]
KERNARG = CONSTANT["HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT"] | FINE

NONE, AGENT, SYSTEM = range(3)
DISPATCH = CONSTANT["HSA_PACKET_TYPE_KERNEL_DISPATCH"]
BARRIER_AND = CONSTANT["HSA_PACKET_TYPE_BARRIER_AND"]
BARRIER_OR = CONSTANT["HSA_PACKET_TYPE_BARRIER_OR"]

SOURCE = """
#include <uhal/kernel.h>
DEVICE_GLOBAL(u32, table, 4);
KERNEL(add_one, (u64 n, f32 *values)) { GRID_STRIDE(i, n) { values[i] += 1.0f; } }
KERNEL(double_it, (u64 n, f32 *values)) { GRID_STRIDE(i, n) { values[i] *= 2.0f; } }
KERNEL(scale, (f32 *values, u32 n, f64 by)) { GRID_STRIDE(i, n) { values[i] *= f32(by); } }
KERNEL(copy_it, (u64 n, const f32 *from, f32 *to)) { GRID_STRIDE(i, n) { to[i] = from[i]; } }
KERNEL(read_table, (u32 *out)) { GRID_STRIDE(i, 4) { out[i] = table[i]; } }
KERNEL(differs, (u32 *out)) { GRID_STRIDE(i, 1) { out[i] = 0; } }
KERNEL(spills, (u32 *out)) { GRID_STRIDE(i, 1) { out[i] = 7; } }
KERNEL_BOUNDED(narrow, 64, (u32 *out)) { GRID_STRIDE(i, 1) { out[i] = 0; } }
"""

POINTER = "global_buffer"
KERNELS = (
    Kernel("add_one", [Argument(0, 8), Argument(8, 8, POINTER)], 16),
    Kernel("double_it", [Argument(0, 8), Argument(8, 8, POINTER)], 16),
    Kernel("scale", [Argument(0, 8, POINTER), Argument(8, 4), Argument(16, 8)], 24),
    Kernel("copy_it", [Argument(0, 8), Argument(8, 8, POINTER), Argument(16, 8, POINTER)], 24),
    Kernel("read_table", [Argument(0, 8, POINTER)], 8),
    Kernel("narrow", [Argument(0, 8, POINTER)], 8, max_group=64),
    Kernel("spills", [Argument(0, 8, POINTER)], 8, private=64, group=512),
    Kernel("nowhere", [Argument(0, 8, POINTER)], 8),
    Kernel("differs", [Argument(0, 8, POINTER), Argument(8, 4)], 12),
)
"""`nowhere` has no host build; the host build of `differs` has other arguments."""


class Failure(Exception):
    """A function of the runtime returned an error."""

    def __init__(self, call: str, text: str) -> None:
        super().__init__(f"{call}: {text}")


class AnyHsa:
    """An HSA runtime of any vendor."""

    def __init__(self, path: Path) -> None:
        self.dll = ctypes.CDLL(str(path))
        self.call = Library(self.dll, str(path), HEADER, status="hsa_status_t", check=self.check)
        self.kept: list[Any] = []

    def check(self, call: str, code: int) -> None:
        text = ctypes.c_char_p()
        self.dll.hsa_status_string(code, ctypes.byref(text))
        raise Failure(call, (text.value or b"?").decode())

    def status(self, function: str, *arguments: Any) -> int:
        """Call a function and return its status."""
        return int(self.call.unchecked(function)(*arguments))

    def make(self, function: str, kind: str, *arguments: Any) -> Any:
        """Call a function whose last parameter receives a new handle."""
        made = HEADER.ctype(kind)()
        getattr(self.call, function)(*arguments, ctypes.byref(made))
        return made

    def open(self) -> None:
        self.call.hsa_init()
        frequency = ctypes.c_uint64()
        attribute = CONSTANT["HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY"]
        self.call.hsa_system_get_info(attribute, ctypes.byref(frequency))
        self.frequency = frequency.value
        agents = self.visit("hsa_agent_callback_t", self.call.hsa_iterate_agents)
        device = CONSTANT["HSA_AGENT_INFO_DEVICE"]
        kinds = [self.info("hsa_agent_get_info", one, device, ctypes.c_int32) for one in agents]
        self.cpu = agents[kinds.index(CONSTANT["HSA_DEVICE_TYPE_CPU"])]
        self.gpus = [one for one, kind in zip(agents, kinds, strict=True) if kind == 1]

    def visit(self, callback: str, iterate: Callable[..., Any], *before: Any) -> list[Any]:
        found: list[Any] = []

        def visitor(*arguments: Any) -> int:
            found.append(type(arguments[-2])(arguments[-2].handle))
            return 0

        iterate(*before, HEADER.ctype(callback)(visitor), None)
        return found

    def info(self, function: str, handle: Any, attribute: int, of: type[Any]) -> Any:
        value = of()
        getattr(self.call, function)(handle, attribute, ctypes.byref(value))
        return value.value

    def pool(self, agent: Any, flags: int) -> Any:
        call = "hsa_amd_memory_pool_get_info"
        pools = self.visit(
            "hsa_amd_memory_pool_callback_t", self.call.hsa_amd_agent_iterate_memory_pools, agent
        )
        for pool in pools:
            segment = self.info(call, pool, 0, ctypes.c_uint32)
            if segment == 0 and self.info(call, pool, 1, ctypes.c_uint32) == flags:
                return pool
        raise AssertionError(f"no pool with flags {flags}")

    def allocate(self, agent: Any, flags: int, size: int, *allowed: Any) -> int:
        pool = self.pool(agent, flags)
        pointer = ctypes.c_void_p()
        self.call.hsa_amd_memory_pool_allocate(pool, size, 0, ctypes.byref(pointer))
        if allowed:
            self.allow(pointer.value or 0, *allowed)
        return pointer.value or 0

    def allow(self, address: int, *agents: Any) -> None:
        list_of = (HEADER.ctype("hsa_agent_t") * len(agents))(*agents)
        self.call.hsa_amd_agents_allow_access(len(agents), list_of, None, address)

    def vram(self, size: int, gpu: int = 0) -> int:
        return self.allocate(self.gpus[gpu], COARSE, size)

    def host(self, count: int, gpu: int = 0) -> tuple[int, np.ndarray[Any, Any]]:
        """Return host memory that a GPU may use, and an f32 array over it."""
        address = self.allocate(self.cpu, FINE, 4 * count, self.gpus[gpu])
        return address, np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))

    def signal(self, value: int = 1) -> Any:
        return self.make("hsa_signal_create", "hsa_signal_t", value, 0, None)

    def value(self, signal: Any) -> int:
        return int(self.call.hsa_signal_load_scacquire(signal))

    def wait(self, signal: Any, below: int = 1, seconds: float = PATIENCE) -> int:
        condition = CONSTANT["HSA_SIGNAL_CONDITION_LT"]
        timeout = int(seconds * self.frequency)
        return int(self.call.hsa_signal_wait_scacquire(signal, condition, below, timeout, 0))

    def finish(self, signal: Any) -> None:
        assert self.wait(signal) == 0, self.message()

    def load(self, image: bytes | None = None, gpu: int = 0, freeze: bool = True) -> Any:
        image = hsaco_writer.write(KERNELS) if image is None else image
        reader = self.make(
            "hsa_code_object_reader_create_from_memory",
            "hsa_code_object_reader_t",
            image,
            len(image),
        )
        executable = self.make("hsa_executable_create_alt", "hsa_executable_t", 1, 0, None)
        try:
            self.call.hsa_executable_load_agent_code_object(
                executable, self.gpus[gpu], reader, None, None
            )
            if freeze:
                self.call.hsa_executable_freeze(executable, None)
        except Failure:
            self.call.hsa_executable_destroy(executable)
            raise
        finally:
            self.call.hsa_code_object_reader_destroy(reader)
        return executable

    def symbol(self, executable: Any, name: str, gpu: int = 0) -> Any:
        return self.make(
            "hsa_executable_get_symbol_by_name",
            "hsa_executable_symbol_t",
            executable,
            name.encode(),
            ctypes.byref(self.gpus[gpu]),
        )

    def kernel(self, executable: Any, name: str, gpu: int = 0) -> int:
        symbol = self.symbol(executable, f"{name}.kd", gpu)
        attribute = CONSTANT["HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT"]
        return int(self.info("hsa_executable_symbol_get_info", symbol, attribute, ctypes.c_uint64))

    def queue(self, gpu: int = 0, size: int = 64, kind: int = 0) -> Queue:
        return Queue(self, self.gpus[gpu], size, kind)

    def kernarg(self, values: bytes, gpu: int = 0) -> int:
        address = self.allocate(self.cpu, KERNARG, max(len(values), 1), self.gpus[gpu])
        ctypes.memmove(address, values, len(values))
        return address

    def copy(
        self,
        to: int,
        to_agent: Any,
        source: int,
        from_agent: Any,
        size: int,
        after: Sequence[Any] = (),
    ) -> Any:
        """Start a copy; return its completion signal."""
        done = self.signal()
        dependencies = (HEADER.ctype("hsa_signal_t") * len(after))(*after) if after else None
        self.call.hsa_amd_memory_async_copy(
            to, to_agent, source, from_agent, size, len(after), dependencies, done
        )
        return done

    def upload(self, address: int, data: np.ndarray[Any, Any]) -> None:
        self.call.hsa_memory_copy(address, data.ctypes.data, data.nbytes)

    def download(self, address: int, count: int) -> np.ndarray[Any, Any]:
        data = np.full(count, np.nan, np.float32)
        self.call.hsa_memory_copy(data.ctypes.data, address, data.nbytes)
        return data

    def message(self) -> str:
        """Return the runtime's text about its last refusal, in addition to the status."""
        return ""

    def on_event(self) -> list[tuple[int, int, int, int]]:
        """Note memory faults from now on: type, agent, address, reason."""
        events: list[tuple[int, int, int, int]] = []

        def note(event: Any, _: Any) -> int:
            fault = event.contents.memory_fault
            events.append(
                (
                    event.contents.event_type,
                    fault.agent.handle,
                    fault.virtual_address,
                    fault.fault_reason_mask,
                )
            )
            return 0

        handler = HEADER.ctype("hsa_amd_system_event_callback_t")(note)
        self.kept.append(handler)
        self.call.hsa_amd_register_system_event_handler(handler, None)
        return events


class Hsa(AnyHsa):
    """One instance of the simulated runtime: a library of its own, settings of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.dll.uhal_sim_live.restype = ctypes.c_long
        self.dll.uhal_sim_wakes.restype = ctypes.c_uint64
        self.dll.uhal_sim_message.restype = ctypes.c_char_p

    def live(self, kind: str) -> int:
        return int(self.dll.uhal_sim_live(kind.encode()))

    def fail(self, call: str, nth: int, code: int) -> None:
        self.dll.uhal_sim_fail(call.encode(), nth, code)

    def message(self) -> str:
        return str(self.dll.uhal_sim_message().decode())


def header(kind: int, barrier: bool = True, acquire: int = SYSTEM, release: int = SYSTEM) -> int:
    return kind | barrier << 8 | acquire << 9 | release << 11


class Queue:
    """A queue, the errors it reported, and packets for it."""

    def __init__(self, hsa: AnyHsa, agent: Any, size: int, kind: int) -> None:
        self.hsa = hsa
        self.errors: list[tuple[int, str]] = []
        self.failed = threading.Event()
        self.lock = threading.Lock()

        def note(status: int, _: Any, __: Any) -> None:
            self.errors.append((status, hsa.message()))
            self.failed.set()

        self.callback = HEADER.ctype("hsa_queue_callback_t")(note)
        self.pointer = ctypes.POINTER(HEADER.ctype("hsa_queue_t"))()
        hsa.call.hsa_queue_create(
            agent, size, kind, self.callback, None, 2**32 - 1, 2**32 - 1, ctypes.byref(self.pointer)
        )
        self.packets = self.pointer.contents.base_address
        self.size = size
        self.doorbell = self.pointer.contents.doorbell_signal

    def write(self, body: bytes, start: int) -> int:
        """Reserve a slot, wait until it is free and write a packet; return its index."""
        call = self.hsa.call
        index = int(call.hsa_queue_add_write_index_screlease(self.pointer, 1))
        while index - call.hsa_queue_load_read_index_scacquire(self.pointer) >= self.size:
            assert not self.errors, self.errors
        slot = self.packets + index % self.size * 64
        assert len(body) == 60
        ctypes.memmove(slot + 4, body, 60)
        ctypes.c_uint32.from_address(slot).value = start
        return index

    def ring(self, index: int) -> None:
        self.hsa.call.hsa_signal_store_screlease(self.doorbell, index)

    def submit(self, body: bytes, start: int, *, ring: bool = True) -> int:
        with self.lock:
            index = self.write(body, start)
            if ring:
                self.ring(index)
            return index

    def dispatch(
        self,
        kernel: int,
        kernarg: int,
        *,
        grid: tuple[int, int, int] = (128, 1, 1),
        group: tuple[int, int, int] = (64, 1, 1),
        dimensions: int = 3,
        done: Any = None,
        start: int | None = None,
        private: int = 0,
        lds: int = 0,
        reserved: tuple[int, int] = (0, 0),
        ring: bool = True,
    ) -> int:
        body = struct.pack(
            "<4H5IQQQQ",
            *(*group, reserved[0], *grid, private, lds, kernel, kernarg, reserved[1]),
            done.handle if done is not None else 0,
        )
        start = header(DISPATCH) if start is None else start
        return self.submit(body, start | dimensions << 16, ring=ring)

    def barrier(
        self,
        done: Any = None,
        after: Sequence[Any] = (),
        *,
        start: int | None = None,
        reserved: int = 0,
        ring: bool = True,
    ) -> int:
        handles = [one.handle for one in after] + [0] * (5 - len(after))
        completion = done.handle if done is not None else 0
        body = struct.pack("<I5QQQ", 0, *handles, reserved, completion)
        return self.submit(body, header(BARRIER_AND) if start is None else start, ring=ring)

    def drain(self) -> None:
        """Wait for everything submitted, and release it to the system."""
        done = self.hsa.signal()
        self.barrier(done)
        self.hsa.finish(done)
        self.hsa.call.hsa_signal_destroy(done)

    def error(self) -> tuple[int, str]:
        """Return the error that the queue must have reported."""
        assert self.failed.wait(20), "the queue reported no error"
        return self.errors[0]


def add_one(count: int, address: int) -> bytes:
    """The arguments of `add_one` and of `double_it`."""
    return struct.pack("<QQ", count, address)
