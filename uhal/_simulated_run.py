"""`python -m uhal sim run kernel.ptx`: a kernel on the simulated CUDA driver, for a quick look."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uhal import _simulated_counts
from uhal.dtypes import DType, as_dtype

DESCRIPTION = """\
A kernel is launched on the simulated CUDA driver, and its buffers are printed. Its arguments, in
the kernel's order:
  f32[1024]=random      a buffer of 1024 numbers: uniform in 0…1, integers of their whole range
  f32[1024]=0           … all zeros, or another number
  f32[1024]=range       … 0, 1, 2, …
  f32[]=data.npy        … what a file of numpy holds
  f32[1024]             … left as the device gives it: not written yet
  i32=5   f64=0.5       a number
  null                  a null pointer
Types are those of uhal: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64.

  python -m uhal sim run axpy.ptx --entry axpy --grid 4 --block 256 \\
      --args u64=1024 f32=2 f32[1024]=random f32[1024]=0
"""

_ARGUMENT = re.compile(r"(?P<dtype>\w+)(?:\[(?P<count>\d*)\])?(?:=(?P<value>.+))?")
_SHOWN = 8
"""Numbers shown of each end of a buffer."""


class ArgumentError(Exception):
    """An argument is invalid; the message names the expected form."""


@dataclass
class Buffer:
    """A buffer requested on the command line."""

    dtype: DType
    start: np.ndarray[Any, Any] | None
    """Initial contents; `None` leaves the memory uninitialised."""
    count: int


def add_command(parser: argparse.ArgumentParser) -> None:
    """Give the parser of `sim run` its options."""
    parser.add_argument("image", type=Path, help="PTX text, or a fatbin that holds some")
    parser.add_argument(
        "--backend", choices=("cuda",), default="cuda", help="whose images these are"
    )
    parser.add_argument("--entry", help="the kernel; may be left out when there is one")
    parser.add_argument("--grid", type=_extent, default=(1, 1, 1), help="blocks: 4 or 4,2,1")
    parser.add_argument("--block", type=_extent, default=(1, 1, 1), help="threads: 256 or 16,16")
    parser.add_argument("--shared", type=int, default=0, help="bytes of dynamic shared memory")
    parser.add_argument("--args", nargs="*", default=[], metavar="ARGUMENT", help="see above")
    parser.add_argument("--seed", type=int, help="of random buffers and of the threads' order")
    parser.add_argument(
        "--check",
        choices=("0", "1", "strict"),
        default="1",
        help="checks of the kernel (default: 1)",
    )
    parser.add_argument(
        "--trace",
        nargs="?",
        const="0,0,0:0,0,0",
        metavar="BLOCK:THREAD",
        help="print each instruction of one thread, as in 1,0,0:5,0,0 (default: the first)",
    )
    parser.add_argument(
        "--count", action="store_true", help="count its memory accesses, in place of --check"
    )
    parser.add_argument("--profile", default="sm_90", help="the device (default: sm_90)")


def run(options: argparse.Namespace, library: Path) -> int:
    """Launch, print the results; return the exit status."""
    seed = secrets.randbits(31) if options.seed is None else options.seed
    os.environ.update(
        {
            "UHAL_CUDA_LIBRARY": str(library),
            "UHAL_SIM_CUDA_PROFILE": options.profile,
            "UHAL_SIM_CHECK": options.check,
            "UHAL_SIM_REPORT": "stderr",
            "UHAL_SIM_SEED": str(seed),
            # Each buffer is a separate allocation, so that accesses outside of it are reported.
            "UHAL_POOL": "direct",
        }
    )
    if options.trace is not None:
        os.environ["UHAL_SIM_TRACE"] = options.trace

    def launch(variables: Mapping[str, str]) -> int:
        os.environ.update(variables)
        return _launched(options, seed)

    return _simulated_counts.run(launch) if options.count else launch({})


def _launched(options: argparse.Namespace, seed: int) -> int:
    from uhal.errors import DeviceError

    try:
        _launch(options, np.random.default_rng(seed))
    except (ArgumentError, DeviceError, OSError) as error:
        print(error, file=sys.stderr)
        print(f"seed {seed}", file=sys.stderr)
        return 1
    print(f"seed {seed}")
    return 0


def _launch(options: argparse.Namespace, rng: np.random.Generator) -> None:
    from uhal import Api, DeviceBuffer, Module

    asked = [parse(text, rng) for text in options.args]
    device = Api.quick_init(0, "cuda")
    with Module.from_file(options.image) as module:
        kernel = module.get_function(_entry(options.entry, module.kernels))
        print(f"{kernel.name}: {kernel.signature}", flush=True)
        buffers: list[tuple[int, DeviceBuffer]] = []
        arguments: list[Any] = []
        for index, one in enumerate(asked):
            if isinstance(one, Buffer):
                made = DeviceBuffer.uninitialized(one.count, one.dtype)
                if one.start is not None:
                    made.copy_from(one.start)
                buffers.append((index, made))
                arguments.append(made)
            else:
                arguments.append(one)
        kernel[options.grid, options.block, options.shared](*arguments)
        device.synchronize()
        for index, buffer in buffers:
            print(f"argument {index}: {buffer.dtype}{show(buffer.to_numpy())}")
            buffer.close()


def _entry(wanted: str | None, kernels: Sequence[str]) -> str:
    if wanted is not None:
        return wanted
    if len(kernels) != 1:
        raise ArgumentError(f"--entry: expected one of {', '.join(kernels)}")
    return kernels[0]


def parse(text: str, rng: np.random.Generator) -> Buffer | np.generic[Any] | None:
    """Read one argument. Raises `ArgumentError`."""
    if text == "null":
        return None
    found = _ARGUMENT.fullmatch(text)
    if found is None:
        raise ArgumentError(f"--args {text}: expected as in f32[1024]=random, i32=5 or null")
    try:
        kind = as_dtype(found["dtype"])
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"--args {text}: {error}") from None
    value = found["value"]
    if found["count"] is None:
        if value is None:
            raise ArgumentError(f"--args {text}: expected a value, as in {kind.name}=5")
        number: np.generic[Any] = _filled(text, kind, 1, value)[0]
        return number
    if value is not None and value.endswith(".npy"):
        start = np.load(value).astype(kind.dtype, copy=False).reshape(-1)
        return Buffer(kind, start, start.size)
    if not found["count"]:
        raise ArgumentError(f"--args {text}: expected a length, as in {kind.name}[1024]")
    count = int(found["count"])
    if value == "random":
        return Buffer(kind, _random(kind, count, rng), count)
    if value == "range":
        return Buffer(kind, np.arange(count).astype(kind.dtype), count)
    return Buffer(kind, None if value is None else _filled(text, kind, count, value), count)


def _filled(text: str, kind: DType, count: int, value: str) -> np.ndarray[Any, Any]:
    try:
        number = float(value) if kind.kind == "float" else int(value, 0)
    except ValueError:
        raise ArgumentError(f"--args {text}: {value!r} is no {kind.name}") from None
    if kind.min is not None and kind.max is not None and not kind.min <= number <= kind.max:
        raise ArgumentError(
            f"--args {text}: expected a number in {kind.min}…{kind.max}, got {value}"
        )
    return np.full(count, np.array(number).astype(kind.dtype))


def _random(kind: DType, count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if kind.kind == "float":
        return rng.random(count).astype(kind.dtype)
    if kind.min is None or kind.max is None:
        return rng.integers(0, 2, count).astype(kind.dtype)
    return rng.integers(kind.min, kind.max, count, kind.dtype, endpoint=True)


def show(values: np.ndarray[Any, Any]) -> str:
    """A buffer's length, its ends and its extremes."""
    ends = np.array2string(
        values, threshold=2 * _SHOWN, edgeitems=_SHOWN, max_line_width=1 << 16, separator=" "
    )
    head = f"[{values.size}] {ends}"
    if values.size == 0:
        return head
    wide = values.astype(np.float64)
    strange = int(np.count_nonzero(~np.isfinite(wide)))
    extremes = f"min {wide.min():g} max {wide.max():g} mean {wide.mean():g}"
    return f"{head}\n    {extremes if not strange else f'{strange} not finite'}"


def _extent(text: str) -> tuple[int, ...]:
    parts = text.replace("x", ",").split(",")
    if not 1 <= len(parts) <= 3 or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"expected one to three numbers, got {text!r}")
    return tuple(int(part) for part in parts)
