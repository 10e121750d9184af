"""Clusters, cooperation and priorities; the CUDA adapter; pitched copies; shared memory limits."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.counting_bench import Bench, use
from tests.counting_driver import LIMITS, CountingDriver
from uhal import DeviceBuffer, HostBuffer, LaunchConfig, Stream, launch
from uhal.abi import Header
from uhal.adapters import SlotAdapters
from uhal.contract import FunctionAttributes
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    LibraryNotFoundError,
    NotSupportedError,
)

ROOT = Path(__file__).resolve().parents[2]


class Extended(ctypes.Structure):
    """`struct uhal_launch_config`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("cooperative", ctypes.c_int),
        ("has_priority", ctypes.c_int),
        ("priority", ctypes.c_int),
        ("stream", ctypes.c_void_p),
    )


class ExtendedDriver(CountingDriver):
    """A driver that stores the configuration of each extended launch."""

    def __init__(self) -> None:
        super().__init__(limits=replace(LIMITS, max_cluster_blocks=8))
        self.extended: list[Any] = []
        self.on_call = self.read

    def read(self, slot: str, arguments: tuple[Any, ...]) -> None:
        if slot == "launch_ex":
            self.extended.append(Extended.from_buffer_copy(Extended.from_address(arguments[0])))


extended = pytest.mark.bench(driver=ExtendedDriver)


def every_way(function: Any, config: LaunchConfig, stream: Stream) -> None:
    launch(function, config=config, stream=stream, args=(7,))
    function[config, stream](7)
    bound = function[config, stream]
    bound(7)
    bound(7)


@extended
def test_what_is_asked_for_reaches_the_driver(bench: Bench) -> None:
    function = bench.function("u32 n")
    config = LaunchConfig((8, 4), (32, 2), 64, cluster=(2, 1), cooperative=True, priority=-1)
    with Stream() as stream:
        bench.quiet()
        every_way(function, config, stream)
        assert bench.driver.slots() == ["launch_ex"] * 4
        for found in bench.driver.extended:
            assert list(found.grid) == [8, 4, 1]
            assert list(found.block) == [32, 2, 1]
            assert list(found.cluster) == [2, 1, 1]
            assert (found.shared_bytes, found.cooperative) == (64, 1)
            assert (found.has_priority, found.priority) == (1, -1)
            assert found.stream == stream.handle


@pytest.mark.parametrize(
    ("given", "cluster", "cooperative", "has_priority", "priority"),
    [
        ({"cluster": 2}, [2, 1, 1], 0, 0, 0),
        ({"cooperative": True}, [0, 0, 0], 1, 0, 0),
        ({"priority": -9}, [0, 0, 0], 0, 1, -2),
        ({"priority": 9}, [0, 0, 0], 0, 1, 0),
    ],
)
@extended
def test_each_wish_alone(
    bench: Bench,
    given: dict[str, Any],
    cluster: list[int],
    cooperative: int,
    has_priority: int,
    priority: int,
) -> None:
    bench.function("u32 n")[LaunchConfig(2, 1, **given)](7)
    (found,) = bench.driver.extended
    assert list(found.cluster) == cluster
    assert found.cooperative == cooperative
    assert (found.has_priority, found.priority) == (has_priority, priority)


@extended
def test_a_plain_configuration_is_an_ordinary_launch(bench: Bench) -> None:
    function = bench.function("u32 n")
    with Stream() as stream:
        bench.quiet()
        every_way(function, LaunchConfig(8, 32), stream)
        assert bench.driver.slots() == ["launch"] * 4
    launch(function, config=LaunchConfig(0, 32, cooperative=True), args=(7,))
    assert bench.driver.extended == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cluster": 3}, "cluster x: expected a divisor of the 8 blocks of the grid, got 3"),
    ({"cluster": (1, 2)}, "cluster y: expected a divisor of the 1 blocks of the grid, got 2"),
    ({"cluster": 0}, "cluster x: expected an int in 1…2147483647, got 0"),
    ({"cluster": "2"}, "cluster: expected an int or a tuple of 1 to 3 ints, got str '2'"),
    ({"cluster": (8, 1, 1), "grid": 16}, ""),
    ({"cluster": 16, "grid": 16}, "cluster: expected at most 8 blocks on this device, got 16: 16"),
    ({"cluster": (2, 2, 2), "grid": (2, 2, 2)}, ""),
    (
        {"cluster": (3, 3), "grid": (3, 3)},
        "cluster: expected at most 8 blocks on this device, got 9: (3, 3)",
    ),
    (
        {"cluster": (1, 1, 9), "grid": (1, 1, 9)},
        "cluster: expected at most 8 blocks on this device, got 9: (1, 1, 9)",
    ),
    ({"cooperative": 1}, "cooperative: expected a bool, got int 1"),
    ({"priority": "low"}, "priority: expected an int or None, got str 'low'"),
    ({"priority": True}, "priority: expected an int or None, got bool True"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG)
@extended
def test_what_cannot_be_is_refused(bench: Bench, wrong: dict[str, Any], words: str) -> None:
    function = bench.function("u32 n")
    config = LaunchConfig(**{"grid": 8, "block": 1, **wrong})
    bench.quiet()
    if not words:
        function[config](7)
        return
    with pytest.raises(ArgumentValueError) as caught:
        launch(function, config=config, args=(7,))
    assert str(caught.value).startswith(f"k, {words}. The kernel was not launched. [test_lane_")
    with pytest.raises(ArgumentValueError):
        function[config]
    assert bench.driver.slots() == []


@pytest.mark.bench(driver=lambda: CountingDriver(without=("launch_ex",)))
def test_a_driver_without_it_says_so(bench: Bench) -> None:
    function = bench.function("u32 n")
    config = LaunchConfig(8, 1, cluster=2, cooperative=True)
    with pytest.raises(NotSupportedError, match="k, config: cluster and cooperative: this"):
        launch(function, config=config, args=(7,))
    launch(function, config=LaunchConfig(8, 1), args=(7,))


@extended
def test_a_failure_is_named_by_its_call_and_leaves_the_books_right(bench: Bench) -> None:
    function = bench.function("const f32* x")
    buffer = bench.buffer()
    bench.driver.failures["launch_ex"] = [1]
    with pytest.raises(ArgumentValueError, match="launch_ex: INVALID_VALUE"):
        function[LaunchConfig(2, 1, cooperative=True)](buffer)
    stream = bench.busy_stream()
    function[LaunchConfig(2, 1, cooperative=True), stream](buffer)
    (address,) = use(bench, stream, buffer)
    buffer.close()
    bench.quiet()
    assert use(bench, None, bench.buffer()) == [address]
    assert "stream_wait_event" in bench.driver.slots()
    stream.synchronize()


# -- the CUDA adapter ------------------------------------------------------------------------------


def test_the_adapter_speaks_cudas_structure() -> None:
    header = Header.load(ROOT / "cuda_backend" / "abi.h")
    config_type = header.ctype("CUlaunchConfig")
    attribute_type = header.ctype("CUlaunchAttribute")
    seen: list[Any] = []

    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    )

    def driver(config: int, function: int, parameters: int, extra: int | None) -> int:
        found = config_type.from_address(config)
        assert (function, parameters, extra) == (11, 12, None)
        attributes = {}
        for index in range(found.numAttrs):
            size = ctypes.sizeof(attribute_type)
            address = ctypes.cast(found.attrs, ctypes.c_void_p).value or 0
            attribute = attribute_type.from_address(address + index * size)
            attributes[attribute.id] = bytes(attribute.value)
        seen.append((found, attributes))
        return 5

    vendor = kind(driver)
    address = ctypes.cast(vendor, ctypes.c_void_p).value or 0
    adapter = kind(SlotAdapters(ROOT / "cuda_backend", "cuda").over("cuda_launch_ex", address))
    wanted = Extended(
        grid=(1, 2, 3),
        block=(4, 5, 6),
        cluster=(1, 2, 1),
        shared_bytes=7,
        cooperative=1,
        has_priority=1,
        priority=-3,
        stream=0x1234,
    )
    assert adapter(ctypes.addressof(wanted), 11, 12, None) == 5
    found, attributes = seen.pop()
    assert [getattr(found, f"gridDim{axis}") for axis in "XYZ"] == [1, 2, 3]
    assert [getattr(found, f"blockDim{axis}") for axis in "XYZ"] == [4, 5, 6]
    assert found.sharedMemBytes == 7
    assert ctypes.cast(found.hStream, ctypes.c_void_p).value == 0x1234
    constants = header.constants
    values = {
        constants["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"]: np.array([1, 2, 1], "u4"),
        constants["CU_LAUNCH_ATTRIBUTE_COOPERATIVE"]: np.array([1], "i4"),
        constants["CU_LAUNCH_ATTRIBUTE_PRIORITY"]: np.array([-3], "i4"),
    }
    assert attributes == {key: value.tobytes().ljust(64, b"\0") for key, value in values.items()}
    plain = Extended(grid=(1, 1, 1), block=(1, 1, 1))
    adapter(ctypes.addressof(plain), 11, 12, None)
    assert seen.pop()[1] == {}


def test_the_adapter_changes_a_kernel_of_a_graph_as_it_is_told() -> None:
    parameters_type = Header.load(ROOT / "cuda_backend" / "abi.h").ctype(
        "CUDA_KERNEL_NODE_PARAMS_v1"
    )
    seen: list[Any] = []

    def driver(executable: int, node: int, parameters: int) -> int:
        found = parameters_type.from_address(parameters)
        sizes = [getattr(found, f"{of}Dim{axis}") for of in ("grid", "block") for axis in "XYZ"]
        handles = [
            ctypes.cast(one, ctypes.c_void_p).value for one in (found.func, found.kernelParams)
        ]
        seen.append((executable, node, *handles, *sizes, found.sharedMemBytes))
        return 5

    vendor = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(driver)
    address = ctypes.cast(vendor, ctypes.c_void_p).value or 0
    pointers, sizes = [ctypes.c_void_p] * 3, [ctypes.c_uint] * 7
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *pointers, *sizes, ctypes.c_void_p)
    adapters = SlotAdapters(ROOT / "cuda_backend", "cuda")
    adapter = kind(adapters.over("cuda_graph_update_kernel", address))
    assert adapter(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11) == 5
    assert seen == [(1, 2, 3, 11, 4, 5, 6, 7, 8, 9, 10)]


@pytest.mark.parametrize("has_threads", [False, True])
@pytest.mark.parametrize("nbytes", [72, 64])
def test_the_adapter_of_tops_speaks_either_structure(nbytes: int, has_threads: bool) -> None:
    """A device with threads in its SIPs gets the third axis of the block as an attribute."""
    header = Header.load(ROOT / "tops_backend" / "abi.h")
    config_type = header.ctype(f"uhalTopsLaunchConfig{nbytes}")
    attribute_type = header.ctype("topsLaunchAttribute")
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    seen: list[Any] = []

    def driver(config: int, function: int, parameters: int, extra: int | None) -> int:
        found = config_type.from_address(config)
        first = ctypes.cast(found.attrs, ctypes.c_void_p).value or 0
        attributes = {}
        for index in range(found.numAttrs):
            at = first + index * ctypes.sizeof(attribute_type)
            words = (ctypes.c_uint * 3).from_address(at + attribute_type.val.offset)
            attributes[ctypes.c_uint.from_address(at).value] = list(words)
        sizes = [
            [getattr(size, axis) for axis in "xyz"] for size in (found.gridDim, found.blockDim)
        ]
        seen.append((*sizes, found.dynamicSmemBytes, found.localSmemBytes, attributes))
        assert (function, parameters, extra) == (11, 12, None)
        assert ctypes.cast(found.stream, ctypes.c_void_p).value == 0x1234
        return 5

    vendor = kind(driver)
    address = ctypes.cast(vendor, ctypes.c_void_p).value or 0
    adapters = SlotAdapters(ROOT / "tops_backend", "tops")
    if has_threads:
        adapters.over(f"tops_launch_{nbytes}", address)
    adapter = kind(adapters.over(f"tops_launch_ex_{nbytes}", address))
    ids = header.constants
    for cooperative in (0, 1):
        wanted = Extended((1, 2, 3), (4, 5, 6), (0, 0, 0), 7, cooperative, stream=0x1234)
        assert adapter(ctypes.addressof(wanted), 11, 12, None) == 5
        expected = {ids["topsLaunchAttributeCooperative"]: [1, 0, 0]} if cooperative else {}
        if has_threads:
            expected[ids["topsLaunchAttributeThreadDimension"]] = [6, 1, 1]
        block = [4, 5, 1 if has_threads else 6]
        assert seen.pop() == ([1, 2, 3], block, 7, 0, expected)


def test_each_load_of_adapters_serves_its_own_library() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    vendors = [kind(lambda *_, answer=answer: answer) for answer in (5, 6)]
    adapters = [SlotAdapters(ROOT / "cuda_backend", "cuda") for _ in vendors]
    functions = [
        kind(one.over("cuda_launch_ex", ctypes.cast(vendor, ctypes.c_void_p).value or 0))
        for one, vendor in zip(adapters, vendors, strict=True)
    ]
    plain = Extended(grid=(1, 1, 1), block=(1, 1, 1))
    answers = [function(ctypes.addressof(plain), 11, 12, None) for function in functions]
    assert answers == [5, 6]


def test_an_adapter_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the adapters of cuda_backend have no 'x'"):
        SlotAdapters(ROOT / "cuda_backend", "cuda").over("x", 0)
    with pytest.raises(LibraryNotFoundError, match=r"Build it: python setup\.py build_ext"):
        SlotAdapters(tmp_path, "cuda")


# -- shared memory ---------------------------------------------------------------------------------


class SharedDriver(CountingDriver):
    def set_max_dynamic_shared_bytes(
        self, function: int, name: str, nbytes: int
    ) -> FunctionAttributes:
        self.calls.append(("set_shared", (function, nbytes)))
        return FunctionAttributes(1024, static_shared_bytes=0, max_dynamic_shared_bytes=nbytes)


@pytest.mark.bench(driver=SharedDriver)
def test_a_raised_limit_is_what_launches_are_checked_against(bench: Bench) -> None:
    function = bench.function("")
    with pytest.raises(ArgumentValueError, match="0…49152"):
        function[1, 1, 49153]
    function.set_max_dynamic_shared_bytes(100_000)
    assert ("set_shared", (function.handle, 100_000)) in bench.driver.calls
    assert function.attributes.max_dynamic_shared_bytes == 100_000
    function[1, 1, 100_000]()
    with pytest.raises(ArgumentValueError, match="0…100000"):
        function[1, 1, 100_001]
    function.set_max_dynamic_shared_bytes(10)
    with pytest.raises(ArgumentValueError, match="0…10"):
        function[1, 1, 11]
    for wrong in (-1, 1.5, True, "1", 2**32):
        with pytest.raises(ArgumentValueError, match="nbytes: expected an int of bytes"):
            function.set_max_dynamic_shared_bytes(wrong)


# -- rows ------------------------------------------------------------------------------------------


class PitchedDriver(CountingDriver):
    """A driver with a call for pitched copies."""

    def copy_2d(
        self,
        direction: Any,
        destination: int,
        destination_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        stream: int,
    ) -> None:
        self.calls.append(("copy_2d", (direction, destination_pitch, source_pitch, width, height)))
        for row in range(height):
            ctypes.memmove(
                destination + row * destination_pitch, source + row * source_pitch, width
            )


both = pytest.mark.parametrize(
    "pitched",
    [False, pytest.param(True, marks=pytest.mark.bench(driver=PitchedDriver))],
)


@both
def test_rows_of_an_array(bench: Bench, pitched: bool, rng: np.random.Generator) -> None:
    whole = rng.integers(0, 1000, (6, 10), "i4")
    window = whole[1:5, 2:9]
    buffer = DeviceBuffer.from_numpy(np.full(5 * 8, -1, "i4"))
    buffer.copy_2d_from(window, pitch=8)
    expected = np.full((5, 8), -1, "i4")
    expected[:4, :7] = window
    assert np.array_equal(buffer.to_numpy().reshape(5, 8), expected)
    back = np.zeros((9, 9), "i4")
    buffer.copy_2d_to(back[2:6, 1:8], pitch=8)
    assert np.array_equal(back[2:6, 1:8], window)
    assert back.sum() == window.sum()
    called = bench.driver.count("copy_2d")
    assert called == (2 if pitched else 0)


@both
def test_rows_between_buffers(bench: Bench, pitched: bool, rng: np.random.Generator) -> None:
    source = rng.integers(0, 1000, (4, 6), "i4")
    x = DeviceBuffer.from_numpy(source)
    y = DeviceBuffer.zeros(4 * 10, "i4")
    y[2:].copy_2d_from(x[1:], (4, 5), pitch=10, source_pitch=6)
    assert np.array_equal(y.to_numpy().reshape(4, 10)[:, 2:7], source[:, 1:])
    x[1:].copy_2d_to(y, (3, 2), pitch=6, destination_pitch=3)
    assert np.array_equal(y.to_numpy()[:9].reshape(3, 3)[:, :2], source[:3, 1:3])
    # overlapping rows are copied as if through a temporary
    values = x.to_numpy()
    x[1:].copy_2d_from(x, (2, 6), pitch=7, source_pitch=6)
    values_after = values.copy()
    values_after[1:7] = values[:6]
    values_after[8:14] = values[6:12]
    assert np.array_equal(x.to_numpy(), values_after)
    host = HostBuffer(12, "i4")
    x.copy_2d_to(host, (3, 4), pitch=6)
    assert np.array_equal(host.array.reshape(3, 4), x.to_numpy().reshape(4, 6)[:3, :4])
    x.copy_2d_from(host, (2, 2), pitch=6, source_pitch=4)
    bench.device.synchronize()


def test_dense_rows_are_one_copy(bench: Bench) -> None:
    x = bench.buffer(12)
    bench.quiet()
    x.copy_2d_from(np.zeros((3, 4), "f4"))
    assert bench.driver.count("copy_h2d") == 1
    bench.quiet()
    x.copy_2d_from(np.zeros((0, 4), "f4"))
    x.copy_2d_from(np.zeros((3, 0), "f4"))
    assert bench.driver.count("copy_h2d") == 0


ROWS: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (np.zeros((4, 4), "f4"), {}, ArgumentValueError, "pitch: expected rows within 12"),
    (np.zeros((3, 4), "f4"), {"pitch": 3}, ArgumentValueError, "pitch: expected at least the 4"),
    (np.zeros((3, 4), "f4"), {"pitch": -1}, ArgumentValueError, "pitch: expected 0 or more"),
    (np.zeros((3, 4), "f4"), {"pitch": True}, ArgumentTypeError, "pitch: expected an int"),
    (np.zeros((3, 4), "f4"), {"shape": (4, 3)}, ArgumentValueError, "shape: expected the array's"),
    (
        np.zeros((3, 4), "f4"),
        {"source_pitch": 4},
        ArgumentValueError,
        "source_pitch: expected None",
    ),
    (np.zeros((3, 4), "f8"), {}, ArgumentTypeError, "source: expected f32 elements, got f64"),
    (np.zeros((3, 4), ">f4"), {}, ArgumentValueError, "native byte order"),
    (np.zeros(12, "f4"), {}, ArgumentValueError, "expected a 2-D array, got 1 dim"),
    (np.zeros((4, 3), "f4").T, {}, ArgumentValueError, "expected adjacent elements"),
    (np.zeros((3, 4), "f4")[::-1], {}, ArgumentValueError, "expected adjacent elements"),
    (
        np.lib.stride_tricks.as_strided(np.zeros(12, "f4"), (3, 4), (4, 4)),
        {},
        ArgumentValueError,
        "do not overlap",
    ),
    ([[1.0]], {}, ArgumentTypeError, "expected a 2-D numpy array, HostBuffer or DeviceBuffer"),
]


@pytest.mark.parametrize(("source", "given", "error", "words"), ROWS)
def test_rows_that_cannot_be_are_refused(
    bench: Bench, source: Any, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    x = bench.buffer(12)
    bench.quiet()
    with pytest.raises(error, match=words):
        x.copy_2d_from(source, **given)
    assert bench.driver.slots() == []


def test_rows_of_buffers_that_cannot_be_are_refused(bench: Bench) -> None:
    x, y = bench.buffer(12), bench.buffer(12)
    with pytest.raises(ArgumentTypeError, match=r"shape: expected \(rows, columns\), got None"):
        x.copy_2d_from(y)
    with pytest.raises(
        ArgumentValueError, match="source_pitch: expected rows within 12 elements, got 3 rows of 4"
    ):
        x.copy_2d_from(y, (3, 4), source_pitch=6)
    with pytest.raises(ArgumentTypeError, match="got i32"):
        x.copy_2d_from(y.view("i32"), (1, 1))
    y.close()
    with pytest.raises(InvalidHandleError):
        x.copy_2d_from(y, (1, 1))
    array = np.zeros((3, 4), "f4")
    array.flags.writeable = False
    with pytest.raises(ArgumentValueError, match="writable"):
        x.copy_2d_to(array)


def test_a_failing_row_is_reported(bench: Bench) -> None:
    x = bench.buffer(100)
    bench.driver.failures["copy_h2d"] = [0, 1]
    with pytest.raises(ArgumentValueError, match="copy_h2d"):
        x.copy_2d_from(np.zeros((3, 4), "f4"), pitch=5)
    assert bench.driver.count("copy_h2d") == 2
