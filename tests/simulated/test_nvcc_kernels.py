"""Kernels of nvcc 13 with CUDA's own headers, through uhal on the simulated CUDA driver."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ptx_large import LargeModule
from tests.requirements import needed_module
from tests.simulated.process import ROOT, needs_simulator, run_freely, run_python

needed_module("llvmlite")
pytestmark = needs_simulator

DATA = ROOT / "tests" / "data" / "ptx" / "nvcc"

PROLOGUE = """
import sys
import numpy as np
from uhal import *
from uhal.errors import DeviceError
device = Api.quick_init(0, "cuda")
module = Module.from_file(sys.argv[1])
rng = np.random.default_rng(int(sys.argv[2]))

def said(act):
    try:
        act()
        device.synchronize()
    except DeviceError as caught:
        print(caught)
    else:
        raise AssertionError("nothing was raised")
"""


def run(name: str, seed: int, script: str, **environment: str) -> str:
    """Run a script with a module of nvcc's; return its output."""
    code = PROLOGUE + textwrap.dedent(script)
    path = str(DATA / f"{name}.ptx")
    return run_python("-c", code, path, str(seed), **environment)


@pytest.mark.parametrize("schedule", ["lazy", "eager"])
def test_a_cooperative_launch(seed: int, schedule: str) -> None:
    """Blocks wait for each other, in a launch and in the replay of a captured launch."""
    run(
        "grid_sm_80",
        seed,
        """
        x = rng.normal(size=1000).astype("f4")
        smooth = module.get_function("smooth")
        config = LaunchConfig(6, 64, cooperative=True)
        expected = x.astype("f8")
        for _ in range(4):
            expected = (expected + np.roll(expected, -1)) / 2
        y, z = DeviceBuffer.from_numpy(x), DeviceBuffer.zeros(x.size, "f4")
        launch(smooth, config=config, args=(y, z, x.size, 4))
        np.testing.assert_allclose(y.to_numpy(), expected, rtol=1e-5, atol=1e-5)
        y.copy_from(x)
        stream = Stream()
        with stream.capture() as plan:
            launch(smooth, config=config, stream=stream, args=(y, z, x.size, 4))
        plan.replay()
        plan.replay()
        for _ in range(4):
            expected = (expected + np.roll(expected, -1)) / 2
        stream.synchronize()
        np.testing.assert_allclose(y.to_numpy(), expected, rtol=1e-5, atol=1e-5)
        """,
        UHAL_SIM_SCHEDULE=schedule,
    )


def test_tables_of_functions_and_of_virtual_ones(seed: int) -> None:
    run(
        "calls_sm_80",
        seed,
        """
        which = rng.integers(0, 3, 200, dtype="i4")
        x, y = rng.normal(size=(2, 200)).astype("f4")
        z = DeviceBuffer.zeros(200, "f4")
        given = [DeviceBuffer.from_numpy(one) for one in (which, x, y)]
        module.get_function("apply")[4, 64](*given, z, 200)
        np.testing.assert_array_equal(z.to_numpy(), np.choose(which, [x + y, x - y, x * y]))
        module.get_function("areas")[4, 64](given[0], given[1], z, 200)
        expected = np.where(which, 3.25, 1) * x.astype("f8") ** 2
        np.testing.assert_allclose(z.to_numpy(), expected, rtol=1e-6)
        """,
    )


def fault(entry: str, arguments: str, **environment: str) -> str:
    """Return the message about a faulty kernel of lines.cu."""
    return run(
        "lines_sm_80",
        0,
        f"""
        x, y = DeviceBuffer.zeros(32, "i4"), DeviceBuffer.zeros(32, "f4")
        kernel = module.get_function({entry!r})
        said(lambda: kernel[1, 32]({arguments}))
        """,
        UHAL_POOL="direct",
        **environment,
    )


def test_faults_name_the_line_of_the_source(tmp_path: Path) -> None:
    report = tmp_path / "report"
    words = fault("past_the_end", "y, 1", UHAL_SIM_REPORT=str(report))
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in words
    assert "kernel past_the_end stopped at lines.cu:8: block (0, 0, 0): thread (31, 0, 0)" in words
    assert f"more in {report}" in words
    assert "  source    lines.cu:8\n  PTX       line " in report.read_text()
    words = fault("in_a_helper", "x, x, 1")
    assert "stopped at lines.h:4, inlined at lines.cu:13: " in words
    words = fault("trapped", "x")
    assert "CUDA_ERROR_LAUNCH_FAILED" in words
    assert "stopped at lines.cu:19: " in words


def test_the_line_itself_is_shown_where_the_source_is(tmp_path: Path) -> None:
    text = (DATA / "lines_sm_80.ptx").read_text()
    moved = tmp_path / "moved.ptx"
    moved.write_text(text.replace('"lines.cu"', f'"{DATA / "lines.cu"}"'))
    code = PROLOGUE + textwrap.dedent("""
        y = DeviceBuffer.zeros(32, "i4")
        said(lambda: module.get_function("trapped")[1, 32](y))
    """)
    done = run_freely("-c", code, str(moved), "0", UHAL_SIM_REPORT="stderr")
    assert f"  source    {DATA / 'lines.cu'}:19\n            __trap(); // line 19\n" in done.stderr
    assert "UHAL_SIM_REPORT" not in done.stdout


def test_another_thread_may_ask_what_a_fault_was() -> None:
    """uhal waits for long work on another thread; the calling thread then asks for the fault."""
    script = """
        import ctypes, os, threading
        driver = ctypes.CDLL(os.environ["UHAL_CUDA_LIBRARY"])
        y = DeviceBuffer.zeros(32, "f4")
        module.get_function("past_the_end")[1, 32](y, 1)
        context, codes = ctypes.c_void_p(), []
        driver.cuCtxGetCurrent(ctypes.byref(context))
        def wait():
            driver.cuCtxSetCurrent(context)
            codes.append(driver.cuCtxSynchronize())
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        words = ctypes.c_char_p()
        assert driver.cuGetErrorString(codes[0], ctypes.byref(words)) == 0
        print(codes[0], words.value.decode())
        said(lambda: None)
        """
    said = run("lines_sm_80", 0, script, UHAL_POOL="direct")
    assert said.startswith("700 illegal address (kernel past_the_end stopped at lines.cu:8")


def test_advice_fits_what_simulates() -> None:
    """The advice names the simulator's report and no tool that needs a GPU."""
    for words in (fault("past_the_end", "y, 1"), fault("trapped", "x")):
        assert "UHAL_SIM_REPORT=stderr tells more" in words
        assert "compute-sanitizer" not in words
        assert "Start a new process" in words


def test_what_is_not_executed_is_not_sent_to_ptxas(tmp_path: Path) -> None:
    path = tmp_path / "textured.ptx"
    path.write_text(
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 t) {\n"
        ".reg .f32 %f<5>; .reg .b64 %d; ld.param.u64 %d, [t];\n"
        "tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d, {%f4}]; ret; }\n"
    )
    code = PROLOGUE + "said(lambda: module.get_function('k'))"
    words = run_python("-c", code, str(path), "0")
    assert "line 6: tex.1d.v4.f32.f32 is not executed here" in words or "tex.1d" in words
    assert "ptxas" not in words


def test_integers_of_either_sign_and_numbers_by_their_use(seed: int) -> None:
    run(
        "grid_sm_80",
        seed,
        """
        text = b'''
        .version 8.7
        .target sm_80
        .address_size 64
        .visible .entry k(.param .u64 y, .param .u32 a, .param .s32 b, .param .b32 f, .param .u64 m)
        {
            .reg .b32 %r<5>; .reg .b64 %d<3>;
            ld.param.u64 %d1, [y]; ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b];
            ld.param.b32 %r3, [f]; ld.param.u64 %d2, [m]; mul.lo.s64 %d2, %d2, 3;
            add.f32 %r4, %r3, %r3;
            st.u32 [%d1], %r1; st.u32 [%d1+4], %r2; st.u32 [%d1+8], %r4; st.u64 [%d1+16], %d2;
            ret;
        }'''
        kernel = Module.from_bytes(text).get_function("k")
        print(kernel.signature)
        y = DeviceBuffer.zeros(6, "u4")
        words = (10007, -7, -(2**31), 4294967295)
        for a, b, m in zip(words, reversed(words), (5, -5, 2**63, 0)):
            kernel[1, 1](y, a, b, 1.25, m)
            got = y.to_numpy()
            assert got[:2].tolist() == [a % 2**32, b % 2**32], got
            assert got[2:3].view("f4")[0] == 2.5
            assert got[4:].view("u8")[0] == 3 * m % 2**64
        """,
    )


def test_of_a_large_module_only_what_is_launched_is_translated(
    rng: np.random.Generator, seed: int, tmp_path: Path
) -> None:
    """The module is as large as Candle's `quantized`. The test counts libraries, not time."""
    path = tmp_path / "large.ptx"
    module = LargeModule(seed)
    path.write_text(module.text())
    assert path.stat().st_size > 5_500_000
    cache = tmp_path / "cache"
    first, second = (int(one) for one in rng.choice(module.kernels, 2, replace=False))
    script = f"""
        import pathlib
        from benchmarks.ptx_large import LargeModule
        def libraries():
            return len(list(pathlib.Path({str(cache)!r}).glob("*.so")))
        large = LargeModule({seed})
        x = rng.integers(0, 1 << 32, 300, dtype="u4")
        y = DeviceBuffer.zeros(300, "u4")
        assert (len(module.kernels), libraries()) == ({module.kernels}, 0)
        for count, kernel in enumerate(({first}, {second}), 1):
            module.get_function(f"kernel_{{kernel}}")[2, 256](DeviceBuffer.from_numpy(x), y, 300)
            np.testing.assert_array_equal(y.to_numpy(), large.expected(kernel, x))
            assert libraries() == count
        """
    code = PROLOGUE + textwrap.dedent(script)
    run_python("-c", code, str(path), str(seed), UHAL_SIM_CACHE=str(cache))
