"""Kernels that multiply matrices: the products they support, and their launches.

All compute the same; they differ in supported operands and in speed. `table` puts them in order.
"""

from __future__ import annotations

from abc import abstractmethod

from ubridge.core.kernel_def import KernelDef, lines_by_vectors, tiles
from ubridge.core.lowering import Memory, Steps
from ubridge.core.product import MatmulKernel, Product
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import load_module
from uhal.errors import InvalidImageError
from uhal.kept import kept_property

TENSOR_MODULE = "matmul_tensor"
TENSOR_VECTORS_MODULE = "matmul_vectors_tensor"
"""The modules of the kernels for tensor cores."""
TILED = KernelDef("matmul", "matmul_{dtype}", tiles(64, 256))
_TENSOR_KERNELS = {
    (tile, layouts): KernelDef(
        TENSOR_MODULE, f"matmul_tensor{tile}_{layouts}_{{dtype}}", tiles(tile, 128)
    )
    for tile in (128, 64)
    for layouts in ("nn", "nt", "tn", "tt")
}
"""Keys are the rows and columns of a tile, and the layouts of a and b."""
VECTORS = KernelDef("matmul", "matmul_vectors_{dtype}", lines_by_vectors(8, 8))
_TENSOR_VECTORS = KernelDef(
    TENSOR_VECTORS_MODULE, f"{TENSOR_VECTORS_MODULE}_{{dtype}}", lines_by_vectors(16, 8)
)
_TENSOR_DTYPES = ("bf16", "f16")
_VECTOR_DTYPES = ("bf16", "f16", "f32", "f64")
_MOST_VECTORS = 16
"""Most vectors for which a matrix is multiplied without tiles."""
_LEAST_OF_TENSOR_TILES = 16
"""Rows, columns and summed elements of one instruction."""


class ProductKernel(MatmulKernel):
    """One line of the table; it adds the launches of its products."""

    is_library = False
    """Whether a library multiplies: its calls take any number of products, but no capture."""

    @abstractmethod
    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add the steps of a supported product.

        Operands begin with their first element.
        """

    def close(self) -> None:
        """Release its objects other than memory. The device is still open."""


class TiledProducts(ProductKernel):
    """ubridge's kernel for every device: tiles of 64 x 64, any strides and dtypes."""

    name = "tiled"
    reason = "takes any sizes, strides and numbers"

    def refusal(self, product: Product) -> str:
        """Return an empty text: this kernel takes all products."""
        return ""

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add its launch."""
        steps.launch(
            (product.m, product.n, product.batch),
            product.dtype,
            None,
            TILED,
            a=a,
            b=b,
            out=out,
            m=product.m,
            n=product.n,
            k=product.k,
            **product.strides,
            out_batch=product.m * product.n,
        )


class TensorProducts(ProductKernel):
    """ubridge's kernels for tensor cores: f16 and bf16 in lines of neighboring elements."""

    def __init__(self, executor: DeviceExecutor, tile: int, tiles: int) -> None:
        """Take products of at least `tiles` tiles of `tile` x `tile`."""
        self.name = f"tensor_{tile}"
        self.reason = f"tensor cores, in tiles of {tile} x {tile}"
        self._executor = executor
        self._tile = tile
        self._tiles = tiles

    def refusal(self, product: Product) -> str:
        """Say why the product cannot use tensor cores, or tiles this large."""
        if product.dtype.name not in _TENSOR_DTYPES:
            return f"for {' and '.join(_TENSOR_DTYPES)}, not {product.dtype}"
        if min(product.m, product.n, product.k) < _LEAST_OF_TENSOR_TILES:
            return f"a size below {_LEAST_OF_TENSOR_TILES}"
        if product.layouts is None:
            return "neither rows nor columns of neighboring elements"
        count = product.batch * -(-product.m // self._tile) * -(-product.n // self._tile)
        if count < self._tiles:
            return f"only {count} tiles for {self._tiles} processors"
        return self._missing

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add its launch."""
        assert product.layouts is not None, "refusal() comes first"
        a_pitch, b_pitch = product.pitches
        steps.launch(
            (product.m, product.n, product.batch),
            product.dtype,
            None,
            _TENSOR_KERNELS[self._tile, product.layouts],
            a=a,
            b=b,
            out=out,
            m=product.m,
            n=product.n,
            k=product.k,
            a_batch=product.a_batch,
            a_pitch=a_pitch,
            b_batch=product.b_batch,
            b_pitch=b_pitch,
            out_batch=product.m * product.n,
        )

    @kept_property
    def _missing(self) -> str:
        return _missing(TENSOR_MODULE, self._executor)


class VectorProducts(ProductKernel):
    """ubridge's kernel for every GPU: a matrix by few vectors, one warp per line."""

    name = "vectors"
    reason = "reads a matrix once for eight vectors"
    kernel = VECTORS
    dtypes: tuple[str, ...] = _VECTOR_DTYPES

    def __init__(self, any_count: bool = False) -> None:
        """Take few vectors, or any number: the order of a sum is the same for all numbers."""
        self._any_count = any_count

    def refusal(self, product: Product) -> str:
        """Say why the product is not a matrix by few vectors, or cannot be read along lines."""
        if product.dtype.name not in self.dtypes:
            return f"for {', '.join(self.dtypes)}, not {product.dtype}"
        if not self._any_count and min(product.m, product.n) > _MOST_VECTORS:
            return f"more than {_MOST_VECTORS} rows and columns"
        if product.k > 1 and (product.a_column != 1 or product.b_row != 1):
            return "summed elements are not neighbors"
        return ""

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add its launch."""
        rows = (a, product.m, product.a_batch, product.a_row, product.n)
        columns = (b, product.n, product.b_batch, product.b_column, 1)
        ordered = (columns, rows) if product.m <= product.n else (rows, columns)
        lines, count, line_batch, line_pitch, out_line = ordered[0]
        vectors, few, vector_batch, vector_pitch, out_vector = ordered[1]
        steps.launch(
            (count, few, product.batch),
            product.dtype,
            None,
            self.kernel,
            lines=lines,
            vectors=vectors,
            out=out,
            n=count,
            m=few,
            k=product.k,
            line_batch=line_batch,
            line_pitch=line_pitch,
            vector_batch=vector_batch,
            vector_pitch=vector_pitch,
            out_batch=product.m * product.n,
            out_line=out_line,
            out_vector=out_vector,
        )


class TensorVectorProducts(VectorProducts):
    """A matrix of f16 or bf16 by few vectors on tensor cores."""

    name = "tensor_vectors"
    reason = "tensor cores, a matrix once for eight vectors"
    kernel = _TENSOR_VECTORS
    dtypes = _TENSOR_DTYPES

    def __init__(self, executor: DeviceExecutor) -> None:
        super().__init__()
        self._executor = executor

    def refusal(self, product: Product) -> str:
        """Say why the product cannot use tensor cores, or is not by few vectors."""
        return super().refusal(product) or self._missing

    @kept_property
    def _missing(self) -> str:
        return _missing(TENSOR_VECTORS_MODULE, self._executor)


def _missing(module: str, executor: DeviceExecutor) -> str:
    """Return why the device cannot load a module; an empty text if it can."""
    try:
        load_module(module, device=executor.device)
    except InvalidImageError as error:
        return " ".join(str(error).split())
    return ""
