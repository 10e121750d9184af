"""cuda.core and cuda.bindings at their defaults: machine code, by NVRTC and nvJitLink."""

from __future__ import annotations

import sys

import numpy as np
from cuda.bindings import nvjitlink, nvrtc
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    ObjectCode,
    Program,
    ProgramOptions,
    launch,
)

KERNEL = """
extern __device__ int scaled(int value);
__constant__ int shift = 3;
static __device__ int twice(int value) { return 2 * value; }
extern "C" __global__ void apply(int *data, unsigned size) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) {
        data[i] = twice(scaled(data[i])) + shift;
    }
}
"""
# The file-local names `shift` and `twice` occur in the kernel's text, too.
SCALED = """
static __device__ int shift = 4;
static __device__ int twice(int value) { return 20 * value; }
__device__ int scaled(int value) { return twice(value) + shift; }
"""
WHOLE = """
__device__ int scaled(int value) { return 20 * value + 4; }
extern "C" __global__ void apply(int *data, unsigned size) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) {
        data[i] = 2 * scaled(data[i]) + 3;
    }
}
"""

rng = np.random.default_rng(int(sys.argv[1]))
size = int(rng.integers(1, 1000))
values = rng.integers(-1000, 1000, size, np.int32)
expected = 2 * (20 * values + 4) + 3

device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"


def check(code: ObjectCode) -> None:
    kernel = code.get_kernel("apply")
    assert kernel.attributes.num_regs > 0  # only the compiler knows this
    buffer = LegacyPinnedMemoryResource().allocate(values.nbytes)
    data = np.from_dlpack(buffer).view(np.int32)
    data[:] = values
    launch(stream, LaunchConfig(grid=8, block=128), kernel, buffer, np.uint32(size))
    stream.sync()
    np.testing.assert_array_equal(data, expected)


def compiled(source: str, to: str, **options: object) -> ObjectCode:
    return Program(source, "c++", ProgramOptions(arch=arch, **options)).compile(to)


def linked(parts: list[ObjectCode], **options: object) -> ObjectCode:
    return Linker(*parts, options=LinkerOptions(arch=arch, **options)).link("cubin")


def succeeded(result: tuple[object, ...]) -> object:
    assert result[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS, result
    return result[1] if len(result) == 2 else None


check(compiled(WHOLE, "cubin"))
for kind in ("ptx", "cubin"):
    parts = [compiled(one, kind, relocatable_device_code=True) for one in (KERNEL, SCALED)]
    for order in (parts, parts[::-1]):
        check(linked(order))
optimized = [compiled(one, "ltoir", link_time_optimization=True) for one in (KERNEL, SCALED)]
check(linked(optimized, link_time_optimization=True))
check(linked([optimized[0], parts[1]], link_time_optimization=True))

# Call NVRTC directly: each function writes as many bytes as its size function returns.
program = succeeded(nvrtc.nvrtcCreateProgram(WHOLE.encode(), b"whole.cu", 0, None, None))
options = [f"-arch={arch}".encode(), b"-rdc=true"]
succeeded(nvrtc.nvrtcCompileProgram(program, len(options), options))
cubin = bytes(succeeded(nvrtc.nvrtcGetCUBINSize(program)))
succeeded(nvrtc.nvrtcGetCUBIN(program, cubin))
assert cubin[:4] == b"\x7fELF" and b".uhal.ptx" in cubin and b".entry apply" in cubin
handle = nvjitlink.create(1, [f"-arch={arch}"])
nvjitlink.add_data(handle, nvjitlink.InputType.ANY, cubin, len(cubin), "whole")
nvjitlink.complete(handle)
again = bytearray(nvjitlink.get_linked_cubin_size(handle))
nvjitlink.get_linked_cubin(handle, again)
nvjitlink.destroy(handle)
check(ObjectCode.from_cubin(bytes(again)))

# The compiler itself reports errors in the source, as on a real device.
try:
    compiled("__global__ void f(int *p) { *p = undeclared; }", "cubin")
except Exception as error:
    assert "undeclared" in str(error), error
else:
    raise AssertionError("it compiled")
