"""Every entry of Candle's kernels exists here, with its name and its parameters.

tests/data/candle_entries.json holds the facts of Candle's own PTX. The signatures below repeat the
types in Candle's sources, a line for each family.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import ubridge
from rocm_backend.images import select
from rocm_backend.targets import DeviceTarget
from tests.shipped_ptx import shipped_ptx
from uhal import Device
from uhal.images.amd_target import TargetId
from uhal.images.ptx import read_ptx
from uhal.signature import Signature

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "ubridge" / "kernels" / "images"
SPEC = json.loads((ROOT / "tests" / "data" / "candle_entries.json").read_text("utf-8"))
MODULES: Mapping[str, Mapping[str, list[tuple[str, int, int, int]]]] = {
    **SPEC["modules"],
    "quantized": SPEC["quantized"],
}
"""Module to entries."""

INFO = "u64 numel, u64 num_dims, const u64* info"
SHAPE = "u64 left, u64 src_dim, u64 ids_dim, u64 right"
WRITTEN = "u64 left, u64 src_dim, u64 dst_dim, u64 right"
SLIDE = "u64 stride, u64 padding"
ROWS = "const T* src, T* dst"
ANGLES = "const T* src, const T* cos, const T* sin, T* dst"
POOL = "u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info"
REDUCE = "u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const T* src"
BOTH = "u64 numel, u64 num_dims, const u64* dims_and_strides, const T* lhs, const T* rhs"
VEC = "const void* vx, const f32* y, f32* dst"
BLOCKS = "const void* vx, const void* vy, f32* dst, i32 ncols_x, i32 nrows_x"
THROUGH = "const u64* info, const T* src, const T* kernel, T* dst"

# T is the type in the entry's name, I the id type before it, O the output type after it.
FAMILIES = {
    r"affine_T": f"{INFO}, const T* inp, T* out, T mul, T add",
    r"b(add|sub|mul|div|maximum|minimum)_T": f"{BOTH}, T* out",
    r"(eq|ne|lt|le|gt|ge)_T": f"{BOTH}, u8* out",
    r"cast_T_O": f"{INFO}, const T* inp, O* out",
    r"fill_T": "T* buf, T value, u64 numel",
    r"const_set_T": f"{INFO}, T value, T* out",
    r"copy2d_T": "const T* src, T* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s",
    r"is_I_T": f"{INFO}, const I* ids, const T* inp, T* out, {SHAPE}",
    r"gather_I_T": f"u64 numel, const I* ids, const T* inp, T* out, {SHAPE}",
    r"ia_I_T": f"const I* ids, u64 ids_dim, const T* inp, T* out, {WRITTEN}",
    r"(s|sa)_I_T": f"const I* ids, const T* inp, T* out, {WRITTEN}",
    r"where_I_T": f"{INFO}, const I* ids, const T* t, const T* f, T* out",
    r"u(elu|powf)_T": f"{INFO}, T param, const T* inp, T* out",
    r"asort_(asc|desc)_T": "const T* x, u32* dst, i32 ncols, i32 ncols_pad",
    r"fast_(sum|min|max)_T": f"{REDUCE}, T* dst",
    r"fast_arg(min|max)_T": f"{REDUCE}, u32* dst",
    r"sum_T": "u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const T* inp, T* out",
    r"softmax_T": f"{ROWS}, i32 n_cols",
    r"rmsnorm_T": f"{ROWS}, const T* alpha, i32 n_cols, i32 block_size, f32 eps",
    r"layernorm_T": f"{ROWS}, const T* alpha, const T* beta, i32 n_cols, i32 block_size, f32 eps",
    r"rope_i_T": f"{ANGLES}, u32 bh, u32 td, u32 stride_b",
    r"rope_thd_T": f"{ANGLES}, u32 b, u32 t, u32 h, u32 d, u32 stride_b",
    r"rope_T": f"{ANGLES}, u32 bh, u32 td, u32 d, u32 stride_b",
    r"im2col1d_T": "u64 threads, u64 l_out, u64 l_k, "
    f"{SLIDE}, u64 dilation, const u64* info, {ROWS}",
    r"im2col_T": "u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, "
    f"{SLIDE}, u64 dilation, const u64* info, {ROWS}",
    r"col2im1d_T": f"u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, {ROWS}",
    r"conv1d_T": f"u64 src_numel, u64 l_out, {SLIDE}, u64 dilation, {THROUGH}",
    r"conv2d_T": f"u64 src_numel, u64 w_out, u64 h_out, {SLIDE}, u64 dilation, {THROUGH}",
    r"conv_transpose1d_T": "u64 src_numel, u64 l_out, "
    f"{SLIDE}, u64 out_padding, u64 dilation, {THROUGH}",
    r"conv_transpose2d_T": "u64 src_numel, u64 w_out, u64 h_out, "
    f"{SLIDE}, u64 out_padding, u64 dilation, {THROUGH}",
    r"(avg|max)_pool2d_T": f"{POOL}, {ROWS}",
    r"upsample_nearest2d_T": "u64 w_out, u64 h_out, f64 w_scale, f64 h_scale, "
    f"const u64* info, {ROWS}",
    r"upsample_bilinear2d_T": "u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, "
    f"f64 scale_h, bool has_scale_w, f64 scale_w, const u64* info, {ROWS}",
    r"dequantize_mul_mat_vec_q5_k": f"{VEC}, i32 ncols",
    r"dequantize_mul_mat_vec_\w+": f"{VEC}, i32 ncols, i32 nrows",
    r"dequantize_block_q\d_K_T": "const void* vx, T* yy",
    r"dequantize_block_q5_\d_T": "const void* vx, T* yy, i32 k",
    r"dequantize_block_q\d_\d_T": "const void* vx, T* yy, i32 nb32",
    r"get_rows_\w+": "const void* src0, const u32* ids, f32* dst, i64 ne00, u64 nb01",
    r"quantize_q8_1": "const f32* x, void* vy, i32 kx, i32 kx_padded",
    r"mul_mat_vec_\w+": f"{BLOCKS}, i32 nrows_y, i32 nrows_dst",
    r"mul_mat_\w+": f"{BLOCKS}, i32 ncols_y, i32 nrows_y, i32 nrows_dst",
    r"indexed_moe_forward_\w+": "const void* all_weights, const void* all_inputs, "
    "const u32* indices, f32* all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded, "
    "i32 input_dim1",
    r"u\w+_T": f"{INFO}, const T* inp, T* out",
}
TYPE = r"(?:fp?8_e4m3|bf16|f16|f32|f64|u8|u32|i16|i32|i64)"
AMD_DEVICES = {
    "gfx90a": "gfx90a:sramecc+:xnack-",
    "gfx942": "gfx942:sramecc+:xnack+",
    "gfx1030": "gfx1030",
    "gfx1100": "gfx1100",
    "gfx1201": "gfx1201",
}


def declared(entry: str) -> Signature:
    """Return the signature for the family of an entry."""
    for family, parameters in FAMILIES.items():
        pattern = family
        for letter in "TIO":
            pattern = re.sub(rf"_{letter}(?=_|$)", rf"_(?P<{letter}>{TYPE})", pattern)
        found = re.fullmatch(pattern, entry)
        if found:
            for letter, name in found.groupdict().items():
                spelled = re.sub("fp?8_e4m3", "f8e4m3", name)
                parameters = re.sub(rf"\b{letter}\b", spelled, parameters)
            return Signature.parse(parameters, entry=entry)
    raise AssertionError(f"{entry} is of no family")


def test_the_spec_has_748_entries() -> None:
    """Candle's entries in a build for compute capability 8.9 or later."""
    assert sum(len(entries) for entries in SPEC["modules"].values()) == 606
    assert len(SPEC["quantized"]) == 142


@pytest.mark.parametrize("module", MODULES)
def test_on_the_host(host: Device, module: str) -> None:
    loaded = ubridge.load_module(module, device=host)
    for entry, parameters in MODULES[module].items():
        signature = loaded.get_function(entry).signature
        assert signature is not None
        assert signature.declaration == declared(entry).declaration
        told = [(one.size, one.offset) for one in signature]
        assert told == [(size, offset) for _, size, _, offset in parameters], entry


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("module", MODULES)
def test_in_the_ptx(module: str) -> None:
    text = shipped_ptx(module).decode()
    heads = dict(re.findall(r"\.visible \.entry (\w+)\(([^)]*)\)", text))
    signatures = read_ptx(text.encode()).signatures
    for entry, parameters in MODULES[module].items():
        spelled = []
        for line in heads[entry].split(","):
            kind, length = re.findall(r"\.(\w+) \w+?(\[\d+\])?$", line.strip())[0]
            spelled.append(kind + length)
        assert spelled == [kind for kind, *_ in parameters], entry
        told = [(one.size, one.offset) for one in signatures[entry]]
        assert told == [(size, offset) for _, size, _, offset in parameters], entry


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("target", AMD_DEVICES)
def test_in_the_code_objects(target: str, module: str) -> None:
    image = (IMAGES / "rocm" / f"{module}.hipfb").read_bytes()
    device = DeviceTarget("rocm:0", (TargetId.parse(AMD_DEVICES[target]),))
    kernels = {kernel.name: kernel for kernel in select(image, device).contents.kernels}
    for entry, parameters in MODULES[module].items():
        signature = kernels[entry].signature
        pointers = [one.is_pointer for one in declared(entry)]
        # A code object marks pointers; other parameters are bytes.
        told = [(one.size, one.offset, one.is_pointer is True) for one in signature]
        expected = [
            (size, offset, pointer)
            for (_, size, _, offset), pointer in zip(parameters, pointers, strict=True)
        ]
        assert told == expected, entry


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("sidecar", ["cuda/{}.fatbin.gz.sig", "rocm/{}.hipfb.sig"])
def test_in_the_sidecars(sidecar: str, module: str) -> None:
    text = (IMAGES / sidecar.format(module)).read_text("utf-8")
    signatures = Signature.parse_sidecar(text)
    for entry in MODULES[module]:
        assert signatures[entry].declaration == declared(entry).declaration
