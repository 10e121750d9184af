"""Checks of a whole kernel: `counting_sort` of kernels/language.cu."""

from __future__ import annotations

import numpy as np

from uhal import DeviceBuffer, Function


def sort(kernel: Function, rng: np.random.Generator) -> None:
    values = rng.integers(0, 256, 3000, "u1")
    counts, indices = DeviceBuffer.zeros(256, "u32"), DeviceBuffer.zeros(values.size, "u32")
    kernel[1, 256](values.size, DeviceBuffer.from_numpy(values), counts, indices)
    assert np.array_equal(counts.to_numpy(), np.bincount(values, minlength=256))
    by_index = np.empty_like(values)
    by_index[indices.to_numpy()] = values
    assert np.array_equal(by_index, np.sort(values))
