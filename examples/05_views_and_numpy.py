"""Move numpy arrays to a device and back, and work on parts of a buffer without copying.

A view shares the memory of its buffer and keeps it alive.
"""

import argparse

import numpy as np

from ubridge import Layout, launch_unary
from uhal import Api, DeviceBuffer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="a name that 01_devices.py lists")
    Api.quick_init(0, backend=parser.parse_args().backend)

    # Any array can be copied; an array with gaps or steps is gathered first.
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    column = DeviceBuffer.from_numpy(grid[:, 1])
    print("column", column.to_numpy())

    # A slice is a view: relu over the middle changes the buffer it belongs to.
    data = DeviceBuffer.from_slice([-1.0, -2.0, -3.0, -4.0, 5.0, -6.0], "f32")
    middle = data[1:5]
    launch_unary("relu", middle, Layout.contiguous(middle.size), out=middle)
    print("data  ", data.to_numpy())

    # A view of a view, and the same bytes as another type.
    print("tail  ", middle[2:].to_numpy())
    print("bits  ", [hex(word) for word in data[4:5].view("u32").to_numpy()])

    # Device to device, between views of one buffer.
    data[0:2].copy_from(data[4:6])
    print("copied", data.to_numpy())

    # numpy has f16; ml_dtypes has the types that numpy lacks, such as bf16.
    halves = DeviceBuffer.from_numpy(np.array([0.1, 65504.0], np.float16))
    print("halves", halves.dtype, halves.nbytes, "bytes", halves.to_numpy())

    # A size of 0 is allowed everywhere.
    empty = DeviceBuffer.zeros(0, "f64")
    print("empty ", empty.size, empty.to_numpy())


if __name__ == "__main__":
    main()
