"""Tests of a real NVIDIA device, in addition to the conformance suite.

The shipped images suit the device, the driver agrees with uhal's readers about parameters, and the
simulator's profile matches the device.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import ubridge
from tests.shipped_ptx import write_shipped_ptx
from tests.simulated.process import LIBRARY, needs_simulator
from uhal import Device, DeviceBuffer, Module, Stream, registry

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "ubridge" / "kernels" / "images" / "cuda"


def capability(device: Device) -> tuple[int, int]:
    name = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_"
    attributes = device.attributes
    return int(attributes[name + "MAJOR"]), int(attributes[name + "MINOR"])


def driver_version() -> tuple[int, ...]:
    version = registry.record("cuda").version
    assert version is not None
    return tuple(map(int, version.split(".")))


def test_a_binary_for_this_device_is_chosen_where_one_is_shipped(cuda: Device) -> None:
    shipped = {(8, 0), (9, 0)}
    for name in ubridge.modules():
        chosen = ubridge.load_module(name, device=cuda).chosen
        exact = capability(cuda) in shipped and driver_version() >= (13,)
        assert chosen.description.startswith("cubin for" if exact else ("cubin", "PTX")), chosen


def test_the_driver_compiles_the_shipped_text_and_it_computes(
    cuda: Device, rng: np.random.Generator, tmp_path: Path
) -> None:
    values = rng.standard_normal((37, 53), dtype=np.float32)
    path = write_shipped_ptx(tmp_path, "activation")
    with cuda, Module.from_file(path, device=cuda) as module:
        data = DeviceBuffer.from_numpy(values)
        module.get_function("activationf32")[8, 256](data, 37, 53, 0)
        assert np.array_equal(data.to_numpy().reshape(37, 53), np.maximum(values, 0))


def test_the_driver_places_every_parameter_where_the_readers_say(cuda: Device) -> None:
    if driver_version() < (12, 4):
        pytest.skip("cuFuncGetParamInfo came with CUDA 12.4")
    for path in sorted(IMAGES.glob("*.fatbin.gz")):
        with Module.from_file(path, device=cuda) as module:
            for name in module.kernels:
                # `get_function` compares the driver's and our parameters; a difference raises.
                function = module.get_function(name)
                assert function.signature is not None
                assert all(one.offset is not None for one in function.signature), name


@needs_simulator
def test_the_simulated_device_of_this_kind_has_the_same_limits(cuda: Device) -> None:
    major, minor = capability(cuda)
    profile = f"sm_{major}{minor}"
    program = (
        "from dataclasses import asdict; from uhal import Api;"
        "print(asdict(Api.quick_init(0, 'cuda').limits))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"UHAL_CUDA_LIBRARY": str(LIBRARY), "UHAL_SIM_CUDA_PROFILE": profile},
        capture_output=True,
        encoding="utf-8",
    )
    if f"UHAL_SIM_CUDA_PROFILE={profile}" in done.stderr:
        pytest.skip(f"the simulator has no profile {profile}")
    simulated = ast.literal_eval(done.stdout)
    # Devices with the same capability differ in size, and driver versions differ in one limit.
    same = {**asdict(cuda.limits), "processors": simulated["processors"]}
    if driver_version() < (12, 1):
        same["max_parameter_bytes"] = simulated["max_parameter_bytes"]
    assert same == simulated


def test_a_timed_event_pair_measures_the_device(cuda: Device) -> None:
    with cuda, Stream() as stream:
        data = DeviceBuffer.zeros(64 << 20, "u8")
        first = stream.record_event()
        data.set_8(1, stream=stream)
        last = stream.record_event()
        last.synchronize()
        assert 0 < last.elapsed_since(first) < 10_000
