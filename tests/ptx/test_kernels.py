"""A kernel object: its module, its signature, its text and errors at a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx.conftest import Launch
from uhal import Device, DeviceBuffer, errors, ptx
from uhal.images.ptx import read_ptx
from uhal.ptx import Kernel, f32, if_, kernel


def made(factor: float = 2.0) -> Kernel:
    @kernel("u32 n, f32 a, const f32* x, f32* y", max_threads=128)
    def saxpy(n: Any, a: Any, x: Any, y: Any) -> None:
        i = ptx.global_index()
        with if_(i < n):
            y[i] = a * x[i] * factor + y[i]

    return saxpy


def test_the_function_has_a_full_signature(cuda: Device) -> None:
    function = made().function
    assert function.signature is not None
    assert function.signature.declaration == "u32 n, f32 a, const f32* x, f32* y"
    assert function.name == "saxpy"
    with pytest.raises(errors.ArgumentTypeError, match=r"argument 2 'x' \(const f32\*\)"):
        made()[1, 32](1, 2.0, np.zeros(4, "f4"), DeviceBuffer.zeros(4, "f32"))
    with pytest.raises(errors.ArgumentValueError, match="128"):
        made()[1, 256](0, 2.0, DeviceBuffer.zeros(4, "f32"), DeviceBuffer.zeros(4, "f32"))


def test_equal_texts_share_a_module(cuda: Device) -> None:
    first, second, other = made(), made(), made(3.0)
    assert first.module() is second.module()
    assert first.module() is not other.module()
    assert first.function is first.function
    module = first.module()
    module.close()
    assert first.module() is not module
    assert not second.module().closed


def test_several_kernels_in_one_module(launch: Launch) -> None:
    @kernel("f32* x")
    def fill(x: Any) -> None:
        x[ptx.global_index()] = 3.0

    module = ptx.load(made(), fill)
    assert module.kernels == ("saxpy", "fill")
    x = DeviceBuffer.zeros(64, "f32")
    module.get_function("fill")[2, 32](x)
    assert (x.to_numpy() == 3).all()
    with pytest.raises(errors.ArgumentValueError, match="expected kernels with different names"):
        ptx.text_of(made(), made())


def test_the_text_is_for_the_first_device_that_can_run_it() -> None:
    image = read_ptx(made().ptx.encode())
    assert (image.target, image.version) == ("sm_75", (6, 3))
    assert image.entries[0].max_block == (128, 1, 1)

    @kernel("bf16* x")
    def newer(x: Any) -> None:
        x[0] = x[0] + x[1]

    assert read_ptx(newer.ptx.encode()).target == "sm_90"


def test_lines_of_the_text_point_into_python() -> None:
    saxpy = made()
    text = saxpy.ptx.splitlines()
    assert any(line == f'.file 1 "{__file__}"' for line in text)
    store = next(index for index, line in enumerate(text) if "st.global" in line)
    location = next(line for line in reversed(text[:store]) if ".loc" in line)
    number = int(location.split()[2])
    with open(__file__, encoding="utf-8") as source:
        assert "y[i] = a * x[i]" in source.read().splitlines()[number - 1]


def test_another_backend_says_what_to_do() -> None:
    with Device(0, backend="host"):
        with pytest.raises(errors.NotSupportedError, match="saxpy: expected a CUDA device"):
            made()[1, 32]


def test_a_kernel_is_declared_with_its_signature() -> None:
    with pytest.raises(errors.ArgumentTypeError, match="expected a signature"):
        kernel(lambda x: None)  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentTypeError, match=r"\(n, x\), got \(x, n\).*test_kernels.py"):

        @kernel("u32 n, f32* x")
        def swapped(x: Any, n: Any) -> None: ...

    for signature in ("u32, f32* x", "u32 n, ptr x", "bytes[12] n, f32* x", "bool n, f32* x"):
        with pytest.raises(errors.ArgumentTypeError, match="expected numbers and pointers"):

            @kernel(signature)
            def refused(n: Any, x: Any) -> None: ...


def test_operations_outside_a_kernel_are_refused() -> None:
    with pytest.raises(errors.ArgumentValueError, match="while a kernel is built"):
        ptx.thread_index()
    with pytest.raises(errors.ArgumentValueError, match="while a kernel is built"):
        f32(1.0)


def test_an_error_leaves_the_thread_as_it_was(launch: Launch) -> None:
    @kernel("f32* x")
    def fails(x: Any) -> None:
        with if_(ptx.thread_index() < 3):
            raise RuntimeError("of the author")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="of the author"):
            fails.ptx  # noqa: B018
    with pytest.raises(errors.ArgumentValueError, match="while a kernel is built"):
        ptx.barrier()
