"""Lowerings for quantized weights: their elements, and products with vectors of f32.

Products with vectors of 8 bits are in `block_products` for CPUs and in `q8_1` for GPUs.
"""

from __future__ import annotations

from ubridge.core.kernel_def import KernelDef, strided, warp_for_each_row
from ubridge.core.lowering import Launches, Lowerings, Steps
from ubridge.core.question import Question
from ubridge.definitions.products import BLOCK_ELEMENTS, QUANTIZED_MATVEC


def _matvec(question: Question, steps: Steps) -> None:
    weight, x = steps.operands
    (vectors, columns), rows = question.layout(1).shape, question.shape[-1]
    most = steps.limits.max_grid[1]
    for first in range(0, vectors, most):
        steps.launch(
            (rows, min(most, vectors - first)),
            x.dtype,
            vx=weight,
            y=x[first * columns :],
            dst=steps.result[first * rows :],
            ncols=columns,
            nrows=rows,
        )


def _elements(question: Question, steps: Steps) -> None:
    size = steps.result.size
    # A work-item takes four elements on a GPU, and more on the host.
    steps.launch(
        (size // 4,), steps.result.dtype, numel=size, blocks=steps.operands[0], out=steps.result
    )


LOWERINGS: Lowerings = {
    QUANTIZED_MATVEC: Launches(_matvec, KernelDef("blocks", "{root}_{format}", warp_for_each_row)),
    BLOCK_ELEMENTS: Launches(_elements, KernelDef("blocks", "{root}_{format}_{dtype}", strided)),
}
