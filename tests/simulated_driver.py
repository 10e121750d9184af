"""A simulated CUDA driver in this process: an instance of its own for every test."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uhal.abi import Header, Library

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "simulators" / "build" / "libcuda.so.1"
HEADER = Header.load(ROOT / "cuda_backend" / "abi.h")


class Failure(Exception):
    """A driver function answered with an error."""

    def __init__(self, call: str, name: str, text: str) -> None:
        super().__init__(f"{call}: {name}: {text}")
        self.name = name
        self.text = text


class Driver:
    """One instance of the simulated driver: a library of its own, settings of its own."""

    def __init__(self, path: Path) -> None:
        self.dll = ctypes.CDLL(str(path))
        self.dll.uhal_sim_live.restype = ctypes.c_long
        self.call = Library(self.dll, str(path), HEADER, status="CUresult", check=self.check)

    def check(self, call: str, code: int) -> None:
        name = ctypes.c_char_p()
        text = ctypes.c_char_p()
        self.dll.cuGetErrorName(code, ctypes.byref(name))
        self.dll.cuGetErrorString(code, ctypes.byref(text))
        raise Failure(call, (name.value or b"?").decode(), (text.value or b"?").decode())

    def make(self, function: str, kind: str, *arguments: Any) -> Any:
        """Call a function whose first parameter receives a new handle or address."""
        made = HEADER.ctype(kind)()
        getattr(self.call, function)(ctypes.byref(made), *arguments)
        return made

    def open(self, ordinal: int = 0) -> Any:
        self.call.cuInit(0)
        context = self.make("cuDevicePrimaryCtxRetain", "CUcontext", ordinal)
        self.call.cuCtxSetCurrent(context)
        return context

    def live(self, kind: str) -> int:
        return int(self.dll.uhal_sim_live(kind.encode()))

    def fail(self, call: str, nth: int, code: int) -> None:
        self.dll.uhal_sim_fail(call.encode(), nth, code)

    def allocate(self, count: int) -> int:
        return int(self.make("cuMemAlloc_v2", "CUdeviceptr", 4 * count).value)

    def function(self, module: Any, name: str) -> Any:
        return self.make("cuModuleGetFunction", "CUfunction", module, name.encode())

    def launch(
        self,
        function: Any,
        *values: Any,
        stream: Any = None,
        grid: tuple[int, int, int] = (2, 1, 1),
        block: tuple[int, int, int] = (64, 1, 1),
        shared: int = 0,
    ) -> None:
        pointers = (ctypes.c_void_p * max(len(values), 1))(
            *(ctypes.addressof(value) for value in values)
        )
        self.call.cuLaunchKernel(function, *grid, *block, shared, stream, pointers, None)

    def upload(self, address: int, data: np.ndarray[Any, Any], stream: Any = None) -> None:
        self.call.cuMemcpyHtoDAsync_v2(address, data.ctypes.data, data.nbytes, stream)

    def download(self, address: int, count: int, stream: Any = None) -> np.ndarray[Any, Any]:
        data = np.zeros(count, np.float32)
        self.call.cuMemcpyDtoHAsync_v2(data.ctypes.data, address, data.nbytes, stream)
        return data


def copy_of_library(folder: Path) -> Path:
    """Load a copy: the system's loader identifies libraries by file."""
    build = folder / "build"
    build.mkdir(parents=True)
    for name in ("libcuda.so.1", "python"):
        shutil.copy(LIBRARY.with_name(name), build)
    # The driver looks for the translator beside this file.
    (folder / "ptx").symlink_to(ROOT / "simulators" / "ptx")
    return build / LIBRARY.name


def refused(name: str, words: str = "") -> Any:
    """Expect the error of a driver function."""
    return pytest.raises(Failure, match=f"{name}: .*{re.escape(words)}")
