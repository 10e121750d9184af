"""Features beyond one buffer and one plain launch, on the simulated CUDA driver."""

from __future__ import annotations

import textwrap

from tests.simulated.process import IMAGES, needs_simulator, run_python

pytestmark = needs_simulator

PROLOGUE = """
import pickle, subprocess, sys
import numpy as np
from uhal import *
device = Api.quick_init(0, "cuda")
relu = Module.from_file({image!r}).get_function("activationf32")
VALUES = np.array([-1, 2, -3, 4, 5, -6], "f4")
CLIPPED = np.maximum(VALUES, 0)
SHAPE = (2, 3, 0)

def refused(act, error, *words):
    try:
        act()
    except error as caught:
        assert all(word in str(caught) for word in words), caught
    else:
        raise AssertionError(error.__name__, words)
"""


def run(script: str, **environment: str) -> None:
    """Run a script on the simulated driver."""
    image = str(IMAGES / "activation.fatbin.gz")
    code = PROLOGUE.format(image=image) + textwrap.dedent(script)
    run_python("-c", code, UHAL_SIM_SCHEDULE="lazy", **environment)


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


def test_clusters() -> None:
    run(
        """
        assert relu.max_active_blocks(1024) == 2
        for cluster, grid in ((2, 4), ((2, 2), (4, 2)), (8, 16)):
            x = DeviceBuffer.from_numpy(VALUES)
            launch(relu, config=LaunchConfig(grid, 32, cluster=cluster), args=(x, *SHAPE))
            assert np.array_equal(x.to_numpy(), CLIPPED)
        for cluster, grid, words in (
            (3, 4, "cluster x: expected a divisor of the 4 blocks"),
            (16, 16, "expected at most 8 blocks on this device, got 16"),
        ):
            config = LaunchConfig(grid, 32, cluster=cluster)
            act = lambda: launch(relu, config=config, args=(x, *SHAPE))
            refused(act, ArgumentValueError, words)
        """,
        UHAL_SIM_CUDA_PROFILE="sm_90",
    )
    run(
        """
        config = LaunchConfig(2, 32, cluster=2)
        refused(
            lambda: launch(relu, config=config, args=(None, *SHAPE)),
            ArgumentValueError,
            "expected at most 1 block",
        )
        """
    )


def test_a_cooperative_launch_has_to_fit_the_device() -> None:
    run(
        """
        x = DeviceBuffer.from_numpy(VALUES)
        most = relu.max_active_blocks(1024) * device.limits.processors
        for grid, fits in ((most, True), (most + 1, False)):
            config = LaunchConfig(grid, 1024, cooperative=True)
            act = lambda: launch(relu, config=config, args=(x, *SHAPE))
            if fits:
                act()
            else:
                refused(act, ArgumentValueError, "COOPERATIVE_LAUNCH_TOO_LARGE", "at once")
        assert np.array_equal(x.to_numpy(), CLIPPED)
        """
    )


def test_more_shared_memory_than_every_device_has() -> None:
    run(
        """
        x = DeviceBuffer.from_numpy(VALUES)
        act = lambda: relu[1, 32, 100_000](x, *SHAPE)
        refused(act, ArgumentValueError, "shared")
        alone = relu.max_active_blocks(32, 40_000)
        relu.set_max_dynamic_shared_bytes(100_000)
        assert relu.attributes.max_dynamic_shared_bytes == 100_000
        assert relu.max_active_blocks(32, 100_000) == 1 < alone
        act()
        assert np.array_equal(x.to_numpy(), CLIPPED)
        refused(
            lambda: relu.set_max_dynamic_shared_bytes(1 << 30),
            ArgumentValueError,
            "activationf32 asked for 1073741824 bytes of dynamic shared memory",
            "this device gives a block 101376",
        )
        """
    )


def test_priorities_are_the_devices() -> None:
    run(
        """
        assert [Stream(priority=asked).priority for asked in (9, 0, -1, -9)] == [0, 0, -1, -5]
        """
    )


def test_kernels_use_the_memory_of_peers_once_they_are_let_in() -> None:
    run(
        """
        other = Device(1, "cuda")
        far = DeviceBuffer.from_numpy(VALUES, device=other)
        refused(lambda: relu[1, 32](far, *SHAPE), InvalidHandleError, "got one of cuda:1")
        near = DeviceBuffer.zeros(6, "f32")
        near.copy_from(far)
        assert np.array_equal(near.to_numpy(), VALUES)
        assert device.can_access_peer(other)
        device.enable_peer_access(other)
        device.enable_peer_access(other)
        relu[1, 32](far, *SHAPE)
        device.synchronize()
        assert np.array_equal(far.to_numpy(), CLIPPED)
        """,
        UHAL_SIM_CUDA_DEVICES="2",
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
