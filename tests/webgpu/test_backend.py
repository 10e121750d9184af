"""The runtime over wgpu-native: batches, copies of any bytes, long grids, a lost device."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge
from tests.children import ROOT, run_program, untold
from tests.sampling import rounds
from tests.ubridge.models.files import known, written
from tests.webgpu.kernels import FOLDER, SUFFIX
from ubridge.models import Model
from uhal import Device, DeviceBuffer, LaunchConfig, Module, Stream, registry
from uhal.errors import NotSupportedError
from webgpu_backend import _adapters
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


def submits_of(device: Device) -> int:
    """Return how many batches of commands were submitted."""
    verbs = registry.backend("webgpu")
    count = ctypes.c_size_t()
    token = verbs.opened(device.ordinal).token  # type: ignore[attr-defined]
    verbs._runtime.uhalWgDeviceSubmits(count, token)  # type: ignore[attr-defined]
    return count.value


def test_launches_are_submitted_together(device: Device, rng: np.random.Generator) -> None:
    """A batch has 64 launches: a wait submits the last batch. A replay is one batch."""
    kernel = ubridge.load_module("activation", device=device).get_function("activationf32")
    with Stream() as stream, DeviceBuffer.from_numpy(rng.standard_normal(64, "f4")) as data:
        launch = kernel[1, 64, 0, stream]
        launch(data, 1, 64, 0)
        stream.synchronize()
        before = submits_of(device)
        for _ in range(130):
            launch(data, 1, 64, 0)
        stream.synchronize()
        assert submits_of(device) - before == 3
        with stream.capture() as plan:
            for _ in range(500):
                launch(data, 1, 64, 0)
        before = submits_of(device)
        plan.replay(stream)
        assert submits_of(device) == before  # what follows still joins
        plan.replay(stream)
        assert submits_of(device) - before == 1
        stream.synchronize()
        assert submits_of(device) - before == 2
        for _ in range(65):
            launch(data, 1, 64, 0)
        stream.synchronize()
        assert submits_of(device) - before == 4
        plan.close()


LAYERS = 8


def test_a_step_of_a_language_model_is_one_submit(device: Device, tmp_path: Path) -> None:
    """Its launches alone would fill several batches. The host's read of the logits is one more."""
    config, two_layers, _ = known("llama")
    weights = {}
    for name, values in two_layers.items():
        stem, layer, rest = name.partition("layers.")
        for number in range(LAYERS if layer else 1):
            if not layer or int(rest[0]) == number % 2:
                weights[f"{stem}layers.{number}{rest[1:]}" if layer else name] = values
    folder = written(tmp_path, {**config, "num_hidden_layers": LAYERS}, weights)
    model = Model.load(folder, device=device)
    with model.cache(32) as cache:
        model.logits([3, 5, 7], cache)
        model.logits([11], cache).to_numpy()  # captures the step
        device.synchronize()
        for token in (13, 17):
            before = submits_of(device)
            logits = model.logits([token], cache)
            device.synchronize()
            assert submits_of(device) - before == 1
            assert np.isfinite(logits.to_numpy()).all()
        assert cache.step is not None
        assert len(cache.step.graph.nodes) > 128


def test_a_grid_beyond_one_dispatch(device: Device, rng: np.random.Generator) -> None:
    values = rng.standard_normal(70_000, "f4")
    kernel = ubridge.load_module("activation", device=device).get_function("activationf32")
    with DeviceBuffer.from_numpy(values) as data:
        kernel[LaunchConfig((70_000, 1, 1), (1, 1, 1))](data, 1, values.size, 0)
        assert (data.to_numpy() == np.maximum(values, 0)).all()


def test_parameters_in_a_uniform_buffer(device: Device, rng: np.random.Generator) -> None:
    """On an adapter without immediates, each launch has its own part of the buffer.

    A replay makes more launches than the buffer has parts.
    """
    facts = registry.backend("webgpu").adapters[device.ordinal].facts  # type: ignore[attr-defined]
    values = rng.standard_normal(300, "f4")
    before = facts.max_immediate_bytes
    facts.max_immediate_bytes = 0
    try:
        module = Module.from_file(FOLDER / f"activation{SUFFIX}")
        kernel = module.get_function("activationf32")
    finally:
        facts.max_immediate_bytes = before
    given = values + np.arange(1100, dtype="f4")[:, None]
    expected = given.copy()
    parts = DeviceBuffer.from_numpy(given.ravel())
    with Stream() as stream:
        with stream.capture() as plan:
            for number, row in enumerate(expected):
                count = 100 + number % 200
                kernel[3, 100, 0, stream](parts[300 * number :], 1, count, 0)
                row[:count] = np.maximum(row[:count], 0)
        device.synchronize()
        before = submits_of(device)
        plan.replay()
        stream.synchronize()
        assert submits_of(device) - before == 2
        assert (parts.to_numpy() == expected.ravel()).all()
        plan.close()


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


class Machine:
    """A runtime whose adapters have these limits."""

    def __init__(self, *limits: tuple[int, int, int]) -> None:
        self._limits = limits

    def uhalWgAdapterCount(self, count: Any) -> None:
        count._obj.value = len(self._limits)

    def uhalWgAdapterGetInfo(self, info: Any, index: int) -> None:
        facts = info._obj
        facts.name, facts.type = b"GPU", 1
        facts.has_int64, facts.max_threads, facts.max_shared_bytes = self._limits[index]


def test_an_adapter_below_the_least_limits_is_refused() -> None:
    machine: Any = Machine((1, 256, 16384), (1, 255, 16384), (1, 256, 16383), (0, 256, 16384))
    found = _adapters.look(machine)
    assert [one.index for one in found.adapters] == [0]
    blocks = "GPU: expected blocks of 256 threads and 16,384 bytes of shared memory, got {} and {}"
    assert found.refused[:2] == (blocks.format(255, 16384), blocks.format(256, 16383))
    assert "has no integers of 64 bits" in found.refused[2]


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
