"""torch's CPU forms of the operations in `benchmarks.ops_host`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from benchmarks.ops import Array, Inputs, run


class Torch:
    name = "torch"

    def operations(self, inputs: Inputs, columns: int) -> dict[str, Callable[[], Any]]:
        x, y, row, narrow, condition, rows, indices = map(
            torch.from_numpy,
            (
                *(inputs.x, inputs.y, inputs.row, inputs.narrow),
                *(inputs.condition, inputs.rows, inputs.indices),
            ),
        )
        ones = torch.ones(columns)
        return {
            "add": lambda: x + y,
            "multiply by a number": lambda: x * 1.5,
            "add a row": lambda: x + row,
            "exp": lambda: torch.exp(x),
            "tanh": lambda: torch.tanh(x),
            "relu": lambda: torch.relu(x),
            "where": lambda: torch.where(condition, x, y),
            "cast to f64": lambda: x.double(),
            "copy transposed": lambda: x.T.contiguous(),
            "sum": lambda: x.sum(),
            "sum of rows": lambda: x.sum(-1),
            "sum of rows of 16": lambda: narrow.sum(-1),
            "sum of columns": lambda: x.sum(0),
            "mean": lambda: x.mean(),
            "largest of rows": lambda: x.amax(-1),
            "index of largest of rows": lambda: x.argmax(-1),
            "softmax": lambda: torch.softmax(x, -1),
            "layer norm": lambda: functional.layer_norm(x, (columns,), ones, row, 1e-5),
            "rms norm": lambda: functional.rms_norm(x, (columns,), row, 1e-5),
            "take rows": lambda: torch.index_select(x, 0, rows),
            "gather": lambda: torch.gather(x, 0, indices),
        }

    def product(self, x: Array, y: Array) -> Callable[[], Any]:
        left, right = torch.from_numpy(x), torch.from_numpy(y)
        return lambda: left @ right

    def wait(self) -> None:
        pass

    def to_numpy(self, result: Any) -> Array:
        found: Array = result.numpy()
        return found

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}


if __name__ == "__main__":
    torch.set_num_threads(len(sys.argv) - 1)
    torch.set_grad_enabled(False)
    run(Torch())
