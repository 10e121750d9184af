"""hip-python in the form its documentation shows, and with everything prebuilt."""

from __future__ import annotations

import ctypes
import importlib.metadata
import sys

from benchmarks.measuring import NullDriver, control, launch_form, loop, measure, pin, report
from benchmarks.workers.cuda_setup import BLOCK, GRID, as_seen, values

EXTRA = {
    "three": "c_uint64(1000), x, out",
    "eight": "c_uint64(1000), c_uint64(1), c_uint64(0), x, out, "
    "c_float(1.0), c_float(2.0), c_uint32(3)",
}
TYPES = {"c_uint64": ctypes.c_uint64, "c_float": ctypes.c_float, "c_uint32": ctypes.c_uint32}


def main(library: str) -> None:
    pin()
    from hip import hip

    _, x = hip.hipMalloc(4096)
    _, out = hip.hipMalloc(4096)
    _, module = hip.hipModuleLoadData(b"nothing of this is read")
    _, stream = hip.hipStreamCreate()
    forms = [control()]
    kept = []
    for entry in ("three", "eight"):
        _, function = hip.hipModuleGetFunction(module, entry.encode())
        given = values(entry, int(x), int(out))
        pointers = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        kept.append((given, pointers))
        names = {"launch": hip.hipModuleLaunchKernel, "function": function, "stream": stream}
        sizes = f"{GRID}, 1, 1, {BLOCK}, 1, 1, 0"
        per_call = loop(
            f"launch(function, {sizes}, stream, None, ({EXTRA[entry]}))",
            x=x,
            out=out,
            **TYPES,
            **names,
        )
        prebuilt = loop(
            f"launch(function, {sizes}, stream, pointers, None)",
            pointers=ctypes.addressof(pointers),
            **names,
        )
        forms.append(launch_form("extra, built per call", per_call, as_seen(given)))
        forms.append(launch_form("void** address, prebuilt", prebuilt, as_seen(given)))
    version = importlib.metadata.version("hip-python")
    report(measure("hip-python", forms, NullDriver(library)), versions={"hip-python": version})


if __name__ == "__main__":
    main(sys.argv[1])
