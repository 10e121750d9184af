"""uhal on the simulated CUDA driver where a process must be its own: faults, failures, versions."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from cuda_backend._backend import FUNCTION_OF_SLOT
from cuda_backend._library import CANDIDATES
from tests.sampling import SOAK
from tests.simulated.process import LIBRARY, ROOT, needs_simulator, run_python

pytestmark = needs_simulator

PROLOGUE = """
import ctypes, gc
import numpy as np
import uhal, ubridge
from uhal import *
from uhal.errors import DeviceError, DeviceWarning, InvalidImageError

simulator = ctypes.CDLL({library!r})
def live():
    kinds = ("context", "stream", "event", "module", "allocation", "pinned")
    return {{kind: simulator.uhal_sim_live(kind.encode()) for kind in kinds}}
def fail(call, nth, code):
    simulator.uhal_sim_fail(call.encode(), nth, code)
"""


def run(script: str, *arguments: str, **environment: str) -> str:
    """Run a script on the simulated driver; return what it printed."""
    code = PROLOGUE.format(library=str(LIBRARY)) + textwrap.dedent(script)
    return run_python("-c", code, *arguments, **environment)


def test_an_illegal_address_names_its_candidates_and_the_device_is_lost() -> None:
    run(
        """
        device = Api.quick_init()
        kernel = ubridge.load_module("activation").get_function("activationf32")
        with_faults = Stream()
        elsewhere = Stream()
        x = DeviceBuffer.zeros(64, "f32")
        kernel[1, 64, 0, with_faults](x, 8, 8, 0)
        with_faults.synchronize()
        kernel[1, 64, 0, with_faults](DevicePointer(0x10), 8, 8, 1)
        kernel[1, 64, 0, with_faults](x, 8, 8, 2)
        try:
            elsewhere.synchronize()
            with_faults.synchronize()
        except DeviceError as error:
            assert error.code == 700 and error.name == "CUDA_ERROR_ILLEGAL_ADDRESS", error
            kinds = [one.arguments for one in error.candidates]
            assert len(kinds) == 2, error
            assert "data=0x10, rows=8, cols=8, kind=1" in str(error), error
            assert "Start a new process" in str(error), error
        else:
            raise AssertionError("the fault was not reported")
        for use in (
            x.to_numpy,
            Stream,
            Event,
            device.synchronize,
            device.memory_info,
            lambda: DeviceBuffer.zeros(4, "f32"),
            lambda: HostBuffer(4, "f32"),
            lambda: kernel[1, 64](x, 8, 8, 0),
            lambda: ubridge.load_module("convolution"),
        ):
            try:
                use()
            except DeviceError as error:
                assert "cuda:0 was lost earlier" in str(error), error
            else:
                raise AssertionError(f"{use} worked on a lost device")
        """,
        # Otherwise the second launch may meet the fault of the first.
        UHAL_SIM_SCHEDULE="lazy",
    )


WORK = """
from pathlib import Path
image = Path("ubridge/kernels/images/cuda/activation.ptx").read_bytes()

def work():
    with Stream() as stream, Stream(StreamFlags.NON_BLOCKING) as other:
        pinned = HostBuffer(1000, "f32")
        pinned.array[:] = 1
        x = DeviceBuffer.from_numpy(np.ones(1000, "f4"), stream=stream)
        y = DeviceBuffer.uninitialized_async(1000, "f32", stream, native=True)
        y.view("u8").set_8(0, stream=stream)
        y.view("u16").set_16(0, stream=stream)
        y.set_32(0, stream=stream)
        y.copy_from_async(x, stream)
        with Module.from_bytes(image) as module:
            started = stream.record_event(Event())
            module.get_function("activationf32")[4, 256, 0, stream](y, 10, 100, 0)
            event = stream.record_event(Event())
            other.wait_event(event)
            y.copy_to_async(pinned, other)
            other.add_callback(called.append, 1)
            event.synchronize()
            other.synchronize()
            assert event.elapsed_since(started) >= 0
        stream.synchronize()
        assert (pinned.array == 1).all()
        assert (y.to_numpy() == 1).all()
"""

# What is called when something goes: a destructor warns, and close() raises.
LETTING_GO = {
    *("cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuStreamDestroy_v2"),
    *("cuEventDestroy_v2", "cuModuleUnload"),
}
# Not called by the work: another device, a launch with attributes; or an answer and no failure.
NOT_CALLED = {
    *("cuMemcpyPeerAsync", "cuLaunchKernelEx", "cuStreamQuery", "cuEventQuery"),
    "cuCtxSetCurrent",  # the device is current already
}


@pytest.mark.parametrize("code", ["CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_OUT_OF_MEMORY"])
def test_every_hot_call_may_fail_once(code: str) -> None:
    number = {"CUDA_ERROR_INVALID_VALUE": 1, "CUDA_ERROR_OUT_OF_MEMORY": 2}[code]
    last = 8 if SOAK else 2
    calls = sorted(set(FUNCTION_OF_SLOT.values()) - NOT_CALLED)
    out = run(
        WORK
        + textwrap.dedent(
            f"""
            import warnings
            called = []
            device = Api.quick_init()
            work()
            for call in {calls!r}:
                for nth in range(1, {last + 1}):
                    device.empty_cache()
                    fail(call, nth, {number})
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", DeviceWarning)
                        try:
                            work()
                        except DeviceError as error:
                            assert {code!r} in str(error) or error.code is None, error
                            print(call)
                            del error
                        gc.collect()
                    fail(call, 0, 0)
                    work()
            """
        ),
        # Where nothing is done before it is waited for, every wait reaches the driver.
        UHAL_SIM_SCHEDULE="lazy",
    )
    # A full device is asked again once the pool has given back what it keeps.
    survived = {"cuMemAlloc_v2"} if code == "CUDA_ERROR_OUT_OF_MEMORY" else set()
    assert set(calls) - LETTING_GO - survived <= set(out.split())


def test_old_drivers_take_every_shipped_module_as_ptx() -> None:
    run(
        """
        Api.quick_init()
        assert Api.get_api_version() == "11.4", Api.get_api_version()
        for name in ubridge.modules():
            module = ubridge.load_module(name)
            assert module.chosen.description.startswith("PTX "), module.chosen
            refused = [one.reason for one in module.chosen.candidates if not one.accepted]
            assert len(refused) == 2, refused
            assert all("a binary needs a driver of its own major version" in one for one in refused)
            for kernel in module.kernels:
                assert module.get_function(kernel).signature is not None
        """,
        UHAL_SIM_CUDA_DRIVER="11040",
    )


@pytest.mark.parametrize(("profile", "target"), [("sm_80", "sm_80"), ("sm_90", "sm_90")])
def test_the_binary_for_the_device_is_taken(profile: str, target: str) -> None:
    run(
        """
        import sys
        Api.quick_init()
        for name in ubridge.modules():
            chosen = ubridge.load_module(name).chosen
            assert chosen.description == f"cubin for {sys.argv[1]}", chosen
        """,
        target,
        UHAL_SIM_CUDA_PROFILE=profile,
    )


def test_ptx_newer_than_the_driver_is_refused_with_both_versions() -> None:
    run(
        """
        Api.quick_init()
        try:
            Module.from_file("tests/data/cuda/sm_75.ptx")
        except InvalidImageError as error:
            assert "PTX 9.0 needs a driver for CUDA 13.0" in str(error), error
            assert "this one is for CUDA 12.4" in str(error), error
        else:
            raise AssertionError("it was loaded")
        """,
        UHAL_SIM_CUDA_DRIVER="12040",
    )


def test_the_network_gives_the_same_table_as_the_host() -> None:
    tables = [
        run(
            """
            import runpy, sys
            sys.argv = ["network_test.py", "--backend", sys.argv[1]]
            try:
                runpy.run_path("examples/network_test.py", run_name="__main__")
            except SystemExit as end:
                assert not end.code, end.code
            """,
            backend,
        ).splitlines()
        for backend in ("host", "cuda")
    ]
    # The first line is the device's name, the last but one the error against numpy.
    assert tables[0][1:15] == tables[1][1:15]
    assert tables[0][-1] == tables[1][-1] == "Launched compute kernel successfully."


@pytest.mark.parametrize("named", ["/nowhere/libcuda.so.1", ""])
def test_without_a_driver_the_error_says_what_was_tried_and_what_to_do(named: str) -> None:
    places = [named] if named else list(CANDIDATES)
    out = run_python(
        "-c",
        textwrap.dedent(
            f"""
            from uhal import Api, NoDeviceError
            try:
                Api.quick_init(backend="cuda")
            except NoDeviceError as error:
                for place in {places!r}:
                    assert f"{{place}}: " in str(error), error
                assert "cannot open shared object file" in str(error), error
                assert "install the NVIDIA driver" in str(error), error
                assert "set UHAL_CUDA_LIBRARY to its libcuda.so.1" in str(error), error
            else:
                print("a driver")
            """
        ),
        LD_LIBRARY_PATH="",
        UHAL_CUDA_LIBRARY=named,
    )
    if out and not named:
        pytest.skip("this machine has an NVIDIA driver")
    assert out == ""


@pytest.mark.parametrize(
    "schedule",
    ["random:{seed}", pytest.param("eager", marks=pytest.mark.skipif(not SOAK, reason="soak"))],
)
def test_the_conformance_suite_under_other_schedules(schedule: str, seed: int) -> None:
    chosen = schedule.format(seed=seed % 100_000)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/conformance", "-k", "cuda-sim"],
        cwd=ROOT,
        env={**os.environ, "UHAL_SIM_SCHEDULE": chosen},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, f"UHAL_SIM_SCHEDULE={chosen}\n{done.stdout[-5000:]}"
