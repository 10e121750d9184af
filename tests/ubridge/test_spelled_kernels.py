"""Candle's two other spellings of f8e4m3, `f8_e4m3` and `fp8_e4m3`: copies of the same kernels.

An entry and its twin get the same arguments, named alike in every family, and must write the same
bytes. Other tests check the bytes of the plainly spelled entries.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ubridge
from tests.ubridge.kernel_bench import Output, random_geometry, random_values, run
from uhal import Device, DeviceBuffer
from uhal.signature import Parameter, Signature

pytestmark = pytest.mark.entries

SIZES = {
    "numel": 60,
    "num_dims": 1,
    "left": 3,
    "src_dim": 4,
    "ids_dim": 4,
    "dst_dim": 4,
    "right": 5,
    "d1": 5,
    "d2": 10,
    "src_s": 12,
    "dst_s": 11,
}
ELEMENTS = 64
"""Size of every array, larger than the sizes above need."""


def twins() -> dict[str, tuple[str, str]]:
    """Return each entry in another spelling → its module and its plainly spelled entry."""
    found = {}
    for module in ubridge.modules():
        entries = signatures(module)
        for entry in entries:
            plain = re.sub("fp?8_e4m3", "f8e4m3", entry)
            if plain != entry and plain in entries:
                found[entry] = (module, plain)
    return found


def signatures(module: str) -> dict[str, Signature]:
    sidecar = ubridge.device.images.KERNELS / "images" / "cuda" / f"{module}.fatbin.gz.sig"
    return dict(Signature.parse_sidecar(sidecar.read_text("utf-8")))


TWINS = twins()


def argument(rng: np.random.Generator, parameter: Parameter) -> Any:
    """An argument for both kernels; for an output, its initial contents."""
    name = parameter.name
    assert name is not None and parameter.dtype is not None
    if name in SIZES:
        return SIZES[name]
    if name in ("info", "dims_and_strides"):
        return None
    dtype = parameter.dtype.name
    if name == "ids":
        return rng.integers(0, SIZES["src_dim"], ELEMENTS).astype(parameter.dtype.dtype)
    values = random_values(rng, dtype, ELEMENTS, special=False)
    return values if parameter.is_pointer else values[0]


@pytest.mark.parametrize("entry", TWINS)
def test_the_same_bytes(device: Device, rng: np.random.Generator, entry: str) -> None:
    module, plain = TWINS[entry]
    parameters = list(signatures(module)[plain])
    given = [argument(rng, parameter) for parameter in parameters]
    geometry = random_geometry(rng)
    written = []
    for spelled in (plain, entry):
        arguments = list(given)
        for number, parameter in enumerate(parameters):
            if not parameter.is_pointer or given[number] is None:
                continue
            if parameter.is_const:
                arguments[number] = DeviceBuffer.from_numpy(given[number])
            else:
                assert parameter.dtype is not None
                output = Output.holding(parameter.dtype.name, given[number])
                arguments[number] = output.buffer
        run(device, module, spelled, *arguments, **geometry)
        written.append(output.to_numpy().tobytes())
    assert written[0] == written[1]
    before = next(
        values
        for values, parameter in zip(given, parameters, strict=True)
        if parameter.is_pointer and not parameter.is_const and values is not None
    )
    assert written[0] != before.tobytes(), "nothing was written"
