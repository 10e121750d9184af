"""Loading a library changes no arithmetic of the program, for any compiler options."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import uhal.compile
from tests.children import check_child
from uhal import Device, DeviceBuffer, Module
from uhal.abi import find_library, open_library
from uhal.adapters import own_load

SOURCE = """\
#include <uhal/kernel.h>

#include <pthread.h>

extern "C" __attribute__((visibility("default"))) void flush_to_zero() {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    unsigned long long control;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(control | 1 << 24));
#endif
}

#if defined(AS_FAST_MATH_DOES)
__attribute__((constructor)) static void begin() { flush_to_zero(); }
#endif

KERNEL(compute, (const f64 *x, f64 *y, u64 *thread)) {
    const volatile f64 one = 1;
    y[blockIdx.x] = x[blockIdx.x] * one;
    thread[blockIdx.x] = (u64)pthread_self();
}
"""
TINY = 5e-324


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel library that changes the float mode of the loading thread."""
    path = (
        tmp_path_factory.mktemp("fast") / f"libfast.{'dylib' if sys.platform == 'darwin' else 'so'}"
    )
    path.write_bytes(uhal.compile.host(SOURCE, ["-DAS_FAST_MATH_DOES"]))
    return path


def keeps_tiny_numbers() -> bool:
    product = np.array([TINY]) * np.array([1.0])
    return int(product.view("u8")[0]) == 1  # compare bits: as numbers, a subnormal may equal 0


def elsewhere(work: Callable[[], object]) -> list[bool]:
    """Do work on a new thread; return whether it and its child thread keep subnormals."""
    found = []

    def run() -> None:
        work()
        found.append(keeps_tiny_numbers())
        inner = threading.Thread(target=lambda: found.append(keeps_tiny_numbers()))
        inner.start()
        inner.join()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def test_the_library_does_what_fast_math_does(library: Path) -> None:
    assert elsewhere(lambda: ctypes.CDLL(str(library)).flush_to_zero()) == [False, False]


LOADS: dict[str, Callable[[Path], object]] = {
    "module": lambda path: Module.from_file(path, device=Device(0, "host")),
    "driver": lambda path: find_library("UHAL_NO_SUCH_VARIABLE", [str(path)]).handle,
    "library": open_library,
    "adapters": lambda path: own_load(path.parent, "libfast", "host"),
    "adapters again": lambda path: own_load(path.parent, "libfast", "host"),
}


@pytest.mark.parametrize("load", LOADS)
def test_a_load_leaves_the_arithmetic_of_its_thread(library: Path, load: str) -> None:
    # use a copy, because the system's loader runs a library's initializers once
    own = library.with_name(f"{library.stem}-{load.replace(' ', '-')}") / library.name
    own.parent.mkdir(exist_ok=True)
    own.write_bytes(library.read_bytes())
    kept = []
    assert elsewhere(lambda: kept.append(LOADS[load](own))) == [True, True]
    assert kept[0] is not None


def test_kernels_on_threads_of_the_runtime_compute_as_c_does(tmp_path: Path) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(uhal.compile.host(SOURCE))
    assert check_child(compute_with_a_program_that_flushes, str(path)) == "kept\n"


def compute_with_a_program_that_flushes(path: str) -> None:
    blocks = 64
    ctypes.CDLL(path).flush_to_zero()
    assert not keeps_tiny_numbers()
    device = Device(0, "host")
    with device, Module.from_file(path) as module:
        x = DeviceBuffer.from_numpy(np.full(blocks, TINY))
        y, thread = DeviceBuffer.zeros(blocks, "f64"), DeviceBuffer.zeros(blocks, "u64")
        module.get_function("compute")[blocks, 1](x, y, thread)
        stream = uhal.Stream.default()
        while not stream.query():  # a waiting caller would help with the work
            time.sleep(0.001)
        threads = set(thread.to_numpy().tolist())
        assert threading.get_ident() not in threads, threads
        assert set(y.to_numpy().view("u8").tolist()) == {1}
    print("kept")
