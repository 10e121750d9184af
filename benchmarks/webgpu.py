"""Cost of launches and modules on WebGPU, beside wgpu-native's own calls and wgpu-py.

    python -m benchmarks.webgpu
    python -m benchmarks.webgpu --json

It needs an adapter: a GPU, or with `UHAL_WEBGPU_SOFTWARE=1` Mesa's lavapipe, and the wheel `wgpu`.
All sides use one library, two buffers, equal immediates, and passes and batches of 64 dispatches.
A pass sets its pipeline and its bind group once.
Times are processor time of the calling thread, medians of rounds in which all sides take turns.
The exit status is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ubridge
import uhal
from uhal import DeviceBuffer, Module, Stream, registry
from webgpu_backend._library import search

BATCH = 64
BATCHES = 8
ROUNDS = 25
MODULES = 20
OPENINGS = 12
SOURCE = Path(__file__).with_name("workers") / "webgpu_floor.c"
IMAGE = Path(ubridge.__file__).parent / "kernels" / "images" / "opencl" / "affine.spv.gz"
BYTES = 96
"""Bytes of a launch's immediates: the measured kernel's, rounded up."""
TEXT = f"""
struct Params {{ w: array<vec4<u32>, {BYTES // 16}> }}
var<immediate> P: Params;
@group(0) @binding(1) var<storage, read_write> from_words: array<u32>;
@group(0) @binding(2) var<storage, read_write> to_words: array<u32>;
@compute @workgroup_size(1) fn kernel(@builtin(global_invocation_id) id: vec3<u32>) {{
  if (id.x < P.w[1].z) {{ to_words[id.x] = from_words[id.x]; }}
}}
"""
Run = Callable[[], object]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webgpu")
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    device = uhal.Api.quick_init(0, backend="webgpu")
    floor = _floor()
    sides = {"uhal": _ours(), "wgpu-native": _bare(floor, device), "wgpu-py": _peer()}
    for run, wait in sides.values():
        for _ in range(3):
            run()
            wait()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, (run, wait) in sides.items():
            start = time.thread_time()
            run()
            times[name].append((time.thread_time() - start) / BATCH / BATCHES)
            wait()
    each = {name: statistics.median(found) for name, found in times.items()}
    gates = [
        _gate("launch, uhal over wgpu-native", each["uhal"] / each["wgpu-native"], 1.3),
        _gate("launch, uhal over wgpu-py", each["uhal"] / each["wgpu-py"], 1.1),
        _gate("open a device, uhal over wgpu-native", _opening(floor, device), 1.2),
        _gate("kernel of a module whose translation is kept, ms", 1e3 * _kept(), 10),
    ]
    if as_json:
        print(json.dumps({"gates": gates}))
    else:
        print(device.name)
        for name, seconds in each.items():
            print(f"{name:<12} {1e6 * seconds:6.2f} µs a launch")
        for gate in gates:
            print(f"{gate['what']}: {gate['is']:.2f}, at most {gate['at_most']}")
    return 1 if any(gate["is"] > gate["at_most"] for gate in gates) else 0


def _gate(what: str, value: float, limit: float) -> dict[str, Any]:
    return {"what": what, "is": round(value, 3), "at_most": limit}


def _ours() -> tuple[Run, Run]:
    function = Module.from_file(IMAGE).get_function("affine_f32")
    stream = Stream()
    x, out = (DeviceBuffer.zeros(1024, "f32") for _ in range(2))
    bound = function[1, 1, 0, stream]

    def run() -> None:
        for _ in range(BATCH * BATCHES):
            bound(1, 1, None, x, out, 2.0, 1.0)

    return run, stream.synchronize


def _floor() -> ctypes.CDLL:
    """Compile and open the library that calls wgpu-native alone."""
    with tempfile.TemporaryDirectory(prefix="uhal-floor-") as folder:
        library = Path(folder, "floor.so")
        command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(SOURCE)]
        subprocess.run([*command, "-o", str(library), "-ldl"], check=True)
        return ctypes.CDLL(str(library))


def _bare(floor: ctypes.CDLL, device: uhal.Device) -> tuple[Run, Run]:
    path = search().path
    assert path is not None
    opened = ctypes.c_void_p()
    backend: Any = registry.backend("webgpu")
    token = backend.opened(device.ordinal).token
    backend._runtime.uhalWgDeviceGetNative(ctypes.byref(opened), token)
    if floor.open_floor(path.encode(), opened, TEXT.encode(), BYTES):
        raise SystemExit(f"{path} cannot be opened")
    words = (ctypes.c_uint32 * (BYTES // 4))()
    return lambda: floor.launch_loop(words, BYTES, BATCHES), floor.finish


def _opening(floor: ctypes.CDLL, device: uhal.Device) -> float:
    """Return the ratio of two medians: processor time of all threads to open and close a device."""
    backend: Any = registry.backend("webgpu")
    runtime, adapter = backend._runtime, backend.adapters[device.ordinal]
    if floor.find_adapter(adapter.name.encode()):
        raise SystemExit(f"wgpu-native lists no adapter {adapter.name}")

    def ours() -> None:
        token = ctypes.c_void_p()
        runtime.uhalWgDeviceOpen(token, adapter.index)
        runtime.uhalWgDeviceClose(token)

    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(OPENINGS):
        for run, found in ((ours, mine), (floor.request_device_once, theirs)):
            start = time.process_time()
            run()
            found.append(time.process_time() - start)
    return statistics.median(mine[1:]) / statistics.median(theirs[1:])


def _peer() -> tuple[Run, Run]:
    # Without the wheel `wgpu` there is no native library either.
    wgpu: Any = importlib.import_module("wgpu")
    device = wgpu.gpu.request_adapter_sync().request_device_sync(
        required_features=["immediates"], required_limits={"max-immediate-size": BYTES}
    )
    storage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    buffers = [device.create_buffer(size=4096, usage=storage) for _ in range(2)]
    kind = {"type": wgpu.BufferBindingType.storage}
    layout = device.create_bind_group_layout(
        entries=[
            {"binding": one + 1, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": kind}
            for one in range(2)
        ]
    )
    group = device.create_bind_group(
        layout=layout,
        entries=[
            {"binding": one + 1, "resource": {"buffer": buffer, "offset": 0, "size": 4096}}
            for one, buffer in enumerate(buffers)
        ],
    )
    pipeline = device.create_compute_pipeline(
        layout=device.create_pipeline_layout(bind_group_layouts=[layout], immediate_size=BYTES),
        compute={"module": device.create_shader_module(code=TEXT), "entry_point": "kernel"},
    )
    words = bytes(BYTES)

    def run() -> None:
        for _ in range(BATCHES):
            encoder = device.create_command_encoder()
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            for _ in range(BATCH):
                compute.set_immediates(0, words, 0, BYTES)
                compute.dispatch_workgroups(1, 1, 1)
            compute.end()
            device.queue.submit([encoder.finish()])

    return run, lambda: device.queue.read_buffer(buffers[1], size=4) and None


def _kept() -> float:
    """Return the median time to find a kernel whose translation is in the cache."""
    times = []
    for _ in range(MODULES):
        with Module.from_file(IMAGE) as module:
            start = time.thread_time()
            module.get_function("affine_f32")
            times.append(time.thread_time() - start)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
