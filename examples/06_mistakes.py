"""Ten wrong launches and their messages. None of them reaches the device.

Messages count arguments from 0, use the kernel's own names, and end with the caller's line.
"""

import argparse
from collections.abc import Callable

import numpy as np

import ubridge
from uhal import Api, DeviceBuffer, launch
from uhal.errors import DeviceError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="a name that 01_devices.py lists")
    Api.quick_init(0, backend=parser.parse_args().backend)

    kernel = ubridge.load_module("batch_matmul_legacy").get_function("batch_matmul_legacy")
    a, b, out = (DeviceBuffer.zeros(256, "f32") for _ in range(3))
    doubles = DeviceBuffer.zeros(256, "f64")
    closed = DeviceBuffer.zeros(256, "f32")
    closed.close()
    run = kernel[1, (16, 16)]

    mistakes: tuple[Callable[[], None], ...] = (
        lambda: run(a, b, out, 16, 16),
        lambda: run(a, b, out, 16, 16, -1),
        lambda: run(a, b, out, 16, 16, 16.0),
        lambda: run(a, b, out, 16, 16, np.uint64(16)),
        lambda: run(a, b, doubles, 16, 16, 16),
        lambda: run(a, b, closed, 16, 16, 16),
        lambda: run(np.zeros(256, np.float32), b, out, 16, 16, 16),
        lambda: run(a, b, 140_000_000, 16, 16, 16),
        lambda: kernel[0, (16, 16)](a, b, out, 16, 16, 16),
        lambda: launch(kernel, 1, (64, 64), (a, b, out, 16, 16, 16)),
    )
    for number, mistake in enumerate(mistakes, start=1):
        try:
            mistake()
        except DeviceError as error:
            print(f"{number:2}  {type(error).__name__}: {error}")

    # Nothing was launched, and the device still works.
    run(a, b, out, 16, 16, 16)
    assert not out.to_numpy().any()


if __name__ == "__main__":
    main()
