"""Opens a driver without each named function of abi.h, and lists the refused calls.

Prints a line of JSON for each function: its name, and step → message of each refusal. A forked
child opens each driver, so that uhal is imported only once.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from uhal import (
    Api,
    Device,
    DeviceBuffer,
    Event,
    HostBuffer,
    LaunchConfig,
    Module,
    Stream,
    StreamFlags,
    launch,
)
from uhal.errors import DeviceError

Step = tuple[str, Callable[[], object]]
SHAPE = (8, 8, 0)


def steps(image: str) -> Iterator[Step]:
    """Yield steps that use each function of the backend; preparations run in between."""
    device, other = Api.quick_init(0, "cuda"), Device(1, "cuda")
    yield "describe", lambda: (device.name, device.limits)
    yield "identify", lambda: device.uuid
    yield "attributes", lambda: device.attributes
    yield "memory info", device.memory_info
    stream = Stream()
    x = DeviceBuffer.uninitialized(64, "f32")
    module = Module.from_file(image)
    kernel = module.get_function("activationf32")
    yield "upload", lambda: x.copy_from(np.ones(64, "f4"), stream=stream)
    yield "download", lambda: x.to_numpy(stream=stream)
    yield "copy", lambda: x[:32].copy_from_async(x[32:], stream)
    yield "launch", lambda: kernel[1, 64, 0, stream](x, *SHAPE)
    cooperative = LaunchConfig(1, 32, cooperative=True)
    yield "extended launch", lambda: launch(kernel, config=cooperative, args=(x, *SHAPE))
    yield "set 8", lambda: x.view("u8").set_8(0, stream=stream)
    yield "set 16", lambda: x.view("u16").set_16(0, stream=stream)
    yield "set 32", lambda: x.set_32(0, stream=stream)
    yield "native", lambda: DeviceBuffer.uninitialized_async(4, "f32", stream, native=True).close()
    yield "pinned", lambda: HostBuffer(4, "f32").close()
    yield "mapped", lambda: HostBuffer(4, "f32", mapped=True).device_ptr
    yield "pitched", lambda: x.copy_2d_from(np.ones((2, 3), "f4"), pitch=10)
    yield "stream", lambda: Stream(StreamFlags.NON_BLOCKING).close()
    yield "query", stream.query
    yield "event", lambda: stream.record_event(Event()).synchronize()
    yield "wait", lambda: Stream.default().wait_event(stream.record_event(Event()))
    yield "time", lambda: _time(stream)
    yield "callback", lambda: stream.add_callback(int)
    yield "occupancy", lambda: kernel.max_active_blocks(64)
    yield "shared memory", lambda: kernel.set_max_dynamic_shared_bytes(1000)
    yield "peer access", lambda: device.enable_peer_access(other)
    yield "peer copy", lambda: DeviceBuffer.zeros(64, "f32", device=other).copy_from(x)
    yield "share", x.ipc_handle
    yield "take over", lambda: DeviceBuffer.from_cuda_array_interface(x)
    yield "global", lambda: module.get_global("nothing")
    yield "wait for stream", stream.synchronize
    yield "wait for device", device.synchronize
    yield "let go", lambda: (module.close(), x.close(), stream.close())
    yield "close", device.close


def _time(stream: Stream) -> float:
    first, last = stream.record_event(Event()), stream.record_event(Event())
    last.synchronize()
    return last.elapsed_since(first)


def refused(image: str) -> dict[str, str]:
    """Run the steps; return the messages of refused steps."""
    found: dict[str, str] = {}
    try:
        for name, step in steps(image):
            try:
                step()
            except DeviceError as error:
                found[name] = str(error)
    except DeviceError as error:
        found["everything after it"] = str(error)
    return found


def on_a_driver_without(function: str, image: str) -> None:
    """Print the refusals of one driver, in a child process."""
    child = os.fork()
    if child == 0:
        os.environ["UHAL_SIM_CUDA_HIDE"] = function
        warnings.simplefilter("ignore")  # destructors warn about missing functions
        print(json.dumps([function, refused(image)]), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"without {function} the process died: {status}"


for name in ("", *sys.argv[2:]):
    on_a_driver_without(name, sys.argv[1])
