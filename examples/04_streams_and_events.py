"""Run work side by side on two streams, order it with an event, and time it.

Work on one stream runs in order. Work on two streams is unordered, unless a stream waits for the
other's event.
"""

import argparse

import numpy as np

from ubridge import Layout, launch_matmul
from uhal import Api, DeviceBuffer, Event, HostBuffer, Stream, StreamFlags

N = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="a name that 01_devices.py lists")
    Api.quick_init(0, backend=parser.parse_args().backend)

    left = np.random.default_rng(1).uniform(-1, 1, (N, N)).astype(np.float32)
    right = np.eye(N, dtype=np.float32)[::-1].copy()
    a = DeviceBuffer.from_numpy(left.ravel())
    b = DeviceBuffer.from_numpy(right.ravel())
    product = DeviceBuffer.uninitialized(N * N, "f32")
    square = Layout.contiguous((N, N))
    # Copies to and from pinned memory do not block the program.
    pinned = HostBuffer(N * N, "f32")

    with Stream(StreamFlags.NON_BLOCKING) as compute, Stream(StreamFlags.NON_BLOCKING) as copy:
        start, end = Event(), Event()
        start.record(compute)
        launch_matmul(a, square, b, square, out=product, stream=compute)
        end.record(compute)

        # Without this line the copy could read the product before it is computed.
        copy.wait_event(end)
        product.copy_to_async(pinned, copy)
        copy.add_callback(print, "callback: the copy is complete")
        print(f"everything is enqueued; the copy is {'complete' if copy.query() else 'under way'}")

        copy.synchronize()
        assert np.array_equal(pinned.array.reshape(N, N), left[:, ::-1])
        print(f"{N} x {N} product: {end.elapsed_since(start):.3f} ms on the device, right")


if __name__ == "__main__":
    main()
