"""The simulated TopsRuntime at its C interface: answers, refusals and lasting faults."""

from __future__ import annotations

import ctypes
import os
import random
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from simulators.topsfb.writer import Gcu, bundle, topsfb
from tests.children import check_child
from tests.requirements import missing
from tests.sampling import rounds
from tests.simulated.tops_runtime import BUILD, NEWER, OLDER, SETTINGS, Runtime, code, header
from tests.unit.test_tops_hostile import DAMAGES, ORIGINAL

FILL = topsfb(Gcu({"fill_f32": ["float*", "int", "float"]}))


def run(check: Callable[[Runtime], None], library: str = str(NEWER), **environment: str) -> None:
    if not NEWER.is_file():
        missing("the simulated runtime is not built: make simulators")
    check_child(in_child, check.__name__, library, environment=SETTINGS | environment)


def in_child(name: str, library: str) -> None:
    globals()[name](Runtime(library))


def arguments(*values: object) -> ctypes.Array[ctypes.c_void_p]:
    """Return kernelParams for ctypes values; the caller keeps the values alive."""
    return (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))  # type: ignore[arg-type]


class Fill:
    """`fill_f32` of 100 floats in device memory."""

    def __init__(self, runtime: Runtime, image: bytes = FILL) -> None:
        self.runtime = runtime
        self.module = runtime.made("topsModuleLoadData", image)
        self.function = runtime.made("topsModuleGetFunction", self.module, b"fill_f32")
        self.pointer = runtime.upload(bytes(400))
        self.values = (
            ctypes.c_uint64(self.pointer),
            ctypes.c_int32(100),
            ctypes.c_float(2.5),
        )

    def arguments(self, grid: int = 2, block: int = 12, stream: int | None = None) -> list[object]:
        shape = [grid, 1, 1, block, 1, 1, 0]
        return [self.function, *shape, stream, arguments(*self.values), None]

    def launch(self, **shape: int) -> None:
        self.runtime.call("topsModuleLaunchKernel", *self.arguments(**shape))

    def result(self) -> set[float]:
        return set(struct.unpack("100f", self.runtime.download(self.pointer, 400)))


def memory_is_of_one_device(runtime: Runtime) -> None:
    pointer = runtime.upload(b"12345678")
    with pytest.raises(Runtime.Refused) as refusal:
        runtime.call("topsFree", pointer + 4)
    assert refusal.value.status == code("InvalidDevicePointer")
    assert runtime.download(pointer + 4, 4) == b"5678"  # inside an allocation
    runtime.call("topsSetDevice", 1)
    room = ctypes.create_string_buffer(8)
    words = runtime.refused("InvalidDevicePointer", "topsMemcpyDtoHAsync", room, pointer, 8, None)
    assert "not in one allocation of the current device" in words
    runtime.refused("InvalidDevicePointer", "topsFree", pointer)
    runtime.refused("InvalidDevice", "topsSetDevice", 2)
    fill = Fill(runtime)
    stream = runtime.made("topsStreamCreateWithFlags", 1)
    runtime.call("topsSetDevice", 0)
    runtime.refused("InvalidHandle", "topsModuleLaunchKernel", *fill.arguments())
    runtime.refused("InvalidHandle", "topsMemsetD8Async", pointer, 0, 8, stream)
    runtime.call("topsStreamSynchronize", stream)  # any device may be current for a wait
    runtime.call("topsFree", pointer)


def sizes_of_zero(runtime: Runtime) -> None:
    pointer = runtime.made("topsMalloc", 0)
    assert pointer != 0
    runtime.call("topsFree", pointer)
    assert runtime.made("topsHostMalloc", 0, 0) == 0
    runtime.call("topsFree", None)
    runtime.call("topsHostFree", None)
    assert runtime.live("allocation") == runtime.live("pinned") == 0


def launches_are_checked(runtime: Runtime) -> None:
    fill = Fill(runtime)
    fill.launch()
    assert fill.result() == {2.5}
    for shape in ({"grid": 0}, {"block": 0}, {"block": 13}):
        runtime.refused("InvalidValue", "topsModuleLaunchKernel", *fill.arguments(**shape))
    too_much = fill.arguments()
    too_much[7] = (60 << 20) + 1
    runtime.refused("LaunchOutOfResources", "topsModuleLaunchKernel", *too_much)
    runtime.call("topsModuleUnload", fill.module)
    runtime.refused("InvalidHandle", "topsModuleLaunchKernel", *fill.arguments())


def limits_of_a_stream(runtime: Runtime) -> None:
    fill = Fill(runtime)
    stream = runtime.made("topsStreamCreateWithFlags", 1)
    limit = runtime.library.topsStreamSetLaunchLimit
    limit.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    assert limit(None, 1, 6) == code("InvalidHandle")
    assert limit(stream, 1, 6) == 0
    for shape in ({"grid": 2, "block": 6}, {"grid": 1, "block": 7}):
        wrong = fill.arguments(**shape, stream=stream)
        runtime.refused("LaunchOutOfResources", "topsModuleLaunchKernel", *wrong)
    fill.launch(grid=1, block=6, stream=stream)


def a_kernel_without_a_host_build(runtime: Runtime) -> None:
    image = topsfb(Gcu({"unheard_of": ["float*"], "fill_f32": ["float*", "float", "int"]}))
    module = runtime.made("topsModuleLoadData", image)
    made = ctypes.byref(ctypes.c_void_p())
    words = runtime.refused("NotSupported", "topsModuleGetFunction", made, module, b"unheard_of")
    assert "UHAL_SIM_KERNELS" in words
    runtime.refused("NotFound", "topsModuleGetFunction", made, module, b"fill_f64")


def images_are_real(runtime: Runtime) -> None:
    made = ctypes.byref(ctypes.c_void_p())
    other = Gcu({"fill_f32": ["float*", "int", "float"]}, "gcu210")
    for image, expected in (
        (b"\0" * 128, "InvalidImage"),
        (topsfb(other), "NoBinaryForGcu"),
        (bundle(("tops-dtu-enflame-tops--gcu300", other.elf())), "NoBinaryForGcu"),
        (bundle(("tops-dtu-enflame-tops--gcu300", b"\0" * 80)), "InvalidImage"),
    ):
        runtime.refused(expected, "topsModuleLoadData", made, image)
    runtime.made("topsModuleLoadData", Gcu({"fill_f32": ["float*", "int", "float"]}).elf())
    missing = runtime.library.topsModuleLoad(made, b"/nowhere.topsfb")
    assert missing == code("FileNotFound")
    path = str(BUILD / "topsfb" / "fill.topsfb").encode()
    assert runtime.library.topsModuleLoad(made, path) == 0


def errors_are_remembered(runtime: Runtime) -> None:
    assert runtime.library.topsGetLastError() == 0
    runtime.refused("InvalidDevice", "topsSetDevice", 7)
    assert runtime.library.topsPeekAtLastError() == code("InvalidDevice")
    assert runtime.library.topsGetLastError() == code("InvalidDevice")
    assert runtime.library.topsGetLastError() == 0
    assert runtime.library.topsGetErrorName(100) == b"topsErrorNoDevice"
    assert runtime.library.topsGetErrorName(31415) == b"topsErrorUnknown"


def events_and_time(runtime: Runtime) -> None:
    first, second = (runtime.made("topsEventCreateWithFlags", 0) for _ in range(2))
    runtime.call("topsEventQuery", first)  # an event that was never recorded is complete
    runtime.call("topsEventSynchronize", first)
    ms = ctypes.c_float()
    runtime.refused("InvalidHandle", "topsEventElapsedTime", ctypes.byref(ms), first, second)
    stream = runtime.made("topsStreamCreateWithFlags", 1)
    for event in (first, second):
        runtime.call("topsEventRecord", event, stream)
    runtime.refused("NotReady", "topsEventElapsedTime", ctypes.byref(ms), first, second)
    runtime.refused("NotReady", "topsStreamQuery", stream)
    runtime.call("topsEventSynchronize", first)
    for begin, end in ((first, second), (second, first)):
        runtime.refused("NotReady", "topsEventElapsedTime", ctypes.byref(ms), begin, end)
    runtime.call("topsEventSynchronize", second)
    runtime.call("topsEventElapsedTime", ctypes.byref(ms), first, second)
    assert ms.value >= 0
    for event in (first, second):
        runtime.call("topsEventDestroy", event)
    runtime.call("topsStreamDestroy", stream)
    runtime.refused("InvalidHandle", "topsStreamSynchronize", stream)
    assert runtime.live("event") == runtime.live("stream") == 0


def a_capture_becomes_a_graph(runtime: Runtime) -> None:
    fill = Fill(runtime)
    stream = runtime.made("topsStreamCreateWithFlags", 1)
    runtime.call("topsStreamBeginCapture", stream, 0)
    fill.launch(stream=stream)
    status = ctypes.c_int()
    runtime.call("topsStreamIsCapturing", stream, ctypes.byref(status))
    assert status.value == 1
    runtime.refused("StreamCaptureUnsupported", "topsMalloc", ctypes.byref(ctypes.c_void_p()), 8)
    graph = ctypes.c_void_p()
    runtime.refused("StreamCaptureInvalidated", "topsStreamEndCapture", stream, ctypes.byref(graph))
    runtime.call("topsStreamBeginCapture", stream, 1)
    fill.launch(stream=stream)
    runtime.call("topsMemsetD32Async", fill.pointer, 0x40400000, 50, stream)  # 3.0
    runtime.call("topsStreamEndCapture", stream, ctypes.byref(graph))
    nodes = ctypes.c_size_t()
    runtime.call("topsGraphGetNodes", graph, None, ctypes.byref(nodes))
    assert nodes.value == 2
    executable = runtime.made("topsGraphInstantiate", graph, None, None, 0)
    runtime.call("topsGraphDestroy", graph)
    assert fill.result() == {0.0}
    for _ in range(2):
        runtime.call("topsMemsetD8Async", fill.pointer, 0, 400, stream)
        runtime.call("topsGraphLaunch", executable, stream)
        runtime.call("topsStreamSynchronize", stream)
        assert fill.result() == {3.0, 2.5}
    runtime.call("topsGraphExecDestroy", executable)
    assert runtime.live("graph") == runtime.live("graph_exec") == 0


def a_fault_stays(runtime: Runtime) -> None:
    fill = Fill(runtime)
    fill.values[0].value = 4096
    fill.launch()
    assert "fill_f32" in runtime.refused("IllegalAddress", "topsDeviceSynchronize")
    runtime.refused("IllegalAddress", "topsDeviceSynchronize")


def a_fault_is_told_once(runtime: Runtime) -> None:
    fill = Fill(runtime)
    fill.values[0].value = 4096
    fill.launch()
    runtime.refused("IllegalAddress", "topsDeviceSynchronize")
    runtime.call("topsDeviceSynchronize")


def broken_limits_lose_the_device(runtime: Runtime) -> None:
    """Launch a kernel without the L2 memory it needs, and with more rows than its buffer holds."""
    image = (BUILD / "topsfb" / "reduce.topsfb").read_bytes()
    module = runtime.made("topsModuleLoadData", image)
    function = runtime.made("topsModuleGetFunction", module, b"fast_sum_f32")
    pointer = runtime.made("topsMalloc", 4 * 40_000)
    values = (ctypes.c_uint64(pointer), ctypes.c_uint64(pointer))
    shape = [function, 2, 1, 1, 12, 1, 1]
    for shared, rows in ((8192, 32_768), (0, 10), (8192, 32_769)):
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(1))
        parameters = arguments(*values, *sizes)
        runtime.call("topsModuleLaunchKernel", *shape, shared, None, parameters, None)
        if (shared, rows) == (8192, 32_768):
            runtime.call("topsDeviceSynchronize")
        else:
            assert "fast_sum_f32" in runtime.refused("LaunchFailure", "topsDeviceSynchronize")


def faults_are_injected(runtime: Runtime) -> None:
    fail = runtime.library.uhal_sim_fail
    fail(b"topsMalloc", 2, code("OutOfMemory"))
    pointer = runtime.made("topsMalloc", 8)
    runtime.refused("OutOfMemory", "topsMalloc", ctypes.byref(ctypes.c_void_p()), 8)
    runtime.call("topsFree", pointer)
    fail(b"topsMemGetInfo", 1, code("LaunchFailure"))
    sizes = ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())
    runtime.refused("LaunchFailure", "topsMemGetInfo", *sizes)
    runtime.refused("LaunchFailure", "topsMemGetInfo", *sizes)


def peers_and_processes(runtime: Runtime) -> None:
    reachable = ctypes.c_int()
    runtime.call("topsDeviceCanAccessPeer", ctypes.byref(reachable), 0, 1)
    assert reachable.value not in (0, 1)  # the value is a bit field
    runtime.call("topsDeviceEnablePeerAccess", 1, 0)
    runtime.refused("PeerAccessAlreadyEnabled", "topsDeviceEnablePeerAccess", 1, 0)
    source = runtime.upload(b"12345678")
    runtime.call("topsSetDevice", 1)
    target = runtime.made("topsMalloc", 8)
    wrong_device = (target, 1, source, 0, 8, None)
    runtime.refused("InvalidValue", "topsMemcpyPeerAsync", *wrong_device)
    runtime.call("topsSetDevice", 0)
    runtime.call("topsMemcpyPeerAsync", *wrong_device)
    runtime.call("topsDeviceSynchronize")
    runtime.call("topsSetDevice", 1)
    assert runtime.download(target, 8) == b"12345678"


def damaged_files_crash_nothing(runtime: Runtime) -> None:
    generator = random.Random(int(os.environ["DAMAGED_BY"]))
    made = ctypes.byref(ctypes.c_void_p())
    answers = set()
    with tempfile.NamedTemporaryFile(suffix=".topsfb") as file:
        for _ in range(rounds(500, 20_000)):
            Path(file.name).write_bytes(generator.choice(DAMAGES)(generator, ORIGINAL))
            answers.add(runtime.library.topsModuleLoad(made, file.name.encode()))
    assert answers <= {0, code("InvalidImage"), code("NoBinaryForGcu")}
    assert len(answers) > 1


def test_damaged_files_crash_nothing(seed: int) -> None:
    run(damaged_files_crash_nothing, DAMAGED_BY=str(seed))


CHECKS = (
    sizes_of_zero,
    launches_are_checked,
    limits_of_a_stream,
    a_kernel_without_a_host_build,
    images_are_real,
    errors_are_remembered,
    a_capture_becomes_a_graph,
    a_fault_stays,
    faults_are_injected,
)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_runtime(check: Callable[[Runtime], None]) -> None:
    run(check)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("schedule", ["eager", "random:5"])
@pytest.mark.parametrize("check", [launches_are_checked, a_capture_becomes_a_graph, a_fault_stays])
def test_other_schedules(check: Callable[[Runtime], None], schedule: str) -> None:
    run(check, UHAL_SIM_SCHEDULE=schedule)


def test_events_wait_for_what_is_waited_for() -> None:
    run(events_and_time)


@pytest.mark.parametrize("check", [memory_is_of_one_device, peers_and_processes])
def test_two_devices(check: Callable[[Runtime], None]) -> None:
    run(check, UHAL_SIM_TOPS_DEVICES="2")


@pytest.mark.parametrize("check", [a_fault_is_told_once, broken_limits_lose_the_device])
def test_faults_that_are_told_once(check: Callable[[Runtime], None]) -> None:
    run(check, UHAL_SIM_TOPS_FAULTS="once")


def what_only_the_newer_library_has(runtime: Runtime) -> None:
    newer = {
        name.removeprefix("UHAL_TOPS_NEWER_")
        for name in header().constants
        if name.startswith("UHAL_TOPS_NEWER_")
    }
    has = {name for name in header().prototypes if runtime.has(name)}
    assert has == set(header().prototypes) - newer
    version = ctypes.c_int()
    runtime.call("topsRuntimeGetVersion", ctypes.byref(version))
    assert version.value == 2050


def test_the_older_generation() -> None:
    run(what_only_the_newer_library_has, str(OLDER))


def a_wrong_setting(runtime: Runtime) -> None:
    words = runtime.refused("NotInitialized", "topsInit", 0)
    assert "UHAL_SIM_TOPS_" in words and ": expected " in words


@pytest.mark.parametrize(
    ("name", "value"),
    [("PROFILE", "S61"), ("DEVICES", "17"), ("LAUNCH_CONFIG", "56"), ("FAULTS", "never")],
)
def test_settings_that_mean_nothing(name: str, value: str) -> None:
    run(a_wrong_setting, **{f"UHAL_SIM_TOPS_{name}": value})
