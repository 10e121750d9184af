"""The packet writer and a device in memory: every byte, full rings, threads, failures."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.host_runtime.driver import ROOT
from tests.requirements import missing
from tests.sampling import rounds

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
INCLUDES = [ROOT / "rocm_backend" / "runtime", ROOT / "cython_src", ROOT / "rocm_backend"]
INVALID_ARGUMENT = 0x1001
MEMORY_FAULT = 0x2B
TIMEOUT = -2
LAUNCH = 0x0003_0D02
BARRIER = 0x1503
PACKET = struct.Struct("<IHHHHIIIIIQQQQ")
DISPATCH = (
    *("start", "block_x", "block_y", "block_z", "reserved0", "grid_x", "grid_y", "grid_z"),
    *("private", "group", "object", "kernarg", "reserved2", "completion"),
)
BLOCK_COUNT_X, BLOCK_SIZE_X, GRID_DIMENSIONS, DYNAMIC_GROUP_BYTES, QUEUE = 0, 3, 6, 7, 8


class Parameter(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("is_pointer", ctypes.c_uint32),
    )


class Hidden(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("offset", ctypes.c_uint32))


class Kernel(ctypes.Structure):
    _fields_ = (
        ("object", ctypes.c_uint64),
        ("kernarg_bytes", ctypes.c_uint32),
        ("group_bytes", ctypes.c_uint32),
        ("private_bytes", ctypes.c_uint32),
        ("parameter_count", ctypes.c_uint32),
        ("parameters", ctypes.POINTER(Parameter)),
        ("hidden_count", ctypes.c_uint32),
        ("hidden", ctypes.POINTER(Hidden)),
    )


class Geometry(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
    )


class Position(ctypes.Structure):
    _fields_ = (("index", ctypes.c_uint64), ("launch", ctypes.c_uint64))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if CC is None:
        missing("no C compiler")
    made = tmp_path_factory.mktemp("aql") / "libaql.so"
    writer = [INCLUDES[0] / name for name in ("aql.c", "aql_packet.c")]
    sources = [*writer, Path(__file__).parent / "aql_device.c"]
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-shared", "-fPIC"]
    include = [f"-I{folder}" for folder in INCLUDES]
    subprocess.run([CC, *flags, *include, *map(str, sources), "-pthread", "-o", made], check=True)
    loaded = ctypes.CDLL(str(made))
    for name in ("device_open", "device_packets", "device_queue"):
        getattr(loaded, name).restype = ctypes.c_void_p
    loaded.device_complaint.restype = ctypes.c_char_p
    loaded.device_doorbell.restype = ctypes.c_int64
    loaded.uhal_aql_waiting.restype = ctypes.c_uint64
    loaded.device_open.argtypes = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
    return loaded


class Device:
    """A queue and its writer; the device takes packets once it is started."""

    def __init__(self, library: ctypes.CDLL, packets: int, kernarg: int, deadline: float) -> None:
        self.library = library
        self.position = Position()
        self.writer = ctypes.c_void_p(library.device_open(packets, kernarg, int(deadline * 1e9)))
        assert self.writer

    def start(self) -> None:
        self.library.device_start()

    def launch(
        self,
        kernel: Kernel,
        values: Sequence[Any] = (),
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (64, 1, 1),
        shared: int = 0,
        completion: ctypes.c_int64 | None = None,
    ) -> int:
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        geometry = Geometry((ctypes.c_uint32 * 3)(*grid), (ctypes.c_uint32 * 3)(*block), shared)
        return int(
            self.library.uhal_aql_launch(
                self.writer,
                ctypes.byref(kernel),
                ctypes.byref(geometry),
                pointers,
                _signal(completion),
                ctypes.byref(self.position),
            )
        )

    def barrier(
        self, dependencies: Sequence[ctypes.c_int64] = (), completion: ctypes.c_int64 | None = None
    ) -> int:
        signals = (ctypes.c_uint64 * len(dependencies))(*map(ctypes.addressof, dependencies))
        call = self.library.uhal_aql_barrier
        position = ctypes.byref(self.position)
        return int(call(self.writer, signals, len(dependencies), _signal(completion), position))

    def packet(self, index: int) -> tuple[int, ...]:
        data = ctypes.string_at(self.library.device_packets() + 64 * index, PACKET.size)
        return PACKET.unpack(data)

    def complaint(self) -> str:
        return str(self.library.device_complaint().decode())


def _signal(value: ctypes.c_int64 | None) -> ctypes.c_uint64:
    return ctypes.c_uint64(0 if value is None else ctypes.addressof(value))


def kernel(
    parameters: Sequence[tuple[int, int]] = (), hidden: Sequence[tuple[int, int]] = (), **facts: int
) -> Kernel:
    rows = (Parameter * len(parameters))(*((*one, 0) for one in parameters))
    kinds = (Hidden * len(hidden))(*hidden)
    made = Kernel(parameter_count=len(rows), hidden_count=len(kinds), **facts)
    made.parameters, made.hidden = rows, kinds
    return made


@pytest.fixture
def open_device(library: ctypes.CDLL) -> Iterator[Any]:
    opened: list[Device] = []

    def make(packets: int = 64, kernarg: int = 1 << 16, deadline: float = 30) -> Device:
        opened.append(Device(library, packets, kernarg, deadline))
        return opened[-1]

    yield make
    complaints = [device.complaint() for device in opened]
    library.device_close()
    assert complaints == [""]


def test_every_byte_of_a_launch(open_device: Any) -> None:
    device = open_device()
    completion = ctypes.c_int64(1)
    # The arguments are not in the order of their offsets, and there is a gap.
    takes = kernel(
        [(16, 4), (0, 8), (10, 2)],
        object=0x1234_5678_9ABC,
        kernarg_bytes=24,
        group_bytes=100,
        private_bytes=12,
    )
    values = [ctypes.c_float(1.5), ctypes.c_uint64(1 << 63), ctypes.c_uint16(7)]
    assert device.launch(takes, values, (3, 2, 5), (64, 4, 2), 1000, completion) == 0
    packet = dict(zip(DISPATCH, device.packet(0), strict=True))
    kernarg = packet.pop("kernarg")
    assert packet == {
        **{"start": LAUNCH, "block_x": 64, "block_y": 4, "block_z": 2, "reserved0": 0},
        **{"grid_x": 192, "grid_y": 8, "grid_z": 10, "private": 12, "group": 1100},
        **{"object": 0x1234_5678_9ABC, "reserved2": 0},
        "completion": ctypes.addressof(completion),
    }
    assert kernarg % 64 == 0
    expected = struct.pack("<QHHIfI", 1 << 63, 0, 7, 0, 1.5, 0)
    assert ctypes.string_at(kernarg, 24) == expected
    # The launch must not write the following bytes, which belong to the next launch.
    assert ctypes.string_at(kernarg + 24, 40) == b"\xee" * 40
    assert device.library.device_doorbell() == 0
    assert device.library.uhal_aql_waiting(device.writer) == 1
    assert device.launch(takes, values) == 0
    assert device.packet(1)[11] == kernarg + 64
    assert (device.library.device_doorbell(), device.library.device_doorbells()) == (1, 2)


def test_hidden_arguments(open_device: Any) -> None:
    device = open_device()
    sizes = [(BLOCK_SIZE_X + axis, 20 + 2 * axis) for axis in range(3)]
    counts = [(BLOCK_COUNT_X + axis, 8 + 4 * axis) for axis in range(3)]
    rest = [(GRID_DIMENSIONS, 72), (DYNAMIC_GROUP_BYTES, 128), (QUEUE, 208)]
    takes = kernel([(0, 8)], [*counts, *sizes, *rest], kernarg_bytes=264)
    assert device.launch(takes, [ctypes.c_uint64(9)], (70_000, 3, 2), (256, 2, 1), 4096) == 0
    memory = ctypes.string_at(device.packet(0)[11], 264)
    assert struct.unpack_from("<QIII3H", memory) == (9, 70_000, 3, 2, 256, 2, 1)
    assert struct.unpack_from("<H", memory, 72) == (3,)
    assert struct.unpack_from("<I", memory, 128) == (4096,)
    assert struct.unpack_from("<Q", memory, 208) == (device.library.device_queue(),)
    known = {*range(26), 72, 73, *range(128, 132), *range(208, 216)}
    assert not any(value for index, value in enumerate(memory) if index not in known)


@pytest.mark.parametrize(
    ("grid", "block", "shared", "accepted"),
    [
        ((1 << 24, 1, 1), (255, 1, 1), 0, True),
        ((1 << 24, 1, 1), (256, 1, 1), 0, False),
        ((1, 1 << 31, 1), (1, 2, 1), 0, False),
        ((1, 1, 0xFFFF_FFFF), (1, 1, 1), 0, True),
        ((1, 1, 1), (0xFFFF, 1, 1), 0, True),
        ((1, 1, 1), (1, 0x1_0000, 1), 0, False),
        ((0, 1, 1), (1, 1, 1), 0, False),
        ((1, 1, 1), (1, 1, 0), 0, False),
        ((1, 1, 1), (1, 1, 1), 0xFFFF_FFFF - 99, False),
        ((1, 1, 1), (1, 1, 1), 0xFFFF_FFFF - 100, True),
    ],
)
def test_what_a_packet_cannot_say_is_refused(
    open_device: Any,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    accepted: bool,
) -> None:
    device = open_device()
    status = device.launch(kernel(group_bytes=100), (), grid, block, shared)
    assert status == (0 if accepted else INVALID_ARGUMENT)
    assert device.library.uhal_aql_waiting(device.writer) == accepted


def test_arguments_larger_than_a_piece_are_refused(open_device: Any) -> None:
    device = open_device(kernarg=4 * 1024)
    assert device.library.uhal_aql_largest_kernarg(device.writer) == 1024
    assert device.launch(kernel(kernarg_bytes=1024)) == 0
    assert device.launch(kernel(kernarg_bytes=1025)) == INVALID_ARGUMENT


def test_arguments_go_where_they_were_once_everything_is_done(open_device: Any) -> None:
    device = open_device(kernarg=4 * 256)
    completed = device.library.uhal_aql_completed

    def offset_of(index: int) -> int:
        assert device.launch(kernel(kernarg_bytes=64)) == 0
        return device.packet(index)[11] - start

    start = 0
    start = offset_of(0)
    completed(device.writer, ctypes.c_uint64(1))
    assert offset_of(1) == 0
    # Pending packets may still read their arguments.
    completed(device.writer, ctypes.c_uint64(1))
    assert offset_of(2) == 64
    completed(device.writer, ctypes.c_uint64(2))
    assert offset_of(3) == 128
    completed(device.writer, ctypes.c_uint64(4))
    assert offset_of(4) == 0


def test_a_barrier_waits_for_any_number_of_signals(open_device: Any) -> None:
    device = open_device()
    signals = [ctypes.c_int64(1) for _ in range(12)]
    completion = ctypes.c_int64(1)
    assert device.barrier(signals, completion) == 0
    addresses = [ctypes.addressof(one) for one in signals]
    layout = struct.Struct("<II5QQQ")
    found = [layout.unpack(PACKET.pack(*device.packet(index))) for index in range(3)]
    assert [one[0] for one in found] == [BARRIER] * 3
    assert [one[2:7] for one in found] == [
        tuple(addresses[:5]),
        tuple(addresses[5:10]),
        (*addresses[10:], 0, 0, 0),
    ]
    assert [one[8] for one in found] == [0, 0, ctypes.addressof(completion)]
    device.start()
    for signal in signals[:-1]:
        signal.value = 0
    time.sleep(0.01)
    assert completion.value == 1
    signals[-1].value = 0
    wait_for(lambda: completion.value == 0)


def test_a_batch_rings_once(open_device: Any) -> None:
    device = open_device()
    library = device.library
    library.uhal_aql_begin_batch(device.writer)
    library.uhal_aql_begin_batch(device.writer)
    for _ in range(10):
        assert device.launch(kernel()) == 0
    library.uhal_aql_end_batch(device.writer)
    assert library.device_doorbells() == 0
    library.uhal_aql_end_batch(device.writer)
    assert (library.device_doorbells(), library.device_doorbell()) == (1, 9)
    # An empty batch rings no doorbell.
    library.uhal_aql_begin_batch(device.writer)
    library.uhal_aql_end_batch(device.writer)
    assert library.device_doorbells() == 1


@pytest.mark.parametrize(("packets", "kernarg"), [(16, 1 << 16), (1024, 4 * 256)])
def test_a_batch_larger_than_the_rings_goes_on(
    open_device: Any, packets: int, kernarg: int
) -> None:
    device = open_device(packets, kernarg)
    device.start()
    device.library.uhal_aql_begin_batch(device.writer)
    for _ in range(200):
        assert device.launch(kernel(kernarg_bytes=64)) == 0
    device.library.uhal_aql_end_batch(device.writer)
    wait_for(lambda: device.library.device_launches() == 200)


@pytest.mark.parametrize(("packets", "kernarg"), [(16, 1 << 16), (1024, 4 * 256)])
def test_a_device_that_stands_still_is_given_up(
    open_device: Any, packets: int, kernarg: int
) -> None:
    device = open_device(packets, kernarg, deadline=0.05)
    statuses = []
    while not statuses or statuses[-1] == 0:
        statuses.append(device.launch(kernel(kernarg_bytes=64)))
    assert statuses[-1] == TIMEOUT and len(statuses) >= 13
    # No launch is lost: the remaining packets are written when the queue moves.
    device.start()
    wait_for(lambda: device.launch(kernel(kernarg_bytes=64)) == 0)
    wait_for(lambda: device.library.device_launches() == len(statuses))


def test_a_failure_wakes_who_waits_and_stays(open_device: Any) -> None:
    device = open_device(packets=16, deadline=0)
    for _ in range(16):
        assert device.launch(kernel()) == 0
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.append(device.launch(kernel())))
    waiter.start()
    time.sleep(0.02)
    assert not found
    device.library.uhal_aql_fail(device.writer, MEMORY_FAULT)
    device.library.uhal_aql_fail(device.writer, INVALID_ARGUMENT)
    waiter.join(5)
    assert found == [MEMORY_FAULT]
    assert device.launch(kernel()) == device.barrier() == MEMORY_FAULT


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize(("packets", "kernarg"), [(64, 1 << 13), (1024, 1 << 16), (16, 1 << 12)])
def test_many_threads_keep_their_order(
    open_device: Any, threads: int, packets: int, kernarg: int
) -> None:
    device = open_device(packets, kernarg)
    device.start()
    launches = rounds(2000, 100_000)
    assert device.library.device_storm(threads, ctypes.c_uint64(launches)) == 0
    wait_for(lambda: device.library.device_launches() == threads * launches)
    assert device.library.device_barriers() > 0


def wait_for(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.001)
