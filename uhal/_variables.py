"""Environment variables of uhal, its build and its tests: names, values, defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass

from uhal.images import cpu_level

PACKAGE, BUILD, SIMULATORS, TESTS = "uhal", "the build", "simulated drivers", "tests"
"""The programs that read variables."""
_NUMBER = {True: re.compile("[0-9]+"), False: re.compile(r"[0-9]+(\.[0-9]*)?")}
_LONGEST_QUOTE = 80


@dataclass(frozen=True)
class Variable:
    """A variable: its values and its effect. Without choices or a range any text is valid."""

    name: str
    values: str
    """The values in words, for messages and for the table."""
    effect: str
    otherwise: str = ""
    """The effect of an unset variable, in words; empty if it has none."""
    default: str = ""
    """The value that `read` returns for an unset or empty variable."""
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float | None = None
    """The largest number. `None`: the value is no number."""
    whole: bool = True
    """Whether a number must be an integer."""
    reader: str = PACKAGE
    """The program that reads the variable."""

    def refusal(self, text: str) -> str:
        """Return why a value is wrong, empty for a good value."""
        if self.choices:
            good = text in self.choices
        elif self.most is not None:
            # The length is checked first: Python refuses numbers of several thousand digits.
            number = len(text) <= 20 and _NUMBER[self.whole].fullmatch(text)
            convert = int if self.whole else float
            good = bool(number) and self.least <= convert(text) <= self.most
        else:
            good = True
        return "" if good else self.message(text)

    def message(self, text: str, values: str = "") -> str:
        """Return the message for a wrong value: the variable, its values, the text, the remedy."""
        shown = repr(text[:_LONGEST_QUOTE])
        remedy = f"; unset it for {self.otherwise}" if self.otherwise else "; unset it"
        return f"{self.name}: expected {values or self.values}, got {shown}{remedy}"


def _flag(name: str, effect: str, reader: str = PACKAGE) -> Variable:
    return Variable(name, "0 or 1", effect, "0", "0", choices=("0", "1"), reader=reader)


def _choice(
    name: str, effect: str, *choices: str, otherwise: str = "", reader: str = PACKAGE
) -> Variable:
    """A variable whose first choice is the default, unless `otherwise` describes the default."""
    words = f"{', '.join(choices[:-1])} or {choices[-1]}"
    default = "" if otherwise else choices[0]
    return Variable(name, words, effect, otherwise or default, default, choices, reader=reader)


def _number(
    name: str,
    least: int,
    most: int,
    effect: str,
    otherwise: str,
    default: str = "",
    whole: bool = True,
    reader: str = PACKAGE,
) -> Variable:
    words = f"a number from {least} to {most}"
    return Variable(name, words, effect, otherwise, default, (), least, most, whole, reader)


def _library(backend: str, instead_of: str) -> Variable:
    name, effect = f"UHAL_{backend}_LIBRARY", f"open this file instead of {instead_of}"
    return Variable(name, "a library's file", effect)


def _cache(backend: str, contents: str) -> Variable:
    name, effect = f"UHAL_{backend}_CACHE", f"{contents}, in `uhal/{backend.lower()}` within it"
    return Variable(name, "a folder, or off", effect, "the user's cache")


_SECONDS = 1_000_000
_LEVELS = tuple(
    dict.fromkeys(
        level.name
        for levels in (*cpu_level.ALL_LEVELS.values(), (cpu_level.GENERIC,))
        for level in levels
    )
)
_NO_END = "waits without an end"

PLAIN = (
    Variable(
        "UHAL_BACKEND",
        "a backend's name",
        "use this backend and never fall back to another",
        "the first that has a device",
    ),
    _choice(
        "UHAL_POOL",
        "reuse memory; one driver allocation a buffer; with red zones and poison",
        "caching",
        "direct",
        "guard",
        otherwise="caching, or direct if UHAL_HOST_CHECK=1",
    ),
    Variable(
        "UHAL_MEMORY_LIMIT",
        "bytes such as 512M or 4G, for one device cuda:0=4G, several separated by commas",
        "most bytes a device's pool takes from the driver",
        "no limit",
    ),
    _choice(
        "UHAL_TRACEBACK",
        "leave frames of uhal and ubridge out of uncaught errors",
        "full",
        "short",
    ),
    _flag("UHAL_PROGRESS", "say on stderr how far loads, long copies and compilations are"),
    Variable(
        "UHAL_NVTX_LIBRARY",
        "a library's file, or empty for none",
        "tell this library of `uhal.annotate`'s ranges",
    ),
    Variable(
        "UHAL_ROCTX_LIBRARY",
        "a library's file, or empty for none",
        "tell this library of `uhal.annotate`'s ranges",
    ),
    _flag("UHAL_LAUNCH_BLOCKING", "wait after each launch, so that the faulty launch raises"),
    _number(
        "UHAL_LAUNCH_MARKS",
        0,
        2**31,
        "write a progress mark every so many launches, to narrow down a fault",
        "no marks",
        "0",
    ),
    _library("HOST", "the host runtime that came with uhal"),
    _number(
        "UHAL_HOST_THREADS",
        1,
        1024,
        "threads that run blocks on the host backend",
        "one thread for each core",
    ),
    _number(
        "UHAL_HOST_DEVICES",
        1,
        64,
        "show the same cores as so many devices, to run code for several",
        "one device",
    ),
    Variable(
        "UHAL_HOST_LEVEL",
        "a level: " + ", ".join(_LEVELS),
        "highest instruction level to use, or to build from source",
        "this CPU's best level",
        choices=_LEVELS,
    ),
    _flag(
        "UHAL_HOST_CHECK",
        "compile [checked kernels](debugging.md); one allocation a buffer",
    ),
    _number(
        "UHAL_HOST_CHECK_SECONDS",
        1,
        2**30,
        "seconds that a checked launch may run",
        "60 seconds",
    ),
    _number(
        "UHAL_HOST_DEADLINE",
        1,
        _SECONDS,
        "seconds after which a wait gives the device up",
        _NO_END,
    ),
    _library("BLAS", "the wheel's OpenBLAS, for products on the host"),
    _library("CUDA", "the driver's `libcuda.so.1`"),
    _library("ROCM", "`libhsa-runtime64.so.1`"),
    _number(
        "UHAL_ROCM_QUEUES",
        0,
        64,
        "queues that a device's streams share; 0: one a stream",
        "4 queues",
        "4",  # as in HIP: a device has few hardware queues and multiplexes further queues
    ),
    _number(
        "UHAL_ROCM_DEADLINE",
        0,
        _SECONDS,
        "seconds after which a wait gives the device up; 0: never",
        _NO_END,
        "0",
        whole=False,
    ),
    _library("TOPS", "`libtopsrt`"),
    _choice(
        "UHAL_TOPS_LAUNCH_CONFIG",
        "size of the launch configuration; 64 if cooperative launches fail",
        "72",
        "64",
    ),
    _choice(
        "UHAL_TOPS_PARAMETERS",
        "how launches pass parameters; `block` if every launch fails",
        "pointers",
        "block",
    ),
    Variable(
        "UHAL_TOPS_KERNELS",
        "a folder",
        "Ubridge's `.topsfb` files",
        "topsfb/ beside the library",
    ),
    _library("OPENCL", "`libOpenCL.so.1` or a runtime that pip installed"),
    _choice(
        "UHAL_OPENCL_MEMORY",
        "kind of OpenCL memory",
        "usm",
        "svm-fine",
        "svm-coarse",
        "buffer-address",
        otherwise="the first that the device has",
    ),
    _cache("OPENCL", "built OpenCL programs"),
    _library("WEBGPU", "the wheel's wgpu-native"),
    _flag(
        "UHAL_WEBGPU_SOFTWARE",
        "use adapters that are processors, too, such as Mesa's lavapipe",
    ),
    _cache("WEBGPU", "kernels translated to WGSL"),
    _library("NCCL", "`libnccl.so.2`"),
    _library("ECCL", "`libeccl.so`"),
    _library("CUBLASLT", "the cuBLASLt that is found, for large matrix products"),
    _number(
        "UHAL_BUILD_JOBS",
        1,
        1024,
        "compilers that run at once",
        "one a core",
        reader=BUILD,
    ),
    _number(
        "UHAL_TEST_SEED",
        0,
        2**32 - 1,
        "random inputs of a run, which prints its seed",
        "a drawn number",
        reader=TESTS,
    ),
    _flag("UHAL_TEST_SOAK", "full counts, as in `make soak`", TESTS),
    Variable(
        "UHAL_TEST_HSA_INCLUDE",
        "a folder",
        "headers of HSA that the tests compare with ours",
        "ROCm's folder, then the system's",
        reader=TESTS,
    ),
)
"""Variables of the package, of a build from source and of the tests."""

__all__ = ["BUILD", "PACKAGE", "PLAIN", "SIMULATORS", "TESTS", "Variable"]
