"""A simulated S60 that a test launches Ubridge's entries on, all of its SIPs at once."""

from __future__ import annotations

import numpy as np

from tests.simulated.gcu.reference import Array, decoded, encoded
from ubridge import load_module
from uhal import Device, DeviceBuffer, launch

SIPS = 24
"""Number of threads of a whole S60, and of every launch."""
POISON = 0xA5


class Gcu:
    """A simulated S60 that launches entries on all its SIPs."""

    def __init__(self, device: Device, rng: np.random.Generator) -> None:
        self.device = device
        self.rng = rng

    def put(self, values: Array, dtype: str) -> DeviceBuffer:
        return DeviceBuffer.from_numpy(encoded(np.ascontiguousarray(values), dtype)).view(dtype)

    def out(self, size: int, dtype: str) -> DeviceBuffer:
        """Return a poisoned buffer for a result, with space after it."""
        buffer = DeviceBuffer.uninitialized(size + 2 * SIPS, dtype)
        buffer.set_8(POISON)
        return buffer

    def run(
        self, module: str, entry: str, *arguments: object, shared: int = 0, blocks: int = 2
    ) -> None:
        kernel = load_module(module, device=self.device).get_function(entry)
        launch(kernel, blocks, 12, arguments, shared=self.device.limits.shared_bytes_for(shared))

    def got(self, buffer: DeviceBuffer, size: int, dtype: str, written: int | None = None) -> Array:
        """Return the result, after a check that exactly `written` elements have lost their
        poison."""
        bits = buffer.view("u16" if dtype == "bf16" else dtype).to_numpy()
        rest = bits[size if written is None else written :]
        assert (rest.view("u1") == POISON).all()
        if written is not None:
            assert (bits[size:written].view("u1") != POISON).any()
        return decoded(bits[:size], dtype)
