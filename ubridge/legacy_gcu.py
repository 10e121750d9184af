"""How the demo network's operations are launched on GCUs, with Ubridge's kernels.

Those want more than the operation says: a product is cut into tiles by the gemm tuner, and a
convolution reads shapes and strides from device memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from ubridge.gemm_tuner import AtenGemmInfo, AtenGemmTuner, DataType
from uhal import Device, DeviceBuffer, LaunchConfig, Stream
from uhal.errors import NotSupportedError

Buffers = Mapping[str, DeviceBuffer]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Call:
    """A launch that is ready but for its kernel."""

    module: str
    entry: str
    arguments: tuple[object, ...]
    config: LaunchConfig


def call(
    operation: str, device: Device, buffers: Buffers, sizes: Sizes, stream: Stream | None
) -> Call:
    """Return the launch of an operation.

    Raises `NotSupportedError` when Ubridge has no kernel for it.
    """
    return _CALLS[operation](device, buffers, sizes, stream)


def _matmul(device: Device, buffers: Buffers, sizes: Sizes, stream: Stream | None) -> Call:
    info = AtenGemmInfo.of(
        DataType.F32, DataType.F32, 1, sizes["m"], sizes["k"], sizes["n"], rhs_trans=False
    )
    tuned = _tuner().tuner(info)
    arguments = (
        *(buffers["a"], buffers["b"], buffers["out"]),
        *(tuned.input_dtype, tuned.input_batch, tuned.input_m, tuned.input_k, tuned.input_n),
        *(tuned.lhs_multicore, tuned.rhs_multicore, tuned.batch_multicore),
        *(tuned.lhs_transpose, tuned.rhs_transpose),
        *(tuned.alpha, tuned.beta, tuned.addmm_beta),
        *(tuned.sip_m, tuned.sip_k, tuned.sip_n),
        0,  # every batch has weights of its own
    )
    return Call("matmul", "matmul_f32", arguments, _whole_device(device))


_ENTRY_OF_KIND = {0: "urelu_f32", 1: "ugelu_f32", 3: "utanh_f32"}
"""By the number of `ubridge.legacy_ops.Activation`; there is no leaky one."""


def _activation(device: Device, buffers: Buffers, sizes: Sizes, stream: Stream | None) -> Call:
    entry = _ENTRY_OF_KIND.get(sizes["kind"])
    if entry is None:
        raise NotSupportedError("activation: Ubridge has no leaky ReLU for GCUs")
    data = buffers["data"]
    arguments = (sizes["rows"] * sizes["cols"], data, data)
    return Call("unary", entry, arguments, _whole_device(device))


def _convolution(device: Device, buffers: Buffers, sizes: Sizes, stream: Stream | None) -> Call:
    height, width, kh, kw = (sizes[name] for name in ("height", "width", "kh", "kw"))
    rows, columns = height - kh + 1, width - kw + 1
    info = [
        *(1, 1, height, width, height * width, height * width, width, 1),
        *(1, 1, kh, kw, kh * kw, kh * kw, kw, 1),
    ]
    arguments = (
        *(height * width, columns, rows),
        *(1, 0, 1),  # stride, padding, dilation
        DeviceBuffer.from_numpy(np.array(info, np.uint64), device=device, stream=stream),
        *(buffers["input"], buffers["weight"], buffers["out"]),
    )
    return Call("conv", "conv2d_f32", arguments, _whole_device(device))


_CALLS: Mapping[str, Callable[[Device, Buffers, Sizes, Stream | None], Call]] = {
    "matmul": _matmul,
    "activation": _activation,
    "convolution": _convolution,
}


@cache
def _tuner() -> AtenGemmTuner:
    return AtenGemmTuner()


def _whole_device(device: Device) -> LaunchConfig:
    """A thread for every SIP: kernels divide the elements among all of them."""
    limits = device.limits
    shared = limits.shared_bytes_for(0)
    return LaunchConfig((limits.processors,), (limits.block_for_elements,), shared)
