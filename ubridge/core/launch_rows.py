"""How each backend's kernels are named, called and spread over the device: one table, two columns.

A row says, for a family of operations, in which module its kernels are, how an entry is spelled,
in what order it takes its arguments, and its geometry. CUDA, ROCm and the host share Candle's
column; GCUs have Ubridge's kernels, which take other arguments in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from uhal import DeviceLimits

Configuration: TypeAlias = tuple[int | tuple[int, int, int], int | tuple[int, int, int], int]
"""Grid, block and bytes of dynamic shared memory."""
Configure: TypeAlias = Callable[..., Configuration]
"""From what a launch has to do, in the numbers its geometry names, to its configuration."""
Geometry: TypeAlias = Callable[[DeviceLimits], Configure]

_SHORT = 1024
"""Elements of a result below which a page of memory holds several."""

_NORM = "inp out weight bias columns threads epsilon rows chunks remove_mean affine"

_PRODUCT = (
    "dtype batch m k n lhs_multicore rhs_multicore batch_multicore lhs_transpose rhs_transpose "
    "alpha beta addmm_beta sip_m sip_k sip_n one_weight"
)

_TENSOR_PRODUCT = "a b out m n k a_batch a_pitch b_batch b_pitch out_batch"

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    family: tuple(names.split())
    for family, names in {
        "unary": "numel num_dims info inp out",
        "unary_scalar": "numel num_dims info inp out parameter",
        "affine": "numel num_dims info inp out multiplier addend",
        "binary": "numel num_dims info lhs rhs out",
        "compare": "numel num_dims info lhs rhs out",
        "cast": "numel num_dims info inp out",
        "where": "numel num_dims info ids on_true on_false out",
        "masked_fill": "numel num_dims info mask inp value out",
        "fill": "numel num_dims info value out",
        "copy2d": "inp out rows columns inp_pitch out_pitch",
        "index_select": "numel num_dims info ids inp out left inp_length ids_length right",
        "gather": "numel ids inp out left inp_length ids_length right",
        "scatter": "ids inp out left inp_length out_length right",
        "index_add": "ids ids_length inp out left inp_length out_length right",
        "reduce": "numel reduced num_dims info inp out",
        "arg_reduce": "numel reduced num_dims info inp out",
        "softmax": "inp out columns rows chunks",
        "rmsnorm": _NORM,
        "layernorm": _NORM,
        "rope_i": "inp cos sin out rows row_size batch_stride",
        "rope": "inp cos sin out rows row_size width batch_stride",
        "rope_thd": "inp cos sin out batch positions heads width batch_stride",
        "sort": "inp out columns padded rows in_place",
        "im2col1d": "threads length_out length_k stride padding dilation info inp out",
        "im2col": "numel rows_out columns_out rows_k columns_k stride padding dilation info inp "
        "out",
        "col2im1d": "numel length_out length_in channels_out length_k stride inp out",
        "conv1d": "numel length_out stride padding dilation info inp kernel out",
        "conv2d": "numel columns_out rows_out stride padding dilation info inp kernel out",
        "conv_transpose1d": "numel length_out stride padding out_padding dilation info inp kernel "
        "out",
        "conv_transpose2d": "numel columns_out rows_out stride padding out_padding dilation info "
        "inp kernel out",
        "pool2d": "numel rows_k columns_k row_stride column_stride info inp out",
        "nearest2d": "rows_out columns_out row_scale column_scale info inp out",
        "strided_copy": "in_size out_size num_dims origin_num_dims info inp out operation",
        "matmul": "a b out m n k a_batch a_row a_column b_batch b_row b_column out_batch",
        "tensor_matmul_128": _TENSOR_PRODUCT,
        "tensor_matmul_64": _TENSOR_PRODUCT,
        "attention": "query key value mask out heads kv_heads queries keys width mask_batch "
        "mask_head scale causal",
        "gated": "numel gate up out",
        "log_softmax": "inp out columns compensated",
        "tiled_matmul": f"a b out {_PRODUCT}",
        "quantized_matmul": f"a b out scales zeros {_PRODUCT} group_size",
        "quantized_matvec": "weight inp out columns rows",
        "kv_concat": "lhs rhs out info num_dims axis rows left right",
        "kv_append": "numel position inp target tokens capacity width",
        "rotary": "query key cos_sin length pitch positions tokens q_heads k_heads head_size "
        "rotated halves",
        "dequantize": "inp out numel",
        "quantize": "inp out inp_bytes out_bytes",
        "cache": "key value key_cache value_cache slots tokens heads head_size blocks block_size x "
        "key_stride value_stride",
        "paged_attention": "out query key_cache value_cache kv_heads scale block_tables "
        "context_lengths block_size max_context sequences heads head_size max_blocks query_stride "
        "kv_block_stride kv_head_stride blocks softcap",
        "bilinear2d": "columns_out rows_out align_corners has_row_scale row_scale has_column_scale "
        "column_scale info inp out",
    }.items()
}
"""The arguments of a family in the order ubridge lists them, whatever the backend."""


@dataclass(frozen=True)
class Row:
    """How one backend launches a family."""

    module: str
    entry: str
    """The entry's name, with `{root}`, `{dtype}` and, of ids or a cast's result, `{other}`."""
    arguments: tuple[str, ...]
    """The kernel's parameters, named as in `ARGUMENTS`."""
    geometry: Geometry


# -- geometries ----------------------------------------------------------------------------------


def strided(limits: DeviceLimits) -> Configure:
    """Threads that stride over n elements: as many as the device runs well."""
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
    """A block for each of `results`, of the power of two that holds its `elements`.

    Where a device has a number of blocks it runs well, each takes several results, as many apart
    as there are blocks; on a lone processor one takes all: the kernel strides over them. Short
    results whose elements lie `side_by_side` have a block each: such a device runs neighboring
    blocks one after the other, so that it reads what is next to one another as one stream.
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
    """A block for each row, of the power of two that holds its columns: no kernel strides here."""
    widest = min(1024, limits.max_threads_per_block)

    def configure(rows: int, columns: int) -> Configuration:
        return rows, min(widest, power_of_two(columns)), 0

    return configure


def warp_per_row(limits: DeviceLimits) -> Configure:
    """One warp of 32 for each row, along y."""

    def configure(rows: int) -> Configuration:
        return rows, (1, 32, 1), 0

    return configure


def block_per_row(limits: DeviceLimits) -> Configure:
    """A block of as many threads as the kernel is told, for each row."""

    def configure(rows: int, threads: int) -> Configuration:
        return rows, threads, 0

    return configure


def bitonic(limits: DeviceLimits) -> Configure:
    """A block for each row with a place in shared memory for each of its `padded` elements."""
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
    """Blocks of four warps of 32, a row of the weight for each, along y for each vector."""

    def configure(rows: int, vectors: int) -> Configuration:
        return (-(-rows // 4), vectors, 1), (32, 4, 1), 0

    return configure


def norm_threads(columns: int) -> int:
    """Return the work-items of a block for a norm of a row: the kernels know these two sizes."""
    return 32 if columns < 1024 else 1024


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least `n` > 0."""
    return 1 << (n - 1).bit_length()


# -- columns -------------------------------------------------------------------------------------


def _row(module: str, entry: str, family: str, geometry: Geometry, without: str = "") -> Row:
    """A row that takes the family's arguments in the listed order, save those in `without`."""
    left_out = without.split()
    kept = tuple(name for name in ARGUMENTS[family] if name not in left_out)
    return Row(module, entry, kept, geometry)


def _candle_scalar() -> Row:
    names = ("numel", "num_dims", "info", "parameter", "inp", "out")
    return Row("unary", "{root}_{dtype}", names, strided)


_GCU_NORM = "rows chunks remove_mean affine"
_PLAIN = "{root}_{dtype}"
_BY_IDS = "{root}_{other}_{dtype}"

CANDLE: Mapping[str, Row] = {
    "unary": _row("unary", _PLAIN, "unary", strided),
    "unary_scalar": _candle_scalar(),
    "affine": _row("affine", _PLAIN, "affine", strided),
    "binary": _row("binary", _PLAIN, "binary", strided),
    "compare": _row("binary", _PLAIN, "compare", strided),
    "cast": _row("cast", "{root}_{dtype}_{other}", "cast", strided),
    "where": _row("ternary", _BY_IDS, "where", strided),
    "masked_fill": _row("fused", _PLAIN, "masked_fill", strided),
    "fill": _row("fill", _PLAIN, "fill", strided),
    "copy2d": _row("fill", _PLAIN, "copy2d", covering),
    "index_select": _row("indexing", _BY_IDS, "index_select", strided),
    "gather": _row("indexing", _BY_IDS, "gather", strided),
    "scatter": _row("indexing", _BY_IDS, "scatter", strided),
    "index_add": _row("indexing", _BY_IDS, "index_add", strided),
    "reduce": _row("reduce", _PLAIN, "reduce", block_per_result),
    "arg_reduce": _row("reduce", _PLAIN, "arg_reduce", block_per_result),
    "softmax": _row("reduce", _PLAIN, "softmax", warp_per_row, without="rows chunks"),
    "rmsnorm": _row("reduce", _PLAIN, "rmsnorm", block_per_row, without=f"bias {_GCU_NORM}"),
    "layernorm": _row("reduce", _PLAIN, "layernorm", block_per_row, without=_GCU_NORM),
    "rope_i": _row("reduce", _PLAIN, "rope_i", covering),
    "rope": _row("reduce", _PLAIN, "rope", covering),
    "rope_thd": _row("reduce", _PLAIN, "rope_thd", covering),
    "sort": _row("sort", _PLAIN, "sort", bitonic, without="rows in_place"),
    "im2col1d": _row("conv", _PLAIN, "im2col1d", covering),
    "im2col": _row("conv", _PLAIN, "im2col", covering),
    "col2im1d": _row("conv", _PLAIN, "col2im1d", covering),
    "conv1d": _row("conv", _PLAIN, "conv1d", covering),
    "conv2d": _row("conv", _PLAIN, "conv2d", covering),
    "conv_transpose1d": _row("conv", _PLAIN, "conv_transpose1d", covering),
    "conv_transpose2d": _row("conv", _PLAIN, "conv_transpose2d", covering),
    "pool2d": _row("conv", _PLAIN, "pool2d", covering),
    "nearest2d": _row("conv", _PLAIN, "nearest2d", covering),
    "bilinear2d": _row("conv", _PLAIN, "bilinear2d", covering),
    "log_softmax": _row("fused", _PLAIN, "log_softmax", wide_block_per_row),
    "gated": _row("fused", _PLAIN, "gated", strided),
    "kv_concat": _row("fused", _PLAIN, "kv_concat", strided, without="info num_dims axis"),
    "kv_append": _row("decode", _PLAIN, "kv_append", strided),
    "matmul": _row("matmul", _PLAIN, "matmul", tiles(64, 256)),
    "tensor_matmul_128": _row("matmul_tensor", _PLAIN, "tensor_matmul_128", tiles(128, 256)),
    "tensor_matmul_64": _row("matmul_tensor", _PLAIN, "tensor_matmul_64", tiles(64, 128)),
    "attention": _row("attention", _PLAIN, "attention", wide_block_per_row),
    "quantized_matvec": _row("quantized", "{root}", "quantized_matvec", warp_for_each_row),
}
"""Candle's kernels and ubridge's own, for CUDA, ROCm and the host."""

_SHARED_BYTES = 1 << 20
"""L2 of a cluster asked for where a GCU kernel uses some; no public source says how much it is."""


def whole_device(shared: int = 0) -> Geometry:
    """A thread for every SIP: GCU kernels divide their elements among all there are."""

    def geometry(limits: DeviceLimits) -> Configure:
        configuration = (limits.processors, limits.block_for_elements, _asked(limits, shared))
        return lambda *work: configuration

    return geometry


def _asked(limits: DeviceLimits, shared: int) -> int:
    return limits.shared_bytes_for(shared) if shared else 0


def one_cluster(shared: int = 0) -> Geometry:
    """The SIPs of one cluster, whose L2 the kernel keeps everything in."""

    def geometry(limits: DeviceLimits) -> Configure:
        configuration = (1, limits.block_for_elements, _asked(limits, shared))
        return lambda *work: configuration

    return geometry


def _gcu(module: str, entry: str, arguments: str, shared: int = 0) -> Row:
    return Row(module, entry, tuple(arguments.split()), whole_device(shared))


def _gcu_all(module: str, entry: str, family: str, shared: int = 0) -> Row:
    """A row that takes the family's arguments in the listed order."""
    return Row(module, entry, ARGUMENTS[family], whole_device(shared))


_GCU_NORMS = "inp out weight bias rows chunks columns epsilon remove_mean affine"
_IN_L2 = _SHARED_BYTES

GCU: Mapping[str, Row] = {
    "unary": _gcu("unary", _PLAIN, "numel inp out"),
    "unary_scalar": _gcu("unary", _PLAIN, "numel inp out parameter", _IN_L2),
    "affine": _gcu("affine", _PLAIN, "numel inp out multiplier addend"),
    "binary": _gcu_all("binary", _PLAIN, "binary"),
    "compare": _gcu_all("binary", _PLAIN, "compare"),
    "cast": _gcu("cast", "{root}_{dtype}_{other}", "numel inp out", _IN_L2),
    "where": _gcu("ternary", _BY_IDS, "ids on_true on_false out numel"),
    "fill": _gcu("fill", "fill_{dtype}", "out numel value"),
    "strided_copy": _gcu_all("copy", _PLAIN, "strided_copy", _IN_L2),
    "index_select": _gcu("indexing", _BY_IDS, "ids_length ids inp out left inp_length right"),
    "gather": _gcu_all("indexing", _BY_IDS, "gather", _IN_L2),
    "index_add": _gcu_all("indexing", _BY_IDS, "index_add"),
    "reduce": _gcu("reduce", _PLAIN, "inp out numel reduced", _IN_L2),
    "arg_reduce": _gcu("reduce", _PLAIN, "inp out numel reduced", _IN_L2),
    "softmax": _gcu("reduce", _PLAIN, "inp out rows chunks columns", _IN_L2),
    "rmsnorm": _gcu("reduce", "layernorm_{dtype}", _GCU_NORMS),
    "layernorm": _gcu("reduce", "layernorm_{dtype}", _GCU_NORMS),
    "sort": Row(
        "sort",
        _PLAIN,
        ("inp", "out", "rows", "columns", "padded", "in_place"),
        one_cluster(_IN_L2),
    ),
    "conv1d": Row("conv", _PLAIN, ARGUMENTS["conv1d"], one_cluster(_IN_L2)),
    "conv2d": _gcu_all("conv", _PLAIN, "conv2d", _IN_L2),
    "tiled_matmul": _gcu_all("matmul", _PLAIN, "tiled_matmul", _IN_L2),
    "quantized_matmul": _gcu_all("matmul", "matmul_{dtype}_{root}", "quantized_matmul", _IN_L2),
    "kv_concat": _gcu("kvconcat", _PLAIN, "lhs rhs out info num_dims axis"),
    "rotary": _gcu_all("embedding", _PLAIN, "rotary"),
    "dequantize": _gcu_all("quant", _PLAIN, "dequantize", _IN_L2),
    "quantize": _gcu_all("quant", _PLAIN, "quantize", _IN_L2),
    "cache": _gcu_all("cache", _PLAIN, "cache"),
    "paged_attention": _gcu_all("attention", _PLAIN, "paged_attention", _IN_L2),
}
"""Ubridge's kernels, for GCUs."""

COLUMNS: Mapping[str, Mapping[str, Row]] = {
    "cuda": CANDLE,
    "rocm": CANDLE,
    "host": CANDLE,
    "tops": GCU,
}
"""Backend to its rows, by family."""
