"""Builds the simulated drivers, into `simulators/build/` (`make simulators`) or into a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from build_support.jobs import OUTPUT, BuildError, Job, build
from build_support.native import load_cpu_level
from simulators.topsfb import ubridge

SIMULATORS = Path(__file__).resolve().parent
ROOT = SIMULATORS.parent
BUILD = SIMULATORS / "build"
COMPILER = os.environ.get("CXX", "c++")
# Light optimization is enough: a simulation spends most time in kernels, which are built elsewhere.
FLAGS = (
    "-std=c++17 -O1 -g1 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra "
    "-Werror=return-type"
).split()
# Benchmarks measure the time of the do-nothing drivers, too.
NULL_FLAGS = ("-O2",)
INCLUDE = f"-I{ROOT / 'uhal' / 'include'}"
C_COMPILER = os.environ.get("CC", "cc")
C_FLAGS = "-std=gnu11 -O2 -g1 -fPIC -fvisibility=hidden -Wall -Wextra".split()

CUDA = ("engine", "images", "ptx/runtime", "ptx/executor", "cuda")
HSA = ("engine", "images", "hsa")
# This library is preloaded into any program. It contains its own C++ library, because the program
# may use another C++ library.
COMPILERS = "libuhal-compilers.so"
SELF_CONTAINED = ("-static-libstdc++", "-static-libgcc")
DRIVERS = {
    "libcuda.so.1": CUDA,
    "libnccl.so.2": ("nccl",),
    COMPILERS: ("images/attached_ptx", "images/fatbin", "images/lz4", "compilers"),
    "libhsa-runtime64.so.1": HSA,
    # For benchmarks: the sources in `null` are linked first, so their functions replace the usual
    # functions.
    "null/libcuda.so.1": ("null", "null/kernels", "null/cuda", *CUDA),
    "null/libhsa-runtime64.so.1": ("null", "null/kernels", "null/hsa", *HSA),
    "null/libtopsrt.so.1": (
        *("null", "null/kernels", "null/tops"),
        *("engine", "images", "tops", "tops/newer"),
    ),
    # Benchmarks launch through this library; nothing simulates the rest of HIP.
    "null/libamdhip64.so": ("null", "null/hip"),
    "libtopsrt.so.1": ("engine", "images", "tops", "tops/newer"),
    "libtopsrt.so.2": ("engine", "images", "tops", "tops/older"),
}
"""Libraries by name, each with its folders and single sources; the last entry has the exports."""

LINKS = {"libcuda.so": "libcuda.so.1", "libtopsrt.so": "libtopsrt.so.1"}

IN_KERNELS = SIMULATORS / "ptx" / "runtime" / "numerics.c"
"""Linked into every translated kernel, not into a driver."""


def main() -> None:
    """Bring the checkout's libraries up to date; a failure prints the compiler's output."""
    if not sys.platform.startswith("linux"):
        print("The simulated drivers are built on Linux only; tests that need them are skipped.")
        return
    try:
        build_drivers(BUILD)
    except BuildError as error:
        raise SystemExit(f"\nThe simulated drivers were not built.\n\n{error}") from None
    for link, library in LINKS.items():
        (BUILD / link).unlink(missing_ok=True)
        (BUILD / link).symlink_to(library)
    # The Python that translates PTX for the library, unless UHAL_SIM_PYTHON names another.
    (BUILD / "python").write_text(f"{sys.executable}\n")


def build_drivers(destination: Path) -> None:
    """Bring every library of a folder up to date; `BuildError` has the compiler's output."""
    tools = "".join(
        subprocess.run([one, "--version"], capture_output=True, text=True, check=False).stdout
        for one in (COMPILER, C_COMPILER)
    )
    # Drivers of benchmarks stay in the checkout.
    wanted = {
        name: folders
        for name, folders in DRIVERS.items()
        if destination == BUILD or "null" not in folders
    }
    every = tuple({folder: None for folders in wanted.values() for folder in folders})
    build([_compile(source, tools) for source in _sources(every)], ROOT)
    links = [_link(destination / name, folders, tools) for name, folders in wanted.items()]
    build([*links, *_gcu_kernels(destination, tools)], ROOT)
    ubridge.write_all(destination / "topsfb")


def _sources(folders: tuple[str, ...]) -> list[Path]:
    patterns = [f"{one}{at}.{end}" for one in folders for at in ("/*", "") for end in ("c", "cpp")]
    found = dict.fromkeys(path for one in patterns for path in sorted(SIMULATORS.glob(one)))
    return [path for path in found if path != IN_KERNELS]


def _headers(source: Path) -> tuple[Path, ...]:
    """Headers that the source may include. Only NCCL sources include NCCL's headers."""
    collectives = SIMULATORS / "nccl"
    own = sorted(path for end in ("h", "def") for path in SIMULATORS.glob(f"**/*.{end}"))
    shared = sorted((ROOT / "uhal" / "include" / "uhal").glob("*.h"))
    abi = sorted(ROOT.glob("*_backend/abi.h"))
    if source.is_relative_to(collectives):
        return (*own, *shared, *abi, ROOT / "uhal" / "collectives" / "nccl_abi.h")
    return (*(path for path in own if not path.is_relative_to(collectives)), *shared, *abi)


def _object(source: Path) -> Path:
    name = "-".join(source.relative_to(SIMULATORS).with_suffix(".o").parts)
    return BUILD / "objects" / name


def _compile(source: Path, tools: str) -> Job:
    compiler = (C_COMPILER, *C_FLAGS) if source.suffix == ".c" else (COMPILER, *FLAGS, INCLUDE)
    if source.is_relative_to(SIMULATORS / "null"):
        compiler = (*compiler, *NULL_FLAGS)
    command = (*compiler, "-c", str(source), "-o", OUTPUT)
    return Job(
        label=f"compile {source.relative_to(ROOT)}",
        output=_object(source),
        inputs=(source, *_headers(source)),
        commands=(command,),
        weight=source.stat().st_size,
        tools=tools,
    )


def _link(library: Path, folders: tuple[str, ...], tools: str) -> Job:
    objects = tuple(_object(source) for source in _sources(folders))
    exports = SIMULATORS / folders[-1] / "exports.map"
    command = (
        COMPILER,
        "-shared",
        f"-Wl,-soname,{library.name}",
        "-Wl,-z,defs",
        *(SELF_CONTAINED if library.name == COMPILERS else ()),
        *(("-Wl,--allow-multiple-definition",) if "null" in folders else ()),
        # Lines of sources are three quarters of a driver; a wheel does not have these sources.
        *(() if library.is_relative_to(BUILD) else ("-Wl,--strip-debug",)),
        f"-Wl,--version-script={exports}",
        "-o",
        OUTPUT,
        *(str(path) for path in objects),
        "-ldl",
        "-lpthread",
        "-lm",
    )
    return Job(
        label=f"link {library.name}",
        output=library,
        inputs=(*objects, exports),
        commands=(command,),
        weight=1,
        tools=tools,
    )


def _gcu_kernels(destination: Path, tools: str) -> list[Job]:
    """Host builds of Ubridge's entries, beside the containers that name them."""
    folder = SIMULATORS / "tops" / "kernels"
    flags = load_cpu_level(ROOT).compile_flags()
    return [
        Job(
            label=f"compile {source.relative_to(ROOT)}",
            output=destination / "topsfb" / f"{source.stem}.so",
            inputs=(source, folder / "gcu.h", *_headers(source)),
            commands=((COMPILER, *flags, INCLUDE, "-x", "c++", str(source), "-o", OUTPUT),),
            weight=source.stat().st_size,
            tools=tools,
        )
        for source in sorted(folder.glob("*.cu"))
    ]


if __name__ == "__main__":
    main()
