"""A driver that lacks one function: only calls that need it are refused, with its name."""

from __future__ import annotations

import json
import random

from cuda_backend._library import header
from tests.sampling import rounds
from tests.simulated.process import IMAGES, needs_simulator, run_program

pytestmark = needs_simulator

EVERYTHING = "everything after it"
# Without one of these functions there is no device, stream, memory or kernel.
NEEDED_BY_ALL = {
    *("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"),
    *("cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain"),
    *("cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"),
    *("cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority", "cuMemAlloc_v2"),
    *("cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncGetAttribute"),
}
# Copies and waits need these functions, and without them many steps are refused.
NEEDED_BY_MANY = {"cuStreamQuery", "cuStreamSynchronize", "cuEventCreate", "cuEventRecord"}


def test_only_what_needs_a_missing_function_is_refused_and_by_its_name(seed: int) -> None:
    functions = sorted(header().prototypes)
    drawn = random.Random(seed).sample(functions, rounds(len(functions) // 3, len(functions)))
    out = run_program(
        "missing_functions.py",
        str(IMAGES / "activation.fatbin.gz"),
        *drawn,
        UHAL_SIM_CUDA_DEVICES="2",
        UHAL_SIM_SCHEDULE="lazy",
    )
    refused: dict[str, dict[str, str]] = dict(json.loads(line) for line in out.splitlines())
    # A complete driver only refuses a variable that does not exist.
    complete = refused.pop("")
    assert set(complete) == {"global"}
    needed_by_all = set()
    for function, steps in refused.items():
        new = {step for step, words in steps.items() if words != complete.get(step)}
        if EVERYTHING in new:
            needed_by_all.add(function)
        elif function not in NEEDED_BY_MANY:
            assert len(new) <= 3, (function, new)
        for step in new - {"global"}:
            assert function in steps[step], (function, step, steps[step])
    assert needed_by_all == NEEDED_BY_ALL.intersection(drawn)
