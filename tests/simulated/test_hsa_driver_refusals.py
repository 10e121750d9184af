"""The simulated HSA runtime: refused packets, arguments and code objects, and failures."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import hsaco_writer
from tests.children import check_child, run_child
from tests.hsaco_writer import Argument, Kernel, v5_hidden
from tests.sampling import SOAK
from tests.simulated.conftest import OpenHsa
from tests.simulated.hsa import (
    BARRIER_AND,
    CONSTANT,
    DISPATCH,
    HEADER,
    KERNELS,
    LIBRARY,
    POINTER,
    ROOT,
    Failure,
    Hsa,
    Queue,
    add_one,
    header,
)

DATA = ROOT / "tests" / "data" / "rocm"
EMPTY = struct.pack("<4H5IQQQQ", *(0,) * 13)


def code(name: str) -> int:
    return CONSTANT[f"HSA_STATUS_ERROR_{name}"]


# Packets


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (header(0), "type 0"),
        (header(4), "type 4"),
        (header(9), "type 9"),
        (header(DISPATCH, acquire=3), "fence scopes"),
        (header(DISPATCH, release=3), "fence scopes"),
        (header(DISPATCH) | 1 << 13, "bits"),
        (header(DISPATCH) | 7 << 16, "reserved field"),
        (header(BARRIER_AND) | 1 << 16, "reserved field"),
    ],
)
def test_a_header_that_means_nothing_stops_the_queue(
    open_hsa: OpenHsa, start: int, words: str
) -> None:
    queue = open_hsa().queue()
    queue.submit(EMPTY, start)
    status, told = queue.error()
    assert status == code("INVALID_PACKET_FORMAT")
    assert told.startswith("packet 0: ")
    assert words in told


Change = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"dimensions": 0}, "INCOMPATIBLE_ARGUMENTS", "0 dimensions"),
        ({"grid": (0, 1, 1)}, "INCOMPATIBLE_ARGUMENTS", "0 along x"),
        ({"group": (64, 0, 1)}, "INCOMPATIBLE_ARGUMENTS", "0 along y"),
        ({"dimensions": 1, "grid": (64, 1, 2)}, "INCOMPATIBLE_ARGUMENTS", "other than 1 along z"),
        (
            {"dimensions": 1, "grid": (64, 1, 1), "group": (64, 2, 1)},
            "INCOMPATIBLE_ARGUMENTS",
            "other than 1 along y",
        ),
        ({"grid": (65, 1, 1)}, "INCOMPATIBLE_ARGUMENTS", "partial"),
        (
            {"group": (2048, 1, 1), "grid": (2048, 1, 1)},
            "INVALID_ARGUMENT",
            "takes 1024",
        ),
        ({"group": (32, 32, 2), "grid": (32, 32, 2)}, "INVALID_ARGUMENT", "2048 work-items"),
        ({"lds": 65537}, "INVALID_ALLOCATION", "65537 bytes of LDS"),
        ({"private": 1 << 20}, "OUT_OF_RESOURCES", "of scratch"),
        ({"reserved": (1, 0)}, "INVALID_PACKET_FORMAT", "reserved"),
        ({"reserved": (0, 1)}, "INVALID_PACKET_FORMAT", "reserved"),
        ({"kernarg": 8}, "INVALID_ARGUMENT", "multiple of 16"),
        ({"kernel": 32}, "INVALID_CODE_OBJECT", "none of a frozen executable"),
        ({"done": 4096}, "INVALID_SIGNAL", "does not exist"),
        ({"name": "narrow"}, None, ""),
        ({"name": "narrow", "group": (128, 1, 1)}, "INVALID_ARGUMENT", "the kernel takes 64"),
        ({"name": "spills", "lds": 512}, "OUT_OF_RESOURCES", "needs 64"),
        ({"name": "spills", "private": 64}, "INVALID_ALLOCATION", "needs 512"),
        ({"name": "spills", "private": 64, "lds": 512}, None, ""),
    ],
)
def test_a_launch_that_cannot_be_stops_the_queue(
    open_hsa: OpenHsa, change: Change, status: str | None, words: str
) -> None:
    hsa = open_hsa()
    name = change.pop("name", "add_one")
    kernel = hsa.kernel(hsa.load(), name)
    memory = hsa.vram(4096)
    hsa.upload(memory, np.zeros(1024, np.float32))
    arguments = add_one(1024, memory) if name == "add_one" else struct.pack("<Q", memory)
    done = hsa.signal()
    if "done" in change:
        change["done"] = HEADER.ctype("hsa_signal_t")(change["done"])
    queue = hsa.queue()
    queue.dispatch(
        kernel + change.pop("kernel", 0),
        hsa.kernarg(arguments) + change.pop("kernarg", 0),
        **{"done": done, **change},
    )
    if status is None:
        hsa.finish(done)
        return
    told = queue.error()
    assert told[0] == code(status), told
    assert words in told[1]
    # Neither this packet nor any later packet runs.
    queue.barrier(done)
    assert hsa.wait(done, seconds=0.01) == 1
    assert len(queue.errors) == 1


def test_a_kernel_of_another_gpu_or_not_frozen_is_none(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(ROCM_DEVICES="2")
    elsewhere = hsa.kernel(hsa.load(gpu=1), "add_one", gpu=1)
    queue = hsa.queue(gpu=0)
    queue.dispatch(elsewhere, hsa.kernarg(bytes(16)))
    assert queue.error() == (
        code("INVALID_CODE_OBJECT"),
        "packet 0: its kernel was loaded for another agent",
    )
    loose = hsa.kernel(hsa.load(freeze=False), "add_one")
    queue = hsa.queue()
    queue.dispatch(loose, hsa.kernarg(bytes(16)))
    assert queue.error()[0] == code("INVALID_CODE_OBJECT")


def test_an_executable_destroyed_too_early(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    executable = hsa.load()
    kernel = hsa.kernel(executable, "add_one")
    queue = hsa.queue()
    gate = hsa.signal()
    queue.barrier(after=[gate])
    queue.dispatch(kernel, hsa.kernarg(bytes(16)))
    hsa.call.hsa_executable_destroy(executable)
    hsa.call.hsa_signal_store_screlease(gate, 0)
    assert queue.error()[0] == code("INVALID_CODE_OBJECT")
    with pytest.raises(Failure, match="INVALID_EXECUTABLE"):
        hsa.call.hsa_executable_destroy(executable)


@pytest.mark.parametrize(
    ("last", "words"), [(0, "never reserved"), (-7, "never reserved"), (64, "overwrote one")]
)
def test_a_doorbell_that_is_wrong_stops_the_queue(open_hsa: OpenHsa, last: int, words: str) -> None:
    hsa = open_hsa()
    queue = hsa.queue(size=64)
    if last > 0:
        hsa.call.hsa_queue_store_write_index_relaxed(queue.pointer, 65)
    queue.ring(last)
    assert words in queue.error()[1]


def test_one_producer_must_not_ring_backwards(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    queue = hsa.queue(kind=CONSTANT["HSA_QUEUE_TYPE_SINGLE"])
    for _ in range(3):
        queue.barrier(ring=False)
    queue.ring(2)
    queue.ring(2)
    assert not queue.errors
    queue.ring(1)
    assert "went back to packet 1" in queue.error()[1]


@pytest.mark.parametrize(
    ("size", "kind", "status"),
    [
        *((size, 0, "INVALID_ARGUMENT") for size in (100, 32, 1 << 18)),
        (64, 7, "INVALID_ARGUMENT"),
        (64, 2, "INVALID_QUEUE_CREATION"),
    ],
)
def test_queues_that_cannot_be_made(open_hsa: OpenHsa, size: int, kind: int, status: str) -> None:
    hsa = open_hsa()
    with pytest.raises(Failure, match=status):
        Queue(hsa, hsa.gpus[0], size, kind)
    with pytest.raises(Failure, match="INVALID_QUEUE_CREATION"):
        Queue(hsa, hsa.cpu, 64, 0)
    assert hsa.live("queue") == 0


def test_copies_from_and_to_nowhere_are_refused(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    memory = hsa.vram(64)
    for size in (0, 64):
        for destination, source in ((0, memory), (memory, 0), (0, 0)):
            status = hsa.status("hsa_memory_copy", destination, source, size)
            assert status == code("INVALID_ARGUMENT")
    assert hsa.status("hsa_memory_copy", memory, memory, 0) == 0


def test_handles_that_have_gone_are_refused(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    gone = hsa.signal()
    hsa.call.hsa_signal_destroy(gone)
    queue = hsa.queue()
    doorbell = hsa.status("hsa_signal_destroy", queue.doorbell)
    assert doorbell == code("INVALID_SIGNAL")
    hsa.call.hsa_queue_destroy(queue.pointer)
    executable = hsa.load()
    symbol = hsa.symbol(executable, "add_one.kd")
    hsa.call.hsa_executable_destroy(executable)
    none = ctypes.c_void_p()
    agent = HEADER.ctype("hsa_agent_t")(12345)
    for expected, function, arguments in (
        ("INVALID_SIGNAL", "hsa_signal_destroy", (gone,)),
        ("INVALID_QUEUE", "hsa_queue_destroy", (queue.pointer,)),
        ("INVALID_QUEUE", "hsa_queue_inactivate", (queue.pointer,)),
        ("INVALID_EXECUTABLE", "hsa_executable_freeze", (executable, None)),
        ("INVALID_EXECUTABLE_SYMBOL", "hsa_executable_symbol_get_info", (symbol, 0, none)),
        ("INVALID_AGENT", "hsa_agent_get_info", (agent, 0, none)),
        ("INVALID_ALLOCATION", "hsa_amd_memory_pool_free", (0x1000,)),
        ("INVALID_ALLOCATION", "hsa_amd_agents_allow_access", (1, hsa.gpus[0], None, 0x1000)),
    ):
        assert hsa.status(function, *arguments) == code(expected), function


# Arguments that the launcher fills


def hidden_block(queue: Queue, grid: int, group: int, lds: int) -> dict[str, int]:
    ones = {f"hidden_{what}_{axis}": 1 for what in ("block_count", "group_size") for axis in "yz"}
    return {
        **ones,
        "hidden_block_count_x": grid // group,
        "hidden_group_size_x": group,
        "hidden_grid_dims": 3,
        "hidden_dynamic_lds_size": lds,
        "hidden_queue_ptr": ctypes.addressof(queue.pointer.contents),
    }


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize(
    "wrong",
    [
        *("", "hidden_block_count_x", "hidden_block_count_z", "hidden_group_size_y"),
        *("hidden_grid_dims", "hidden_remainder_x", "hidden_dynamic_lds_size"),
        *("hidden_queue_ptr", "hidden_global_offset_y", "hidden_heap_v1"),
    ],
)
def test_hidden_arguments_must_be_what_the_packet_says(
    open_hsa: OpenHsa, version: int, wrong: str
) -> None:
    hsa = open_hsa()
    explicit = [Argument(0, 8), Argument(8, 8, POINTER)]
    kernel = Kernel("add_one", [*explicit, *v5_hidden(16)], 272)
    image = hsaco_writer.write([kernel], version=version)
    address = hsa.vram(64)
    hsa.upload(address, np.zeros(16, np.float32))
    queue = hsa.queue()
    block = bytearray(272)
    block[:16] = add_one(16, address)
    values = hidden_block(queue, 256, 64, 1024)
    for argument in kernel.arguments[2:]:
        value = values.get(argument.kind, 0) + (argument.kind == wrong)
        block[argument.offset : argument.offset + argument.size] = value.to_bytes(
            argument.size, "little"
        )
    queue.dispatch(
        hsa.kernel(hsa.load(image), "add_one"),
        hsa.kernarg(bytes(block)),
        grid=(256, 1, 1),
        lds=1024,
    )
    if wrong:
        status, words = queue.error()
        assert status == code("INVALID_ARGUMENT")
        assert f"kernel add_one: {wrong} at byte" in words
    else:
        queue.drain()
        assert (hsa.download(address, 16) == 1).all()


def test_a_group_the_kernel_was_not_compiled_for(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    kernel = Kernel("add_one", KERNELS[0].arguments, 16, more={".reqd_workgroup_size": [32, 1, 1]})
    queue = hsa.queue()
    queue.dispatch(
        hsa.kernel(hsa.load(hsaco_writer.write([kernel])), "add_one"), hsa.kernarg(bytes(16))
    )
    assert "not the one the kernel was compiled for" in queue.error()[1]


# Code objects


def test_objects_for_others_are_refused_with_the_reason(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    good = hsaco_writer.write(KERNELS)
    for expected, image in (
        ("INVALID_CODE_OBJECT: it is no ELF file", b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100)),
        ("INVALID_CODE_OBJECT: it is no ELF file", b"\x7fELF"),
        ("INCOMPATIBLE_ARGUMENTS: code for gfx1100", hsaco_writer.write([], target="gfx1100")),
        ("INCOMPATIBLE_ARGUMENTS", hsaco_writer.write([], target="gfx90a:sramecc-")),
        ("INVALID_CODE_OBJECT: .* that is unknown", hsaco_writer.write([], flags=0xEE)),
        ("INVALID_ISA_NAME: gfx1100 has no xnack", hsaco_writer.write([], flags=0x341)),
        (
            "INVALID_ISA_NAME: its header is for gfx90a and its metadata for .*gfx942",
            hsaco_writer.write([], target="gfx942", flags=0x53F),
        ),
        ("INVALID_CODE_OBJECT: its ELF ABI version is 1", good[:8] + b"\x01" + good[9:]),
        ("INVALID_CODE_OBJECT: it is not made for", good[:7] + b"\x00" + good[8:]),
        ("VARIABLE_ALREADY_DEFINED: it has add_one.kd", hsaco_writer.write(KERNELS[:1] * 2)),
    ):
        with pytest.raises(Failure, match=expected):
            hsa.load(image)
    assert [hsa.live(kind) for kind in ("executable", "reader", "allocation")] == [0, 0, 0]


def test_kernels_are_looked_up_as_the_real_runtime_does(
    open_hsa: OpenHsa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/rocr/test_loader.py` makes the same calls on AMD's runtime."""
    monkeypatch.delenv("LOADER_USE_DYNSYM", raising=False)
    image = hsaco_writer.write(KERNELS[:1])
    stripped = hsaco_writer.write(KERNELS[:1], stripped=True)
    hsa = open_hsa()
    hsa.symbol(hsa.load(image), "add_one.kd")
    with pytest.raises(Failure, match="INVALID_SYMBOL_NAME"):
        hsa.symbol(hsa.load(stripped), "add_one.kd")
    monkeypatch.setenv("LOADER_USE_DYNSYM", "1")
    hsa.symbol(hsa.load(stripped), "add_one.kd")
    monkeypatch.setenv("LOADER_USE_DYNSYM", "0")
    with pytest.raises(Failure, match="INVALID_SYMBOL_NAME"):
        hsa.symbol(hsa.load(stripped), "add_one.kd")


def test_damaged_objects_never_crash(open_hsa: OpenHsa, rng: np.random.Generator) -> None:
    hsa = open_hsa(ROCM_PROFILE="gfx90a")
    images = [hsaco_writer.write(KERNELS), (DATA / "gfx90a.hsaco").read_bytes()]
    rounds = 3000 if SOAK else 400
    statuses = set()
    for turn in range(rounds):
        image = bytearray(images[turn % 2])
        if turn % 5 == 0:
            del image[rng.integers(len(image)) :]
        for _ in range(int(rng.integers(1, 8))):
            if image:
                at = int(rng.integers(min(len(image), 4096)))
                image[at] = int(rng.choice([0, 0xFF, 0x7F, 0x80, rng.integers(256)]))
        try:
            executable = hsa.load(bytes(image) or b"\0")
        except Failure as failure:
            statuses.add(str(failure).split(":")[1].strip())
            continue
        hsa.call.hsa_executable_destroy(executable)
    assert "HSA_STATUS_ERROR_INVALID_CODE_OBJECT" in statuses
    assert [hsa.live(kind) for kind in ("executable", "reader", "allocation")] == [0, 0, 0]


def test_metadata_that_nests_or_claims_too_much(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    image = hsaco_writer.write(KERNELS[:1])
    start = image.index(hsaco_writer.pack("amdhsa.version")) - 3
    for hostile in (b"\x91" * 200, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff\xc0", b"\xc1"):
        damaged = image[:start] + hostile + image[start + len(hostile) :]
        with pytest.raises(Failure, match="INVALID_CODE_OBJECT: its metadata is broken"):
            hsa.load(damaged)


# Failures on purpose

STATUS_CALLS = sorted(
    name
    for name, prototype in HEADER.prototypes.items()
    if getattr(prototype.result, "name", "") == "hsa_status_t"
    and name not in ("hsa_status_string", "hsa_init")
)


@pytest.mark.parametrize("function", STATUS_CALLS)
def test_every_call_can_be_made_to_fail_once(open_hsa: OpenHsa, function: str) -> None:
    hsa = open_hsa()
    hsa.fail(function, 1, code("OUT_OF_RESOURCES"))
    arguments = [kind() for kind in HEADER.argtypes(function)]
    with pytest.raises(Failure, match="OUT_OF_RESOURCES: injected"):
        getattr(hsa.call, function)(*arguments)
    assert hsa.status(function, *arguments) != code("OUT_OF_RESOURCES")
    hsa.fail(function, 1, code("OUT_OF_RESOURCES"))
    hsa.fail(function, 0, 0)
    assert hsa.status(function, *arguments) != code("OUT_OF_RESOURCES")
    hsa.open()


def test_init_fails_by_the_environment(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(opened=False, FAIL=f"hsa_init:2:{code('OUT_OF_RESOURCES')}")
    hsa.open()
    with pytest.raises(Failure, match="OUT_OF_RESOURCES: injected"):
        hsa.open()
    hsa.open()


def test_packets_and_copies_can_be_made_to_fail(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    memory, (host, _) = hsa.vram(64), hsa.host(16)
    hsa.fail("copy", 2, code("INVALID_ARGUMENT"))
    hsa.finish(hsa.copy(memory, hsa.gpus[0], host, hsa.cpu, 64))
    assert hsa.wait(hsa.copy(memory, hsa.gpus[0], host, hsa.cpu, 64), below=0) == -1
    hsa.finish(hsa.copy(memory, hsa.gpus[0], host, hsa.cpu, 64))
    hsa.fail("packet", 3, code("EXCEPTION"))
    queue = hsa.queue()
    done = hsa.signal(3)
    for _ in range(3):
        queue.barrier(done)
    assert queue.error() == (code("EXCEPTION"), "packet 2: injected")
    assert hsa.value(done) == 1


# What ends the process


def _abort(kind: str, path: str) -> None:
    hsa = Hsa(Path(path))
    hsa.open()
    kernel = hsa.kernel(hsa.load(), "add_one")
    callback = HEADER.ctype("hsa_queue_callback_t")()
    pointer = ctypes.POINTER(HEADER.ctype("hsa_queue_t"))()
    done = hsa.signal()
    if kind == "queue":
        hsa.call.hsa_queue_create(hsa.gpus[0], 64, 0, callback, None, 0, 0, ctypes.byref(pointer))
        hsa.call.hsa_signal_store_relaxed(pointer.contents.doorbell_signal, 5)
    elif kind == "event":
        hsa.queue().dispatch(kernel, hsa.kernarg(add_one(1, 0x4000)), done=done)
    elif kind == "signal":
        hsa.call.hsa_signal_destroy(done)
        hsa.call.hsa_signal_load_relaxed(done)
    elif kind == "index":
        queue = hsa.queue()
        queue.drain()
        queue.barrier()
        hsa.call.hsa_queue_store_write_index_relaxed(queue.pointer, 2)
        hsa.call.hsa_queue_store_write_index_relaxed(queue.pointer, 1)
    elif kind == "host":
        ctypes.memset(hsa.vram(64), 0, 64)
    elif kind == "ring":
        queue = hsa.queue()
        hsa.call.hsa_queue_destroy(queue.pointer)
        ctypes.memset(queue.packets, 0, 64)
    hsa.wait(done)


@pytest.mark.parametrize(
    ("kind", "how", "words"),
    [
        ("queue", signal.SIGABRT, "Queue error without a callback"),
        ("event", signal.SIGABRT, "Memory access fault by GPU node-1: kernel add_one"),
        ("signal", signal.SIGABRT, "is no signal, or no longer"),
        ("index", signal.SIGABRT, "the write index went back"),
        ("host", signal.SIGSEGV, ""),
        ("ring", signal.SIGSEGV, ""),
    ],
)
def test_what_ends_the_process_as_the_real_runtime_does(
    hsa_kernels: Path, kind: str, how: signal.Signals, words: str
) -> None:
    environment = {"UHAL_SIM_KERNELS": str(hsa_kernels)}
    done = run_child(_abort, kind, str(LIBRARY), environment=environment)
    assert done.returncode == -how, done.stderr
    assert words in done.stderr


def _forked(path: str) -> None:
    hsa = Hsa(Path(path))
    hsa.open()
    child = os.fork()
    if child == 0:
        statuses = {hsa.status("hsa_init"), hsa.status("hsa_shut_down")}
        os._exit(0 if statuses == {code("OUT_OF_RESOURCES"), code("NOT_INITIALIZED")} else 1)
    assert os.waitpid(child, 0)[1] == 0
    hsa.vram(64)


def test_a_forked_child_has_no_devices(hsa_kernels: Path) -> None:
    check_child(_forked, str(LIBRARY), options=("-W", "ignore"))


def _without_memory(path: str) -> None:
    hsa = Hsa(Path(path))
    hsa.open()
    hsa.queue()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + (4 << 20), before[1]))
    with pytest.raises(Failure, match="OUT_OF_RESOURCES"):
        hsa.queue(size=1 << 17)  # packets of 64 bytes: 8 MiB
    resource.setrlimit(resource.RLIMIT_AS, before)
    hsa.queue(size=1 << 17)


def test_a_queue_without_memory_for_its_packets_is_refused(hsa_kernels: Path) -> None:
    check_child(_without_memory, str(LIBRARY))


def test_a_queue_goes_when_its_callback_is_done(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    called, leave, gone = threading.Event(), threading.Event(), threading.Event()

    def callback(*_: Any) -> None:
        called.set()
        leave.wait(20)

    pointer = ctypes.POINTER(HEADER.ctype("hsa_queue_t"))()
    kept = HEADER.ctype("hsa_queue_callback_t")(callback)
    hsa.call.hsa_queue_create(hsa.gpus[0], 64, 0, kept, None, 0, 0, ctypes.byref(pointer))
    hsa.call.hsa_signal_store_relaxed(pointer.contents.doorbell_signal, 5)
    assert called.wait(20)

    def destroy() -> None:
        hsa.call.hsa_queue_destroy(pointer)
        gone.set()

    thread = threading.Thread(target=destroy)
    thread.start()
    assert not gone.wait(0.05)
    leave.set()
    thread.join(20)
    assert gone.is_set()
