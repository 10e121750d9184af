"""Messages of a refused launch: the line of the call, the given value, the common form.

batch_matmul, argument 5 'n' (u32): expected an int in 0…4294967295, got -1. The kernel was
not launched. [demo.py:17]
"""

from __future__ import annotations

import operator
import os.path
import sys
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from uhal._lane import DeviceBuffer, Function, HostBuffer
from uhal.errors import DeviceError

_REPR_LIMIT = 60
_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def call_site() -> str:
    """Return `file.py:line` of the innermost frame outside uhal and ubridge."""
    frame: FrameType | None = sys._getframe(1)
    outermost = frame
    while frame is not None and is_frame_of_ours(frame):
        outermost = frame
        frame = frame.f_back
    found = frame or outermost
    if found is None:
        return "unknown"
    return f"{os.path.basename(found.f_code.co_filename)}:{found.f_lineno}"


def is_frame_of_ours(frame: FrameType) -> bool:
    """Say whether a frame runs code of uhal, ubridge or a backend; examples are programs."""
    module = str(frame.f_globals.get("__name__", ""))
    package = module.partition(".")[0]
    if module.startswith("uhal.examples"):
        return False
    return package in ("uhal", "ubridge") or package.endswith("_backend")


def is_file_of_ours(path: str) -> bool:
    """Say whether a source file belongs to uhal, ubridge or a backend; examples are programs."""
    if not os.path.isabs(path):
        return False
    parts = os.path.relpath(path, _PACKAGES).split(os.sep)
    if parts[:2] == ["uhal", "examples"]:
        return False
    return parts[0] in ("uhal", "ubridge") or parts[0].endswith("_backend")


def refuse(where: str, problem: str, error: type[DeviceError], backend: str | None) -> NoReturn:
    """Raise `error` in the common form; `where` names kernel and argument."""
    raise error(
        f"{where}: {problem}. The kernel was not launched. [{call_site()}]", backend=backend
    )


def argument_name(function: Function, index: int) -> str:
    """Return `saxpy, argument 2 'x' (const f32*)`, or its known part."""
    text = f"{function.name}, argument {index}"
    if function.signature is None:
        return text
    parameter = function.signature[index]
    name = "" if parameter.name is None else f" '{parameter.name}'"
    return f"{text}{name} ({parameter.type_text})"


def describe(value: object) -> str:
    """Return the type of `value` and a short repr; arrays by shape and dtype."""
    if value is None:
        return "None"
    kind = type(value).__name__
    module = type(value).__module__
    if module not in ("builtins", "__main__", "uhal", "uhal._lane"):
        kind = f"{module.partition('.')[0]}.{kind}"
    size = _extent(value)
    if size is not None:
        return f"{kind} {size}"
    text = _short_repr(value)
    name = type(value).__name__
    if text.startswith(f"{name}("):
        return kind + text.removeprefix(name)
    return text if text.startswith("<") else f"{kind} {text}"


def describe_size(value: object) -> str:
    """Describe a value given for an int: an int by its digits, anything else by `describe`."""
    if type(value) is int:
        text = _short_repr(value)
        return f"an int {text}" if text.startswith("of") else text
    return describe(value)


def as_int(value: object) -> int | None:
    """Return an int, or the int of an object with `__index__`; refuse bools and floats."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def counted(number: int, noun: str) -> str:
    """Return `1 byte`, `2 bytes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _extent(value: Any) -> str | None:
    """Describe the size and type of an array or buffer; `None` for anything else."""
    if isinstance(value, (DeviceBuffer, HostBuffer)):
        return f"of {value.size} {value.dtype}"
    try:
        if isinstance(value.shape, tuple) and hasattr(value, "__dlpack__"):
            return f"of shape {tuple(value.shape)}, dtype {value.dtype}"
    except Exception:
        pass  # a foreign object: it may have no shape, or raise an error
    return None


def _short_repr(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 4 * _REPR_LIMIT:
        return f"of {value.bit_length()} bits"
    try:
        text = str(value) if isinstance(value, np.generic) else repr(value)
    except Exception:
        return "whose repr fails"
    text = " ".join(text.split())
    return text if len(text) <= _REPR_LIMIT else text[: _REPR_LIMIT - 1] + "…"
