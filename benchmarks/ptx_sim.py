"""Speed of PTX on the CPU, next to numpy: `python -m benchmarks.ptx_sim [--size N]`.

It times kernels of ptx_sim.ptx over N elements. Each has a form with one element per thread and a
grid-stride form of 1024 blocks. Both forms run with and without memory checks, called directly and
through uhal on the simulated driver. Then come a launch of one block, and the time to get 300
kernels whose libraries are in the cache. numpy writes into existing memory, like the kernels.

Times are the least of several runs. The ratio is of wall time, with one worker per processor.
Other processes of the machine add to wall time; the last column is the processor time of all
workers together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TEXT = HERE / "ptx_sim.ptx"
DRIVER = HERE.parent / "simulators" / "build" / "libcuda.so.1"
BLOCK = 256
STRIDED_BLOCKS = 1024
REPEATS = 7
TINY_LAUNCHES = 2000
KERNELS = 300
KERNELS_OF = {"neg": 2, "add": 3, "exponential": 2}
"""The kernels timed and how many arrays each takes."""


def forms(size: int) -> Iterator[tuple[str, int]]:
    """Yield the suffix of each form's name, and its number of blocks."""
    yield "", -(-size // BLOCK)
    yield "_stride", STRIDED_BLOCKS


def least(action: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds of the fastest of several runs."""
    wall, used = [], []
    for _ in range(REPEATS):
        start, processor = time.perf_counter(), time.process_time()
        action()
        wall.append(time.perf_counter() - start)
        used.append(time.process_time() - processor)
    return min(wall), min(used)


def show(name: str, check: str, times: tuple[float, float], baseline: float) -> None:
    """Print a line of the table."""
    wall, used = times
    print(
        f"{name:20} {check:6} {wall * 1e3:8.1f} {baseline * 1e3:9.1f} {wall / baseline:6.1f} "
        f"{used * 1e3:14.1f}"
    )


def head(title: str) -> None:
    """Print the table's first line."""
    print(f"\n{title}")
    print(f"{'kernel':20} {'checks':6} {'ms':>8} {'numpy ms':>9} {'ratio':>6} {'processor ms':>14}")


def elementwise(size: int) -> dict[str, float]:
    """Print a line for each kernel, form and check; returns numpy's seconds."""
    from simulators.ptx.launch import Module

    rng = np.random.default_rng()
    x, z, y = (rng.normal(size=size).astype("f4") for _ in range(3))
    actions: dict[str, Callable[[], object]] = {
        "neg": lambda: np.negative(x, out=y),
        "add": lambda: np.add(x, z, out=y),
        "exponential": lambda: np.exp(x, out=y),
    }
    modules = {check: Module(TEXT.read_text(), check) for check in ("on", "off")}
    head(f"directly, {size} elements, {os.cpu_count()} processors")
    baselines = {}
    for name, count in KERNELS_OF.items():
        baselines[name], _ = least(actions[name])
        wanted = y.copy()
        for form, blocks in forms(size):
            for check, module in modules.items():
                given = [size, *((x, y) if count == 2 else (x, z, y))]
                run = module.kernel(name + form).prepare([blocks], [BLOCK], given).run
                show(name + form, check, least(run), baselines[name])
                np.testing.assert_allclose(y, wanted, rtol=1e-6)
    return baselines


def through_driver(size: int, baselines: dict[str, float]) -> None:
    """Print the times of uhal on the simulated driver, and of a small launch."""
    if not DRIVER.exists():
        print("\nthe simulated driver is not built: make simulators")
        return
    head("through uhal on the simulated driver")
    small = {}
    for check, said in (("on", "1"), ("off", "0")):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.workers.ptx_sim_driver", str(size)],
            env=os.environ | {"UHAL_CUDA_LIBRARY": str(DRIVER), "UHAL_SIM_CHECK": said},
            cwd=HERE.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        times = json.loads(done.stdout)
        small[check] = times.pop("one block")[0]
        for name, pair in times.items():
            show(name, check, pair, baselines[name.removesuffix("_stride")])
    for check, seconds in small.items():
        print(f"launch of one block, checks {check}: {seconds * 1e6:.1f} us")


def tiny_launch() -> None:
    """Print the cost of a launch of one block, with the call from Python."""
    from simulators.ptx.launch import Module

    print()
    for check in ("on", "off"):
        kernel = Module(TEXT.read_text(), check).kernel("nothing")
        run = kernel.prepare([1], [32], [np.zeros(32, "f4")]).run

        def many(run: Callable[[], None] = run) -> None:
            for _ in range(TINY_LAUNCHES):
                run()

        taken, _ = least(many)
        print(
            f"launch of one block, directly, checks {check}: {taken / TINY_LAUNCHES * 1e6:.1f} us"
        )


def warm_cache() -> None:
    """Print how long it takes to get many kernels that were translated before."""
    from simulators.ptx.launch import Module

    first = ".version 8.0\n.target sm_80\n.address_size 64\n"
    text = first + "\n".join(
        f".visible .entry k{index}(.param .u64 out) {{ .reg .b64 %d; ld.param.u64 %d, [out]; "
        f"st.global.u32 [%d], {index}; ret; }}"
        for index in range(KERNELS)
    )

    def get_all() -> float:
        start = time.perf_counter()
        module = Module(text)
        for name in module.kernels:
            module.kernel(name)
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        os.environ["UHAL_SIM_CACHE"] = folder
        cold, warm = get_all(), get_all()
    print(f"\n{KERNELS} kernels: {cold:.2f} s translated, {warm:.2f} s from the cache")


def main() -> None:
    """Print all of it."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--size", type=int, default=1 << 24, help="elements of an array")
    size = options.parse_args().size
    through_driver(size, elementwise(size))
    tiny_launch()
    warm_cache()


if __name__ == "__main__":
    main()
