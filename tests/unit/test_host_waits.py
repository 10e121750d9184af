"""A thread that waits on the host helps with the work it waits for."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.children import ROOT, run_program
from tests.host_kernels import has_compiler
from tests.requirements import needed

pytestmark = [
    needed(has_compiler(), "kernels are compiled here"),
    pytest.mark.skipif(sys.platform != "linux", reason="gettid identifies threads"),
]

on_two_processors = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="one processor: nobody looks on",
)

KERNEL = """
#include <stdexcept>
#include <unistd.h>
#include <uhal/kernel.h>
KERNEL(work, (u64 spins, u64 refused, u64 *threads)) {
    for (volatile u64 spin = 0; spin < spins;) spin = spin + 1;
    if (u64(gettid()) == refused) throw std::runtime_error("refused");
    threads[blockIdx.x] = u64(gettid());
}
"""
PROGRAM = f"""
import ctypes, threading
import numpy as np
from tests.host_kernels import build
from tests.host_runtime.driver import *
BLOCKS = 8
driver = Driver()
work = driver.function(driver.load(build({KERNEL!r})), "work")
here = threading.get_native_id()

def launches(count, refused=0, spins=50_000, blocks=BLOCKS):
    "Which threads ran blocks of launches that are waited for one by one."
    ran = set()
    with driver.stream() as stream, driver.memory(8 * blocks) as out:
        for _ in range(count):
            driver.write(out, np.zeros(blocks, np.uint64), stream)
            values = [ctypes.c_uint64(value) for value in (spins, refused, out)]
            driver.launch(work, (blocks, 1, 1), (1, 1, 1), stream, *values)
            driver.api.uhalHostStreamSynchronize(stream)
            got = np.empty(blocks, np.uint64)
            driver.read(got, out, stream)
            assert got.all(), got
            ran |= set(got.tolist())
    return ran
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_program(PROGRAM + program, **environment)


@on_two_processors
def test_the_waiting_thread_takes_part() -> None:
    done = run(
        "for _ in range(200):\n"
        "    if here in launches(10): break\n"
        "else: raise AssertionError('it only waited')\n",
        UHAL_HOST_THREADS="2",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_with_a_deadline_it_only_waits() -> None:
    """With a deadline, a waiting thread runs no blocks: an endless block would keep it too long."""
    done = run(
        "ran = launches(300)\nassert here not in ran, (here, ran)\n",
        UHAL_HOST_THREADS="2",
        UHAL_HOST_DEADLINE="60",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_one_thread_is_one_thread() -> None:
    """The waiting thread may run a launch in place of the runner; two threads never share a
    launch."""
    done = run("for _ in range(300): assert len(launches(1)) == 1\n", UHAL_HOST_THREADS="1")
    assert (done.returncode, done.stderr) == (0, "")


@on_two_processors
def test_what_a_block_throws_there_loses_the_device() -> None:
    done = run(
        "launches(10)\n"
        "try: launches(2000, here)\n"
        "except HostFailure as failure: print(failure.name)\n"
        "try: driver.api.uhalHostCtxSynchronize()\n"
        "except HostFailure as failure: print(failure.name)\n",
        UHAL_HOST_THREADS="2",
    )
    assert (done.stdout, done.stderr) == ("LAUNCH_FAILED\nLAUNCH_FAILED\n", "")


@contextmanager
def stopped(threads: list[int]) -> Iterator[None]:
    """Stop these threads of a child process, even if other threads wake them."""
    seize, interrupt, detach = 0x4206, 0x4207, 17  # <sys/ptrace.h>
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    any_thread = 0x40000000  # __WALL of <sys/wait.h>
    for thread in threads:
        if libc.ptrace(seize, thread, None, None) != 0:
            pytest.skip(f"no thread can be stopped here: {os.strerror(ctypes.get_errno())}")
        assert libc.ptrace(interrupt, thread, None, None) == 0
        os.waitpid(thread, any_thread)
    yield
    for thread in threads:
        if libc.ptrace(detach, thread, None, None) != 0:
            os.waitpid(thread, any_thread)  # it ended


RUNNERS = """
import faulthandler, sys, time
from pathlib import Path
short = dict(spins=1_000_000, blocks=2)
launches(3, **short)
time.sleep(0.1)
tasks = Path("/proc/self/task").iterdir()
print(*(task.name for task in tasks if "uhal-runner" in (task / "comm").read_text()), flush=True)
sys.stdin.readline()
faulthandler.dump_traceback_later(60, exit=True)
for _ in range(50):
    time.sleep(0.01)
    ran = launches(1, **short)
    if here in ran and len(ran) == 2: break  # the caller may be late too, and a worker do both
print(len(ran), flush=True)
sys.stdin.readline()
"""


@on_two_processors
def test_a_runner_that_does_not_come_is_not_counted_on() -> None:
    """A called runner may wait for milliseconds if its caller occupies the same processor. So the
    second of two blocks goes to a worker, which is called before the first block begins."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM + RUNNERS],
        cwd=ROOT,
        env=os.environ | {"UHAL_HOST_THREADS": "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        runners = [int(thread) for thread in program.stdout.readline().split()]
        assert runners
        with stopped(runners):
            tell(program)
            threads = program.stdout.readline()  # no traced thread may end
        _, said = program.communicate("\n", timeout=60)
    assert (program.returncode, threads) == (0, "2\n"), said


def tell(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()
