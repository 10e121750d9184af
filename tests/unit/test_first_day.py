"""86 mistakes of a stranger's first day: each raises an error whose golden message helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
import uhal
from uhal import DeviceBuffer, Event, HostBuffer, LaunchConfig, Module, Stream

GOLDEN = Path(__file__).with_name("first_day.txt")
MISTAKES = """
uhal.Device(7, "host")
uhal.Device(0, "gpu")
uhal.Device("host:x")
uhal.Device(-1, "host")
uhal.Device("cuda:zero")
uhal.Api.quick_init(backend="nvidia")
uhal.Stream(device="gpu")
uhal.Stream(flags=5)
uhal.zeros(3)
uhal.DeviceBufer
ub.relue
DeviceBuffer(10)
DeviceBuffer.zeros((3, 4), "f32")
DeviceBuffer.zeros(10)
DeviceBuffer.zeros(-1, "f32")
DeviceBuffer.zeros(4, "float")
DeviceBuffer.zeros(4, "f23")
DeviceBuffer.zeros(2**62, "f64")
DeviceBuffer.zeros(2.5, "f32")
DeviceBuffer.from_numpy(["1.0", "2.0"])
DeviceBuffer.from_numpy(np.ones(3, "c8"))
DeviceBuffer.from_slice([1, "a"], "i32")
DeviceBuffer.from_slice([300], "u8")
x + x
x[0]
x[0] = 1
x[::2]
np.exp(x)
x.view("f64x")
x[:3].view("u64")
x.copy_from(np.ones(7, "f4"))
x.copy_from(np.ones(8, "f8"))
x.copy_to(np.ones(9, "f4"))
x.copy_to(frozen)
closed.to_numpy()
relu[1, 8](closed, 1, 8, 0)
relu[1, 8](x, 1, 8)
relu[1, 8](x, 1, 8, 0, 0)
relu[1, 8](x, -1, 8, 0)
relu[1, 8](x, 1.5, 8, 0)
relu[1, 8](x, 2**32, 8, 0)
relu[1, 8](array, 1, 8, 0)
relu[1, 8](doubles, 1, 8, 0)
relu[1, 8](4096, 1, 8, 0)
relu[1, 8](x, "1", 8, 0)
relu[1, 8](data=x, rows=1, cols=8, kind=0)
relu[0, 8](x, 1, 8, 0)
relu[1, 2048](x, 1, 8, 0)
relu[1.0, 8](x, 1, 8, 0)
relu[(1, 1, 1, 1), 8](x, 1, 8, 0)
relu[1](x, 1, 8, 0)
relu[1, 8, 10**6](x, 1, 8, 0)
relu[1, 8, 0, 5](x, 1, 8, 0)
relu(x, 1, 8, 0)
uhal.launch(relu, 1, 8, x)
uhal.launch(relu, 1, 8)
module.get_function("relu")
module.get_function("activationf32", "ptr x")
module.get_function("activationf32", signature="ptr x, u32 rows u32 cols, i32 kind")
module.get_global("table", "f32")
ub.load_module("activations")
Module.from_file("no_such.so")
Module.from_file(text)
Module.from_bytes(b"hello")
Module.from_bytes("hello")
uhal.launch(relu, args=(x, 1, 8, 0), config=LaunchConfig(1, 2048))
Event().elapsed_since(Event())
stream.wait_event(stream)
capture_twice()
plan.replay(y=x)
plan.replay(value="a")
HostBuffer(4, "f32").device_ptr
ub.zeros((2, 3)) @ ub.zeros((2, 3))
ub.zeros((2, 3)) + ub.zeros((2, 4))
ub.zeros((2, 3)) + np.ones((2, 3))
ub.zeros((2, 3)).reshape(4, 2)
ub.zeros((2, 3)).sum(axis=2)
ub.zeros((2, 3))[2]
ub.zeros((2, 3))[[True, False, True]]
ub.concat([ub.zeros((2, 3)), ub.zeros((3, 2))], 0)
ub.zeros((2, 3), dtype="complex64")
ub.softmax(ub.arange(3), axis=1)
ub.exp(np.ones(3))
float(ub.zeros((2, 3)))
bool(ub.zeros((2, 3)))
ub.files.load("no_such.safetensors")
""".strip().splitlines()


VARYING = {
    r"\s+": " ",
    r"0x[0-9a-f]{6,}": "0x…",
    r"\.py:\d+": ".py:…",
    r"stream \d+": "stream …",
    r" for (x86-64-v\d|aarch64)": "",
    r"does not exist: there .*": "does not exist: …",
}
"""Parts of messages that differ between runs or machines, and the constants in the golden file."""


class Day:
    """The names that the mistakes use."""

    def __init__(self, folder: Path) -> None:
        self.module = ub.load_module("activation", device="host")
        self.array = np.linspace(-1, 1, 8, dtype=np.float32)
        self.frozen = self.array.copy()
        self.frozen.setflags(write=False)
        self.x = DeviceBuffer.from_numpy(self.array)
        self.doubles = DeviceBuffer.zeros(8, "f64")
        self.closed = DeviceBuffer.zeros(8, "f32")
        self.closed.close()
        self.relu = self.module.get_function("activationf32")
        self.stream = Stream()
        self.text = folder / "kernel.so"
        self.text.write_text("not a library")
        with self.stream.capture() as self.plan:
            value = self.plan.slot("value", 8)
            self.relu[1, 8, 0, self.stream](self.x, 1, value, 0)

    def capture_twice(self) -> None:
        """Begin a capture within a capture."""
        with self.stream.capture(), self.stream.capture():
            pass


def test_every_mistake_of_a_first_day_is_answered(tmp_path: Path) -> None:
    with uhal.Device(0, "host"):
        day = Day(tmp_path)
        names: dict[str, Any] = {name: getattr(day, name) for name in vars(day)}
        names.update(capture_twice=day.capture_twice, Event=Event, HostBuffer=HostBuffer)
        names.update(DeviceBuffer=DeviceBuffer, LaunchConfig=LaunchConfig, Module=Module)
        names.update(np=np, ub=ub, uhal=uhal)
        said = "".join(f"{code}\n    {answer(code, names, tmp_path)}\n" for code in MISTAKES)
    if not GOLDEN.exists():
        GOLDEN.write_text(said, encoding="utf-8")
        pytest.fail(f"wrote {GOLDEN}: read it")
    assert said == GOLDEN.read_text(encoding="utf-8")


def answer(code: str, names: dict[str, Any], folder: Path) -> str:
    """Return the error of a mistake, with constants for its varying parts."""
    with pytest.raises(Exception) as caught:
        exec(code, names)
        pytest.fail(f"{code}: no error")
    text = f"{type(caught.value).__name__}: {caught.value}".replace(str(folder), "FOLDER")
    for pattern, constant in VARYING.items():
        text = re.sub(pattern, constant, text)
    return text
