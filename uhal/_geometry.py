"""Checks a launch's grid, block and shared memory against the device's and kernel's limits."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from uhal._lane import Stream
from uhal._refusal import as_int, describe, describe_size, refuse
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

if TYPE_CHECKING:
    from uhal._lane import Function
    from uhal.launch_config import LaunchConfig

_AXES = "xyz"


def refuse_geometry(function: Function, grid: object, block: object, shared: object) -> NoReturn:
    """Raise `ArgumentValueError` naming the first fault of the geometry."""
    fault = find_geometry_fault(function, grid, block, shared)
    where, problem = fault or (
        "geometry",
        f"expected ints or tuples of them, got grid {describe(grid)}, block {describe(block)}, "
        f"shared {describe(shared)}",
    )
    _refuse(function, where, problem)


def refuse_call(function: Function) -> NoReturn:
    """Raise the error of a kernel called without a launch geometry."""
    refuse(
        f"{function.name}, geometry",
        f"expected a grid and a block: {function.name}[grid, block](…), got none",
        ArgumentTypeError,
        function.context.backend_name,
    )


def find_geometry_fault(
    function: Function, grid: object, block: object, shared: object
) -> tuple[str, str] | None:
    """Return (what, problem) of the first fault, `None` for a valid launch."""
    limits = function.context.limits
    attributes = function.attributes
    return (
        _extent_fault("grid", grid, limits.max_grid)
        or _extent_fault("block", block, limits.max_block)
        or _threads_fault(
            block, min(limits.max_threads_per_block, attributes.max_threads_per_block)
        )
        or _grid_threads_fault(grid, block, limits.max_grid_threads)
        or _shared_fault(function, shared)
    )


def read_extended(
    function: Function, config: LaunchConfig, grid: tuple[int, int, int]
) -> tuple[tuple[int, int, int] | None, bool, int | None]:
    """Return (cluster, cooperative, priority) of a launch of `grid` blocks; raise on a fault."""
    cluster = None
    if config.cluster is not None:
        cluster = _read_cluster(function, config.cluster, grid)
    if not isinstance(config.cooperative, (bool, np.bool_)):
        _refuse(function, "cooperative", f"expected a bool, got {describe(config.cooperative)}")
    if config.priority is None:
        return cluster, bool(config.cooperative), None
    priority = as_int(config.priority)
    if priority is None:
        _refuse(function, "priority", f"expected an int or None, got {describe(config.priority)}")
    context = function.context
    least, greatest = context.backend.priority_range(context.ordinal)
    return cluster, bool(config.cooperative), min(max(priority, greatest), least)


def refuse_extended(function: Function, config: LaunchConfig) -> NoReturn:
    """Raise `NotSupportedError`: the driver launches with geometry alone."""
    asked = [
        name
        for name, given in (
            ("cluster", config.cluster is not None),
            ("cooperative", config.cooperative),
            ("priority", config.priority is not None),
        )
        if given
    ]
    context = function.context
    missing = context.backend.hot_table.names.get("launch_ex")
    lacks = f" (it lacks {missing})" if missing else ""
    refuse(
        f"{function.name}, config",
        f"{' and '.join(asked)}: this {context.backend_name} driver has no launch that takes more "
        f"than geometry{lacks}",
        NotSupportedError,
        context.backend_name,
    )


def _read_cluster(
    function: Function, cluster: object, grid: tuple[int, int, int]
) -> tuple[int, int, int]:
    fault = _extent_fault("cluster", cluster, function.context.limits.max_grid)
    if fault is not None:
        _refuse(function, *fault)
    given = cluster if isinstance(cluster, tuple) else (cluster,)
    sizes = [operator.index(size) for size in given] + [1] * (3 - len(given))
    for axis, blocks, size in zip(_AXES, grid, sizes, strict=True):
        if blocks % size:
            problem = f"expected a divisor of the {blocks} blocks of the grid, got {size}"
            _refuse(function, f"cluster {axis}", problem)
    most = function.context.limits.max_cluster_blocks
    blocks = sizes[0] * sizes[1] * sizes[2]
    if most is not None and blocks > most:
        problem = f"expected at most {most} blocks on this device, got {blocks}: {cluster!r}"
        _refuse(function, "cluster", problem)
    return sizes[0], sizes[1], sizes[2]


def _extent_fault(what: str, extent: object, most: tuple[int, int, int]) -> tuple[str, str] | None:
    sizes = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(sizes) <= 3 or (sizes[0] is extent and as_int(extent) is None):
        return what, f"expected an int or a tuple of 1 to 3 ints, got {describe(extent)}"
    for axis, size, limit in zip(_AXES, sizes, most, strict=False):
        count = as_int(size)
        if count is None or not 1 <= count <= limit:
            return f"{what} {axis}", f"expected an int in 1…{limit}, got {describe_size(size)}"
    return None


def _threads_fault(block: object, most: int) -> tuple[str, str] | None:
    threads = 1
    for size in block if isinstance(block, tuple) else (block,):
        threads *= operator.index(size)
    if threads > most:
        return "block", f"expected at most {most} threads in a block, got {threads}: {block!r}"
    return None


def _grid_threads_fault(grid: object, block: object, most: int | None) -> tuple[str, str] | None:
    if most is None:
        return None
    given = (extent if isinstance(extent, tuple) else (extent,) for extent in (grid, block))
    padded = ([*map(operator.index, extent), 1, 1][:3] for extent in given)
    for axis, blocks, threads in zip(_AXES, *padded, strict=True):
        if blocks * threads > most:
            return (
                f"grid {axis}",
                f"expected at most {most} threads along an axis of the grid, got {blocks} blocks "
                f"of {threads}",
            )
    return None


def _shared_fault(function: Function, shared: object) -> tuple[str, str] | None:
    attributes = function.attributes
    static = attributes.static_shared_bytes or 0
    most = attributes.max_dynamic_shared_bytes
    if most is None:
        most = max(function.context.limits.max_shared_bytes_per_block - static, 0)
    count = as_int(shared)
    if count is not None and 0 <= count <= most:
        return None
    besides = f" (the kernel itself takes {static} more)" if static else ""
    problem = f"expected an int of bytes in 0…{most}{besides}, got {describe_size(shared)}"
    if isinstance(shared, Stream):
        problem += f"; a stream comes after it: {function.name}[grid, block, 0, stream]"
    return "shared", problem


def _refuse(function: Function, where: str, problem: str) -> NoReturn:
    refuse(f"{function.name}, {where}", problem, ArgumentValueError, function.context.backend_name)
