"""The OpenCL backend on Intel's runtime for CPUs: how it is found, and its own features."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from opencl_backend import compile as opencl_compile
from opencl_backend._errors import ADVICE, CLASS_OF, TEXT, names
from opencl_backend._library import candidates
from tests.children import check_child
from tests.sampling import rounds
from uhal import Device, DeviceBuffer, Module, Stream, registry
from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    InvalidImageError,
    LibraryNotFoundError,
    NotFoundError,
    NotSupportedError,
)
from uhal.images.program_cache import ProgramCache

Layer = Callable[..., Mapping[str, str]]
HEADER = "#include <uhal/kernel.h>\n"


def kernels(text: str) -> Module:
    return Module.from_bytes(opencl_compile.kernels(HEADER + text))


# -- finding it ------------------------------------------------------------------------------------


def test_the_record_tells_what_was_found(runtime: None) -> None:
    found = registry.record("opencl")
    assert found.verdict == "ok"
    assert found.devices[0].kind == "processor"
    assert "CPU, OpenCL 3" in found.devices[0].description
    assert found.path is not None and "intelocl" in found.path


def say_record() -> None:
    found = registry.record("opencl")
    print(found.verdict, found.path, found.reason, found.next_step, sep="\n")


def test_the_loader_is_asked_first(runtime: None, packages: Path) -> None:
    """Debian's loader obeys OCL_ICD_VENDORS, as in every OpenCL program."""
    loader = packages / "usr" / "lib" / "x86_64-linux-gnu"
    wheel = candidates()[-1]
    environment = {"LD_LIBRARY_PATH": str(loader), "OCL_ICD_VENDORS": wheel}
    verdict, path, reason, _ = check_child(say_record, environment=environment).split("\n")[:4]
    assert (verdict, Path(path).parent) == ("ok", loader), reason


def test_a_loader_without_runtimes_is_passed_over(
    runtime: None, packages: Path, tmp_path: Path
) -> None:
    loader = packages / "usr" / "lib" / "x86_64-linux-gnu"
    environment = {"LD_LIBRARY_PATH": str(loader), "OCL_ICD_VENDORS": str(tmp_path)}
    verdict, path, _, _ = check_child(say_record, environment=environment).split("\n")[:4]
    assert (verdict, Path(path).name) == ("ok", "libintelocl.so")


def test_without_a_library_it_says_what_to_install() -> None:
    environment = {"UHAL_OPENCL_LIBRARY": "/nonexistent/libOpenCL.so.1"}
    verdict, _, reason, advice = check_child(say_record, environment=environment).split("\n")[:4]
    assert verdict == "absent"
    assert "/nonexistent/libOpenCL.so.1" in reason
    assert "pip install intel-opencl-rt intel-cmplr-lib-rt (both of one version" in advice


def fail_to_open() -> None:
    try:
        Device(0, "opencl")
    except DeviceError as error:
        print(type(error).__name__, error)


def test_opening_without_a_library_is_refused() -> None:
    said = check_child(fail_to_open, environment={"UHAL_OPENCL_LIBRARY": "/nonexistent/x.so"})
    assert "/nonexistent/x.so" in said and "pip install" in said
    assert issubclass(LibraryNotFoundError, DeviceError)


# -- codes ---------------------------------------------------------------------------------------


def test_every_code_has_a_name_and_words(device: Device) -> None:
    backend = registry.backend("opencl")
    assert len(names()) > 60
    assert CLASS_OF.keys() | ADVICE.keys() | TEXT.keys() <= set(names().values())
    for code, name in names().items():
        told = backend.error_text(code)
        assert told.name == name
        assert told.text and "CL_" not in told.text and "_" not in told.text
        assert issubclass(backend.error_class(code), DeviceError)
    unknown = backend.error_text(-4711)
    assert unknown.name == "-4711"
    assert backend.error_class(-4711) is DeviceError


def test_a_drivers_refusal_is_told_by_its_name(device: Device) -> None:
    backend = registry.backend("opencl")
    library = backend._library  # type: ignore[attr-defined]
    with pytest.raises(InvalidHandleError, match=r"clReleaseContext: CL_INVALID_CONTEXT \(-34\)"):
        library.clReleaseContext(None)


# -- kernels ---------------------------------------------------------------------------------------


def test_arguments_stay_only_while_they_are_the_same(
    device: Device, rng: np.random.Generator
) -> None:
    """Each launch uses its own values, not an earlier launch's."""
    with kernels("KERNEL(put, (u32 *y, u32 index, u32 value)) { y[index] = value; }") as module:
        put = module.get_function("put", "u32* y, u32 index, u32 value")
        outs = [DeviceBuffer.zeros(64, "u32") for _ in range(3)]
        expected = np.zeros((3, 64), "u4")
        for _ in range(rounds(500, 20_000)):
            which, index = int(rng.integers(3)), int(rng.integers(64))
            value = int(rng.integers(3))
            put[1, 1](outs[which], index, value)
            expected[which, index] = value
        assert np.array_equal([out.to_numpy() for out in outs], expected)


def test_threads_that_launch_one_kernel_do_not_mix_their_arguments(device: Device) -> None:
    with kernels("KERNEL(put, (u32 *y, u32 index, u32 value)) { y[index] += value; }") as module:
        put = module.get_function("put", "u32* y, u32 index, u32 value")
        wrong = []

        def run(number: int) -> None:
            with device, Stream() as stream:
                out = DeviceBuffer.zeros(16, "u32", stream=stream)
                for count in range(rounds(300, 5000)):
                    put[1, 1, 0, stream](out, count % 16, number)
                stream.synchronize()
                counts = np.bincount(np.arange(rounds(300, 5000)) % 16, minlength=16)
                if not np.array_equal(out.to_numpy(), counts * number):
                    wrong.append(number)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_kernel_that_asks_too_much_is_refused_before_the_driver(device: Device) -> None:
    text = """
    #define LOCAL __attribute__((address_space(3)))
    KERNEL(two, (LOCAL u32 *a, LOCAL u32 *b)) { THREADS(t) { a[t] = b[t]; } }
    KERNEL(one, (u32 *y)) { THREADS(t) { y[t] = t; } }
    """
    with kernels(text) as module:
        out = DeviceBuffer.zeros(4, "u32")
        module.get_function("one")[1, 4](out)
        assert out.to_numpy().tolist() == [0, 1, 2, 3]
        with pytest.raises(NotSupportedError, match="'two' takes several pointers to the memory"):
            module.get_function("two")


def test_a_pointer_to_shared_memory_is_the_launchs(device: Device) -> None:
    text = """
    KERNEL(turn, (u32 *y, __attribute__((address_space(3))) u32 *a, u32 n)) {
        THREADS(t) { a[t] = y[t]; }
        BARRIER();
        THREADS(t) { y[t] = a[n - 1 - t]; }
    }
    """
    with kernels(text) as module:
        turn = module.get_function("turn", "u32* y, u32 n")
        out = DeviceBuffer.from_numpy(np.arange(32, dtype="u4"))
        turn[1, 32, 128](out, 32)
        assert out.to_numpy().tolist() == list(range(31, -1, -1))


def test_shared_memory_of_a_launch_may_have_no_bytes(device: Device) -> None:
    text = """
    KERNEL(fill, (u32 *y, __attribute__((address_space(3))) u32 *a, u32 n)) {
        THREADS(t) { if (n != 0) a[t] = n; }
        BARRIER();
        THREADS(t) { y[t] = n != 0 ? a[n - 1 - t] : 7; }
    }
    """
    with kernels(text) as module:
        fill = module.get_function("fill", "u32* y, u32 n")
        out = DeviceBuffer.zeros(8, "u32")
        for n in (0, 8, 0):
            fill[1, 8, 4 * n](out, n)
            assert (out.to_numpy() == (n or 7)).all()


def test_a_grid_has_as_many_axes_as_are_asked_for(device: Device) -> None:
    text = """
    KERNEL(count, (u32 *y)) {
        THREADS(t) {
            const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
            y[block * blockDim.x * blockDim.y * blockDim.z + t] += 1;
        }
    }
    """
    with kernels(text) as module:
        count = module.get_function("count")
        for grid, block in (
            (5, 4),
            ((1, 5), 4),
            ((1, 1, 5), 4),
            ((2, 1, 3), (1, 2)),
            (1, (1, 1, 4)),
            ((1, 3, 2), (2, 1, 2)),
        ):
            size = int(np.prod(grid) * np.prod(block))
            out = DeviceBuffer.zeros(size + 8, "u32")
            count[grid, block](out)
            assert out.to_numpy().tolist() == [1] * size + [0] * 8, (grid, block)


def test_variables_of_a_module_left_whole_have_no_address(device: Device) -> None:
    text = """
    __attribute__((device, used)) u32 begins[2] = {4, 5};
    KERNEL(reads, (u32 *y)) { THREADS(t) { y[t] = begins[t]; begins[t] += 1; } }
    """
    with kernels(text) as module:
        out = DeviceBuffer.zeros(2, "u32")
        reads = module.get_function("reads")
        for expected in ([4, 5], [5, 6]):
            reads[1, 2](out)
            assert out.to_numpy().tolist() == expected
        with pytest.raises(NotFoundError, match="begins"):
            module.get_global("begins")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:4] + b"\0\6\1\0" + data[8:], "takes SPIR-V 1.0, 1.1, 1.2"),
        (lambda data: data[:4] + b"\0\2\3\0" + data[8:], "has SPIR-V's version"),
        (lambda data: b"\x1f\x8b" + data, "is damaged"),
        (lambda data: b"\x7fELF" + data, "expected a SPIR-V module"),
    ],
)
def test_images_of_other_kinds_are_refused(device: Device, change: object, words: str) -> None:
    data = opencl_compile.kernels(HEADER + "KERNEL(nothing, ()) {}")
    with pytest.raises(InvalidImageError, match=words):
        Module.from_bytes(change(data))  # type: ignore[operator]


def test_what_the_driver_cannot_build_is_told_in_its_words(device: Device) -> None:
    """A function without a definition."""
    text = """
    extern "C" __attribute__((device)) u32 nowhere(u32);
    KERNEL(asks, (u32 *y)) { y[0] = nowhere(1); }
    """
    with kernels(text) as module:
        with pytest.raises(InvalidImageError, match=r"kernel 'asks': .* could not build it"):
            module.get_function("asks")


def test_wrong_source_is_told_in_the_compilers_words() -> None:
    with pytest.raises(DeviceError, match="unknown type name 'nonsense'"):
        opencl_compile.kernels("nonsense")
    with pytest.raises(TypeError, match="source: expected a str"):
        opencl_compile.kernels(b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="options: expected a sequence of str"):
        opencl_compile.kernels("", "-DX")  # type: ignore[arg-type]


# -- OpenCL C --------------------------------------------------------------------------------------


OPENCL_C = """
typedef struct { int a; float b; } pair;
kernel void scale(ulong n, float by, global const float *x, global float *y) {
    for (size_t i = get_global_id(0); i < n; i += get_global_size(0)) y[i] = by * x[i] + SHIFT;
}
kernel void turn(global uint *y, local uint *scratch, uint n) {
    size_t t = get_local_id(0);
    scratch[t] = y[t];
    barrier(CLK_LOCAL_MEM_FENCE);
    y[t] = scratch[n - 1 - t];
}
kernel void sums(float4 v, global float *y) { y[0] = v.x + v.y + v.z + v.w; }
kernel void widths(char2 a, short3 b, int8 c, long16 d, global uint2 *e, constant float3 *f) {}
kernel void takes(pair p, global float *y) { y[0] = p.a + p.b; }
kernel void looks(read_only image2d_t picture, global float *y) { y[0] = 0; }
"""


def test_opencl_c_is_compiled_by_the_driver(device: Device, rng: np.random.Generator) -> None:
    image = opencl_compile.opencl_c(OPENCL_C, "-DSHIFT=0.5f")
    with Module.from_bytes(image) as module:
        assert set(module.kernels) == {"scale", "turn", "sums", "widths", "takes", "looks"}
        scale = module.get_function("scale")
        assert scale.signature is not None
        assert scale.signature.declaration == "u64 n, f32 by, const f32* x, f32* y"
        widths = module.get_function("widths").signature
        assert widths is not None and widths.declaration == (
            "bytes[2] a, bytes[8] b, bytes[32] c, bytes[128] d, ptr e, const ptr f"
        )
        values = rng.standard_normal(1000).astype("f4")
        x, y = DeviceBuffer.from_numpy(values), DeviceBuffer.zeros(1000, "f32")
        scale[7, 64](1000, 3.0, x, y)
        expected = 3 * values.astype("f8") + 0.5
        assert np.abs(y.to_numpy() - expected).max() <= 2e-7 * np.abs(expected).max()
        out = DeviceBuffer.from_numpy(np.arange(16, dtype="u4"))
        module.get_function("turn")[1, 16, 64](out, 16)
        assert out.to_numpy().tolist() == list(range(15, -1, -1))
        module.get_function("sums")[1, 1](np.arange(4, dtype="f4").tobytes(), y)
        assert y.to_numpy()[0] == 6
        for name in ("takes", "looks"):
            with pytest.raises(
                NotSupportedError, match=f"kernel '{name}': parameter . cannot be given"
            ):
                module.get_function(name)
        with pytest.raises(TypeError):
            scale[1, 1](1000, 3.0, x)
        with pytest.raises(NotFoundError, match="OpenCL tells none"):
            module.get_global("anything")


def test_wrong_opencl_c_is_told_in_the_drivers_words(device: Device) -> None:
    with pytest.raises(InvalidImageError, match=r"(?s)could not build it.*nonsense"):
        Module.from_bytes(opencl_compile.opencl_c("kernel void a(nonsense b) {}"))
    with pytest.raises(ArgumentValueError, match="one line"):
        opencl_compile.opencl_c("", "-DX\n-DY")


# -- programs that are kept ------------------------------------------------------------------------


def load_everything(names: list[str]) -> None:
    import ubridge

    with Device(0, "opencl"):
        for name in names:
            module = ubridge.load_module(name)
            for entry in module.kernels[:3]:
                module.get_function(entry)
    print(len(names))


def test_a_second_process_builds_nothing(runtime: None, tmp_path: Path) -> None:
    environment = {"UHAL_OPENCL_CACHE": str(tmp_path)}
    names = ["activation", "attention"]
    check_child(load_everything, names, environment=environment)
    kept = {path: path.stat().st_ino for path in tmp_path.glob("uhal/opencl/*.bin")}
    assert len(kept) == 4
    # Make the files look old: a used file gets a new time, and no file is rewritten.
    for path in kept:
        os.utime(path, (1, 1))
    check_child(load_everything, names, environment=environment)
    assert {path: path.stat().st_ino for path in tmp_path.glob("uhal/opencl/*.bin")} == kept
    assert all(path.stat().st_mtime > 1 for path in kept)


def test_a_program_the_driver_refuses_is_built_anew(device: Device, tmp_path: Path) -> None:
    """The digest of the cached file is right, but the driver rejects its program."""
    backend = registry.backend("opencl")
    opened = backend._opened[0]  # type: ignore[attr-defined]
    before = opened.programs._cache
    cache = opened.programs._cache = ProgramCache(tmp_path)
    try:
        for _ in range(2):
            with kernels("KERNEL(nothing, ()) {}") as module:
                module.get_function("nothing")[1, 1]()
            (path,) = tmp_path.glob("*.bin")
            cache.keep(path.name.removesuffix(".bin"), b"not a program")
        with kernels("KERNEL(nothing, ()) {}") as module:
            module.get_function("nothing")[1, 1]()
        assert path.stat().st_size > 1000
    finally:
        opened.programs._cache = before


def test_queries_see_work_that_nobody_waited_for(device: Device) -> None:
    out = DeviceBuffer.zeros(1 << 16, "u32")
    with Stream() as stream:
        for _ in range(20):
            out.set_32(7, stream=stream)
        end = time.monotonic() + 60
        while not stream.query():
            assert time.monotonic() < end
        assert (out.to_numpy() == 7).all()
