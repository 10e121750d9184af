"""Names and geometries of kernels: Candle's column, and the GCUs' column.

A row says, for a family of operations, which module its kernels are in, how an entry is spelled,
and its geometry. CUDA, ROCm and the host share Candle's column; GCUs have Ubridge's kernels. The
order of a kernel's arguments is stated by its image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from uhal import DeviceLimits

Configuration: TypeAlias = tuple[int | tuple[int, int, int], int | tuple[int, int, int], int]
"""Grid, block and bytes of dynamic shared memory."""
Configure: TypeAlias = Callable[..., Configuration]
"""From a launch's sizes, as its geometry names them, to its configuration."""
Geometry: TypeAlias = Callable[[DeviceLimits], Configure]

_SHORT = 1024
"""Elements of a result below which a page of memory holds several."""


@dataclass(frozen=True)
class Row:
    """How one backend launches a family."""

    module: str
    entry: str
    """The entry's name, with `{root}`, `{dtype}` and, of ids or a cast's result, `{other}`."""
    geometry: Geometry


# -- geometries ----------------------------------------------------------------------------------


def strided(limits: DeviceLimits) -> Configure:
    """Threads that stride over n elements, as many as suit the device."""
    block = limits.block_for_elements
    cap = min(limits.max_grid[0], limits.max_blocks_for_elements or limits.max_grid[0])

    def configure(n: int) -> Configuration:
        blocks = -(-n // block)
        return blocks if blocks < cap else cap, block, 0

    return configure


def covering(limits: DeviceLimits) -> Configure:
    """A thread for each of n elements: the kernel does not stride."""
    block = limits.block_for_elements

    def configure(n: int) -> Configuration:
        return -(-n // block), block, 0

    return configure


def block_per_result(limits: DeviceLimits) -> Configure:
    """A block for each of `results`, with the least power of two of threads that is >= `elements`.

    On a device with `max_blocks_for_elements` there are no more blocks than that, and the kernel
    strides over results; on a single processor one block takes all results. Short results with
    elements `side_by_side` still have a block each: such a device runs neighboring blocks one after
    the other, so it reads adjacent elements as one stream.
    """
    widest = min(1024, limits.max_threads_per_block)
    short = apart = limits.max_grid[0]
    if limits.max_blocks_for_elements is not None:
        apart = limits.max_blocks_for_elements
        if limits.processors == 1:
            short = apart = 1

    def configure(results: int, elements: int, side_by_side: bool = False) -> Configuration:
        blocks = short if side_by_side and elements < _SHORT else apart
        return min(results, blocks), min(widest, power_of_two(elements)), 0

    return configure


def wide_block_per_row(limits: DeviceLimits) -> Configure:
    """A block for each row, of a power of two of threads; these kernels do not stride over rows."""
    widest = min(1024, limits.max_threads_per_block)

    def configure(rows: int, columns: int) -> Configuration:
        return rows, min(widest, power_of_two(columns)), 0

    return configure


def block_per_part(limits: DeviceLimits) -> Configure:
    """A block for each row and each of its parts, which lie along y."""
    widest = min(256, limits.max_threads_per_block)

    def configure(rows: int, parts: int) -> Configuration:
        return (rows, parts, 1), widest, 0

    return configure


def warp_per_row(limits: DeviceLimits) -> Configure:
    """One warp of 32 for each row, along y."""

    def configure(rows: int) -> Configuration:
        return rows, (1, 32, 1), 0

    return configure


def block_per_row(limits: DeviceLimits) -> Configure:
    """A block of `threads` threads for each row."""

    def configure(rows: int, threads: int) -> Configuration:
        return rows, threads, 0

    return configure


def bitonic(limits: DeviceLimits) -> Configure:
    """A block for each row, or run, with a u32 in shared memory for each of `padded` elements."""
    widest = min(1024, limits.max_threads_per_block)

    def configure(rows: int, padded: int) -> Configuration:
        return rows, min(padded, widest), 4 * padded

    return configure


def tiles(size: int, block: int) -> Geometry:
    """A block for each tile of size x size results, along z for each product."""

    def geometry(limits: DeviceLimits) -> Configure:
        def configure(m: int, n: int, products: int) -> Configuration:
            return (-(-n // size), -(-m // size), products), block, 0

        return configure

    return geometry


def warp_for_each_row(limits: DeviceLimits) -> Configure:
    """Blocks of four warps of 32: a warp for each row of the weight, along y for each vector."""

    def configure(rows: int, vectors: int) -> Configuration:
        return (-(-rows // 4), vectors, 1), (32, 4, 1), 0

    return configure


def pieces_of_lines(limits: DeviceLimits) -> Configure:
    """Pieces of lines for a CPU's threads: several each, for other programs take turns with them.

    Their work-items stand for so many `steps` of all: the runtime tells short launches by that.
    """
    most = 1 if limits.processors == 1 else 16 * limits.processors

    def configure(lines: int, least: int, steps: int) -> Configuration:
        pieces = max(1, min(most, lines // least))
        return pieces, max(1, min(limits.max_threads_per_block, steps // pieces >> 12)), 0

    return configure


def norm_threads(columns: int) -> int:
    """Return the threads of a block for the norm of a row: the kernels know these two sizes."""
    return 32 if columns < 1024 else 1024


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least `n` > 0."""
    return 1 << (n - 1).bit_length()


# -- columns -------------------------------------------------------------------------------------


_PLAIN = "{root}_{dtype}"
_BY_IDS = "{root}_{other}_{dtype}"

CANDLE: Mapping[str, Row] = {
    "unary": Row("unary", _PLAIN, strided),
    "unary_scalar": Row("unary", _PLAIN, strided),
    "affine": Row("affine", _PLAIN, strided),
    "binary": Row("binary", _PLAIN, strided),
    "compare": Row("binary", _PLAIN, strided),
    "cast": Row("cast", "{root}_{dtype}_{other}", strided),
    "where": Row("ternary", _BY_IDS, strided),
    "masked_fill": Row("fused", _PLAIN, strided),
    "fill": Row("fill", _PLAIN, strided),
    "copy2d": Row("fill", _PLAIN, covering),
    "index_select": Row("indexing", _BY_IDS, strided),
    "gather": Row("indexing", _BY_IDS, strided),
    "scatter": Row("indexing", _BY_IDS, strided),
    "index_add": Row("indexing", _BY_IDS, strided),
    "reduce": Row("reduce", _PLAIN, block_per_result),
    "arg_reduce": Row("reduce", _PLAIN, block_per_result),
    "softmax": Row("reduce", _PLAIN, warp_per_row),
    "rmsnorm": Row("reduce", _PLAIN, block_per_row),
    "layernorm": Row("reduce", _PLAIN, block_per_row),
    "rope_i": Row("reduce", _PLAIN, covering),
    "rope": Row("reduce", _PLAIN, covering),
    "rope_thd": Row("reduce", _PLAIN, covering),
    "sort": Row("sort", _PLAIN, bitonic),
    "sort_runs": Row("sort", _PLAIN, bitonic),
    "sort_merge": Row("sort", _PLAIN, strided),
    "random": Row("random", _PLAIN, strided),
    "im2col1d": Row("conv", _PLAIN, covering),
    "im2col": Row("conv", _PLAIN, covering),
    "col2im1d": Row("conv", _PLAIN, covering),
    "conv1d": Row("conv", _PLAIN, covering),
    "conv2d": Row("conv", _PLAIN, covering),
    "conv_transpose1d": Row("conv", _PLAIN, covering),
    "conv_transpose2d": Row("conv", _PLAIN, covering),
    "pool2d": Row("conv", _PLAIN, covering),
    "nearest2d": Row("conv", _PLAIN, covering),
    "bilinear2d": Row("conv", _PLAIN, covering),
    "log_softmax": Row("fused", _PLAIN, wide_block_per_row),
    "gated": Row("fused", _PLAIN, strided),
    "kv_concat": Row("fused", _PLAIN, strided),
    "kv_append": Row("decode", _PLAIN, strided),
    "rope_at": Row("decode", _PLAIN, strided),
    "matmul": Row("matmul", _PLAIN, tiles(64, 256)),
    "tensor_matmul_128": Row("matmul_tensor", _PLAIN, tiles(128, 256)),
    "tensor_matmul_64": Row("matmul_tensor", _PLAIN, tiles(64, 128)),
    "attention": Row("attention", _PLAIN, wide_block_per_row),
    "cached_attention": Row("attention", _PLAIN, block_per_part),
    "merged_attention": Row("attention", _PLAIN, wide_block_per_row),
    "quantized_matvec": Row("blocks", "{root}", warp_for_each_row),
    "block_elements": Row("blocks", _PLAIN, strided),
}
"""Candle's kernels and ubridge's own, for CUDA, ROCm and the host."""

HOST: Mapping[str, Row] = {
    **CANDLE,
    "activations": Row("block_matmul", _PLAIN, pieces_of_lines),
    "quantized_product": Row("block_matmul", _PLAIN, pieces_of_lines),
    "indexed_product": Row("block_matmul", "{root}", pieces_of_lines),
}
"""Those, and kernels for CPUs alone."""

_SHARED_BYTES = 1 << 20
"""L2 of a cluster to ask for where a GCU kernel uses some; no public source gives its size."""


def whole_device(shared: int = 0) -> Geometry:
    """A thread for every SIP: GCU kernels divide their elements among all there are."""

    def geometry(limits: DeviceLimits) -> Configure:
        configuration = (limits.processors, limits.block_for_elements, _asked(limits, shared))
        return lambda *work: configuration

    return geometry


def _asked(limits: DeviceLimits, shared: int) -> int:
    return limits.shared_bytes_for(shared) if shared else 0


def one_cluster(shared: int = 0) -> Geometry:
    """The SIPs of one cluster; the kernel keeps everything in the cluster's L2."""

    def geometry(limits: DeviceLimits) -> Configure:
        configuration = (1, limits.block_for_elements, _asked(limits, shared))
        return lambda *work: configuration

    return geometry


def _gcu(module: str, entry: str, shared: int = 0) -> Row:
    return Row(module, entry, whole_device(shared))


_IN_L2 = _SHARED_BYTES

GCU: Mapping[str, Row] = {
    "unary": _gcu("unary", _PLAIN),
    "unary_scalar": _gcu("unary", _PLAIN, _IN_L2),
    "affine": _gcu("affine", _PLAIN),
    "binary": _gcu("binary", _PLAIN),
    "compare": _gcu("binary", _PLAIN),
    "cast": _gcu("cast", "{root}_{dtype}_{other}", _IN_L2),
    "where": _gcu("ternary", _BY_IDS),
    "fill": _gcu("fill", "fill_{dtype}"),
    "strided_copy": _gcu("copy", _PLAIN, _IN_L2),
    "index_select": _gcu("indexing", _BY_IDS),
    "gather": _gcu("indexing", _BY_IDS, _IN_L2),
    "index_add": _gcu("indexing", _BY_IDS),
    "reduce": _gcu("reduce", _PLAIN, _IN_L2),
    "arg_reduce": _gcu("reduce", _PLAIN, _IN_L2),
    "softmax": _gcu("reduce", _PLAIN, _IN_L2),
    "rmsnorm": _gcu("reduce", "layernorm_{dtype}"),
    "layernorm": _gcu("reduce", "layernorm_{dtype}"),
    "sort": Row("sort", _PLAIN, one_cluster(_IN_L2)),
    "conv1d": Row("conv", _PLAIN, one_cluster(_IN_L2)),
    "conv2d": _gcu("conv", _PLAIN, _IN_L2),
    "tiled_matmul": _gcu("matmul", _PLAIN, _IN_L2),
    "quantized_matmul": _gcu("matmul", "matmul_{dtype}_{root}", _IN_L2),
    "kv_concat": _gcu("kvconcat", _PLAIN),
    "rotary": _gcu("embedding", _PLAIN),
    "dequantize": _gcu("quant", _PLAIN, _IN_L2),
    "quantize": _gcu("quant", _PLAIN, _IN_L2),
    "cache": _gcu("cache", _PLAIN),
    "paged_attention": _gcu("attention", _PLAIN, _IN_L2),
}
"""Ubridge's kernels, for GCUs."""
