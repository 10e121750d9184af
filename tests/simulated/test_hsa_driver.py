"""The simulated HSA runtime: its queries, its kernels, and its rules of memory."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import hsaco_writer
from tests.hsaco_writer import Argument, Kernel
from tests.simulated.conftest import OpenHsa
from tests.simulated.hsa import (
    COARSE,
    CONSTANT,
    FINE,
    HEADER,
    KERNARG,
    KERNELS,
    POINTER,
    ROOT,
    Failure,
    Hsa,
    add_one,
)
from uhal.images.offload_bundle import read_offload_bundle

IMAGES = ROOT / "ubridge" / "kernels" / "images" / "rocm"
DATA = ROOT / "tests" / "data" / "rocm"


# Agents and pools


def test_every_function_of_the_header_is_there(open_hsa: OpenHsa) -> None:
    assert open_hsa(opened=False).call.missing() == ()


def test_nothing_works_before_init_and_after_the_last_shut_down(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(opened=False)
    not_initialized = CONSTANT["HSA_STATUS_ERROR_NOT_INITIALIZED"]
    assert hsa.status("hsa_shut_down") == not_initialized
    for _ in range(2):
        hsa.open()
    hsa.call.hsa_shut_down()
    hsa.vram(100)
    hsa.queue()
    hsa.signal()
    hsa.load()
    kinds = ("allocation", "queue", "signal", "executable", "reader", "locked")
    assert [hsa.live(kind) for kind in kinds] == [1, 1, 1, 1, 0, 0]
    hsa.call.hsa_shut_down()
    assert [hsa.live(kind) for kind in kinds] == [0] * 6
    assert hsa.live("wing") == -1
    assert hsa.status("hsa_shut_down") == not_initialized
    hsa.open()
    hsa.call.hsa_shut_down()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SCHEDULE", "soon"),
        ("FAIL", "hsa_init"),
        ("ROCM_DEVICES", "17"),
        ("ROCM_PROFILE", "gfx803"),
        ("ROCM_PROFILE", "gfx1100:xnack+"),
        ("ROCM_MEMORY", "much"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(open_hsa: OpenHsa, name: str, value: str) -> None:
    hsa = open_hsa(opened=False, **{name: value})
    with pytest.raises(Failure, match=f"OUT_OF_RESOURCES: UHAL_SIM_{name}={value}"):
        hsa.call.hsa_init()


@pytest.mark.parametrize(
    ("profile", "isa", "wavefront"),
    [
        ("gfx90a", "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", 64),
        ("gfx90a:xnack+", "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack+", 64),
        ("gfx942", "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-", 64),
        ("gfx1030", "amdgcn-amd-amdhsa--gfx1030", 32),
        ("gfx1100", "amdgcn-amd-amdhsa--gfx1100", 32),
        ("gfx1201", "amdgcn-amd-amdhsa--gfx1201", 32),
    ],
)
def test_a_profile_says_what_it_is(
    open_hsa: OpenHsa, profile: str, isa: str, wavefront: int
) -> None:
    hsa = open_hsa(ROCM_PROFILE=profile)
    (gpu,) = hsa.gpus
    name = ctypes.create_string_buffer(64)
    hsa.call.hsa_agent_get_info(gpu, CONSTANT["HSA_AGENT_INFO_NAME"], name)
    assert name.value.decode() == profile.split(":")[0]
    attribute = CONSTANT["HSA_AGENT_INFO_WAVEFRONT_SIZE"]
    assert hsa.info("hsa_agent_get_info", gpu, attribute, ctypes.c_uint32) == wavefront
    (found,) = hsa.visit("hsa_isa_callback_t", hsa.call.hsa_agent_iterate_isas, gpu)
    length = hsa.info("hsa_isa_get_info_alt", found, 0, ctypes.c_uint32)
    told = ctypes.create_string_buffer(length + 1)
    hsa.call.hsa_isa_get_info_alt(found, 1, told)
    assert told.value.decode() == isa
    assert not hsa.visit("hsa_isa_callback_t", hsa.call.hsa_agent_iterate_isas, hsa.cpu)


def test_every_attribute_of_the_header_has_an_answer(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    buffer = ctypes.create_string_buffer(256)
    sized = ("HSA_AMD_AGENT_INFO_HDP_FLUSH",)  # a simulation has no such registers
    pool = hsa.pool(hsa.cpu, FINE)
    queries = [
        ("hsa_system_get_info", (), ("HSA_SYSTEM_INFO_", "HSA_AMD_SYSTEM_INFO_")),
        ("hsa_agent_get_info", (hsa.gpus[0],), ("HSA_AGENT_INFO_", "HSA_AMD_AGENT_INFO_")),
        ("hsa_agent_get_info", (hsa.cpu,), ("HSA_AGENT_INFO_", "HSA_AMD_AGENT_INFO_")),
        ("hsa_amd_memory_pool_get_info", (pool,), ("HSA_AMD_MEMORY_POOL_INFO_",)),
    ]
    for function, before, prefixes in queries:
        for name, value in CONSTANT.items():
            if name.startswith(prefixes) and name not in sized:
                assert hsa.status(function, *before, value, buffer) == 0, (function, name)
        assert hsa.status(function, *before, 0x7FFF, buffer) != 0
    for number in (0x1000, 0x2B, 0):
        text = ctypes.c_char_p()
        hsa.call.hsa_status_string(number, ctypes.byref(text))
        assert (text.value or b"").startswith(b"HSA_STATUS_")


def test_iterating_stops_where_the_callback_says(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(ROCM_DEVICES="3")
    seen: list[int] = []

    def first(agent: Any, _: Any) -> int:
        seen.append(agent.handle)
        return CONSTANT["HSA_STATUS_INFO_BREAK"]

    callback = HEADER.ctype("hsa_agent_callback_t")(first)
    assert hsa.status("hsa_iterate_agents", callback, None) == CONSTANT["HSA_STATUS_INFO_BREAK"]
    assert len(seen) == 1
    assert len(hsa.gpus) == 3


def test_device_memory_is_counted_and_runs_out(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(ROCM_MEMORY=str(1 << 20))
    attribute = CONSTANT["HSA_AMD_AGENT_INFO_MEMORY_AVAIL"]

    def free() -> int:
        return int(hsa.info("hsa_agent_get_info", hsa.gpus[0], attribute, ctypes.c_uint64))

    assert free() == 1 << 20
    address = hsa.vram(1000)
    assert address % 4096 == 0
    assert free() == (1 << 20) - 4096
    with pytest.raises(Failure, match="OUT_OF_RESOURCES"):
        hsa.vram(1 << 20)
    with pytest.raises(Failure, match="INVALID_ARGUMENT"):
        hsa.vram(0)
    hsa.call.hsa_amd_memory_pool_free(address)
    assert free() == 1 << 20
    with pytest.raises(Failure, match="INVALID_ALLOCATION"):
        hsa.call.hsa_amd_memory_pool_free(address)
    group = [
        pool
        for pool in hsa.visit(
            "hsa_amd_memory_pool_callback_t",
            hsa.call.hsa_amd_agent_iterate_memory_pools,
            hsa.gpus[0],
        )
        if hsa.info("hsa_amd_memory_pool_get_info", pool, 0, ctypes.c_uint32)
        == CONSTANT["HSA_AMD_SEGMENT_GROUP"]
    ]
    assert hsa.info("hsa_amd_memory_pool_get_info", group[0], 2, ctypes.c_size_t) == 65536
    with pytest.raises(Failure, match="INVALID_ALLOCATION"):
        hsa.call.hsa_amd_memory_pool_allocate(group[0], 16, 0, ctypes.byref(ctypes.c_void_p()))


@pytest.mark.parametrize(
    ("settings", "of_cpu", "of_gpu"),
    [
        ({}, {2, 3, 4, 8}, {0, 4, 8}),
        ({"ROCM_DEVICES": "2"}, {2, 3, 4, 8}, {0, 2, 4, 8}),
        ({"ROCM_DEVICES": "2", "ROCM_PROFILE": "gfx1100"}, {2, 3, 4, 8}, {0, 4, 8}),
        ({"ROCM_APU": "1"}, {2, 3, 8}, {0}),
    ],
)
def test_pools_are_those_of_the_machine(
    open_hsa: OpenHsa, settings: dict[str, str], of_cpu: set[int], of_gpu: set[int]
) -> None:
    hsa = open_hsa(**settings)

    def flags(agent: Any) -> set[int]:
        call = "hsa_amd_memory_pool_get_info"
        pools = hsa.visit(
            "hsa_amd_memory_pool_callback_t", hsa.call.hsa_amd_agent_iterate_memory_pools, agent
        )
        return {hsa.info(call, pool, 1, ctypes.c_uint32) for pool in pools}

    assert flags(hsa.cpu) == of_cpu
    assert all(flags(gpu) == of_gpu for gpu in hsa.gpus)
    properties = (ctypes.c_uint8 * 8)()
    attribute = CONSTANT["HSA_AMD_AGENT_INFO_MEMORY_PROPERTIES"]
    hsa.call.hsa_agent_get_info(hsa.gpus[0], attribute, properties)
    assert properties[0] == ("ROCM_APU" in settings)


# Kernels


def test_a_kernel_runs_in_order_under_every_schedule(
    open_hsa: OpenHsa, schedule: str, rng: np.random.Generator
) -> None:
    hsa = open_hsa(SCHEDULE=schedule)
    executable = hsa.load()
    add, double = (hsa.kernel(executable, name) for name in ("add_one", "double_it"))
    data = rng.integers(-8, 8, 300).astype(np.float32)
    address = hsa.vram(data.nbytes)
    hsa.upload(address, data)
    queue = hsa.queue()
    arguments = hsa.kernarg(add_one(data.size, address))
    expected = data.copy()
    for double_now in rng.integers(0, 6, 150) == 0:
        queue.dispatch(double if double_now else add, arguments)
        expected = expected * 2 if double_now else expected + 1
    queue.drain()
    np.testing.assert_array_equal(hsa.download(address, data.size), expected)
    assert not queue.errors


def test_arguments_lie_where_the_metadata_says(open_hsa: OpenHsa, rng: np.random.Generator) -> None:
    hsa = open_hsa()
    data = rng.standard_normal(40).astype(np.float32)
    for offsets in ((0, 8, 16), (16, 4, 8), (8, 20, 0)):
        fields = zip(offsets, (8, 4, 8), (POINTER, "by_value", "by_value"), strict=True)
        moved = Kernel("scale", [Argument(*field) for field in fields], 24)
        kernel = hsa.kernel(hsa.load(hsaco_writer.write([moved])), "scale")
        address = hsa.vram(data.nbytes)
        hsa.upload(address, data)
        block = bytearray(24)
        struct.pack_into("<Q", block, offsets[0], address)
        struct.pack_into("<I", block, offsets[1], data.size)
        struct.pack_into("<d", block, offsets[2], 2.5)
        queue = hsa.queue()
        queue.dispatch(kernel, hsa.kernarg(bytes(block)))
        queue.drain()
        expected = data * np.float32(2.5)
        np.testing.assert_array_equal(hsa.download(address, data.size), expected)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_the_shipped_images_load_on_their_devices(open_hsa: OpenHsa, target: str) -> None:
    hsa = open_hsa(ROCM_PROFILE=target)
    for bundle in sorted(IMAGES.glob("*.hipfb")):
        entries = read_offload_bundle(bundle.read_bytes())
        loads = []
        for entry in entries:
            if entry.for_host:
                continue
            try:
                executable = hsa.load(entry.payload)
            except Failure as failure:
                assert "INCOMPATIBLE_ARGUMENTS: code for gfx" in str(failure)
            else:
                loads.append(entry.target)
                hsa.call.hsa_executable_destroy(executable)
        assert [one.split("--")[-1] for one in loads] == [target], bundle


@pytest.mark.parametrize(
    ("file", "loads"),
    [
        ("gfx90a.hsaco", {"gfx90a", "gfx90a:xnack+"}),
        ("gfx90a_pinned.hsaco", {"gfx90a"}),
        ("gfx1100.hsaco", {"gfx1100"}),
        ("gfx11_generic.hsaco", set()),
    ],
)
def test_objects_of_compilers_load_by_target_and_features(
    open_hsa: OpenHsa, file: str, loads: set[str]
) -> None:
    image = (DATA / file).read_bytes()
    for profile in ("gfx90a", "gfx90a:xnack+", "gfx1100", "gfx942"):
        hsa = open_hsa(ROCM_PROFILE=profile)
        if profile not in loads:
            with pytest.raises(Failure, match="INCOMPATIBLE_ARGUMENTS: code for"):
                hsa.load(image)
            continue
        executable = hsa.load(image)
        names = []
        length = CONSTANT["HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH"]
        for symbol in symbols_of(hsa, executable):
            size = hsa.info("hsa_executable_symbol_get_info", symbol, length, ctypes.c_uint32)
            text = ctypes.create_string_buffer(size + 1)
            hsa.call.hsa_executable_symbol_get_info(symbol, length + 1, text)
            names.append(text.value.decode())
        assert set(names) == {"saxpy.kd", "mixed.kd", "nothing.kd", "spills.kd"}


def test_generic_code_loads_where_the_runtime_lists_it(open_hsa: OpenHsa) -> None:
    image = (DATA / "gfx11_generic.hsaco").read_bytes()
    hsa = open_hsa(ROCM_PROFILE="gfx1100", ROCM_GENERIC="1")
    assert len(hsa.visit("hsa_isa_callback_t", hsa.call.hsa_agent_iterate_isas, hsa.gpus[0])) == 2
    hsa.load(image)


def symbols_of(hsa: Hsa, executable: Any) -> list[Any]:
    found: list[Any] = []

    def note(_: Any, __: Any, symbol: Any, ___: Any) -> int:
        found.append(type(symbol)(symbol.handle))
        return 0

    callback = HEADER.ctype("hsa_executable_symbol_callback_t")(note)
    hsa.call.hsa_executable_iterate_agent_symbols(executable, hsa.gpus[0], callback, None)
    return found


def test_a_symbol_tells_the_kernel_s_needs(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    executable = hsa.load()
    symbol = hsa.symbol(executable, "spills.kd")
    facts = {
        name: hsa.info("hsa_executable_symbol_get_info", symbol, value, ctypes.c_uint32)
        for name, value in CONSTANT.items()
        if name.startswith("HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_") and name.endswith(("SIZE", "ENT"))
    }
    prefix = "HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_"
    assert {name.removeprefix(prefix): value for name, value in facts.items()} == {
        "KERNARG_SEGMENT_SIZE": 8,
        "KERNARG_SEGMENT_ALIGNMENT": 16,
        "GROUP_SEGMENT_SIZE": 512,
        "PRIVATE_SEGMENT_SIZE": 64,
    }
    with pytest.raises(Failure, match='INVALID_SYMBOL_NAME: there is no "spills"'):
        hsa.symbol(executable, "spills")


def test_executables_have_variables_of_their_own(
    open_hsa: OpenHsa, rng: np.random.Generator
) -> None:
    """Variables are separate even with two runtimes in one process."""
    image = hsaco_writer.write(KERNELS, variables={"table": 16, "elsewhere": 4})
    loaded = []
    for hsa in [open_hsa(), open_hsa()]:
        for _ in range(2):
            executable = hsa.load(image)
            symbol = hsa.symbol(executable, "table")
            attribute = CONSTANT["HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS"]
            address = hsa.info("hsa_executable_symbol_get_info", symbol, attribute, ctypes.c_uint64)
            values = rng.integers(0, 1000, 4).astype(np.uint32)
            hsa.upload(address, values)
            loaded.append((hsa, hsa.kernel(executable, "read_table"), values))
            with pytest.raises(Failure, match="INVALID_SYMBOL_NAME"):
                hsa.symbol(executable, "elsewhere")
    for hsa, kernel, values in loaded:
        out = hsa.vram(16)
        queue = hsa.queue()
        queue.dispatch(kernel, hsa.kernarg(struct.pack("<Q", out)))
        queue.drain()
        np.testing.assert_array_equal(hsa.download(out, 4).view(np.uint32), values)


def test_kernels_that_it_cannot_run_are_refused_in_words(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    executable = hsa.load()
    with pytest.raises(Failure, match=r"NOT_SUPPORTED: kernel nowhere .* no host build"):
        hsa.kernel(executable, "nowhere")
    with pytest.raises(Failure, match=r"NOT_SUPPORTED: kernel differs .* takes 1 parameters"):
        hsa.kernel(executable, "differs")


def test_code_may_come_from_a_file(open_hsa: OpenHsa, tmp_path: Path) -> None:
    hsa = open_hsa()
    path = tmp_path / "k.hsaco"
    path.write_bytes(hsaco_writer.write(KERNELS))
    reader = HEADER.ctype("hsa_code_object_reader_t")()
    create = hsa.dll.hsa_code_object_reader_create_from_file
    with path.open("rb") as file:
        assert create(file.fileno(), ctypes.byref(reader)) == 0
    executable = hsa.make("hsa_executable_create_alt", "hsa_executable_t", 1, 0, None)
    hsa.call.hsa_executable_load_agent_code_object(executable, hsa.gpus[0], reader, None, None)
    hsa.call.hsa_executable_freeze(executable, None)
    frozen = CONSTANT["HSA_STATUS_ERROR_FROZEN_EXECUTABLE"]
    assert hsa.status("hsa_executable_freeze", executable, None) == frozen
    valid = ctypes.c_uint32(7)
    hsa.call.hsa_executable_validate(executable, ctypes.byref(valid))
    assert valid.value == 0
    assert hsa.kernel(executable, "add_one")
    assert create(-1, ctypes.byref(reader)) == CONSTANT["HSA_STATUS_ERROR_INVALID_FILE"]


# Access of agents to memory


def test_a_gpu_reaches_host_memory_only_when_allowed(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    events = hsa.on_event()
    kernel = hsa.kernel(hsa.load(), "add_one")
    address, data = hsa.host(64)
    data[:] = 3
    queue = hsa.queue()
    queue.dispatch(kernel, hsa.kernarg(add_one(64, address)))
    queue.drain()
    assert (data == 4).all()
    closed = hsa.allocate(hsa.cpu, FINE, 256)
    queue.dispatch(kernel, hsa.kernarg(add_one(64, closed)))
    status, words = queue.error()
    assert status == CONSTANT["HSA_STATUS_ERROR_MEMORY_FAULT"]
    assert "add_one: it touched memory" in words
    (event,) = events
    assert event == (0, hsa.gpus[0].handle, closed, 1)
    with pytest.raises(Failure, match="OUT_OF_RESOURCES: kernel add_one: it touched"):
        hsa.queue()


def test_arguments_the_gpu_cannot_read_are_a_fault(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    events = hsa.on_event()
    kernel = hsa.kernel(hsa.load(), "add_one")
    closed = hsa.allocate(hsa.cpu, KERNARG, 64)
    queue = hsa.queue()
    queue.dispatch(kernel, closed)
    assert queue.error()[0] == CONSTANT["HSA_STATUS_ERROR_MEMORY_FAULT"]
    assert events[0][2] == closed


@pytest.mark.parametrize("beyond", [1 << 12, 1 << 16, 1 << 30])
def test_a_kernel_that_leaves_its_allocation_faults_at_the_address(
    open_hsa: OpenHsa, beyond: int
) -> None:
    hsa = open_hsa()
    events = hsa.on_event()
    kernel = hsa.kernel(hsa.load(), "add_one")
    address = hsa.vram(4096)
    queue = hsa.queue()
    queue.dispatch(kernel, hsa.kernarg(add_one(1, address + beyond)))
    assert queue.error()[0] == CONSTANT["HSA_STATUS_ERROR_MEMORY_FAULT"]
    assert events[0][2] == address + beyond


def test_freed_memory_faults(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    events = hsa.on_event()
    kernel = hsa.kernel(hsa.load(), "add_one")
    address = hsa.vram(4096)
    hsa.call.hsa_amd_memory_pool_free(address)
    queue = hsa.queue()
    queue.dispatch(kernel, hsa.kernarg(add_one(8, address)))
    queue.error()
    assert events[0][2] == address


def test_two_gpus_reach_each_other_when_allowed(
    open_hsa: OpenHsa, rng: np.random.Generator
) -> None:
    hsa = open_hsa(ROCM_DEVICES="2", ROCM_PROFILE="gfx90a,gfx942")
    data = rng.standard_normal(64).astype(np.float32)
    memory = hsa.vram(256, gpu=0)
    hsa.upload(memory, data)
    image = hsaco_writer.write(KERNELS, target="gfx942")
    kernel = hsa.kernel(hsa.load(image, gpu=1), "add_one", gpu=1)
    pool = hsa.pool(hsa.gpus[0], COARSE)
    access = ctypes.c_int32()
    query = hsa.call.hsa_amd_agent_memory_pool_get_info
    answers = []
    for agent in (hsa.gpus[0], hsa.gpus[1], hsa.cpu):
        query(agent, pool, 0, ctypes.byref(access))
        answers.append(access.value)
    assert answers == [1, 2, 0]
    with pytest.raises(Failure, match="INVALID_ARGUMENT: a CPU has no way"):
        hsa.allow(memory, hsa.cpu)
    hsa.allow(memory, hsa.gpus[1])
    queue = hsa.queue(gpu=1)
    arguments = hsa.kernarg(add_one(64, memory), gpu=1)
    queue.dispatch(kernel, arguments)
    queue.drain()
    np.testing.assert_array_equal(hsa.download(memory, 64), data + 1)
    # The new list replaces the list before.
    hsa.allow(memory, hsa.gpus[0])
    events = hsa.on_event()
    queue.dispatch(kernel, arguments)
    queue.error()
    assert events[0][1:3] == (hsa.gpus[1].handle, memory)
    # The other device continues.
    queue = hsa.queue(gpu=0)
    queue.dispatch(hsa.kernel(hsa.load(), "add_one"), hsa.kernarg(add_one(64, memory)))
    queue.drain()
    np.testing.assert_array_equal(hsa.download(memory, 64), (data + 1) + 1)


def test_locked_memory_has_an_address_of_its_own(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    data = np.arange(64, dtype=np.float32)
    pointer = ctypes.c_void_p()
    hsa.call.hsa_amd_memory_lock(data.ctypes.data, data.nbytes, None, 0, ctypes.byref(pointer))
    address = pointer.value or 0
    assert address != data.ctypes.data
    assert hsa.live("locked") == 1
    information = HEADER.ctype("hsa_amd_pointer_info_t")(size=56)
    no_allocator = HEADER.ctype("hsa_amd_allocator_t")()
    for pointer in (address + 8, data.ctypes.data + 8):
        hsa.call.hsa_amd_pointer_info(pointer, ctypes.byref(information), no_allocator, None, None)
        assert information.type == CONSTANT["HSA_EXT_POINTER_TYPE_LOCKED"]
        assert information.agentBaseAddress == address
        assert information.hostBaseAddress == data.ctypes.data
        assert information.sizeInBytes == data.nbytes
    for pointer in (data.ctypes.data - 1, data.ctypes.data + data.nbytes):
        hsa.call.hsa_amd_pointer_info(pointer, ctypes.byref(information), no_allocator, None, None)
        assert information.type == CONSTANT["HSA_EXT_POINTER_TYPE_UNKNOWN"]
    kernel = hsa.kernel(hsa.load(), "add_one")
    queue = hsa.queue()
    queue.dispatch(kernel, hsa.kernarg(add_one(64, address)))
    queue.drain()
    np.testing.assert_array_equal(data, np.arange(64) + 1)
    hsa.call.hsa_amd_memory_unlock(data.ctypes.data)
    with pytest.raises(Failure, match="INVALID_ARGUMENT: nothing is locked"):
        hsa.call.hsa_amd_memory_unlock(data.ctypes.data)
    hsa.on_event()
    queue.dispatch(kernel, hsa.kernarg(add_one(64, address)))
    assert queue.error()[0] == CONSTANT["HSA_STATUS_ERROR_MEMORY_FAULT"]


def test_pointer_information_lists_who_may(open_hsa: OpenHsa) -> None:
    hsa = open_hsa(ROCM_DEVICES="3")
    address = hsa.allocate(hsa.cpu, FINE, 100, hsa.gpus[0], hsa.gpus[2])
    information = HEADER.ctype("hsa_amd_pointer_info_t")(size=56)
    kept: list[Any] = []

    def allocate(size: int) -> int:
        kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(kept[-1])

    count = ctypes.c_uint32()
    listed = ctypes.POINTER(HEADER.ctype("hsa_agent_t"))()
    allocator = HEADER.ctype("hsa_amd_allocator_t")(allocate)
    hsa.call.hsa_amd_pointer_info(
        address + 99,
        ctypes.byref(information),
        allocator,
        ctypes.byref(count),
        ctypes.byref(listed),
    )
    handles = {listed[index].handle for index in range(count.value)}
    assert handles == {hsa.cpu.handle, hsa.gpus[0].handle, hsa.gpus[2].handle}
    assert (information.sizeInBytes, information.global_flags) == (100, FINE)
    hsa.call.hsa_amd_pointer_info(0x1000, ctypes.byref(information), allocator, None, None)
    assert information.type == CONSTANT["HSA_EXT_POINTER_TYPE_UNKNOWN"]


def test_memory_regions_are_the_pools_by_another_name(open_hsa: OpenHsa) -> None:
    hsa = open_hsa()
    pool = hsa.pool(hsa.cpu, KERNARG)
    pointer = ctypes.c_void_p()
    handle = ctypes.c_uint64(pool.handle)
    assert hsa.dll.hsa_memory_allocate(handle, ctypes.c_size_t(64), ctypes.byref(pointer)) == 0
    address = pointer.value or 0
    data = hsa.vram(256)
    hsa.upload(data, np.zeros(64, np.float32))
    ctypes.memmove(address, add_one(64, data), 16)
    queue = hsa.queue()
    queue.dispatch(hsa.kernel(hsa.load(), "add_one"), address)
    queue.drain()
    assert (hsa.download(data, 64) == 1).all()
    assert hsa.dll.hsa_memory_free(pointer) == 0
    size = ctypes.c_size_t()
    assert hsa.dll.hsa_region_get_info(handle, 2, ctypes.byref(size)) == 0
    assert size.value > 0
