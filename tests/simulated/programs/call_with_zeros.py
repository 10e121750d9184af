"""Calls each unsimulated driver function with zeros, by its symbols and through cuGetProcAddress.
Arguments: name, symbol, version and suffix of each. Prints each answer."""

from __future__ import annotations

import ctypes
import os
import sys

library = ctypes.CDLL(os.environ["UHAL_CUDA_LIBRARY"])
ZEROS = (ctypes.c_uint64(0),) * 12
NOT_INITIALIZED = 3


def found_by_name(name: str, version: int, flags: int) -> object:
    """Return the function that a program for that CUDA version finds."""
    function, state = ctypes.c_void_p(), ctypes.c_int()
    code = library.cuGetProcAddress_v2(
        name.encode(),
        ctypes.byref(function),
        version,
        ctypes.c_uint64(flags),
        ctypes.byref(state),
    )
    assert (code, state.value) == (0, 0), (name, version, code, state)
    return ctypes.CFUNCTYPE(ctypes.c_int)(function.value or 0)


def words(code: int) -> str:
    """Return the driver's text for this thread's last status."""
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"?").decode()


forms = [argument.split() for argument in sys.argv[1:]]
for _, symbol, _, _ in forms:
    assert getattr(library, symbol)(*ZEROS) == NOT_INITIALIZED, symbol
assert library.cuInit(0) == 0
for name, symbol, version, suffix in forms:
    ways = [
        getattr(library, symbol),
        *(found_by_name(name, int(version), flags) for flags in (0, 2)),
    ]
    if suffix != "-":
        ways.append(getattr(library, symbol + suffix))
    answers = set()
    for function in ways:
        code = function(*ZEROS)
        answers.add(f"{symbol} {code} {words(code)}")
    print(*sorted(answers))
