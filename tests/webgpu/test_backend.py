"""The runtime over wgpu-native: batches, copies of any bytes, long grids, a lost device."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import ubridge
from tests.children import ROOT, run_program, untold
from tests.sampling import rounds
from tests.webgpu.kernels import FOLDER, SUFFIX
from uhal import Device, DeviceBuffer, LaunchConfig, Module, Stream, registry
from uhal.errors import NotSupportedError
from webgpu_backend._library import refusal_of


def test_copies_of_any_bytes(device: Device, rng: np.random.Generator) -> None:
    """Copy at any offset between the host and two buffers, and within a buffer."""
    for _ in range(rounds(60, 5000)):
        size = int(rng.integers(1, 3000))
        one, two = (rng.integers(0, 256, size + 40, "u1") for _ in range(2))
        there = [DeviceBuffer.from_numpy(one), DeviceBuffer.from_numpy(two)]
        here = [one.copy(), two.copy()]
        for _ in range(4):
            a, b = (int(at) for at in rng.integers(0, 2, 2))
            source, target = (int(at) for at in rng.integers(0, 40, 2))
            kind = rng.integers(3)
            if kind == 0:
                fresh = rng.integers(0, 256, size, "u1")
                there[b][target : target + size].copy_from(fresh)
                here[b][target : target + size] = fresh
            elif kind == 1:
                there[b][target : target + size].copy_from(there[a][source : source + size])
                here[b][target : target + size] = here[a][source : source + size].copy()
            else:
                got = there[a][source : source + size].to_numpy()
                assert (got == here[a][source : source + size]).all()
        assert all(
            (buffer.to_numpy() == known).all() for buffer, known in zip(there, here, strict=True)
        )


@pytest.mark.parametrize("shift", [1, -1])
def test_a_long_copy_within_a_buffer(device: Device, shift: int) -> None:
    """The copy overlaps and is longer than the limit of one command."""
    values = np.arange((70 << 20) // 4, dtype="u4")
    with DeviceBuffer.from_numpy(values) as buffer:
        if shift > 0:
            buffer[1:].copy_from(buffer[:-1])
            values[1:] = values[:-1].copy()
        else:
            buffer[:-1].copy_from(buffer[1:])
            values[:-1] = values[1:].copy()
        assert (buffer.to_numpy() == values).all()


def test_launches_are_submitted_together(device: Device, rng: np.random.Generator) -> None:
    """A batch has 64 copies: a wait submits the last batch."""
    verbs = registry.backend("webgpu")
    token = verbs.opened(device.ordinal).token  # type: ignore[attr-defined]
    kernel = ubridge.load_module("activation", device=device).get_function("activationf32")

    def submits() -> int:
        count = ctypes.c_size_t()
        verbs._runtime.uhalWgDeviceSubmits(count, token)  # type: ignore[attr-defined]
        return count.value

    with Stream() as stream, DeviceBuffer.from_numpy(rng.standard_normal(64, "f4")) as data:
        launch = kernel[1, 64, 0, stream]
        launch(data, 1, 64, 0)
        stream.synchronize()
        before = submits()
        for _ in range(130):
            launch(data, 1, 64, 0)
        stream.synchronize()
        assert submits() - before == 3


def test_a_grid_beyond_one_dispatch(device: Device, rng: np.random.Generator) -> None:
    values = rng.standard_normal(70_000, "f4")
    kernel = ubridge.load_module("activation", device=device).get_function("activationf32")
    with DeviceBuffer.from_numpy(values) as data:
        kernel[LaunchConfig((70_000, 1, 1), (1, 1, 1))](data, 1, values.size, 0)
        assert (data.to_numpy() == np.maximum(values, 0)).all()


def test_parameters_in_a_uniform_buffer(device: Device, rng: np.random.Generator) -> None:
    """On an adapter without immediates, each launch has its own part of the buffer."""
    facts = registry.backend("webgpu").adapters[device.ordinal].facts  # type: ignore[attr-defined]
    values = rng.standard_normal(300, "f4")
    before = facts.max_immediate_bytes
    facts.max_immediate_bytes = 0
    try:
        module = Module.from_file(FOLDER / f"activation{SUFFIX}")
        kernel = module.get_function("activationf32")
    finally:
        facts.max_immediate_bytes = before
    # Make more launches than a batch holds, and more than the buffer has parts.
    parts = [DeviceBuffer.from_numpy(values + number) for number in range(300)]
    for number, part in enumerate(parts):
        kernel[3, 100](part, 1, 100 + number % 200, 0)
    for number, part in enumerate(parts):
        expected = values + np.float32(number)
        count = 100 + number % 200
        expected[:count] = np.maximum(expected[:count], 0)
        assert (part.to_numpy() == expected).all(), number


def test_memory_beyond_what_a_binding_reaches(device: Device, rng: np.random.Generator) -> None:
    """A pointer near the end is bound from its own address; access beyond the limit is refused."""
    limit = int(device.attributes["max_binding_bytes"])
    if limit > 1 << 28:
        pytest.skip(f"a binding reaches {limit} bytes here")
    kernel = ubridge.load_module("activation", device=device).get_function("activationf32")
    values = rng.standard_normal(1000, "f4")
    with DeviceBuffer.uninitialized(limit // 4 + 4096, "f32") as large:
        end = large[large.size - 1001 : large.size - 1]
        end.copy_from(values)
        kernel[10, 100](end, 1, values.size, 0)
        assert (end.to_numpy() == np.maximum(values, 0)).all()
        with pytest.raises(NotSupportedError, match="maxStorageBufferBindingSize"):
            kernel[10, 100](large, 1, values.size, 0)
        large[1:].copy_from(large[:-1])
        assert (large[large.size - 1000 :].to_numpy() == np.maximum(values, 0)).all()


def test_a_wrong_id_is_reported(device: Device, rng: np.random.Generator) -> None:
    x = ubridge.from_numpy(rng.standard_normal((5, 3), "f4"))
    ids = ubridge.from_numpy(np.array([1, 7, 2], "u4"))
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis with size 5"):
        ubridge.take(x, ids, 0).to_numpy()
        device.synchronize()
    good = ubridge.from_numpy(np.array([4, 0], "u4"))
    assert (ubridge.take(x, good, 0).to_numpy() == x.to_numpy()[[4, 0]]).all()


LOSE = """
import ctypes
import numpy as np
from uhal import Device, DeviceBuffer, registry
from uhal.errors import DeviceError
with Device(0, "webgpu") as device:
    buffer = DeviceBuffer.from_numpy(np.arange(8, dtype="u4"))
    verbs = registry.backend("webgpu")
    from webgpu_backend import _library
    wgpu = _library.bind(_library.search(), None)
    native = ctypes.c_void_p()
    verbs._runtime.uhalWgDeviceGetNative(native, verbs.opened(0).token)
    device.synchronize()
    wgpu.wgpuDeviceDestroy(native)
    for _ in range(2):
        try:
            buffer.to_numpy()
        except DeviceError as error:
            print(type(error).__name__, "lost" in str(error).lower())
"""


def test_a_lost_device_is_an_exception(software: Mapping[str, str]) -> None:
    done = run_program(LOSE)
    assert done.stdout.split("\n")[:2] == ["DeviceError True"] * 2, done.stdout + done.stderr


def record(**environment: str) -> dict[str, object]:
    program = (
        "import json; from dataclasses import asdict; from uhal import registry;"
        "print(json.dumps(asdict(registry.record('webgpu'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**untold(), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_software_is_used_when_it_is_asked_for(software: Mapping[str, str]) -> None:
    asked = record(**software)
    assert asked["verdict"] == "ok"
    assert asked["devices"][0]["kind"] == "processor"  # type: ignore[index]
    unasked = record(**{**software, "UHAL_WEBGPU_SOFTWARE": "0"})
    assert unasked["verdict"] == "absent"
    assert "it is a processor; UHAL_WEBGPU_SOFTWARE=1 uses it" in str(unasked["reason"])


def test_no_library_is_said_in_words(tmp_path: Path) -> None:
    found = record(UHAL_WEBGPU_LIBRARY=str(tmp_path / "libwgpu_native.so"))
    assert found["verdict"] == "absent"
    assert found["next_step"] == 'pip install "uhal-py[webgpu]"'


class Unknown:
    """A library of a release that has another interface."""

    @staticmethod
    def wgpuGetVersion() -> int:
        return 28 << 24 | 1 << 8


def test_another_release_is_refused_by_its_number() -> None:
    told = refusal_of(Unknown)  # type: ignore[arg-type]
    assert told == "expected release 27 or 29 of wgpu-native, got 28.0.1.0"


def test_a_machine_without_vulkan_shows_no_device(tmp_path: Path) -> None:
    found = record(VK_ICD_FILENAMES=os.devnull, VK_DRIVER_FILES=os.devnull)
    assert found["verdict"] == "absent"
    assert "0 devices" in str(found["reason"]) or "libwgpu_native" in str(found["reason"])
