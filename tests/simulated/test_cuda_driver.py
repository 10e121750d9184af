"""uhal on the simulated CUDA driver, one process per test: faults, failures, versions."""

from __future__ import annotations

import textwrap

import pytest

from cuda_backend._library import CANDIDATES
from tests.sampling import SOAK
from tests.simulated.process import needs_simulator, run_python

pytestmark = needs_simulator

PROLOGUE = """
import numpy as np
import ubridge
from uhal import *
from uhal.errors import DeviceError, InvalidImageError
"""


def run(script: str, *arguments: str, **environment: str) -> str:
    """Run a script on the simulated driver; return its output."""
    return run_python("-c", PROLOGUE + textwrap.dedent(script), *arguments, **environment)


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
        # With another schedule the second launch may already raise the first launch's fault.
        UHAL_SIM_SCHEDULE="lazy",
    )


def test_old_drivers_take_every_shipped_module_as_ptx(seed: int) -> None:
    run(
        """
        import random, sys
        chosen = random.Random(int(sys.argv[1]))
        Api.quick_init()
        assert Api.get_api_version() == "11.4", Api.get_api_version()
        # The driver translates each requested kernel; translating all kernels would take minutes.
        every = sys.argv[2] == "True"
        translated = ubridge.modules() if every else chosen.sample(list(ubridge.modules()), 8)
        for name in ubridge.modules():
            module = ubridge.load_module(name)
            assert module.chosen.description.startswith("PTX "), module.chosen
            refused = [one.reason for one in module.chosen.candidates if not one.accepted]
            binaries = [one for one in refused if "is as good or newer" not in one]
            assert len(binaries) == 2, refused
            words = "a binary needs a driver of its own major version"
            assert all(words in one for one in binaries)
            kernels = module.kernels if name in translated else ()
            for kernel in kernels if every else chosen.sample(kernels, min(1, len(kernels))):
                assert module.get_function(kernel).signature is not None
        """,
        str(seed),
        str(SOAK),
        UHAL_SIM_CUDA_DRIVER="11040",
    )


@pytest.mark.drawn(1)
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


def test_a_plan_with_slots_takes_kernels_of_another_library() -> None:
    """Another library's launches have other functions than ours."""
    run(
        """
        import ctypes, os
        Api.quick_init()
        ours, theirs = (
            Module.from_file("uhal_conformance/images/cuda/basic.ptx").get_function("saxpy")
            for _ in range(2)
        )
        driver = ctypes.CDLL(os.environ["UHAL_CUDA_LIBRARY"])
        stream = Stream()
        x, y = DeviceBuffer.from_numpy(np.ones(100, "f4")), DeviceBuffer.zeros(100, "f4")
        values = (
            ctypes.c_uint64(100),
            ctypes.c_float(5),
            *(ctypes.c_uint64(one.as_device_ptr().address) for one in (x, y)),
        )
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(one) for one in values))

        def launch_theirs():
            geometry = map(ctypes.c_uint, (1, 1, 1, 128, 1, 1, 0))
            handles = ctypes.c_void_p(theirs.handle), ctypes.c_void_p(stream.handle)
            code = driver.cuLaunchKernel(handles[0], *geometry, handles[1], pointers, None)
            assert code == 0, code

        with stream.capture() as plan:
            factor = plan.slot("factor", 2.0)
            launch_theirs()
            ours[1, 128, 0, stream](100, factor, x, y)
            launch_theirs()
            ours[1, 128, 0, stream](100, 1.0, x, y)
        for factor in (2.0, 3.0, 4.0):
            plan.replay(stream, factor=factor)
        found = y.to_numpy(stream=stream)
        assert (found == 3 * (5 + 5 + 1) + 2 + 3 + 4).all(), found
        """
    )


def test_the_network_gives_the_same_table_as_the_host() -> None:
    tables = [
        run(
            """
            import runpy, sys
            sys.argv = ["network_test.py", "--constant", "--table", "--backend", sys.argv[1]]
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
    assert tables[0][1:17] == tables[1][1:17]
    assert tables[0][-1] == tables[1][-1] == "Launched compute kernel successfully."


@pytest.mark.parametrize("named", ["/nowhere/libcuda.so.1", ""])
def test_without_a_driver_the_error_says_what_was_tried_and_what_to_do(named: str) -> None:
    names = [named] if named else list(CANDIDATES)
    out = run_python(
        "-c",
        textwrap.dedent(
            f"""
            from uhal import Api, NoDeviceError
            try:
                Api.quick_init(backend="cuda")
            except NoDeviceError as error:
                for name in {names!r}:
                    assert f"{{name}}: " in str(error), error
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
