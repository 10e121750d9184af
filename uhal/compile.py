"""Compiles kernel sources at run time; needs a compiler. uhal itself does not use it.

`host` calls the C++ compiler (`c++`, or the variable `CXX`) for kernels written with
`<uhal/kernel.h>`. For OpenCL there is `opencl_backend.compile.kernels`,
for AMD devices `rocm_backend.compile.kernels`. `cuda` uses NVRTC through
cuda.core's `Program`; both come with the extra `cuda` (`pip install "uhal-py[cuda]"`). `hip` uses
hiprtc through hip-python, from the extra `rocm`, and needs ROCm's `libhiprtc.so`.
`Module.from_bytes` loads their results.
"""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from uhal import environment
from uhal._refusal import describe
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError, LibraryNotFoundError
from uhal.habits import OF_COMPILE, refuse_call
from uhal.images import cpu_level
from uhal.images.kernel_source import source_advice

__all__ = ["cuda", "hip", "host"]

INCLUDE = Path(__file__).resolve().parent / "include"
"""The folder of `<uhal/kernel.h>`."""

_MODULES = ("cuda.core", "cuda.core.experimental")
"""The modules in which cuda.core keeps `Program`: the second before version 1.0."""
_INSTALL = 'pip install "uhal-py[cuda]"'


def cuda(
    source: str,
    options: Mapping[str, Any] | None = None,
    *,
    target: Literal["ptx", "cubin"] = "ptx",
) -> bytes:
    """Compile CUDA C++ to an image for `Module.from_bytes`.

    `options` are the fields of cuda.core's `ProgramOptions`, such as `{"arch": "sm_90"}`; without
    an `arch`, cuda.core uses the current device's. For PTX, cuda.core always queries the driver's
    version. Only `extern "C"` kernels keep their names.

    Raises `LibraryNotFoundError` if cuda.core, NVRTC or a required driver is missing, `DeviceError`
    with the compiler's log if the source does not compile.
    """
    if not isinstance(source, str):
        raise ArgumentTypeError(f"source: expected a str, got {describe(source)}")
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentTypeError(f"options: expected a mapping or None, got {describe(options)}")
    if target not in ("ptx", "cubin"):
        raise ArgumentValueError(f"target: expected 'ptx' or 'cubin', got {describe(target)}")
    core = _cuda_core()
    try:
        program = core.Program(source, "c++", core.ProgramOptions(**dict(options or {})))
    except TypeError as error:
        raise ArgumentValueError(f"options: {error}") from error
    except Exception as error:
        raise _refused(error) from error
    try:
        return bytes(program.compile(target).code)
    except Exception as error:
        raise _refused(error) from error
    finally:
        program.close()


def host(
    source: str | os.PathLike[str],
    options: Sequence[str] = (),
    *,
    checked: bool | None = None,
) -> bytes:
    """Compile kernels written with `<uhal/kernel.h>` for the host to an image for `Module`.

    `source` is the text, or the path of a file that holds it. `options` are the compiler's options,
    such as `["-march=native", "-DTILE=32"]`. A `checked` library runs slower and reports invalid
    accesses (docs/guide/debugging.md). The default is checked if `UHAL_HOST_CHECK=1` is set.

    Raises `LibraryNotFoundError` when there is no compiler, `OSError` when the file cannot be read,
    `DeviceError` with the compiler's words when the source does not compile. Any thread may call
    it.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentTypeError(f"source: expected a str or a path, got {describe(source)}")
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise ArgumentTypeError(f"options: expected a sequence of str, got {describe(options)}")
    if checked is None:
        checked = environment.read("UHAL_HOST_CHECK") == "1"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cpp") if isinstance(source, str) else Path(source)
        if isinstance(source, str):
            path.write_text(source, encoding="utf-8")
        else:
            path.open("rb").close()  # the compiler's message for a missing file names no cause
        output = Path(folder, "kernels.so")
        more = cpu_level.CHECKED_FLAGS if checked else ()
        flags = (*cpu_level.compile_flags(), *more, f"-I{INCLUDE}", *options)
        # Libraries follow the objects that need them on the command line.
        command = [*_compiler(), "-x", "c++", str(path), "-x", "none", *flags, "-o", str(output)]
        try:
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
        except OSError as error:
            raise LibraryNotFoundError(
                f"uhal.compile.host needs a C++ compiler ({error}): install one (apt install g++), "
                "or name yours in the variable CXX"
            ) from error
        if done.returncode != 0:
            text = path.read_text(encoding="utf-8", errors="replace")
            advice = source_advice(text, done.stderr)
            raise DeviceError(f"uhal.compile.host: {done.stderr.strip()}{advice}", call=command[0])
        return output.read_bytes()


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "")) or ["c++"]


def _cuda_core() -> Any:
    """Import cuda.core; if it is missing, the error lists the places searched."""
    reasons = []
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            reasons.append(f"{name}: {error}")
            continue
        if hasattr(module, "Program"):
            return module
        reasons.append(f"{name}: it has no Program")
    raise LibraryNotFoundError(
        f"uhal.compile.cuda needs cuda.core ({'; '.join(reasons)}). Install it with its compiler: "
        f"{_INSTALL}"
    )


def _refused(error: Exception) -> DeviceError:
    """Tell a missing library from a source that does not compile."""
    said = str(error).strip().rstrip(".")
    if isinstance(error, (ImportError, OSError)) or "NotFound" in type(error).__name__:
        return LibraryNotFoundError(
            f"uhal.compile.cuda: cuda.core finds no NVRTC or driver to compile with: {said}. "
            f"Install them: {_INSTALL}"
        )
    return DeviceError(f"uhal.compile.cuda: {said}", call="Program.compile")


# -- hip -------------------------------------------------------------------------------------------


def hip(source: str, options: Sequence[str] = ()) -> bytes:
    """Compile HIP C++ to a code object for `Module.from_bytes`.

    `options` are hiprtc's, such as `["--offload-arch=gfx90a"]`; without this option, hiprtc uses
    the current device's architecture. Only `extern "C"` kernels keep their names.

    Raises `LibraryNotFoundError` when hip-python or ROCm is missing, `DeviceError` with the
    compiler's log when the source does not compile.
    """
    if not isinstance(source, str):
        raise ArgumentTypeError(f"source: expected a str, got {describe(source)}")
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise ArgumentTypeError(f"options: expected a sequence of str, got {describe(options)}")
    hiprtc = _hiprtc()
    flags = [option.encode() for option in options]
    (program,) = _done(hiprtc, "hiprtcCreateProgram", source.encode(), b"uhal.hip", 0, None, None)
    try:
        (status,) = hiprtc.hiprtcCompileProgram(program, len(flags), flags)
        if status != hiprtc.hiprtcResult.HIPRTC_SUCCESS:
            log = _read(hiprtc, program, "hiprtcGetProgramLogSize", "hiprtcGetProgramLog")
            said = log.decode("utf-8", "replace").rstrip("\0 \n") or str(status)
            raise DeviceError(f"uhal.compile.hip: {said}", call="hiprtcCompileProgram")
        return _read(hiprtc, program, "hiprtcGetCodeSize", "hiprtcGetCode")
    finally:
        hiprtc.hiprtcDestroyProgram(program.createRef())


def _hiprtc() -> Any:
    try:
        package = importlib.import_module("hip")
        # A submodule in older releases of hip-python, only a name in newer releases.
        hiprtc = getattr(package, "hiprtc", None) or importlib.import_module("hip.hiprtc")
        # This call loads ROCm's library, but the import does not; RuntimeError without the library.
        hiprtc.hiprtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise LibraryNotFoundError(
            f"uhal.compile.hip needs hip-python and ROCm's libhiprtc ({error}). Install them: "
            'pip install "uhal-py[rocm]", https://rocm.docs.amd.com/projects/hip-python'
        ) from error
    return hiprtc


def _done(hiprtc: Any, call: str, *arguments: Any) -> tuple[Any, ...]:
    """Call a function of hiprtc; check the status and return the other results."""
    status, *results = getattr(hiprtc, call)(*arguments)
    if status != hiprtc.hiprtcResult.HIPRTC_SUCCESS:
        raise DeviceError(f"uhal.compile.hip: {call}: {status}", call=call)
    return tuple(results)


def _read(hiprtc: Any, program: Any, size_call: str, call: str) -> bytes:
    (size,) = _done(hiprtc, size_call, program)
    held = bytearray(size)
    _done(hiprtc, call, program, held)
    return bytes(held)


if not TYPE_CHECKING:  # a type checker would take every name for an attribute

    def __getattr__(name: str) -> NoReturn:
        """Refuse a missing name; for another target, say how to compile for it."""
        message = f"module {__name__!r} has no attribute {name!r}"
        if not name.startswith("_"):
            names = ", ".join(__all__)
            message = f"{message}. {OF_COMPILE.get(name, f'It has {names}.')}"
        raise AttributeError(message, name=name)


refuse_call(__name__, "Write uhal.compile.host(source), uhal.compile.cuda or uhal.compile.hip.")
