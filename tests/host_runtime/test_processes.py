"""Faults, threads and processes of the host runtime, and leaks."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import pytest

from tests.children import run_child
from tests.host_kernels import has_compiler
from tests.host_runtime.driver import Driver
from tests.host_runtime.kernels import run_script, u32, u64
from tests.requirements import needed
from uhal import Api

pytestmark = needed(has_compiler(), "kernels are compiled here")


def test_a_throwing_kernel_loses_its_device_only() -> None:
    done = run_script(
        """
stream = ctypes.c_void_p()
driver.api.uhalHostStreamCreateWithPriority(stream, 0, 0)
event = ctypes.c_void_p()
driver.api.uhalHostEventCreate(event, 0)
throws = driver.function(module, "throws")
address = ctypes.c_uint64()
driver.api.uhalHostMemAlloc(address, 64)
for code in (0, 0):
    driver.launch(throws, (8, 1, 1), (1, 1, 1), stream, u32(code))
    driver.api.uhalHostStreamSynchronize(stream)
ctypes.memset(address.value, 5, 64)
gate = threading.Event()
hold = HOST_FUNCTION(lambda _: gate.wait() and None)
driver.api.uhalHostLaunchHostFunc(stream, hold, None)
driver.launch(throws, (8, 1, 1), (1, 1, 1), stream, u32(int(os.environ["CODE"])))
driver.api.uhalHostMemsetD8Async(address, 1, 64, stream)
gate.set()
ran = []
finish = HOST_FUNCTION(lambda _: ran.append(1))
def answer(call, *arguments):
    try:
        getattr(driver.api, call)(*arguments)
    except HostFailure as error:
        return error.code
    return 0
assert answer("uhalHostStreamSynchronize", stream) == 719
assert b"throws: no such row" in driver.api.uhalHostLastErrorText()
assert ctypes.string_at(address.value, 64) == bytes([5]) * 64  # nothing ran behind it
assert answer("uhalHostStreamSynchronize", stream) == 719
assert answer("uhalHostStreamQuery", stream) == 719
assert answer("uhalHostMemAlloc", address, 64) == 719
assert answer("uhalHostEventRecord", event, stream) == 719
assert answer("uhalHostCtxSynchronize") == 719
assert answer("uhalHostMemFree", address.value) == 0
assert answer("uhalHostEventDestroy", event) == 0
assert answer("uhalHostStreamDestroy", stream) == 0
driver.use(1)
with driver.stream() as stream, driver.memory(4) as x:
    driver.write(x, np.zeros(1, np.uint32), stream)
    affine = driver.function(module, "affine")
    driver.launch(affine, (1, 1, 1), (1, 1, 1), stream, u64(1), u32(1), u32(5), u64(x))
    got = np.empty(1, np.uint32)
    driver.read(got, x, stream)
    assert got[0] == 5
""",
        UHAL_HOST_DEVICES="2",
        CODE="1",
    )
    assert done.returncode == 0, done.stderr


def test_a_forked_child_starts_afresh() -> None:
    done = run_script(
        """
affine = driver.function(module, "affine")
def work():
    with driver.module(build(KERNELS)) as fresh, driver.stream() as stream, driver.memory(400) as x:
        driver.write(x, np.zeros(100, np.uint32), stream)
        function = driver.function(fresh, "affine")
        for _ in range(50):
            values = (u64(100), u32(1), u32(1), u64(x))
            driver.launch(function, (64, 1, 1), (1, 1, 1), stream, *values)
        got = np.empty(100, np.uint32)
        driver.read(got, x, stream)
        assert (got == 50).all()
work()
with driver.stream() as busy, driver.held(busy):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert driver.api.unchecked("uhalHostMemAlloc")(ctypes.c_uint64(), 8) == 201
            driver.use()
            assert not any(driver.live().values())
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
work()
"""
    )
    assert done.returncode == 0, done.stderr


def test_the_process_may_end_with_work_pending() -> None:
    done = run_script(
        """
stream = ctypes.c_void_p()
driver.api.uhalHostStreamCreateWithPriority(stream, 0, 0)
spin = driver.function(module, "count_blocks")
address = ctypes.c_uint64()
driver.api.uhalHostMemAlloc(address, 4 * 4096)
for _ in range(100):
    driver.launch(spin, (4096, 1, 1), (1, 1, 1), stream, u32(10_000_000), u64(address.value))
print("end")
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_thread_counts(threads: str) -> None:
    done = run_script(
        """
properties = HEADER.ctype("uhalHostDeviceProperties")()
driver.api.uhalHostDeviceGetProperties(properties, 0)
assert properties.processors == int(os.environ["UHAL_HOST_THREADS"])
spin = driver.function(module, "count_blocks")
with (
    driver.stream() as first, driver.stream() as second,
    driver.memory(4000) as x, driver.memory(4000) as y,
):
    for stream, address in ((first, x), (second, y)):
        driver.write(address, np.zeros(1000, np.uint32), stream)
    for _ in range(20):
        for stream, address in ((first, x), (second, y)):
            driver.launch(spin, (1000, 1, 1), (1, 1, 1), stream, u32(500), u64(address))
    for stream, address in ((first, x), (second, y)):
        got = np.empty(1000, np.uint32)
        driver.read(got, address, stream)
        assert (got == 20).all(), got
""",
        UHAL_HOST_THREADS=threads,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.drawn(2, each=("variable",))
@pytest.mark.parametrize("variable", ["UHAL_HOST_THREADS", "UHAL_HOST_DEVICES"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "3.5", "99999999999999999999"])
def test_a_bad_environment_is_said(variable: str, value: str) -> None:
    done = run_script("", **{variable: value})
    assert done.returncode != 0
    assert "INVALID_VALUE" in done.stderr
    # The message names the variable's range, and does not advise to build a library.
    told = run_child(open_the_host, environment={variable: value}).stderr
    assert f"{variable}: expected a number from 1 to " in told
    assert f"got '{value}'; unset it for one " in told
    assert "build" not in told.partition("NoDeviceError")[2]


def open_the_host() -> None:
    Api.quick_init(backend="host")


def test_leaks_nothing_in_random_use(driver: Driver, image: bytes, seed: int) -> None:
    """Destroy objects in random orders, some with work pending: the counts return to zero."""
    rng = random.Random(seed)
    before = driver.live()
    for _ in range(30):
        module = driver.load(image)
        affine = driver.function(module, "affine")
        closers = [lambda module=module: driver.api.uhalHostModuleUnload(module)]
        streams = []
        address = ctypes.c_uint64()
        driver.api.uhalHostMemAlloc(address, 4096)
        for _ in range(rng.randrange(1, 4)):
            stream = ctypes.c_void_p()
            driver.api.uhalHostStreamCreateWithPriority(stream, 0, rng.choice((0, -1)))
            streams.append(stream)
            closers.append(lambda stream=stream: driver.api.uhalHostStreamDestroy(stream))
        for _ in range(rng.randrange(3)):
            event = ctypes.c_void_p()
            driver.api.uhalHostEventCreate(event, 0)
            driver.api.uhalHostEventRecord(event, rng.choice(streams))
            driver.api.uhalHostStreamWaitEvent(rng.choice(streams), event, 0)
            closers.append(lambda event=event: driver.api.uhalHostEventDestroy(event))
        for stream in streams:
            values = (u64(1024), u32(1), u32(1), u64(address.value))
            driver.launch(affine, (16, 1, 1), (64, 1, 1), stream, *values)
        rng.shuffle(closers)
        for close in closers:
            close()
        driver.api.uhalHostMemFree(address.value)
    assert driver.live() == before


def test_the_library_needs_no_path(tmp_path: Path) -> None:
    """Images are loaded from memory, so the temporary folder stays empty."""
    done = run_script("assert os.listdir(os.environ['TMPDIR']) == []", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
