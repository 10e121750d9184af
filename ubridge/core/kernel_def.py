"""`KernelDef`: a kernel's module, the names of its entries, and the geometries of launches.

A kernel's image states the order of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import NamedTuple, TypeAlias

from uhal import DeviceLimits

Configuration: TypeAlias = tuple[int | tuple[int, int, int], int | tuple[int, int, int], int]
"""Grid, block and bytes of dynamic shared memory."""
Configure: TypeAlias = Callable[..., Configuration]
"""Function from a launch's sizes, named by its geometry, to its configuration."""
Geometry: TypeAlias = Callable[[DeviceLimits], Configure]

_MANY = 1 << 17
"""Size of a result in bytes from which each thread of a GPU takes more vectors."""
_FILLING = 1024
"""Blocks that fill a GPU."""
_HELD = 32
"""Elements of a row that a GPU's thread takes."""
_LEAST_ELEMENTS = 4096
"""Elements of a piece for a CPU's thread."""
_SHORT = 1024
"""Number of elements below which a page of memory holds several results."""


PLAIN = "{root}_{dtype}"
BY_IDS = "{root}_{other}_{dtype}"
"""Spellings of entries that most kernels have."""


@dataclass(frozen=True, eq=False)
class KernelDef:
    """The kernels of one kind, an entry for each element type.

    It is compared by identity.
    """

    module: str
    entry: str
    """The entry's name as a pattern of `{root}`, `{dtype}`, `{other}` (the dtype of ids or of a
    cast's result) and names of the question's attributes."""
    geometry: Geometry


class Kernel(NamedTuple):
    """A kernel of an operation for certain element types, and its launch geometry."""

    module: str
    entry: str
    configure: Configure
    """Function from a launch's sizes to grid, block and bytes of shared memory."""


# -- geometries ----------------------------------------------------------------------------------


def _geometry(configure: Configure) -> Geometry:
    """Decorate a function of the limits and a launch's sizes."""

    @wraps(configure)
    def geometry(limits: DeviceLimits) -> Configure:
        return partial(configure, limits)

    return geometry


@_geometry
def strided(limits: DeviceLimits, n: int) -> Configuration:
    """Threads that stride over n elements.

    The number of threads suits the device.
    """
    block = limits.block_for_elements
    cap = min(limits.max_grid[0], limits.max_blocks_for_elements or limits.max_grid[0])
    return min(-(-n // block), cap), block, 0


@_geometry
def by_vectors(limits: DeviceLimits, n: int, widest: int) -> Configuration:
    """Threads that stride over n elements; on a GPU each thread takes 2 or 4 vectors of 16 bytes.

    `widest` is the size of the largest element type in bytes.
    """
    if limits.max_blocks_for_elements:
        return strided(limits)(n)
    vectors = 2 if n * widest < _MANY else 4
    return strided(limits)(-(-n * max(widest, 2) // (16 * vectors)))


@_geometry
def covering(limits: DeviceLimits, n: int) -> Configuration:
    """A thread for each of n elements: the kernel does not stride."""
    return -(-n // limits.block_for_elements), limits.block_for_elements, 0


@_geometry
def block_per_result(
    limits: DeviceLimits,
    results: int,
    elements: int,
    side_by_side: bool = False,
    lanes: int = 1,
) -> Configuration:
    """A block for each of `results`.

    On a GPU a thread takes some of the `elements` of a result. If each of `lanes` lanes of a warp
    takes a result, all warps of a block share the elements of these results.

    On a device with `max_blocks_for_elements`, a launch has at most this number of blocks, and the
    kernel strides over results. On a single processor one block takes all results. Short results
    with elements `side_by_side` still have a block each: the device runs neighboring blocks one
    after the other, and so reads adjacent elements as one stream.
    """
    if not limits.max_blocks_for_elements:
        least = _threads(limits, elements if lanes > 1 else -(-elements // _HELD))
        threads = max(least, min(32, _threads(limits, elements * lanes)))
        # If lanes take results, blocks beyond this number would be idle; otherwise blocks stride.
        return min(results, max(-(-results // lanes), _FILLING), limits.max_grid[0]), threads, 0
    blocks = limits.max_blocks_for_elements
    if limits.processors == 1:
        blocks = 1
    elif side_by_side and elements < _SHORT:
        blocks = limits.max_grid[0]
    return min(results, blocks), _threads(limits, elements), 0


@_geometry
def wide_block_per_row(limits: DeviceLimits, rows: int, columns: int) -> Configuration:
    """A block for each row; its threads are a power of two.

    These kernels do not stride over rows.
    """
    held = columns if limits.max_blocks_for_elements else held_threads(limits, columns)
    return rows, _threads(limits, held), 0


@_geometry
def block_per_part(limits: DeviceLimits, rows: int, parts: int) -> Configuration:
    """A block for each row, and along y for each part of the row."""
    return (rows, parts, 1), min(256, limits.max_threads_per_block), 0


@_geometry
def warp_per_row(limits: DeviceLimits, rows: int) -> Configuration:
    """One warp of 32 for each row, along y."""
    return rows, (1, 32, 1), 0


@_geometry
def block_per_row(limits: DeviceLimits, rows: int, threads: int) -> Configuration:
    """A block of `threads` threads for each row."""
    return rows, threads, 0


@_geometry
def bitonic(limits: DeviceLimits, rows: int, padded: int, itemsize: int) -> Configuration:
    """A block for each row, or run.

    A thread takes pairs of elements. Shared memory has the keys and indices of `padded` elements.
    """
    threads = min(max(1, padded // 2), 1024, limits.max_threads_per_block)
    return rows, threads, keyed_bytes(itemsize) * padded


def keyed_bytes(itemsize: int) -> int:
    """Return the bytes of a key and an index, for elements of `itemsize` bytes."""
    return 12 if itemsize > 4 else 8


@_geometry
def pieces_of_scans(limits: DeviceLimits, pieces: int, columns: int) -> Configuration:
    """A block for each contiguous piece, or a thread for each column of pieces."""
    if columns == 1:
        return min(pieces, limits.max_grid[0]), min(256, limits.max_threads_per_block), 0
    return strided(limits)(pieces * columns)


def tiles(size: int, block: int) -> Geometry:
    """A block for each tile of size x size results.

    Products lie along z.
    """
    return _geometry(
        lambda limits, m, n, products: ((-(-n // size), -(-m // size), products), block, 0)
    )


def lines_by_vectors(lines: int, vectors: int) -> Geometry:
    """A block of `lines` warps for `lines` lines of a matrix, and for `vectors` vectors.

    Products lie along z.
    """
    return _geometry(
        lambda limits, n, m, products: (
            (-(-n // lines), -(-m // vectors), products),
            (32, lines, 1),
            0,
        )
    )


@_geometry
def warp_for_each_row(limits: DeviceLimits, rows: int, vectors: int) -> Configuration:
    """Blocks of four warps, a warp for each row of the weight.

    Vectors lie along y.
    """
    return (-(-rows // 4), vectors, 1), (32, 4, 1), 0


@_geometry
def pieces_of_lines(limits: DeviceLimits, lines: int, least: int, steps: int) -> Configuration:
    """Pieces of lines for a CPU's threads, several a thread, because other programs may slow one.

    Work-items represent `steps`, so that the runtime recognizes short launches.
    """
    most = 1 if limits.processors == 1 else 16 * limits.processors
    pieces = max(1, min(most, lines // least))
    return pieces, max(1, min(limits.max_threads_per_block, steps // pieces >> 12)), 0


@_geometry
def pieces_of_elements(limits: DeviceLimits, n: int) -> Configuration:
    """Pieces of n elements for a CPU's threads."""
    return pieces_of_lines(limits)(n, _LEAST_ELEMENTS, n)


def _threads(limits: DeviceLimits, elements: int) -> int:
    return min(1024, limits.max_threads_per_block, power_of_two(elements))


def held_threads(limits: DeviceLimits, columns: int) -> int:
    """Return the threads of a GPU's block that hold a row in registers, if it is not too long."""
    return max(32, _threads(limits, -(-columns // _HELD)))


def norm_threads(limits: DeviceLimits, columns: int) -> int:
    """Return the threads of a block for the norm of a row."""
    if limits.max_blocks_for_elements:
        return 32 if columns < 1024 else 1024
    return held_threads(limits, columns)


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least `n` > 0."""
    return 1 << (n - 1).bit_length()
