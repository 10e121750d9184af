"""Probing by the ROCm backend: no library, a runtime without devices, agents of every kind."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocm_backend import _agents, backend
from rocm_backend._errors import ADVICE, CLASS_OF, LOST_TEXT, STICKY_PREFIX, status_name
from rocm_backend._library import LIBRARY_VARIABLE, header
from rocm_backend._pools import Pool, choose_pools
from rocm_backend._runtime import FUNCTION_OF_SLOT, runtime_header
from tests.abi_headers import parameter_lists, parameters
from tests.host_runtime.driver import ROOT
from tests.requirements import missing
from uhal import _lane
from uhal.abi import Library
from uhal.errors import DeviceError, NotSupportedError

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

# A runtime with a CPU, a GPU of two targets, a GPU that runs no kernels, and an AIE.
FAKE = """
#include "abi.h"
#include <stdlib.h>
#include <string.h>

static int opened, started;

static int setting(const char *name) {
    const char *text = getenv(name);
    return text == NULL ? 0 : atoi(text);
}

int fake_opened(void) { return opened; }
int fake_started(void) { return started; }

hsa_status_t hsa_init(void) {
    const int status = setting("FAKE_HSA_INIT");
    opened += status == 0;
    started += 1;
    return (hsa_status_t)status;
}

hsa_status_t hsa_shut_down(void) {
    opened -= 1;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_status_string(hsa_status_t status, const char **text) {
    *text = status == HSA_STATUS_ERROR_OUT_OF_RESOURCES ? "OUT: no resources" : "other";
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value) {
    *(uint16_t *)value = attribute == HSA_SYSTEM_INFO_VERSION_MAJOR ? 1 : 18;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_iterate_agents(hsa_agent_callback_t callback, void *data) {
    for (uint64_t i = 1; i <= (setting("FAKE_HSA_GPUS") ? 4U : 1U); ++i) {
        const hsa_agent_t agent = {i};
        const hsa_status_t status = callback(agent, data);
        if (status != HSA_STATUS_SUCCESS)
            return status;
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value) {
    static const int32_t kinds[] = {HSA_DEVICE_TYPE_CPU, HSA_DEVICE_TYPE_GPU, HSA_DEVICE_TYPE_GPU,
                                    HSA_DEVICE_TYPE_AIE};
    if (setting("FAKE_HSA_INFO"))
        return (hsa_status_t)setting("FAKE_HSA_INFO");
    switch ((int)attribute) {
    case HSA_AGENT_INFO_DEVICE:
        *(int32_t *)value = kinds[agent.handle - 1];
        break;
    case HSA_AGENT_INFO_FEATURE:
        *(uint32_t *)value = agent.handle == 2 ? HSA_AGENT_FEATURE_KERNEL_DISPATCH : 0;
        break;
    case HSA_AGENT_INFO_NAME:
        memset(value, 0, 64);
        strcpy(value, "gfx1151");
        break;
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
        memset(value, 'A', 64);
        break;
    case HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT:
        *(uint32_t *)value = 40;
        break;
    default:
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    return HSA_STATUS_SUCCESS;
}

static const char *const isas[] = {"amdgcn-amd-amdhsa--gfx1151", "amdgcn-amd-amdhsa--gfx11-generic",
                                   "something else"};

hsa_status_t hsa_agent_iterate_isas(hsa_agent_t agent, hsa_isa_callback_t callback, void *data) {
    for (uint64_t i = 0; i < 3; ++i) {
        const hsa_isa_t isa = {i};
        callback(isa, data);
    }
    return agent.handle == 2 ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_AGENT;
}

hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void *value) {
    if (attribute == HSA_ISA_INFO_NAME_LENGTH)
        *(uint32_t *)value = (uint32_t)strlen(isas[isa.handle]);
    else
        memcpy(value, isas[isa.handle], strlen(isas[isa.handle]));
    return HSA_STATUS_SUCCESS;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if CC is None:
        missing("no C compiler")
    folder = tmp_path_factory.mktemp("hsa")
    source = folder / "fake.c"
    source.write_text(FAKE)
    made = folder / "libfakehsa.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", f"-I{ROOT / 'rocm_backend'}"]
    subprocess.run([CC, *flags, str(source), "-o", str(made)], check=True)
    return made


@pytest.fixture
def fake(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime that this process has not initialised."""
    fresh = Path(shutil.copy(library, tmp_path))
    monkeypatch.setenv(LIBRARY_VARIABLE, str(fresh))
    monkeypatch.setenv("FAKE_HSA_GPUS", "1")
    return fresh


def calls(fake: Path) -> tuple[int, int]:
    """Number of runtime starts, and of starts without a shutdown."""
    loaded = ctypes.CDLL(str(fake))
    return loaded.fake_started(), loaded.fake_opened()


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none.so"))
    record = backend.probe()
    assert (record.verdict, record.devices) == ("absent", ())
    assert "none.so" in record.reason
    assert "libhsa-runtime64-1" in record.next_step


def test_gpus_that_run_kernels_are_listed(fake: Path) -> None:
    record = backend.probe()
    assert record.verdict == "ok"
    assert record.reason == "1 device, HSA 1.18"
    assert (record.version, record.path) == ("HSA 1.18", str(fake))
    (device,) = record.devices
    # A name without a terminating zero is not read past its 64 bytes.
    assert (device.ordinal, device.name) == (0, "A" * 64)
    assert device.description == "gfx1151, gfx11-generic, 40 compute units"


def test_the_runtime_is_initialised_once_and_stays_so(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert backend.probe().verdict == "ok"
        assert calls(fake) == (1, 1)
    monkeypatch.setenv("FAKE_HSA_INFO", str(0x1001))
    with pytest.raises(DeviceError, match="hsa_agent_get_info"):
        backend.open()
    assert calls(fake) == (1, 1)


def test_a_forked_child_of_a_process_that_asked_is_told(fake: Path) -> None:
    assert backend.probe().verdict == "ok"
    child = os.fork()
    if child == 0:
        record = backend.probe()
        told = (
            record.verdict == "refused" and "start workers with the spawn method" in record.reason
        )
        os._exit(0 if told and calls(fake) == (1, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_runtime_is_asked_again_until_it_starts(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_HSA_INIT", str(0x1008))
        assert backend.probe().verdict == "absent"
    assert backend.probe().verdict == "ok"
    assert calls(fake) == (2, 1)


def test_a_runtime_without_gpus(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_HSA_GPUS")
    record = backend.probe()
    assert (record.verdict, record.reason) == ("absent", "runtime found, no device")
    assert record.next_step


def test_a_runtime_that_does_not_start(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_HSA_INIT", str(0x1008))
    record = backend.probe()
    assert record.verdict == "absent"
    assert record.reason == "runtime found, no device (hsa_init: OUT: no resources)"
    assert calls(fake) == (1, 0)


def test_a_runtime_that_answers_with_an_error(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_HSA_INFO", str(0x100B))
    record = backend.probe()
    assert record.verdict == "refused"
    assert record.reason.startswith(
        "hsa_agent_get_info: HSA_STATUS_ERROR_NOT_INITIALIZED (4107). A process that was forked"
    )


def test_the_error_table_names_what_the_header_has() -> None:
    constants = header().constants
    for name in {*CLASS_OF, *ADVICE} - set(LOST_TEXT):
        assert status_name(constants, constants[name]) == name
    assert status_name(constants, 0x2D) == "HSA_STATUS_ERROR_OUT_OF_REGISTERS"
    assert status_name(constants, 0x7777) == "0x7777"


def test_what_loses_a_device_is_in_both_headers() -> None:
    lost = {
        name: code
        for name, code in runtime_header().constants.items()
        if name.startswith(STICKY_PREFIX)
    }
    base = runtime_header().constants["UHAL_HSA_LOST"]
    assert lost.keys() >= LOST_TEXT.keys()
    for name in lost.keys() - LOST_TEXT.keys():
        ending = name.removeprefix(STICKY_PREFIX)
        status = "HSA_STATUS_ERROR" + (f"_{ending}" if ending != "ERROR" else "")
        assert header().constants[status] == lost[name] - base
    assert len(lost) <= 16  # UHAL_MAX_STICKY_CODES


DEBIAN = Path("/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1")


@pytest.mark.skipif(not DEBIAN.exists(), reason="AMD's runtime is not installed")
@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="there may be devices here")
def test_amds_runtime_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(DEBIAN))
    for _ in range(3):
        record = backend.probe()
        assert record.verdict == "absent"
        assert record.reason.startswith("runtime found, no device (hsa_init: ")
        assert "load the amdgpu kernel driver" in record.next_step


def test_every_slot_has_the_prototype_of_its_function() -> None:
    slots = _lane.slot_prototypes()
    unused = {"launch_ex", "prepare_function", "alloc_async", "free_async", "stream_series"}
    assert set(FUNCTION_OF_SLOT) == set(slots) - unused
    path = ROOT / "rocm_backend" / "runtime.h"
    expected = parameter_lists(path, {slot: slots[slot][1] for slot in FUNCTION_OF_SLOT})
    for slot, name in FUNCTION_OF_SLOT.items():
        assert parameters(runtime_header(), name) == expected[slot], slot


# -- which memory and which CPU --------------------------------------------------------------------

CONSTANTS = header().constants
GLOBAL, GROUP = CONSTANTS["HSA_AMD_SEGMENT_GLOBAL"], CONSTANTS["HSA_AMD_SEGMENT_GROUP"]
KERNARG, FINE, COARSE = (
    CONSTANTS[f"HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_{name}"]
    for name in ("KERNARG_INIT", "FINE_GRAINED", "COARSE_GRAINED")
)
OF_HOST = (
    Pool(1, GLOBAL, KERNARG | FINE, 1 << 30, True),
    Pool(2, GLOBAL, FINE, 1 << 30, True),
    Pool(3, GLOBAL, COARSE, 1 << 30, True),
    Pool(4, GLOBAL, FINE, 1 << 40, False),
)
OF_GPU = (
    Pool(5, GLOBAL, FINE, 1 << 34, True),
    Pool(6, GLOBAL, COARSE, 1 << 20, True),
    Pool(7, GROUP, 0, 65536, False),
    Pool(8, GLOBAL, COARSE, 1 << 34, True),
)
LIBRARY = cast(Library, SimpleNamespace(header=header()))


def test_pools_are_chosen_by_their_flags_in_any_order() -> None:
    orders = itertools.product(itertools.permutations(OF_GPU), itertools.permutations(OF_HOST))
    for of_gpu, of_host in orders:
        chosen = choose_pools(LIBRARY, of_gpu, of_host)
        # the pool for kernel arguments is used for nothing else if there is another pool
        assert (chosen.pinned.handle, chosen.kernarg.handle) == (2, 1)
        assert (chosen.device.handle, chosen.device_is_host, chosen.group_bytes) == (
            8,
            False,
            65536,
        )
        shared = choose_pools(LIBRARY, OF_GPU[2:3], of_host)
        assert (shared.device.handle, shared.device_is_host) == (3, True)


def test_one_pool_may_serve_for_all() -> None:
    chosen = choose_pools(LIBRARY, (), OF_HOST[:1])
    assert {chosen.device.handle, chosen.pinned.handle, chosen.kernarg.handle} == {1}
    for of_host, what in (
        (OF_HOST[1:], "kernel argument"),
        (OF_HOST[3:], "device"),
        ((), "device"),
    ):
        with pytest.raises(NotSupportedError, match=f"no pool for {what} memory"):
            choose_pools(LIBRARY, (), of_host)


@pytest.mark.parametrize(
    ("told", "expected"), [(11, 11), (12, 12), (13, 13), (None, 11), (0, 11), (99, 11)]
)
def test_the_nearest_cpu_is_the_host(
    monkeypatch: pytest.MonkeyPatch, told: int | None, expected: int
) -> None:
    monkeypatch.setattr(_agents, "optional_number", lambda *asked: told)
    pools = {agent: (Pool(agent, GLOBAL, KERNARG | FINE, 1, True),) for agent in (11, 12, 13)}
    monkeypatch.setattr(_agents, "pools", lambda library, agent: pools.get(agent, OF_GPU))
    gpu = cast("_agents.Gpu", SimpleNamespace(handle=5))
    host, chosen = _agents.host_and_pools(LIBRARY, gpu, (11, 12, 13))
    assert (host, chosen.kernarg.handle, chosen.pinned.handle) == (expected,) * 3
    with pytest.raises(NotSupportedError, match="lists no CPU agent"):
        _agents.host_and_pools(LIBRARY, gpu, ())


def test_limits_of_a_launch_are_told_axis_by_axis() -> None:
    def tell(agent: Any, attribute: int, value: Any) -> None:
        assert (agent.handle, attribute) == (5, header().constants["HSA_AGENT_INFO_GRID_MAX_DIM"])
        value._obj[:] = (2**31 - 1, 65535, 4095)

    library = cast(Library, SimpleNamespace(header=header(), hsa_agent_get_info=tell))
    found = _agents.extents(library, 5, "HSA_AGENT_INFO_GRID_MAX_DIM", ctypes.c_uint32)
    assert found == (2**31 - 1, 65535, 4095)
