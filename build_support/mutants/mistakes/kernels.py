"""Mistakes in the kernels of ubridge, as the host runs them."""

from __future__ import annotations

from build_support.mutants.compiled import Compiled


def _kernel(path: str, text: str, replacement: str, *tests: str, behind: str = "") -> Compiled:
    files = tuple(f"tests/ubridge/{test}.py" for test in tests)
    return Compiled(f"ubridge/kernels/{path}", text, replacement, files, behind)


MISTAKES = (
    _kernel(
        "decode.cu",
        "u64(place) < positions",
        "u64(place) <= positions",
        *("test_decode_kernels", "test_caches"),
        behind="if (place >= 0 && ",
    ),
    _kernel(
        "decode.cu",
        "u64(place) < capacity",
        "true",
        *("test_decode_kernels", "test_caches"),
        behind="* capacity + u64(place)) * width + column;\n        if (place >= 0 && ",
    ),
    _kernel(
        "sampling.cu", "places[i] <= forgotten", "places[i] < forgotten", "test_token_sampling"
    ),
    _kernel("sampling.cu", "value > 0 ? above : below", "above", "test_token_sampling"),
    _kernel("sort.cu", "(is_nan(b) && !is_nan(a))", "false", "test_indexing_kernels"),
    _kernel("conv.cu", "place >= padding", "place > padding", "test_conv_kernels"),
    _kernel("conv.cu", "rest == 0 && place < extent", "place < extent", "test_conv_kernels"),
    _kernel(
        "convolution_parts.h",
        "column + u64(behind) < columns",
        "column + u64(behind) <= columns",
        "test_conv_tiles_kernels",
    ),
    _kernel(
        "reduction_columns.h",
        "count - row < STEP ? count - row : u64(STEP)",
        "u64(STEP)",
        *("test_reduce_kernels", "test_reductions"),
    ),
    _kernel("attention.cu", "seen < 0 ? 0 : u32(seen)", "u32(seen)", "test_caches"),
    _kernel(
        "attention.h",
        "window == 0 || own < window ? 0 : own - window",
        "window == 0 || own < window ? 0 : own - window + 1",
        "test_decode_kernels",
    ),
    _kernel(
        "indexing.cu",
        "has_none & (id == Limits<I>::highest)",
        "id == Limits<I>::highest",
        *("test_indexing_kernels", "test_selection"),
    ),
    _kernel("random.cu", "(quarter + 1) & 2", "quarter & 2", "test_random_kernels"),
    _kernel(
        "rope.h",
        "stride_b == 0 ? 0 : split_off(element, stride_b) * angles",
        "0",
        "test_reduce_kernels",
    ),
    _kernel(
        "quantize_32.h",
        "furthest > 0 && biased > 0",
        "biased > 0",
        *("test_quantized", "test_answers"),
    ),
)
