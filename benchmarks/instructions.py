"""Instructions that the lane itself executes for a call: `python -m benchmarks.instructions`.

Valgrind's callgrind counts, so the result is the same on a busy machine and an idle one. Only
instructions of the lane's own library count, not Python's or the driver's. `--write` writes the
budget beside this file; the exit status is 1 if a call exceeds its budget by a tenth. Counts
depend on compiler and Python; a pair without a budget is not compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from benchmarks.suites import NULL_DRIVER, ROOT

BUDGET = Path(__file__).with_name("instructions.json")
CALLS = 500
TOLERANCE = 1.1
STATEMENTS = {
    "launch, 3 arguments": "launch(three, grid=(8,), block=(256,), args=(1000, x, y), stream=s)",
    "launch, 8 arguments": "launch(eight, grid=(8,), block=(256,), "
    "args=(1000, 1, None, x, y, 1.0, 2.0, 3), stream=s)",
    "bound, 3 arguments": "bound_three(1000, x, y)",
    "bound, 8 arguments": "bound_eight(1000, 1, None, x, y, 1.0, 2.0, 3)",
    "sequence, 3 arguments": "sequence(s, y, x)",
    "alloc+free": "DeviceBuffer.uninitialized(1024, 'f32')",
    "copy 4 KiB": "x.copy_from(page, stream=s)",
    "sync": "s.synchronize()",
    "record": "event.record(s)",
    # last, because these statements free memory that the others must not reuse
    "sequence, with its result": "sequence(s, None, x)",
    "operation on two tensors": "a + b",
    "operation into a tensor": "add(a, b, out=a)",
    # last: from here on a profile records everything
    "bound, 3 arguments, profiled": "bound_three(1000, x, y) # profiled",
}
PROGRAM = """
import ctypes
import sys
import numpy as np
from benchmarks import kernels
from benchmarks.measuring import loop
import ubridge
import uhal
from uhal import Api, DeviceBuffer, Event, LaunchSequence, Module, Passed, Stream, launch
Api.quick_init(0, backend="cuda")
module, s, event = Module.from_bytes(kernels.ptx()), Stream(), Event()
x, y = (DeviceBuffer.uninitialized(1024, "f32") for _ in range(2))
three, eight = module.get_function("three"), module.get_function("eight")
bound_three, bound_eight = three[8, 256, 0, s], eight[8, 256, 0, s]
sequence = LaunchSequence([(bound_three, (1000, Passed.operand(0), Passed.result()))], 1024, "f32")
page = np.zeros(1024, np.float32)
a, b, add = ubridge.empty((4, 4)), ubridge.empty((4, 4)), ubridge.add
names = {k: v for k, v in globals().items() if k.islower() and k != "loop"}
callgrind = ctypes.CDLL(sys.argv[1])
for statement in sys.argv[3:]:
    statement, _, profiled = statement.partition(" # ")
    if profiled:
        # a profile ends with its object
        profile = uhal.profile(measure_copy=False)
        profile.start()
    run = loop(statement, DeviceBuffer=DeviceBuffer, **names)
    run(10)
    callgrind.begin()
    run(int(sys.argv[2]))
    callgrind.end()
"""
COUNTING_SOURCE = Path(__file__).with_name("workers") / "callgrind_part.c"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("--write", action="store_true", help="make what is counted the budget")
    options = parser.parse_args()
    found = count()
    budgets = json.loads(BUDGET.read_text()) if BUDGET.is_file() else {}
    if options.write:
        budgets[toolchain()] = found
        BUDGET.write_text(json.dumps(budgets, indent=2, sort_keys=True) + "\n")
    budget = budgets.get(toolchain(), {})
    for name, instructions in found.items():
        limit = f"budget {budget[name]}" if name in budget else f"no budget for {toolchain()}"
        print(f"{name:24}{instructions:8} instructions, {limit}")
    return 1 if over_budget(found, budget) else 0


def over_budget(found: dict[str, int], budget: dict[str, int]) -> list[str]:
    """Names of the calls that exceed their budget by more than a tenth."""
    return [name for name in found if found[name] > TOLERANCE * budget.get(name, sys.maxsize)]


def toolchain() -> str:
    """Return the versions that the counts depend on."""
    compiler = os.environ.get("CC", "cc").split()[0]
    said = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True, check=True)
    name = "clang" if "clang" in os.path.realpath(shutil.which(compiler) or "") else "gcc"
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # Python's own compiler flags also apply to its extensions.
    flags = hashlib.sha256(str(sysconfig.get_config_var("CFLAGS")).encode()).hexdigest()[:8]
    return f"{name} {said.stdout.split('.')[0].strip()}, Python {python}, flags {flags}"


def count() -> dict[str, int]:
    """Return the lane's instructions for an execution of each statement."""
    with tempfile.TemporaryDirectory() as folder:
        output, counting = Path(folder, "callgrind"), Path(folder, "counting.so")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-shared", "-fPIC", COUNTING_SOURCE, "-o", counting], check=True)
        subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
                f"--callgrind-out-file={output}",
                *(sys.executable, "-c", PROGRAM, str(counting), str(CALLS)),
                *STATEMENTS.values(),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "UHAL_CUDA_LIBRARY": str(NULL_DRIVER),
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONHASHSEED": "0",
            },
            check=True,
            capture_output=True,
        )
        return {
            name: round(_own_instructions(Path(f"{output}.{number}").read_text()) / CALLS)
            for number, name in enumerate(STATEMENTS, start=1)
        }


def _own_instructions(profile: str) -> int:
    """The sum over the functions of the lane, without their callees (callgrind's format)."""
    total = 0
    names: dict[str, str] = {}
    ours = is_call = False
    for line in profile.splitlines():
        if line.startswith(("ob=", "cob=")):
            number, _, name = line.partition("=")[2].partition(" ")
            if name:
                names[number] = name
            if line.startswith("ob="):
                ours = "/_lane." in names[number]
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[0-9+*-]", line):
            if ours and not is_call:
                total += int(line.split()[1])
            is_call = False
    return total


if __name__ == "__main__":
    sys.exit(main())
