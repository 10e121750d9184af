"""ubridge's host forms of the operations in `benchmarks.ops_host`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ubridge
import uhal
from benchmarks.ops import Array, Inputs, run


class Ubridge:
    name = "ubridge"

    def __init__(self) -> None:
        self._device = uhal.Api.quick_init(0, backend="host")

    def operations(self, inputs: Inputs, columns: int) -> dict[str, Callable[[], Any]]:
        x, y, row, narrow, condition, rows, indices = map(
            ubridge.asarray,
            (
                *(inputs.x, inputs.y, inputs.row, inputs.narrow),
                *(inputs.condition, inputs.rows, inputs.indices),
            ),
        )
        ones = ubridge.ones(columns)
        return {
            "add": lambda: x + y,
            "multiply by a number": lambda: x * 1.5,
            "add a row": lambda: x + row,
            "exp": lambda: ubridge.exp(x),
            "tanh": lambda: ubridge.tanh(x),
            "relu": lambda: ubridge.relu(x),
            "where": lambda: ubridge.where(condition, x, y),
            "cast to f64": lambda: x.astype("f64"),
            "copy transposed": lambda: x.T.contiguous(),
            "sum": lambda: x.sum(),
            "sum of rows": lambda: x.sum(-1),
            "sum of rows of 16": lambda: narrow.sum(-1),
            "sum of columns": lambda: x.sum(0),
            "mean": lambda: x.mean(),
            "largest of rows": lambda: x.max(-1),
            "index of largest of rows": lambda: x.argmax(-1),
            "softmax": lambda: ubridge.softmax(x),
            "layer norm": lambda: ubridge.layer_norm(x, ones, row),
            "rms norm": lambda: ubridge.rms_norm(x, row),
            "take rows": lambda: ubridge.take(x, rows),
            "gather": lambda: ubridge.gather(x, indices, 0),
        }

    def product(self, x: Array, y: Array) -> Callable[[], Any]:
        left, right = ubridge.asarray(x), ubridge.asarray(y)
        return lambda: left @ right

    def wait(self) -> None:
        self._device.synchronize()

    def to_numpy(self, result: Any) -> Array:
        found: Array = result.to_numpy()
        return found

    def versions(self) -> dict[str, str]:
        left = right = ubridge.ones((1, 1))
        return {"uhal": uhal.__version__, "product": ubridge.matmul_choice(left, right).kernel}


if __name__ == "__main__":
    run(Ubridge())
