"""The simulated TopsRuntime called as from C, through its ABI header."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from uhal.abi import Header

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "simulators" / "build"
NEWER = BUILD / "libtopsrt.so.1"
OLDER = BUILD / "libtopsrt.so.2"

SETTINGS = {
    "UHAL_SIM_SCHEDULE": "lazy",
    # Clear the settings that other tests set in this process.
    "UHAL_SIM_KERNELS": "",
    "UHAL_SIM_TOPS_BLOCK_THREADS": "",
}
"""Code that a child process runs before the test's own code."""


@cache
def header() -> Header:
    return Header.load(ROOT / "tops_backend" / "abi.h")


def code(name: str) -> int:
    """`NoDevice` → 100."""
    return header().constants[f"topsError{name}"]


class Runtime:
    """A library whose calls raise `Refused` unless they return 0."""

    class Refused(Exception):
        def __init__(self, call: str, status: int, words: str) -> None:
            super().__init__(f"{call}: {status} {words}")
            self.status = status
            self.words = words

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.topsGetErrorString.restype = ctypes.c_char_p
        self.library.topsGetErrorName.restype = ctypes.c_char_p
        self.library.uhal_sim_live.restype = ctypes.c_long
        for name in header().prototypes:
            function = getattr(self.library, name, None)
            if function is not None:
                function.argtypes = header().argtypes(name)

    def has(self, name: str) -> bool:
        return hasattr(self.library, name)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            words = self.library.topsGetErrorString(status).decode()
            raise Runtime.Refused(name, status, words)

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that writes a handle or pointer through its first argument."""
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def refused(self, expected: str, name: str, *arguments: Any) -> str:
        """Return the error text of a call that must fail."""
        try:
            self.call(name, *arguments)
        except Runtime.Refused as refusal:
            assert refusal.status == code(expected), refusal
            return refusal.words
        raise AssertionError(f"{name} was not refused")

    def live(self, kind: str) -> int:
        return int(self.library.uhal_sim_live(kind.encode()))

    def upload(self, data: bytes) -> int:
        pointer = self.made("topsMalloc", len(data))
        self.call("topsMemcpyHtoDAsync", pointer, ctypes.c_char_p(data), len(data), None)
        return pointer

    def download(self, pointer: int, size: int) -> bytes:
        room = ctypes.create_string_buffer(size)
        self.call("topsMemcpyDtoHAsync", room, pointer, size, None)
        return room.raw
