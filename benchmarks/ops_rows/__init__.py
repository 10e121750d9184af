"""Rows of `benchmarks.ops_host`: each operation as ubridge, numpy and torch spell it.

A row is three Python expressions. An empty expression means that the library has no such
function. `benchmarks.ops` makes the operands, by the names in the expressions. A row with `axis` is
measured along the first and the last axis. Rows without `shapes` are measured at every size.

A test fails if a public function, an operation of the table or a method of tensors has no row here
and no reason in `OUTSIDE`.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ops_rows.arrays import ARRAYS
from benchmarks.ops_rows.axes import AXES
from benchmarks.ops_rows.elementwise import ELEMENTWISE
from benchmarks.ops_rows.networks import NETWORKS
from benchmarks.ops_rows.row import Row
from benchmarks.ops_rows.spelling import spelled

FAMILIES: Mapping[str, tuple[Row, ...]] = {**ELEMENTWISE, **ARRAYS, **AXES, **NETWORKS}
"""Maps a family to its rows."""

OUTSIDE = {
    "load": "reads a file",
    "save": "writes a file",
    "load_module": "opens an image",
    "modules": "lists names",
    "execute_graph": "`benchmarks.graph_replay` measures graphs",
    "trace": "`benchmarks.graph_replay` measures graphs",
    "matmul_choice": "explains a choice",
    "quantized_matmul": "`benchmarks.quantized` compares it with ggml",
    "indexed_matmul": "`benchmarks.quantized` compares it with ggml",
    "all_reduce": "`benchmarks.collectives` measures sums over ranks",
    "all_gather": "`benchmarks.collectives` measures sums over ranks",
    "__array__": "is `to_numpy`",
    "__array_function__": "refuses calls of numpy",
    "__array_namespace__": "returns a module",
    "to_device": "copies between devices",
    "__array_ufunc__": "is an operator with a number of numpy on the left",
    "__dlpack_device__": "returns two constants",
    "__reduce__": "is for pickle",
}
"""Public names without a row, and the reason."""

__all__ = ["FAMILIES", "OUTSIDE", "Row", "spelled"]
