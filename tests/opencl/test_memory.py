"""OpenCL's four kinds of memory, each on a device that lacks the better kinds; and free memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from opencl_backend import compile as opencl_compile
from tests.children import check_child
from tests.conformance.rows import KERNELS, compile_for_opencl
from tests.opencl.test_backend import HEADER, say_record
from uhal import Device, DeviceBuffer, HostBuffer, Module, Stream
from uhal.errors import ArgumentValueError, DeviceError, NotSupportedError

Layer = Callable[..., Mapping[str, str]]

LIST = """
struct Node { Node *next; u64 value; };
KERNEL(link, (Node *nodes, u64 n)) {
    GRID_STRIDE(i, n) {
        nodes[i].next = i + 1 < n ? nodes + i + 1 : nullptr;
        nodes[i].value = i;
    }
}
KERNEL(walk, (const Node *const *first, u64 *sum)) {
    THREADS(t) {
        if (t == 0)
            for (const Node *one = *first; one != nullptr; one = one->next) sum[0] += one->value;
    }
}
"""


def use_memory(image: str, kind: str) -> None:
    with Device(0, "opencl") as device:
        assert device.attributes["memory"] == kind
        module = Module.from_file(image)
        values = np.arange(5000, dtype="f4")
        x = DeviceBuffer.from_numpy(values)
        y = DeviceBuffer.zeros(5000, "f32")
        module.get_function("saxpy")[20, 64](5000, 2.0, x, y)
        assert np.array_equal(y.to_numpy(), 2 * values)
        y[100:200].set_32(0x3F000000)
        assert (y.to_numpy()[100:200] == 0.5).all()
        with HostBuffer(5000, "f32") as pinned, Stream() as stream:
            pinned.array[:] = 3
            x.copy_from_async(pinned, stream)
            x.copy_to_async(pinned, stream)
            stream.synchronize()
            assert (pinned.array == 3).all() and (x.to_numpy() == 3).all()
        # a list whose pointers lie in device memory
        lists = Module.from_bytes(opencl_compile.kernels(HEADER + LIST))
        nodes = DeviceBuffer.zeros(2 * 1000, "u64")
        lists.get_function("link")[4, 64](nodes, 1000)
        first = DeviceBuffer.from_numpy(np.array([int(nodes.as_device_ptr())], "u8"))
        total = DeviceBuffer.zeros(1, "u64")
        lists.get_function("walk")[1, 1](first, total)
        assert total.to_numpy()[0] == 999 * 500
        print(kind)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", ["usm", "svm-fine", "svm-coarse", "buffer-address"])
def test_every_kind_of_memory(folder: Path, layer: Layer, kind: str) -> None:
    """uhal chooses each kind by itself on a device that lacks the better kinds."""
    image = compile_for_opencl(KERNELS / "basic.cu", folder)
    environment = layer(memory=kind)
    assert check_child(use_memory, str(image), kind, environment=environment) == f"{kind}\n"


def say_memories(kind: str) -> None:
    with Device(0, "opencl") as device:
        print(device.attributes["memory"], device.attributes["memories"])
        with HostBuffer(10, "f32", mapped=True) as pinned:
            try:
                print(int(pinned.device_ptr) == pinned.array.ctypes.data)
            except NotSupportedError as error:
                print(error)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["svm-fine", "svm-coarse"])
def test_another_kind_can_be_asked_for(runtime: None, kind: str) -> None:
    said = check_child(say_memories, kind, environment={"UHAL_OPENCL_MEMORY": kind}).split("\n")
    assert said[0] == f"{kind} usm svm-fine svm-coarse"
    sees = "True" if kind == "svm-fine" else "the kind 'svm-coarse' devices do not reach host"
    assert sees in said[1]


def test_a_device_without_addresses_is_refused(layer: Layer) -> None:
    hides = "cl_intel_unified_shared_memory"
    environment = layer(UHAL_LAYER_HIDES=hides, UHAL_LAYER_SVM="0")
    said = check_child(say_record, environment=environment).split("\n")
    assert said[0] == "refused"
    assert "gives no memory with addresses: neither cl_intel_unified_shared_memory nor" in said[2]


def test_a_device_that_takes_no_spirv_is_refused(layer: Layer) -> None:
    said = check_child(say_record, environment=layer(UHAL_LAYER_IL="")).split("\n")
    assert said[0] == "refused"
    assert "takes no SPIR-V (CL_DEVICE_IL_VERSION is empty)" in said[2]


def test_a_kind_the_device_has_not_is_refused(runtime: None) -> None:
    said = check_child(say_record, environment={"UHAL_OPENCL_MEMORY": "magic"}).split("\n")
    assert said[0] == "refused"
    assert "UHAL_OPENCL_MEMORY: expected usm, svm-fine, svm-coarse" in said[2]
    assert issubclass(ArgumentValueError, DeviceError)


def test_free_memory_is_accounted(device: Device) -> None:
    device.empty_cache()
    free, total = device.memory_info()
    assert 0 < free <= total
    with DeviceBuffer.uninitialized(1 << 28, "u8"):
        assert device.memory_info()[0] <= total - (1 << 28)


def say_spans() -> None:
    fill = opencl_compile.kernels(HEADER + "KERNEL(put, (u32 *y)) { THREADS(t) { y[t] = t; } }")
    with Device(0, "opencl"), Module.from_bytes(fill) as module, Stream() as stream:
        out = DeviceBuffer.zeros(64, "u32", stream=stream)
        events = [stream.record_event()]
        for _ in range(5):
            module.get_function("put")[1, 64, 0, stream](out)
            events.append(stream.record_event())
        events[-1].synchronize()
        spans = [event.elapsed_since(events[0]) for event in events]
        print(spans[0] == 0 and spans == sorted(spans) and spans[-1] > 0)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["usm", "svm-fine", "svm-coarse"])
def test_events_tell_times_where_markers_tell_none(layer: Layer, kind: str) -> None:
    assert check_child(say_spans, environment=layer(kind, UHAL_LAYER_UNTIMED="1")) == "True\n"
