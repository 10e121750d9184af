"""A runner that wakes up later than another thread's work begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_kernels import compiler, has_compiler
from tests.host_runtime.driver import ROOT
from tests.requirements import needed

pytestmark = [
    needed(has_compiler(), "the delay is compiled here"),
    pytest.mark.skipif(sys.platform != "linux", reason="a called runner asks for its processor"),
]

# A called runner asks which processor runs it, to move away from its caller. The first call waits.
DELAY = """
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { NEVER, NEXT, NOW };
int delay = NEVER;
int sched_getcpu(void) {
    char name[16] = "";
    int next = NEXT;
    unsigned processor = 0;
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strcmp(name, "uhal-runner") == 0 &&
        __atomic_compare_exchange_n(&delay, &next, NOW, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        while (__atomic_load_n(&delay, __ATOMIC_SEQ_CST) == NOW) usleep(1000);
    }
    syscall(SYS_getcpu, &processor, NULL, NULL);
    return (int)processor;
}
"""
PROGRAM = """
import ctypes, faulthandler, os, threading, time
from tests.host_runtime.driver import *
faulthandler.dump_traceback_later(100, exit=True)
NEVER, NEXT, NOW = range(3)
delay = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "delay")
driver = Driver()
kept = []

def enqueue(stream, work):
    kept.append(HOST_FUNCTION(lambda _: work() and None))
    driver.api.uhalHostLaunchHostFunc(stream, kept[-1], None)

with driver.stream() as x, driver.stream() as y:
    while delay.value != NOW:
        # Two runners meet and fall asleep; then the first one works, and the second is called.
        meeting, started, goes_on, done = threading.Barrier(2), *(threading.Event() for _ in "abc")
        for stream in (x, y):
            enqueue(stream, meeting.wait)
        for stream in (x, y):
            driver.api.uhalHostStreamSynchronize(stream)
        time.sleep(0.1)
        enqueue(x, lambda: (started.set(), goes_on.wait()))
        started.wait()
        delay.value = NEXT
        enqueue(y, done.set)
        while delay.value != NOW and not done.is_set():
            time.sleep(0.001)
        goes_on.set()
        done.wait()  # the first runner did the work that the second was called for
    time.sleep(0.1)  # the first runner falls asleep
    delay.value = NEVER

time.sleep(0.1)
gate, waited = threading.Event(), []
streams = [driver.stream() for _ in range(12)]
for stream in streams:
    enqueue(stream.__enter__(), lambda: waited.append(gate.wait(20)))
with driver.stream() as last:
    enqueue(last, gate.set)
    driver.api.uhalHostStreamSynchronize(last)
for stream in streams:
    stream.__exit__(None, None, None)
driver.api.uhalHostCtxSynchronize()
assert waited == [True] * 12, waited
"""


def test_only_the_called_runner_takes_a_call(tmp_path: Path) -> None:
    """Otherwise the count of called runners is negative, and blocked functions stop all streams."""
    source, library = tmp_path / "delay.c", tmp_path / "libdelay.so"
    source.write_text(DELAY)
    command = [*compiler(), "-x", "c", "-O1", "-fPIC", "-shared", str(source), "-o", str(library)]
    subprocess.run([*command, "-pthread"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "UHAL_HOST_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
