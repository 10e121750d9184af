"""Builds the simulated drivers into `simulators/build/`: `make simulators`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from build_support.jobs import OUTPUT, BuildError, Job, build

SIMULATORS = Path(__file__).resolve().parent
ROOT = SIMULATORS.parent
BUILD = SIMULATORS / "build"
COMPILER = os.environ.get("CXX", "c++")
# Optimized lightly: what takes time in a simulation is the kernels, and those are built elsewhere.
FLAGS = (
    "-std=c++17 -O1 -g1 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra "
    "-Werror=return-type"
).split()
INCLUDE = f"-I{ROOT / 'uhal' / 'include'}"

DRIVERS = {
    "libcuda.so.1": ("engine", "images", "cuda"),
    "libhsa-runtime64.so.1": ("engine", "images", "hsa"),
    # For benchmarks: its few functions, linked first, replace those of the same name.
    "null/libcuda.so.1": ("null", "engine", "images", "cuda"),
}
"""Libraries by name, and the folders their sources lie in, the vendor's own last."""


def main() -> None:
    """Bring every library up to date; a failure prints what the compiler said."""
    if not sys.platform.startswith("linux"):
        print("The simulated drivers are built on Linux only; tests that need them are skipped.")
        return
    tools = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=False)
    try:
        build([_compile(source, tools.stdout) for source in _sources(("*",))], ROOT)
        build([_link(name, folders, tools.stdout) for name, folders in DRIVERS.items()], ROOT)
    except BuildError as error:
        raise SystemExit(f"\nThe simulated drivers were not built.\n\n{error}") from None
    link = BUILD / "libcuda.so"
    link.unlink(missing_ok=True)
    link.symlink_to("libcuda.so.1")


def _sources(folders: tuple[str, ...]) -> list[Path]:
    return [path for folder in folders for path in sorted(SIMULATORS.glob(f"{folder}/*.cpp"))]


def _headers() -> tuple[Path, ...]:
    own = sorted(SIMULATORS.glob("*/*.h"))
    shared = sorted((ROOT / "uhal" / "include" / "uhal").glob("*.h"))
    return (*own, *shared, *sorted(ROOT.glob("*_backend/abi.h")))


def _object(source: Path) -> Path:
    return BUILD / "objects" / f"{source.parent.name}-{source.stem}.o"


def _compile(source: Path, tools: str) -> Job:
    command = (COMPILER, *FLAGS, INCLUDE, "-c", str(source), "-o", OUTPUT)
    return Job(
        label=f"compile {source.relative_to(ROOT)}",
        output=_object(source),
        inputs=(source, *_headers()),
        commands=(command,),
        weight=source.stat().st_size,
        tools=tools,
    )


def _link(name: str, folders: tuple[str, ...], tools: str) -> Job:
    objects = tuple(_object(source) for source in _sources(folders))
    exports = SIMULATORS / folders[-1] / "exports.map"
    command = (
        COMPILER,
        "-shared",
        f"-Wl,-soname,{Path(name).name}",
        "-Wl,-z,defs",
        *(("-Wl,--allow-multiple-definition",) if "null" in folders else ()),
        f"-Wl,--version-script={exports}",
        "-o",
        OUTPUT,
        *(str(path) for path in objects),
        "-ldl",
        "-lpthread",
    )
    return Job(
        label=f"link {name}",
        output=BUILD / name,
        inputs=(*objects, exports),
        commands=(command,),
        weight=1,
        tools=tools,
    )


if __name__ == "__main__":
    main()
