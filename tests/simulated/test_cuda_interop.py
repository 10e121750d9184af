"""Memory beyond one buffer on the simulated CUDA driver: mapped, pitched, of another process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "simulators" / "build" / "libcuda.so.1"
IMAGE = ROOT / "ubridge" / "kernels" / "images" / "cuda" / "activation.fatbin"

pytestmark = pytest.mark.skipif(
    not LIBRARY.is_file(), reason="the simulated CUDA driver is not built: make simulators"
)

PROLOGUE = """
import pickle, subprocess, sys
import numpy as np
from uhal import *
device = Api.quick_init(0, "cuda")
relu = Module.from_file({image!r}).get_function("activationf32")
VALUES = np.array([-1, 2, -3, 4, 5, -6], "f4")
CLIPPED = np.maximum(VALUES, 0)
SHAPE = (2, 3, 0)
"""


def run(script: str) -> None:
    """Run a script in a process of its own, where every library finds the simulated driver."""
    kernels = sorted((ROOT / "ubridge" / "kernels" / "host").glob("*/activation.so"))
    if not kernels:
        pytest.skip("the host kernels are not built")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROLOGUE.format(image=str(IMAGE))
         + textwrap.dedent(script)],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(LIBRARY.parent),
            "UHAL_CUDA_LIBRARY": str(LIBRARY),
            "UHAL_SIM_KERNELS": str(kernels[0].parent),
        },
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_extended_launches_mapped_memory_and_rows() -> None:
    run(
        """
        x = DeviceBuffer.from_numpy(VALUES)
        launch(relu, config=LaunchConfig(1, 32, cooperative=True, priority=-1), args=(x, *SHAPE))
        assert np.array_equal(x.to_numpy(), CLIPPED)
        host = HostBuffer(6, "f32", mapped=True)
        host.array[:] = VALUES
        launch(relu, 1, 32, (host.device_ptr, *SHAPE))
        device.synchronize()
        assert np.array_equal(host.array, CLIPPED)
        image = np.arange(24, dtype="f4").reshape(4, 6)
        padded = DeviceBuffer.zeros(40, "f32")
        padded.copy_2d_from(image[:, 1:5], pitch=10)
        found = padded.to_numpy().reshape(4, 10)
        assert np.array_equal(found[:, :4], image[:, 1:5]) and not found[:, 4:].any()
        back = np.zeros((4, 6), "f4")
        padded.copy_2d_to(back[:, 2:], pitch=10)
        assert np.array_equal(back[:, 2:], image[:, 1:5]) and not back[:, :2].any()
        """
    )


def test_a_buffer_in_another_process() -> None:
    run(
        """
        x = DeviceBuffer.from_numpy(np.arange(100, dtype="f4"))
        code = (
            "import pickle, sys; from uhal import *; Api.quick_init(0, 'cuda');"
            "x = DeviceBuffer.from_ipc_handle(pickle.load(sys.stdin.buffer));"
            "assert list(x.to_numpy()) == [50, 51]; x.set_32(0); Stream.default().synchronize()"
        )
        handle = pickle.dumps(x[50:52].ipc_handle())
        subprocess.run([sys.executable, "-c", code], input=handle, check=True)
        found = x.to_numpy()
        assert found[49] == 49 and not found[50:52].any() and found[52] == 52
        """
    )
