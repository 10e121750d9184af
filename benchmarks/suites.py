"""Libraries that are compared on each backend, and the bounds there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NULL_DRIVERS = ROOT / "simulators" / "build" / "null"
NULL_DRIVER = NULL_DRIVERS / "libcuda.so.1"
NULL_RUNTIME = NULL_DRIVERS / "libhsa-runtime64.so.1"
NULL_HIP = NULL_DRIVERS / "libamdhip64.so"
NULL_TOPS = NULL_DRIVERS / "libtopsrt.so.1"
OPENCL_RUNTIME = Path(sys.prefix, "lib", "libintelocl.so")
"""Intel's runtime, as pip installs it: OpenCL has no do-nothing driver."""
HOST_RUNTIME = ROOT / "host_backend" / "libuhal_host.so"


@dataclass(frozen=True)
class Library:
    """A library and its worker."""

    name: str
    worker: str
    driver: Path
    """Driver library for its launches."""
    ours: bool = True
    """Whether it runs in this environment; other libraries run in the peers' environment."""
    module: str = ""
    """Module that programs import; empty: its import and first device are not timed."""
    first_device: str = ""
    """The statements after that import that make a device ready for its first allocation."""
    distribution: str = ""
    """Name of its package; empty: its size is not listed."""


_FIRST_BY_CTYPES = (
    "driver = ctypes.CDLL('libcuda.so.1'); context = ctypes.c_void_p(); driver.cuInit(0); "
    "driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); driver.cuCtxSetCurrent(context)"
)
_FIRST_BY_BINDINGS = (
    "driver = cuda.bindings.driver; driver.cuInit(0); "
    "driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])"
)
_FIRST_BY_PYCUDA = (
    "driver = pycuda.driver; driver.init(); context = driver.Device(0).retain_primary_context(); "
    "context.push(); context.pop()"
)
_FIRST_BY_HIP = "hip.hip.hipInit(0); hip.hip.hipStreamCreate()"


def _uhal(worker: str, backend: str, driver: Path) -> Library:
    first = f"uhal.Api.quick_init(0, backend='{backend}')"
    return Library("uhal", worker, driver, True, "uhal", first, "uhal-py")


CUDA_LIBRARIES = (
    Library("floor", "floor", NULL_DRIVER),
    Library("ctypes", "ctypes_calls", NULL_DRIVER, True, "ctypes", _FIRST_BY_CTYPES),
    _uhal("uhal_calls", "cuda", NULL_DRIVER),
    Library("uhal, unchecked", "uhal_unchecked", NULL_DRIVER),
    Library(
        *("cuda.bindings", "cuda_bindings_calls", NULL_DRIVER, False),
        *("cuda.bindings.driver", _FIRST_BY_BINDINGS, "cuda-bindings"),
    ),
    Library(
        *("cuda.core", "cuda_core_calls", NULL_DRIVER, False),
        *("cuda.core", "cuda.core.Device(0).set_current()", "cuda-core"),
    ),
    Library(
        *("PyCUDA", "pycuda_calls", NULL_DRIVER, False),
        *("pycuda.driver", _FIRST_BY_PYCUDA, "pycuda"),
    ),
    Library(
        *("CuPy", "cupy_calls", NULL_DRIVER, False),
        *("cupy", "cupy.cuda.runtime.free(0)", "cupy-cuda13x"),
    ),
    Library("Triton", "triton_calls", NULL_DRIVER, False, "triton", "", "triton"),
)
ROCM_LIBRARIES = (
    Library("floor", "floor", NULL_HIP),
    Library("ctypes", "ctypes_calls", NULL_HIP),
    _uhal("uhal_calls", "rocm", NULL_RUNTIME),
    Library("hip-python", "hip_python_calls", NULL_HIP, False, "hip", _FIRST_BY_HIP, "hip-python"),
)
TOPS_LIBRARIES = (
    Library("floor", "floor", NULL_TOPS),
    Library("ctypes", "ctypes_calls", NULL_TOPS),
    _uhal("uhal_calls", "tops", NULL_TOPS),
)
HOST_LIBRARIES = (
    Library("floor", "floor", HOST_RUNTIME),
    _uhal("uhal_calls", "host", HOST_RUNTIME),
    Library("uhal, torch tensors", "uhal_torch_calls", HOST_RUNTIME, False),
    Library("numpy", "numpy_calls", HOST_RUNTIME),
    Library("torch", "torch_calls", HOST_RUNTIME, False, "torch", "", "torch"),
)
OPENCL_LIBRARIES = (
    Library("floor", "opencl_floor", OPENCL_RUNTIME),
    _uhal("uhal_calls", "opencl", OPENCL_RUNTIME),
    Library(
        *("PyOpenCL", "pyopencl_calls", OPENCL_RUNTIME, False),
        *("pyopencl", "", "pyopencl"),
    ),
)


@dataclass(frozen=True)
class Gate:
    """A bound on a row of uhal relative to others' rows, in the same run."""

    what: str
    args: int
    form: str
    """Ours."""
    over: tuple[str, ...]
    """Peer libraries; the fastest row counts."""
    limit: float
    over_form: str = ""
    """The peers' form; empty: their fastest form."""


UNCHECKED = ("uhal, unchecked",)
# Safety may cost 30 % of a launch.
SAFETY = 1 / 0.7
# Forms of the same launch cost the same, up to the clock's noise on a busy machine.
ALIKE = 1.1
PEERS = ("ctypes", "cuda.bindings", "cuda.core", "PyCUDA", "CuPy")
CUDA_GATES = (
    Gate("launch", 3, "launch, keywords", ("cuda.core",), 0.2),
    Gate("launch", 8, "launch, keywords", ("cuda.core",), 0.2),
    Gate("launch", 3, "bound", ("cuda.core",), 0.15),
    Gate("launch", 8, "bound", ("cuda.core",), 0.15),
    Gate("launch", 3, "launch, keywords", UNCHECKED, SAFETY, "launch, keywords"),
    Gate("launch", 8, "launch, keywords", UNCHECKED, SAFETY, "launch, keywords"),
    Gate("launch", 3, "bound", UNCHECKED, SAFETY, "bound"),
    Gate("launch", 8, "bound", UNCHECKED, SAFETY, "bound"),
    Gate("launch", 8, "launch, keywords", ("uhal",), ALIKE, "launch, positions"),
    Gate("alloc+free", 0, "DeviceBuffer, pooled", ("cuda.bindings",), 0.5),
    Gate("copy 4 KiB", 0, "copy_from", PEERS, 0.7),
    Gate("record", 0, "Event.record", PEERS, 0.6),
    Gate("sync", 0, "Stream.synchronize", PEERS, 1.2),
    Gate("op on 16 elements", 0, "matmul", ("uhal",), 1.3, "add"),
)
HIP = ("ctypes", "hip-python")
ROCM_GATES = (
    Gate("launch", 3, "launch, keywords", HIP, 1.0),
    Gate("launch", 8, "launch, keywords", HIP, 1.0),
    Gate("launch", 3, "bound", HIP, 1.0),
    Gate("launch", 8, "bound", HIP, 1.0),
)
CTYPES = ("ctypes",)
TOPS_GATES = (
    Gate("launch", 3, "launch, keywords", CTYPES, 0.3),
    Gate("launch", 8, "launch, keywords", CTYPES, 0.3),
    Gate("launch", 3, "bound", CTYPES, 0.25),
    Gate("launch", 8, "bound", CTYPES, 0.25),
)
OPENCL_GATES = (
    # Intel's own calls take 0.23 of PyOpenCL's time.
    Gate("launch", 3, "launch, keywords", ("PyOpenCL",), 0.4),
    Gate("launch", 8, "launch, keywords", ("PyOpenCL",), 0.25),
    Gate("launch", 3, "bound", ("PyOpenCL",), 0.4),
    Gate("launch", 8, "bound", ("PyOpenCL",), 0.25),
    Gate("launch", 3, "launch, keywords", ("floor",), 1.5),
    Gate("launch", 8, "launch, keywords", ("floor",), 1.5),
)
OPERATION = "op on 16 elements"
# A framework's cost for a tensor and its lookup, relative to a launch with its result's memory.
EAGER = 1.6
HOST_GATES = (
    *(
        Gate(OPERATION, 0, name, ("uhal",), EAGER, f"{name}, launch alone")
        for name in (
            *("add", "add, operator", "multiply by a number", "exp", "where", "cast to f64", "sum"),
            *("largest of rows", "softmax", "rms norm", "take rows"),
        )
    ),
    Gate(OPERATION, 0, "add", ("numpy",), 1.2, "add"),
    Gate(OPERATION, 0, "add, operator", ("numpy",), 1.2, "add, operator"),
    Gate("op on 16 elements", 0, "add", ("torch",), 1.0, "add"),
    Gate("op on 16 elements", 0, "add, out=", ("torch",), 1.0, "add, out="),
    Gate("op on 16 elements", 0, "exp", ("torch",), 1.0, "exp"),
)


@dataclass(frozen=True)
class Suite:
    """Measurements of a backend, and the bounds."""

    libraries: tuple[Library, ...]
    gates: tuple[Gate, ...]


SUITES = {
    "cuda": Suite(CUDA_LIBRARIES, CUDA_GATES),
    "rocm": Suite(ROCM_LIBRARIES, ROCM_GATES),
    "tops": Suite(TOPS_LIBRARIES, TOPS_GATES),
    "host": Suite(HOST_LIBRARIES, HOST_GATES),
    "opencl": Suite(OPENCL_LIBRARIES, OPENCL_GATES),
}
