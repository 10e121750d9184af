"""The process as a whole: importing, forking, closing in any order, and leaving."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.children import ROOT, check_child
from tests.conformance.rows import KERNELS, compile_for_host
from tests.sampling import rounds
from uhal_conformance.kept_folders import kept_folder

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
VENDOR_LIBRARIES = (
    "libcuda.so.1",
    "libcuda.so",
    "libhsa-runtime64.so.1",
    "libamdhip64.so",
    "libtopsrt.so",
    "libtopsrt.so.1",
    "libnvidia-ml.so.1",
)


@pytest.fixture(scope="module")
def image(request: pytest.FixtureRequest) -> str:
    """Return kernels/basic.cu compiled for this machine's CPU."""
    return str(compile_for_host(KERNELS / "basic.cu", kept_folder(request.config, "kernels")))


# -- importing -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def look_alikes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of fake vendors' libraries; opening such a library writes a file there."""
    folder = tmp_path_factory.mktemp("look_alikes")
    source = folder / "trap.c"
    source.write_text(
        textwrap.dedent("""\
            #include <stdio.h>
            __attribute__((constructor)) static void leave_a_trace(void) {
                FILE *trace = fopen(TRACE, "w");
                if (trace) fclose(trace);
            }
        """)
    )
    for name in VENDOR_LIBRARIES:
        define = f'-DTRACE="{folder}/opened-{name}"'
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-shared", "-fPIC", define, str(source), "-o", str(folder / name)],
            check=True,
        )
    return folder


def run(script: str, folder: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@LINUX
def test_importing_opens_no_vendor_library(look_alikes: Path) -> None:
    run("import uhal, ubridge, uhal.registry, uhal.fixed, uhal.arguments", look_alikes)
    assert list(look_alikes.glob("opened-*")) == []
    run("import ctypes; ctypes.CDLL('libcuda.so.1')", look_alikes)
    (trace,) = look_alikes.glob("opened-*")
    trace.unlink()


@LINUX
def test_importing_starts_no_thread_and_maps_nothing_but_the_lane(look_alikes: Path) -> None:
    output = run(
        """
        import os, re, numpy, pathlib, dataclasses
        def look():
            with open("/proc/self/maps") as maps:
                libraries = set(re.findall(r"/[^ ]*\\.so[.0-9]*$", maps.read(), re.M))
            return len(os.listdir("/proc/self/task")), libraries
        threads, libraries = look()
        import uhal
        threads_after, libraries_after = look()
        print(threads_after - threads)
        print([os.path.basename(path) for path in sorted(libraries_after - libraries)])
        """,
        look_alikes,
    )
    started, mapped = output.splitlines()
    assert started == "0"
    assert [name.partition(".")[0] for name in eval(mapped)] == ["_lane"]


def test_importing_loads_few_modules_beyond_numpys(tmp_path: Path) -> None:
    """Slow imports show here as new modules; benchmarks/ measures times."""
    output = run(
        """
        import sys, numpy, pathlib, dataclasses
        before = set(sys.modules)
        import uhal
        print(" ".join(sorted(set(sys.modules) - before)))
        """,
        tmp_path,
    )
    loaded = output.split()
    assert "uhal._simulator_variables" not in loaded
    found = {name for name in loaded if not name.startswith(("uhal", "_cython"))}
    assert found <= {"__future__", "atexit", "copy", "cython_runtime", "gc", "threading"}


def test_importing_models_loads_no_event_loop(tmp_path: Path) -> None:
    output = run("import sys, ubridge.models; print('asyncio' in sys.modules)", tmp_path)
    assert output == "False\n"


def test_importing_tensors_loads_nothing_that_starts_processes(tmp_path: Path) -> None:
    """Only groups of ranks, whose functions are `ub.all_reduce` and `ub.all_gather`, need it."""
    output = run("import sys, ubridge; print('multiprocessing' in sys.modules)", tmp_path)
    assert output == "False\n"


# -- forking ---------------------------------------------------------------------------------------


class World:
    """Open objects of every kind with work pending, as programs have when they fork or leave."""

    def __init__(self, image: str, backend: str = "host") -> None:
        from uhal import Api, DeviceBuffer, Event, HostBuffer, Module, Stream

        self.device = Api.quick_init(backend=backend)
        self.site = site_of_caller_line("Api.quick_init(backend=backend)")
        self.module = Module.from_file(image)
        self.step = self.module.get_function("step")
        self.stream = Stream()
        self.event = Event()
        self.pinned = HostBuffer(1000, "u32")
        self.buffer = DeviceBuffer.from_numpy(np.arange(1000, dtype="u4"))
        self.view = self.buffer[10:20]
        self.bound = self.step[2, 32, 0, self.stream]
        self.expected = np.arange(1000, dtype="u4")

    def work(self, times: int = 20) -> None:
        for number in range(times):
            self.bound(1000, 3, number, self.buffer)
            self.expected = self.expected * np.uint32(3) + np.uint32(number)
        self.event.record(self.stream)
        self.buffer.copy_to_async(self.pinned, self.stream)

    def check(self) -> None:
        self.stream.synchronize()
        assert np.array_equal(self.pinned.array, self.expected)
        assert np.array_equal(self.buffer.to_numpy(), self.expected)

    def acts(self) -> dict[str, Callable[[], Any]]:
        from uhal import DeviceBuffer, Stream

        return {
            "launch": lambda: self.step[1, 1](1000, 1, 1, self.buffer),
            "bound": lambda: self.bound(1000, 1, 1, self.buffer),
            "to_numpy": lambda: self.buffer.to_numpy(),
            "view": lambda: self.view.set_8(0),
            "synchronize": lambda: self.stream.synchronize(),
            "query": lambda: self.stream.query(),
            "event": lambda: self.event.synchronize(),
            "record": lambda: self.event.record(self.stream),
            "callback": lambda: self.stream.add_callback(print),
            "pinned": lambda: self.pinned.array,
            "pointer": lambda: self.buffer.as_device_ptr(),
            "function": lambda: self.module.get_function("fill"),
            "device": lambda: self.device.synchronize(),
            "memory": lambda: self.device.memory_info(),
            "new buffer": lambda: DeviceBuffer.zeros(3, "u8", device=self.device),
            "new stream": lambda: Stream(device=self.device),
            "current device": lambda: DeviceBuffer.zeros(3, "u8"),
        }


def site_of_caller_line(text: str) -> str:
    """Return `file.py:line` of the only line of this file with `text` as a statement."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"= {text}")]
    return f"{Path(__file__).name}:{number}"


def fork_and_use(image: str, pending: bool) -> None:
    """Fork with everything open; the child must get errors, and must be able to start afresh."""
    from uhal import diagnostics
    from uhal.errors import InvalidHandleError

    world = World(image)
    if pending:
        world.stream.add_callback(lambda: None)
        world.work()
    child = os.fork()
    if child == 0:
        for name, act in world.acts().items():
            try:
                act()
            except InvalidHandleError as error:
                assert f"initialised before fork at {world.site}, " in str(error), (
                    name,
                    str(error),
                )
            else:
                raise AssertionError(f"{name} was not refused")
        for thing in (world.buffer, world.stream, world.event, world.module, world.pinned):
            thing.close()
        fresh = World(image)
        fresh.work()
        fresh.check()
        del world
        gc.collect()
        assert diagnostics()["native"]["host"]["streams"] == 2
        called = threading.Event()
        fresh.stream.add_callback(called.set)
        assert called.wait(30)
        print("the child computes")
        return
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    if not pending:
        world.work()
    world.check()
    print("the parent computes")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("pending", [False, True])
def test_a_forked_child_is_told_and_starts_afresh(image: str, pending: bool) -> None:
    output = check_child(fork_and_use, image, pending, options=("-W", "error"))
    assert output.splitlines() == ["the child computes", "the parent computes"]


def fork_in_generations(image: str) -> None:
    """Each generation of forked processes works alone; the exit of a process disturbs no other."""
    world = World(image)
    world.work()
    depth = 0
    while depth < 3 and (child := os.fork()) == 0:
        depth += 1
        world = World(image)
        world.work()
    world.check()
    if depth < 3:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    print(depth)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_children_of_children(image: str) -> None:
    assert check_child(fork_in_generations, image).split() == ["3", "2", "1", "0"]


def fork_in_a_thread(image: str) -> None:
    """Fork while other threads launch: their locks must not block the child."""
    world = World(image)
    stop = threading.Event()

    def launch_on() -> None:
        from uhal import Stream

        with world.device, Stream() as stream:
            while not stop.is_set():
                world.step[1, 32, 0, stream](1000, 1, 0, world.buffer)
                stream.add_callback(lambda: None)
                stream.synchronize()

    threads = [threading.Thread(target=launch_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(rounds(10, 300)):
        child = os.fork()
        if child == 0:
            fresh = World(image)
            fresh.work()
            fresh.check()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    stop.set()
    for thread in threads:
        thread.join(30)
    print("done")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forking_beside_busy_threads(image: str) -> None:
    # Python 3.12 warns of a fork of a process with threads
    options = ("-W", "ignore::DeprecationWarning")
    assert check_child(fork_in_a_thread, image, options=options) == "done\n"


# -- closing in any order --------------------------------------------------------------------------


def close_in_random_orders(image: str, seed: int, count: int) -> None:
    """Close, drop and collect the objects of a world in random orders, even the device first."""
    from uhal import Device, _lane

    rng = random.Random(seed)
    for _ in range(count):
        world = World(image)
        world.work(rng.randrange(4))
        names = ["device", "module", "step", "stream", "event", "pinned", "buffer", "view", "bound"]
        if rng.random() < 0.3:
            # a reference cycle that only the collector can free
            vars(world)["cycle"] = [world, {"all": dict(vars(world))}]
        rng.shuffle(names)
        for name in names:
            thing = getattr(world, name)
            close = getattr(thing, "close", None)
            if close is not None and rng.random() < 0.6:
                close()
                if rng.random() < 0.3:
                    close()
            if rng.random() < 0.8:
                delattr(world, name)
            del thing, close
            if rng.random() < 0.1:
                gc.collect()
        if "device" in vars(world) or rng.random() < 0.5:
            Device(0, "host").close()
        del world
    _lane.set_default_context(None)
    Device(0, "host").close()
    gc.collect()
    # A thread of the lane may hold the context until its last wait ends.
    end = time.monotonic() + 20
    while set((live := _lane.live_counts()).values()) != {0}:
        assert time.monotonic() < end, live
        time.sleep(0.01)
    print(count)


def test_objects_close_in_any_order(image: str, seed: int) -> None:
    count = rounds(100, 20_000)
    output = check_child(
        close_in_random_orders, image, seed, count, options=("-W", "error", "-X", "dev")
    )
    assert output == f"{count}\n"


# -- leaving ---------------------------------------------------------------------------------------

KEPT: list[Any] = []


def leave_with_live_objects(image: str) -> None:
    KEPT.append(World(image))


def leave_with_pending_work(image: str) -> None:
    world = World(image)
    world.work(500)
    world.stream.add_callback(lambda: None)
    KEPT.append(world)


def leave_with_callbacks_pending(image: str) -> None:
    world = World(image)
    for number in range(50):
        world.work(20)
        world.stream.add_callback(lambda n: KEPT.append(n), number)
    world.stream.add_callback(lambda: print(len(KEPT), flush=True))


def leave_in_a_cycle(image: str) -> None:
    world = World(image)
    world.work()
    vars(world)["cycle"] = world
    gc.disable()


def leave_by_exception_in_a_thread(image: str) -> None:
    world = World(image)

    def run() -> None:
        with world.device:
            world.work(100)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    KEPT.append(thread)
    sys.exit(0)


def leave_while_a_daemon_launches(image: str) -> None:
    world = World(image)

    def run() -> None:
        while True:
            world.step[1, 1](10, 1, 1, world.buffer)

    threading.Thread(target=run, daemon=True).start()


def leave_with_objects_at_exit(image: str) -> None:
    import atexit

    atexit.register(lambda: (KEPT[0].check(), KEPT.clear(), gc.collect(), print("checked")))
    world = World(image)
    world.work()
    KEPT.append(world)


def leave_with_the_device_closed(image: str) -> None:
    world = World(image)
    world.work()
    world.device.close()
    KEPT.append(world)


LEAVES: dict[Callable[[str], None], str] = {
    leave_with_live_objects: "",
    leave_with_pending_work: "",
    leave_with_callbacks_pending: "50\n",
    leave_in_a_cycle: "",
    leave_by_exception_in_a_thread: "",
    leave_while_a_daemon_launches: "",
    leave_with_objects_at_exit: "checked\n",
    leave_with_the_device_closed: "",
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("leave", LEAVES, ids=lambda function: function.__name__)
def test_leaving_is_silent_and_clean(image: str, leave: Callable[[str], None]) -> None:
    output = check_child(leave, image, options=("-W", "error", "-X", "dev"))
    assert output == LEAVES[leave]
