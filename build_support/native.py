"""The compiled parts and their compilation, as jobs for `build_support.jobs`.

Eight kinds:

* tables of the ABI headers (JSON)
* the lane (Cython, a Python extension)
* the host runtime (C++, a plain shared library loaded like a vendor's driver)
* the HSA, OpenCL and WebGPU runtimes (C, shared libraries over AMD's, any vendor's, wgpu-native)
* the slot adapters of CUDA and TopsRuntime (C)
* the emulations of slots (C)
* the host kernels (one shared library a module and level)
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from build_support.jobs import OUTPUT, Job
from build_support.target import Target, this_machine, version_of

LIBRARY_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
# An undefined symbol is an error at build time, not when a user loads the library.
LINK_COMPLETE = () if sys.platform == "darwin" else ("-Wl,-z,defs",)
# A wheel has each kernel library once per level, so unused symbols and gaps between pages are
# removed.
LINK_SMALL = () if sys.platform == "darwin" else ("-Wl,-s,-z,noseparate-code,-z,norelro",)
STRICT_WARNINGS = ("-Wall", "-Wextra")
_INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(uhal/[^>]+)>)', re.MULTILINE)


@dataclass(frozen=True)
class Flavour:
    """Additional compiler options for all parts, after each part's own."""

    name: str
    options: tuple[str, ...] = ()
    keeps_symbols: bool = True
    runtime: str = ""
    """A sanitizer's library, which must be in the process before everything else."""


RELEASE = Flavour("release", keeps_symbols=False)
_LINES = ("-g", "-fno-omit-frame-pointer")
FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        RELEASE,
        Flavour("debug", ("-O0", "-g3")),
        # At -O0 the sanitized tests take hours; above -O1 frames are missing from reports.
        Flavour("address", ("-O1", *_LINES, "-fsanitize=address,undefined"), runtime="libasan.so"),
        Flavour("thread", ("-O1", *_LINES, "-fsanitize=thread"), runtime="libtsan.so"),
    )
}


def native_jobs(
    root: Path,
    destination: Path,
    *,
    every_level: bool,
    flavour: Flavour = RELEASE,
    target: Target | None = None,
) -> list[Job]:
    """Every compiled part, made under `destination`.

    `every_level` builds kernels for each instruction level of the target's kind of machine (a
    wheel), otherwise for this CPU's best level (a clone). The target is this machine and
    interpreter unless another is given.
    """
    target = target or this_machine()
    recipe = (root, destination, flavour, target)
    return [
        lane_job(root, destination, flavour=flavour, target=target),
        runtime_job(*recipe),
        *hsa_runtime_jobs(*recipe),
        *(library_over_job(*recipe, name) for name in ("OpenCL", "WebGPU")),
        *(adapters_job(*recipe, vendor) for vendor in ("cuda", "tops")),
        emulation_job(*recipe),
        *kernel_jobs(*recipe, every_level=every_level),
        *abi_table_jobs(root, destination, target),
        # a checkout has a compiler
        *(conformance_jobs(*recipe) if every_level else ()),
    ]


ABI_HEADERS = (
    "cuda_backend/abi.h",
    "host_backend/abi.h",
    "opencl_backend/abi.h",
    "opencl_backend/runtime.h",
    "rocm_backend/abi.h",
    "rocm_backend/runtime.h",
    "tops_backend/abi.h",
    "uhal/collectives/nccl_abi.h",
    "ubridge/prepare/matmul/cublaslt_abi.h",
    "webgpu_backend/abi.h",
    "webgpu_backend/runtime.h",
)


def abi_table_jobs(root: Path, destination: Path, target: Target) -> list[Job]:
    """The table of each ABI header, beside the header, for `uhal.abi.Header`."""
    generator = root / "uhal" / "abi_table.py"
    return [
        Job(
            label=f"table of {header}",
            output=(destination / header).with_suffix(".json"),
            inputs=(root / header, generator),
            commands=((sys.executable, str(generator), str(root / header), OUTPUT, *target.cc),),
            weight=0,
            tools=f"{version_of(target.cc)} {version('pycparser')}",
        )
        for header in ABI_HEADERS
    ]


def lane_job(
    root: Path,
    destination: Path,
    *,
    unsafe: bool = False,
    flavour: Flavour = RELEASE,
    target: Target | None = None,
) -> Job:
    """The extension `uhal._lane`; every file of `cython_src` is an input of it.

    `unsafe` makes a lane without checks, for benchmarks.
    """
    import numpy

    target = target or this_machine()
    python = target.python
    sources = root / "cython_src"
    variant = "-unsafe" if unsafe else ""
    c_file = root / "build" / "lane" / f"{python.tag}-{target.machine}{variant}.c"
    c_file.parent.mkdir(parents=True, exist_ok=True)
    generator = root / "build_support" / "lane_slots.py"
    generate = (sys.executable, str(generator), str(sources), str(c_file.parent))
    translate = (
        *(sys.executable, "-m", "cython", "-3", "--module-name", "uhal._lane", f"-I{sources}"),
        # With code comments, a third of the file would be copies of the sources.
        *("-X", "emit_code_comments=False"),
        *(f"-I{c_file.parent}", str(sources / "lane.pyx"), "-o", str(c_file)),
    )
    compile_and_link = (
        *target.cc,
        *python.link,
        *python.flags,
        # -O3 for its higher inlining limits: the packing of an argument is inlined into a launch.
        *("-O3", "-g0", "-fPIC", "-fvisibility=hidden"),
        "-DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION",
        *(("-DUHAL_LANE_UNSAFE",) if unsafe else ()),
        *flavour.options,
        *shlex.split(os.environ.get("CFLAGS", "")),
        *(f"-I{folder}" for folder in python.includes),
        *(f"-I{numpy.get_include()}", f"-I{sources}"),
        *(str(c_file), *map(str, _files(sources, "**/*.c")), "-o", OUTPUT),
        *shlex.split(os.environ.get("LDFLAGS", "")),
    )
    versions = (version_of(target.cc), version("Cython"), numpy.__version__, python.version)
    return Job(
        label=f"lane{variant} ({python.tag})",
        output=destination / "uhal" / f"_lane{python.suffix}",
        inputs=(*_files(sources, "*.pyx", "**/*.pxi", "**/*.h", "**/*.c"), generator),
        commands=(generate, translate, compile_and_link),
        weight=1 << 40,
        tools=" ".join(versions),
    )


def runtime_job(root: Path, destination: Path, flavour: Flavour, target: Target) -> Job:
    """`host_backend/libuhal_host`, from every C++ file of the host runtime."""
    sources = root / "host_backend" / "runtime"
    folders = (root / "uhal" / "include", root / "cython_src", root / "host_backend")
    units = _files(sources, "*.cpp")
    assert units, f"host runtime: there is no source in {sources}"
    command = (
        *target.cxx,
        *("-std=c++17", "-O2", "-g0", "-pthread", "-shared", "-fPIC"),
        *("-fvisibility=hidden", "-fvisibility-inlines-hidden", *STRICT_WARNINGS),
        *flavour.options,
        *shlex.split(os.environ.get("CXXFLAGS", "")),
        *(f"-I{folder}" for folder in folders),
        # Compiled as one unit: the standard library's headers cost more than all of our sources.
        *("-x", "c++", *(part for unit in units for part in ("-include", str(unit))), os.devnull),
        *("-o", OUTPUT, *LINK_COMPLETE),
        *shlex.split(os.environ.get("LDFLAGS", "")),
        *(() if sys.platform == "darwin" else ("-ldl",)),
    )
    headers = [header for folder in (*folders, sources) for header in _files(folder, "**/*.h")]
    return Job(
        label="host runtime",
        output=destination / "host_backend" / f"libuhal_host{LIBRARY_SUFFIX}",
        inputs=(*units, *headers, *_files(sources, "*.hpp")),
        commands=(command,),
        weight=1 << 39,
        tools=version_of(target.cxx),
    )


def hsa_runtime_jobs(root: Path, destination: Path, flavour: Flavour, target: Target) -> list[Job]:
    """`rocm_backend/libuhal_hsa.so`, from every C file of the HSA runtime; on Linux only.

    It does not need ROCm: it gets the addresses of the runtime's functions.
    """
    if not sys.platform.startswith("linux"):
        return []
    folder = root / "rocm_backend"
    return [
        _c_library_job(
            "HSA runtime",
            units=_files(folder / "runtime", "*.c"),
            folders=(folder / "runtime", root / "cython_src", root / "uhal" / "emulation", folder),
            output=destination / "rocm_backend" / "libuhal_hsa.so",
            flavour=flavour,
            target=target,
        )
    ]


def library_over_job(
    root: Path, destination: Path, flavour: Flavour, target: Target, name: str
) -> Job:
    """`libuhal_<name>.so` of a backend, from every C file of its runtime over a library.

    It does not link that library: it gets the addresses of the functions.
    """
    folder = root / f"{name.lower()}_backend"
    return _c_library_job(
        f"{name} runtime",
        units=_files(folder / "runtime", "*.c"),
        folders=(folder / "runtime", root / "cython_src", root / "uhal" / "emulation", folder),
        output=destination / folder.name / f"libuhal_{name.lower()}.so",
        flavour=flavour,
        target=target,
    )


def adapters_job(
    root: Path, destination: Path, flavour: Flavour, target: Target, vendor: str
) -> Job:
    """`libuhal_adapters` of a backend whose vendor lacks functions for some slots."""
    folder = root / f"{vendor}_backend"
    return _c_library_job(
        f"{vendor} adapters",
        units=(folder / "adapters.c",),
        folders=(root / "cython_src", folder),
        output=destination / folder.name / f"libuhal_adapters{LIBRARY_SUFFIX}",
        flavour=flavour,
        target=target,
    )


def emulation_job(root: Path, destination: Path, flavour: Flavour, target: Target) -> Job:
    """`uhal/emulation/libuhal_emulation`: slots for libraries that lack some."""
    folder = root / "uhal" / "emulation"
    return _c_library_job(
        "emulation",
        units=_files(folder, "*.c"),
        folders=(root / "cython_src", folder),
        output=destination / "uhal" / "emulation" / f"libuhal_emulation{LIBRARY_SUFFIX}",
        flavour=flavour,
        target=target,
    )


def _c_library_job(
    label: str,
    *,
    units: tuple[Path, ...],
    folders: tuple[Path, ...],
    output: Path,
    flavour: Flavour,
    target: Target,
) -> Job:
    assert units, f"{label}: there is no source in {folders[0]}"
    command = (
        *target.cc,
        *("-std=c11", "-O2", "-g0", "-pthread", "-shared", "-fPIC"),
        *("-fvisibility=hidden", *STRICT_WARNINGS),
        *flavour.options,
        *shlex.split(os.environ.get("CFLAGS", "")),
        *(f"-I{folder}" for folder in folders),
        *(*map(str, units), "-o", OUTPUT, *LINK_COMPLETE),
        *shlex.split(os.environ.get("LDFLAGS", "")),
    )
    return Job(
        label=label,
        output=output,
        inputs=(*units, *(header for folder in folders for header in _files(folder, "*.h"))),
        commands=(command,),
        weight=1 << 38,
        tools=version_of(target.cc),
    )


def kernel_jobs(
    root: Path, destination: Path, flavour: Flavour, target: Target, *, every_level: bool
) -> list[Job]:
    """One library for each module of `ubridge/kernels` and each level, best level first.

    Levels above the common levels are left out if the compiler is too old for their options.
    """
    cpu_level = load_cpu_level(root)

    def levels_of(module: str) -> list[Any]:
        levels = (
            cpu_level.machine_levels(module, target.machine)
            if every_level
            else cpu_level.usable_levels(module)
        )
        known = [level for level in levels if _accepts(target.cxx, level.options)]
        return known if every_level else known[:1]

    sources = root / "ubridge" / "kernels"
    include = root / "uhal" / "include"
    return [
        _kernel_job(
            f"kernels {source.stem} ({level.name})",
            source,
            cpu_level.compile_flags(level),
            destination / "ubridge" / "kernels" / "host" / level.name / f"{source.stem}.so",
            include,
            flavour,
            target,
        )
        for source in _files(sources, "*.cu", "*.cpp")
        for level in levels_of(source.stem)
    ]


def conformance_jobs(root: Path, destination: Path, flavour: Flavour, target: Target) -> list[Job]:
    """The kernels of the conformance suite, for every CPU: a wheel's user may have no compiler."""
    cpu_level = load_cpu_level(root)
    lowest = cpu_level.machine_levels(machine=target.machine)[-1]
    return [
        _kernel_job(
            f"conformance {source.stem}",
            source,
            cpu_level.compile_flags(lowest),
            destination / "uhal_conformance" / "images" / "host" / f"{source.stem}.so",
            root / "uhal" / "include",
            flavour,
            target,
        )
        for source in _files(root / "tests" / "conformance" / "kernels", "*.cu")
    ]


def _kernel_job(
    label: str,
    source: Path,
    flags: Sequence[str],
    output: Path,
    include: Path,
    flavour: Flavour,
    target: Target,
) -> Job:
    spelled = [other for one in flags for other in target.renamed.get(one, (one,))]
    command = (
        *(*target.cxx, *spelled, *STRICT_WARNINGS),
        *flavour.options,
        *shlex.split(os.environ.get("CXXFLAGS", "")),
        *(f"-I{include}", "-x", "c++", str(source), "-o", OUTPUT, *LINK_COMPLETE),
        *(() if flavour.keeps_symbols else target.small or LINK_SMALL),
    )
    return Job(
        label=label,
        output=output,
        inputs=(source, *_included(source, include)),
        commands=(command,),
        weight=source.stat().st_size,
        tools=version_of(target.cxx),
    )


def _included(source: Path, include: Path) -> tuple[Path, ...]:
    """Project headers that a source includes, directly or not.

    Conditions are ignored, so headers only for devices count too.
    """
    found: dict[Path, None] = {}
    waiting = [source]
    while waiting:
        text = waiting.pop().read_text(encoding="utf-8")
        named = (
            source.with_name(beside) if beside else include / ours
            for beside, ours in _INCLUDE.findall(text)
        )
        new = [header for header in named if header not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return tuple(sorted(found))


def load_cpu_level(root: Path) -> ModuleType:
    """`uhal/images/cpu_level.py`, loaded by its path: `uhal` cannot be imported before its lane."""
    name = "_uhal_cpu_level"
    if name in sys.modules:
        return sys.modules[name]
    path = root / "uhal" / "images" / "cpu_level.py"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look up their module during its execution.
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _files(folder: Path, *patterns: str) -> tuple[Path, ...]:
    return tuple(sorted(path for pattern in patterns for path in folder.glob(pattern)))


@functools.cache
def _accepts(compiler: tuple[str, ...], options: tuple[str, ...]) -> bool:
    if not options:
        return True
    command = (*compiler, *options, "-x", "c++", "-fsyntax-only", os.devnull)
    return subprocess.run(command, capture_output=True).returncode == 0
