"""How fast PTX runs on the CPU, next to numpy: `python -m benchmarks.ptx_sim [--size N]`.

Kernels of ptx_sim.ptx over N elements, each in a form with one element a thread and in a
grid-stride form of 1024 blocks, with and without memory checks; then a launch of one block, and
the time to get 300 kernels whose libraries are in the cache. numpy writes into memory that is
there already, as the kernels do. Times are the least of several runs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BLOCK = 256
STRIDED_BLOCKS = 1024
REPEATS = 7
TINY_LAUNCHES = 2000
KERNELS = 300


def least(action: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def elementwise(size: int) -> None:
    """Print a line for each kernel, form and check."""
    from simulators.ptx.launch import Module

    rng = np.random.default_rng()
    x, z = (rng.normal(size=size).astype("f4") for _ in range(2))
    y = np.empty_like(x)
    reference: dict[str, tuple[Callable[[], object], list[np.ndarray]]] = {
        "neg": (lambda: np.negative(x, out=y), [x, y]),
        "add": (lambda: np.add(x, z, out=y), [x, z, y]),
        "exponential": (lambda: np.exp(x, out=y), [x, y]),
    }
    text = (HERE / "ptx_sim.ptx").read_text()
    modules = {check: Module(text, check) for check in ("on", "off")}
    print(f"{size} elements, {os.cpu_count()} processors\n")
    print(f"{'kernel':20} {'checks':6} {'ms':>8} {'numpy ms':>9} {'ratio':>6}")
    for name, (action, arrays) in reference.items():
        baseline = least(action)
        wanted = y.copy()
        for form, blocks in (("", -(-size // BLOCK)), ("_stride", STRIDED_BLOCKS)):
            for check, module in modules.items():
                kernel = module.kernel(name + form)
                taken = least(kernel.prepare([blocks], [BLOCK], [size, *arrays]).run)
                np.testing.assert_allclose(y, wanted, rtol=1e-6)
                print(
                    f"{name + form:20} {check:6} {taken * 1e3:8.1f} {baseline * 1e3:9.1f} "
                    f"{taken / baseline:6.1f}"
                )


def tiny_launch() -> None:
    """Print what a launch of one block costs, with the call from Python."""
    from simulators.ptx.launch import Module

    y = np.zeros(32, "f4")
    for check in ("on", "off"):
        kernel = Module((HERE / "ptx_sim.ptx").read_text(), check).kernel("nothing")
        run = kernel.prepare([1], [32], [y]).run
        taken = least(lambda run=run: [run() for _ in range(TINY_LAUNCHES)]) / TINY_LAUNCHES
        print(f"launch of one block, checks {check}: {taken * 1e6:.1f} us")


def warm_cache() -> None:
    """Print how long it takes to get many kernels that were translated before."""
    from simulators.ptx.launch import Module

    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    text = head + "\n".join(
        f".visible .entry k{index}(.param .u64 out) {{ .reg .b64 %d; ld.param.u64 %d, [out]; "
        f"st.global.u32 [%d], {index}; ret; }}"
        for index in range(KERNELS)
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UHAL_SIM_CACHE"] = folder
        start = time.perf_counter()
        for name in Module(text).kernels:
            Module(text).kernel(name)
        cold = time.perf_counter() - start
        start = time.perf_counter()
        module = Module(text)
        for name in module.kernels:
            module.kernel(name)
        warm = time.perf_counter() - start
    print(f"{KERNELS} kernels: {cold:.2f} s translated, {warm:.2f} s from the cache")


def main() -> None:
    """Print all of it."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--size", type=int, default=1 << 24, help="elements of an array")
    size = options.parse_args().size
    elementwise(size)
    print()
    tiny_launch()
    print()
    warm_cache()


if __name__ == "__main__":
    main()
