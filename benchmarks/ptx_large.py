"""Cost of one kernel of a large PTX module, simulated: `python -m benchmarks.ptx_large`.

Candle's module of quantized kernels has 142 kernels in 5.8 MB; this benchmark makes a module of the
same size (`LargeModule`). Three new processes load the module through uhal and launch one kernel:
with an empty cache, with only the module in the cache, and with the kernel in it, too. It reports
how many kernels were translated; results are compared with numpy's. Processor time covers the
program with the driver in it, without the translator's process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DRIVER = HERE.parent / "simulators" / "build" / "libcuda.so.1"
KERNELS = 142
BYTES = 5_800_000
FUNCTIONS = 4
THREADS = 256
STEPS_OF_A_BRANCH = 40
WORD = (1 << 32) - 1


class LargeModule:
    """Kernels of random arithmetic on u32, with PTX of equal length.

    `kernel_N(x, y, n)` computes y[i] from x[i]; `expected` computes the same.
    """

    def __init__(self, seed: int, kernels: int = KERNELS, size: int = BYTES) -> None:
        self._seed = seed
        self._steps = max(size // kernels // 46, 8)
        self.kernels = kernels

    def _operations(self, kernel: int) -> Iterator[tuple[str, int]]:
        rng = np.random.default_rng([self._seed, kernel])
        names = rng.choice(["add", "xor", "mul", "rotate", "max"], self._steps)
        numbers = rng.integers(1, WORD, self._steps)
        return zip(map(str, names), map(int, numbers), strict=True)

    def text(self) -> str:
        """The PTX."""
        head = ".version 8.0\n.target sm_80\n.address_size 64\n"
        functions = [_FUNCTION.format(number=number) for number in range(FUNCTIONS)]
        return "\n".join([head, *functions, *map(self._kernel, range(self.kernels))])

    def _kernel(self, kernel: int) -> str:
        lines = [_OPENING.format(kernel=kernel)]
        for index, (name, number) in enumerate(self._operations(kernel)):
            if index % STEPS_OF_A_BRANCH == 0:
                label = f"$L_{kernel}_{index}"
                # Never taken: the lowest bit of a value is not both set and clear.
                lines.append("\tand.b32 \t%r8, %r1, 1;\n\tsetp.gt.u32 \t%p1, %r8, 1;")
                lines.append(f"\t@%p1 bra \t{label};\n\txor.b32 \t%r9, %r9, %r8;\n{label}:")
            lines.append("\t" + _TEXTS[name].format(number=number, turn=number % 31 + 1))
        return "\n".join([*lines, _ENDING.format(function=kernel % FUNCTIONS)])

    def expected(self, kernel: int, x: np.ndarray) -> np.ndarray:
        """Return a kernel's result for u32 values."""
        value = x.astype("u8")
        for name, number in self._operations(kernel):
            turn = number % 31 + 1
            if name == "rotate":
                value = value << turn | value >> (32 - turn)
            elif name == "max":
                value = np.maximum(value, number >> turn)
            else:
                number = np.uint64(number)
                value = {"add": value + number, "xor": value ^ number, "mul": value * number}[name]
            value &= WORD
        return ((value * 3 + kernel % FUNCTIONS) & WORD).astype("u4")


_TEXTS = {
    "add": "add.s32 \t%r1, %r1, {number};",
    "xor": "xor.b32 \t%r1, %r1, {number};",
    "mul": "mul.lo.s32 \t%r1, %r1, {number};",
    "rotate": "shf.l.wrap.b32 \t%r1, %r1, %r1, {turn};",
    "max": "mov.u32 \t%r2, {number};\n\tshr.u32 \t%r2, %r2, {turn};\n\tmax.u32 \t%r1, %r1, %r2;",
}
_FUNCTION = """\
.func (.param .b32 result) finish_{number}(.param .b32 given)
{{
\t.reg .b32 \t%r<3>;
\tld.param.u32 \t%r1, [given];
\tmad.lo.s32 \t%r2, %r1, 3, {number};
\tst.param.b32 \t[result+0], %r2;
\tret;
}}"""
_OPENING = """\
.visible .entry kernel_{kernel}(
\t.param .u64 kernel_{kernel}_param_0,
\t.param .u64 kernel_{kernel}_param_1,
\t.param .u32 kernel_{kernel}_param_2
)
{{
\t.reg .pred \t%p<3>;
\t.reg .b32 \t%r<10>;
\t.reg .b64 \t%rd<6>;
\tld.param.u64 \t%rd1, [kernel_{kernel}_param_0];
\tld.param.u64 \t%rd2, [kernel_{kernel}_param_1];
\tld.param.u32 \t%r3, [kernel_{kernel}_param_2];
\tmov.u32 \t%r4, %ctaid.x;
\tmov.u32 \t%r5, %ntid.x;
\tmov.u32 \t%r6, %tid.x;
\tmad.lo.s32 \t%r7, %r4, %r5, %r6;
\tsetp.ge.s32 \t%p2, %r7, %r3;
\t@%p2 ret;
\tcvta.to.global.u64 \t%rd1, %rd1;
\tcvta.to.global.u64 \t%rd2, %rd2;
\tmul.wide.s32 \t%rd3, %r7, 4;
\tadd.s64 \t%rd4, %rd1, %rd3;
\tadd.s64 \t%rd5, %rd2, %rd3;
\tld.global.u32 \t%r1, [%rd4];
\tmov.u32 \t%r9, 0;"""
_ENDING = """\
\tadd.s32 \t%r1, %r1, %r9;
\tsub.s32 \t%r1, %r1, %r9;
\t{{
\t.param .b32 param0;
\tst.param.b32 \t[param0+0], %r1;
\t.param .b32 retval0;
\tcall.uni (retval0), finish_{function}, (param0);
\tld.param.b32 \t%r1, [retval0+0];
\t}}
\tst.global.u32 \t[%rd5], %r1;
\tret;
}}"""


def launch_one(path: str, seed: int, kernel: int) -> dict[str, float]:
    """Load the module and launch a kernel in this process; return the seconds."""
    import uhal

    module = LargeModule(seed)
    x = np.random.default_rng().integers(0, WORD, 1000, dtype="u4")
    device = uhal.Api.quick_init(0, backend="cuda")
    given = uhal.DeviceBuffer.from_numpy(x)
    made = uhal.DeviceBuffer.zeros(x.size, "u32")
    device.synchronize()
    start, processor = time.perf_counter(), time.process_time()
    loaded = uhal.Module.from_file(path)
    read = time.perf_counter()
    function = loaded.get_function(f"kernel_{kernel}")
    function[-(-x.size // THREADS), THREADS](given, made, x.size)
    device.synchronize()
    end = time.perf_counter()
    used = time.process_time() - processor
    np.testing.assert_array_equal(made.to_numpy(), module.expected(kernel, x))
    return {"load": read - start, "launch": end - read, "all": end - start, "used": used}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        path, seed, kernel = options.child
        print(json.dumps(launch_one(path, int(seed), int(kernel))))
        return
    seed = int(np.random.default_rng().integers(1 << 31))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "large.ptx"
        path.write_text(LargeModule(seed).text())
        cache = Path(scratch) / "cache"
        environment = {**os.environ, "UHAL_CUDA_LIBRARY": str(DRIVER), "UHAL_SIM_CACHE": str(cache)}
        print(f"{KERNELS} kernels in {path.stat().st_size / 1e6:.1f} MB of PTX; seed {seed}")
        print(
            f"{'cache':22} {'load s':>8} {'launch s':>9} {'both s':>8} {'processor s':>12} "
            f"{'translated':>11}"
        )
        known = 0
        for name, kernel in (("empty", 70), ("another kernel", 71), ("both known", 70)):
            child = ["-m", "benchmarks.ptx_large", "--child", str(path), str(seed), str(kernel)]
            done = subprocess.run(
                [sys.executable, *child],
                env=environment,
                cwd=HERE.parent,
                capture_output=True,
                text=True,
                check=True,
            )
            took = json.loads(done.stdout)
            libraries = len(list(cache.glob("*.so")))
            print(
                f"{name:22} {took['load']:8.2f} {took['launch']:9.2f} {took['all']:8.2f} "
                f"{took['used']:12.2f} {libraries - known:11}"
            )
            known = libraries


if __name__ == "__main__":
    main()
