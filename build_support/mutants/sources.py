"""Mistakes in compiled sources, drawn by a seed: one operator in a condition or an assigned value.

The table in `mistakes` keeps mistakes that once survived, so its tests find all of them. A draw
says what the same tests find elsewhere.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from build_support.mutants.compiled import Compiled
from build_support.mutants.near import nearest_of

FOLDERS: dict[str, tuple[str, ...]] = {
    "cython_src/capture": ("unit/test_lane_plans", "conformance/test_capture*"),
    "cython_src/device": ("unit/test_lane_*", "conformance/test_faults", "unit/test_float_control"),
    "cython_src/interop": ("unit/test_lane_interop", "unit/test_malformed*", "*/test_dlpack"),
    "cython_src/launch": ("unit/test_lane_*", "unit/test_launch*", "conformance/test_launches"),
    "cython_src/memory": ("unit/test_lane_*", "conformance/test_memory", "conformance/test_pool"),
    "cython_src/profile": ("unit/test_profile", "conformance/test_profile"),
    "cython_src/streams": (
        "unit/test_lane_*",
        "conformance/test_streams",
        "conformance/test_wait*",
    ),
    "host_backend/runtime": ("host_runtime/*", "unit/test_host_*", "unit/test_control_groups"),
    "rocm_backend/runtime": (
        "simulated/test_rocm_backend",
        "simulated/test_rocm*",
        "rocr/*",
        "unit/test_aql",
    ),
    "opencl_backend/runtime": ("opencl/*",),
    "webgpu_backend/runtime": ("webgpu/*",),
    "cuda_backend": ("unit/test_lane_launch_ex", "unit/test_cuda*", "simulated/test_cuda*"),
    "tops_backend": ("unit/test_tops*", "simulated/test_tops*"),
    "simulators/cuda": (
        "unit/test_simulator_cuda",
        "simulated/test_*driver*",
        "simulated/test_cuda*",
    ),
    "simulators/engine": (
        "unit/test_simulator_cuda",
        "simulated/test_*driver*",
        "simulated/test_s*",
    ),
    "simulators/hsa": ("simulated/test_hsa*", "simulated/test_rocm*"),
    "simulators/images": ("unit/test_simulator_cuda", "simulated/test_*", "unit/test_fatbin"),
    "simulators/nccl": ("collectives/test_nccl", "collectives/*"),
    "simulators/ptx/executor": (
        "simulated/test_ptx*",
        "simulated/test_sim*",
        "simulated/test_nvcc*",
        "unit/test_simulator_cuda",
    ),
    "simulators/ptx/runtime": ("simulators/ptx/*", "simulated/test_ptx*", "simulated/test_sim*"),
    "simulators/tops": ("simulated/test_tops*", "unit/test_tops*"),
    "simulators/tops/kernels": ("ubridge/test_gcu*", "ubridge/test_answers"),
    "ubridge/kernels": ("ubridge/test_*kernels", "ubridge/test_*"),
    "uhal/emulation": ("unit/test_emulation", "simulated/test_rocm*"),
}
"""Folders of compiled sources, and the tests, below `tests`, that execute them."""
_SUFFIXES = {".c", ".cpp", ".cu", ".h", ".pxi"}
_OPERATORS = (
    *((" <= ", " < "), (" < ", " <= "), (" >= ", " > "), (" > ", " >= ")),
    *((" == ", " != "), (" != ", " == "), (" && ", " || "), (" || ", " && ")),
    *((" and ", " or "), (" or ", " and "), (" is not None", " is None")),
    *((" + ", " - "), (" - ", " + "), (" << ", " >> "), (" >> ", " << ")),
    *((" / ", " % "), (" % ", " / "), (" & ", " | "), ("true", "false"), ("false", "true")),
    *(("True", "False"), ("False", "True"), (" + 1", ""), (" - 1", "")),
)
_C = re.compile(r"^[ \t]+(?:(?:\} else )?if \((.+)\) \{?|while \((.+)\) \{|return ([^{};]+);)$")
_C_VALUE = re.compile(r"^[ \t]+(?:const )?[\w:]+ (?:\*?\w+ )?= ([^{};\"?\[\]]+);$")
_CYTHON = re.compile(r"^[ \t]+(?:(?:if|elif|while) (.+):|return (.+))$")
_STATEMENT = re.compile(r" = |;|:=|\bnew\b|\[&|\[=|\blambda\b|\bfor\b|\"|'|//|/\*|#")


def draw(root: Path, count: int, rng: random.Random, under: str = "") -> Iterator[Compiled]:
    """Yield mistakes, from each folder in turn, at most one for a file."""
    folders = [folder for folder in FOLDERS if f"{folder}/".startswith(under)]
    files = {
        folder: [path for path in sorted((root / folder).iterdir()) if path.suffix in _SUFFIXES]
        for folder in folders
    }
    for folder in folders:
        rng.shuffle(files[folder])
    found = 0
    while found < count and any(files.values()):
        for folder in folders:
            drawn = None
            while files[folder] and drawn is None:
                drawn = _mistake(root, files[folder].pop(), FOLDERS[folder], rng)
            if drawn is not None and found < count:
                found += 1
                yield drawn


def expressions(source: str, cython: bool) -> list[tuple[int, int]]:
    """Return where the conditions and values of a source begin and end; each is on one line."""
    found: list[tuple[int, int]] = []
    at = 0
    for line in source.splitlines(keepends=True):
        patterns = (_CYTHON,) if cython else (_C, _C_VALUE)
        for match in filter(None, (pattern.match(line.rstrip("\n")) for pattern in patterns)):
            text = match[match.lastindex or 0]
            if text.count("(") == text.count(")") and not _STATEMENT.search(text):
                start = at + match.start(match.lastindex or 0)
                found.append((start, start + len(text)))
        at += len(line)
    return found


def _mistake(root: Path, path: Path, tests: Sequence[str], rng: random.Random) -> Compiled | None:
    source = path.read_text("utf-8")
    places = [
        (start, end, place.start(), operator)
        for start, end in expressions(source, path.suffix == ".pxi")
        for operator in _OPERATORS
        for place in re.finditer(re.escape(operator[0]), source[start:end])
    ]
    if not places:
        return None
    start, end, offset, (before, after) = rng.choice(places)
    text = source[start:end]
    first = source.rfind("\n", 0, start) + 1
    while source.count(source[first:end]) > 1:
        first = source.rfind("\n", 0, first - 1) + 1
    relative = path.relative_to(root).as_posix()
    chosen = nearest_of(relative, source.count("\n", 0, start) + 1, root, tests)
    changed = text[:offset] + after + text[offset + len(before) :]
    return Compiled(relative, text, changed, tuple(chosen), source[first:start])
