"""Environment variables of the simulated drivers, which read them themselves.

A test compares this table with the drivers' sources.
"""

from __future__ import annotations

from uhal._variables import SIMULATORS, Variable


def _simulated(
    name: str,
    values: str,
    effect: str,
    otherwise: str = "",
    choices: tuple[str, ...] = (),
    between: tuple[int, int | None] = (0, None),
) -> Variable:
    """A variable of the simulated drivers, which read it themselves."""
    words = values or f"a number from {between[0]} to {between[1]}"
    default = otherwise if choices or otherwise.isdigit() else ""
    name = f"UHAL_SIM_{name}"
    return Variable(name, words, effect, otherwise, default, choices, *between, reader=SIMULATORS)


def _reading(name: str, effect: str, first: str, other: str) -> Variable:
    """A point that TopsRuntime does not document, with its two readings."""
    return _simulated(f"TOPS_{name}", f"{first} or {other}", effect, first, (first, other))


_DAY = 86_400
_MEMORY = 1 << 20, 1 << 37
_DEVICES = 0, 16

SIMULATED = (
    _simulated("SCHEDULE", "eager, lazy or random:seed", "when work of streams runs", "eager"),
    _simulated("KERNELS", "files and folders separated by colons", "host builds of more kernels"),
    _simulated("REPORT", "a file, or stderr", "append reports to it"),
    _simulated(
        "CHECK",
        "1, strict, 0 or count",
        "check every access; also races; nothing; count requests",
        "1",
        ("1", "strict", "0", "count"),
    ),
    _simulated("COUNTS", "a file", "append a line of JSON for each counted launch"),
    _simulated(
        "COUNT_EVERY",
        "",
        "count one block of so many; 0: some 64 of a grid",
        "0",
        between=(0, 2**32 - 1),
    ),
    _simulated(
        "SEED",
        "",
        "order in which a block's threads run; reports name it",
        "a drawn number",
        between=(0, 2**64 - 1),
    ),
    _simulated("TRACE", "block:thread, as in 0,0,0:5,0,0", "trace this thread on standard error"),
    _simulated(
        "LAUNCH_SECONDS",
        "",
        "seconds after which a kernel or a wait has no end; 0: never",
        "60",
        between=(0, _DAY),
    ),
    _simulated(
        "TRANSLATION_SECONDS",
        "",
        "seconds after which the translator of PTX is stopped",
        "120",
        between=(1, _DAY),
    ),
    _simulated(
        "PYTHON",
        "an interpreter",
        "translate PTX with it",
        "the interpreter that built the library",
    ),
    _simulated(
        "CACHE",
        "a folder that only its user can write to",
        "translated kernels",
        "~/.cache/uhal/ptx",
    ),
    _simulated("CACHE_LIMIT", "bytes such as 512M or 4G", "most bytes of the cache", "1G"),
    _simulated("FAIL", "call:nth:code, several separated by commas", "this call fails once"),
    _simulated(
        "CUDA_PROFILE",
        "sm_70 to sm_120, one a device, separated by commas",
        "simulated devices",
        "sm_86",
    ),
    _simulated("CUDA_DRIVER", "", "CUDA version of the driver", "13050", between=(11040, 13050)),
    _simulated("CUDA_DEVICES", "", "simulated devices", "1", between=_DEVICES),
    _simulated("CUDA_MEMORY", "", "bytes of a device's memory", "4294967296", between=_MEMORY),
    _simulated(
        "CUDA_HIDE",
        "names separated by commas",
        "pretend that the driver lacks these functions",
    ),
    _simulated(
        "ROCM_PROFILE",
        "gfx90a, gfx942, gfx1030, gfx1100 or gfx1201, one a device, separated by commas",
        "simulated devices",
        "gfx90a",
    ),
    _simulated("ROCM_DEVICES", "", "simulated devices", "1", between=_DEVICES),
    _simulated("ROCM_MEMORY", "", "bytes of a device's memory", "4294967296", between=_MEMORY),
    _simulated("ROCM_APU", "0 or 1", "devices share the host's memory", "0", ("0", "1")),
    _simulated("ROCM_GENERIC", "0 or 1", "devices take generic images", "0", ("0", "1")),
    _simulated(
        "TOPS_PROFILE",
        "S60, i20, T20 or Libra, one a device, separated by commas",
        "simulated devices",
        "S60",
    ),
    _simulated("TOPS_DEVICES", "", "simulated devices", "1", between=_DEVICES),
    _simulated("TOPS_MEMORY", "", "bytes of a device's memory", "4294967296", between=_MEMORY),
    _simulated("TOPS_SIPS", "", "SIPs of a cluster", "the profile's number", between=(1, 1024)),
    _simulated(
        "TOPS_BLOCK_THREADS",
        "",
        "threads of a block",
        "the SIPs of a cluster",
        between=(1, 1024),
    ),
    _reading("LAUNCH_CONFIG", "bytes of the launch configuration", "72", "64"),
    _reading("PROPERTIES", "place of the newer library's `sipCount`", "end", "middle"),
    _reading("SIP_COUNT", "SIPs of a cluster in the device's properties", "told", "zero"),
    _reading("PARAMETERS", "whether `kernelParams` works", "both", "extra"),
    _reading("POINTERS", "meaning of a pointer of `topsMalloc`", "handles", "addresses"),
    _reading("CONVERTED", "pointers that launches convert", "buffers", "all"),
    _reading("FAULTS", "whether a device's error stays for later calls", "stay", "once"),
    _reading("BUNDLES", "image of a bundle that is loaded", "choose", "first"),
    _reading("MALLOC_ASYNC", "whether memory is allocated in stream order", "yes", "no"),
    _reading("ATTRIBUTES", "bytes written for a pointer's attribute", "exact", "wide"),
)

__all__ = ["SIMULATED"]
