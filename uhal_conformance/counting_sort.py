"""A whole kernel, checked: `counting_sort` of kernels/language.cu."""

from __future__ import annotations

import numpy as np

from uhal import DeviceBuffer, Function


def sort(kernel: Function, rng: np.random.Generator) -> None:
    values = rng.integers(0, 256, 3000, "u1")
    counts, places = DeviceBuffer.zeros(256, "u32"), DeviceBuffer.zeros(values.size, "u32")
    kernel[1, 256](values.size, DeviceBuffer.from_numpy(values), counts, places)
    assert np.array_equal(counts.to_numpy(), np.bincount(values, minlength=256))
    by_place = np.empty_like(values)
    by_place[places.to_numpy()] = values
    assert np.array_equal(by_place, np.sort(values))
