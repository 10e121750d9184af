"""numpy's forms of the operations in `benchmarks.ops_host`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.ops import Array, Inputs, run


class Numpy:
    name = "numpy"

    def operations(self, inputs: Inputs, columns: int) -> dict[str, Callable[[], Any]]:
        x, y, row, narrow = inputs.x, inputs.y, inputs.row, inputs.narrow
        condition, rows, indices = inputs.condition, inputs.rows, inputs.indices
        ones = np.ones(columns, np.float32)

        def softmax() -> Array:
            powers = x - x.max(-1, keepdims=True)
            np.exp(powers, out=powers)
            powers /= powers.sum(-1, keepdims=True)
            return powers

        def layer_norm() -> Array:
            centered = x - x.mean(-1, keepdims=True)
            variance = np.einsum("rc,rc->r", centered, centered)[:, None] / np.float32(columns)
            centered /= np.sqrt(variance + np.float32(1e-5))
            centered *= ones
            centered += row
            return centered

        def rms_norm() -> Array:
            squares = np.einsum("rc,rc->r", x, x)[:, None] / np.float32(columns)
            result = x / np.sqrt(squares + np.float32(1e-5))
            result *= row
            return result

        return {
            "add": lambda: x + y,
            "multiply by a number": lambda: x * 1.5,
            "add a row": lambda: x + row,
            "exp": lambda: np.exp(x),
            "tanh": lambda: np.tanh(x),
            "relu": lambda: np.maximum(x, 0),
            "where": lambda: np.where(condition, x, y),
            "cast to f64": lambda: x.astype(np.float64),
            "copy transposed": lambda: np.ascontiguousarray(x.T),
            "sum": lambda: x.sum(),
            "sum of rows": lambda: x.sum(-1),
            "sum of rows of 16": lambda: narrow.sum(-1),
            "sum of columns": lambda: x.sum(0),
            "mean": lambda: x.mean(),
            "largest of rows": lambda: x.max(-1),
            "index of largest of rows": lambda: x.argmax(-1),
            "softmax": softmax,
            "layer norm": layer_norm,
            "rms norm": rms_norm,
            "take rows": lambda: x.take(rows, 0),
            "gather": lambda: np.take_along_axis(x, indices, 0),
        }

    def product(self, x: Array, y: Array) -> Callable[[], Any]:
        return lambda: x @ y

    def wait(self) -> None:
        pass

    def to_numpy(self, result: Any) -> Array:
        return np.asarray(result)

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__}


if __name__ == "__main__":
    run(Numpy())
