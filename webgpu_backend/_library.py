"""wgpu-native: its search path, and its functions as abi.h declares them.

PyPI's wheel `wgpu` brings the library. uhal opens only the library, and imports neither the package
nor its bindings.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from uhal.abi import Check, Header, Library, LibrarySearch, find_library

LIBRARY_VARIABLE = "UHAL_WEBGPU_LIBRARY"
_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
_IN_WHEEL = Path("resources", f"libwgpu_native-release.{_SUFFIX}")
_IN_SYSTEM = f"libwgpu_native.{_SUFFIX}"


@cache
def header() -> Header:
    """The interface, as abi.h declares it."""
    return Header.load(Path(__file__).resolve().parent / "abi.h")


def candidates() -> Sequence[str]:
    """Return the library of the wheel `wgpu`, if installed, then the system's."""
    found = find_spec("wgpu")
    folders = [] if found is None else found.submodule_search_locations or []
    files = [Path(folder, _IN_WHEEL) for folder in folders]
    return (*(str(path) for path in files if path.is_file()), _IN_SYSTEM)


def search() -> LibrarySearch:
    """Open the library that the environment variable names, else the first candidate."""
    return find_library(LIBRARY_VARIABLE, candidates())


def bind(found: LibrarySearch, check: Check) -> Library:
    """Bind a library that was found."""
    assert found.handle is not None
    path = found.path or found.attempts[-1].path
    return Library(found.handle, path, header(), status="(none)", check=check)


def release_of(library: Library) -> str:
    """Return the library's version, such as `29.0.1.1`."""
    packed = int(library.wgpuGetVersion())
    return ".".join(str(packed >> shift & 0xFF) for shift in (24, 16, 8, 0))


def major_release_of(library: Library) -> int:
    """Return the first number of the library's version."""
    return int(library.wgpuGetVersion()) >> 24


def refusal_of(library: Library) -> str:
    """Say why the library cannot be used; "" if it can."""
    release, releases = release_of(library), _releases()
    lacking = releases.get(major_release_of(library))
    if lacking is None:
        expected = " or ".join(map(str, sorted(releases)))
        return f"expected release {expected} of wgpu-native, got {release}"
    missing = [name for name in library.missing() if name not in lacking]
    return f"wgpu-native {release} has no {missing[0]}" if missing else ""


def _releases() -> Mapping[int, Sequence[str]]:
    """The releases of wgpu-native that can be used, with the functions that each lacks."""
    constants = header().constants
    return {
        constants["UHAL_WGPU_NATIVE_RELEASE"]: (),
        constants["UHAL_WGPU_NATIVE_OLD_RELEASE"]: (
            "wgpuComputePassEncoderSetImmediates",
            "wgpuDeviceCreateShaderModuleTrusted",
        ),
    }
