"""Launch one kernel: tanh over a matrix, in place.

Load the module, get the kernel, put data on the device, launch, copy back. A launch returns at
once; `to_numpy` waits for it.
"""

import argparse

import numpy as np

import ubridge
from uhal import Api, DeviceBuffer, LaunchConfig, Stream, launch

TANH = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="a name that 01_devices.py lists")
    device = Api.quick_init(0, backend=parser.parse_args().backend)
    print(f"on {device.backend}:{device.ordinal} {device.name}")

    module = ubridge.load_module("activation")
    activation = module.get_function("activationf32")
    print(f"kernel  {activation.name}({activation.signature})")
    print(f"image   {module.chosen}")

    values = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    data = DeviceBuffer.from_numpy(values.ravel())
    stream = Stream()

    # Arguments are checked against the signature before the device sees them.
    launch(activation, grid=(1,), block=(64,), args=(data, 3, 4, TANH), stream=stream)
    result = data.to_numpy(stream=stream).reshape(3, 4)
    print(result)
    print(f"largest difference from numpy: {np.abs(result - np.tanh(values)).max():.1e}")

    # The same launch in the order of CUDA's <<<grid, block, shared, stream>>>.
    activation[1, 64, 0, stream](data, 3, 4, TANH)

    # In a loop, bind the geometry once; here the device chooses it.
    config = LaunchConfig.for_num_elems(data.size)
    bound = activation[config.grid, config.block, 0, stream]
    for _ in range(10):
        bound(data, 3, 4, TANH)
    stream.synchronize()
    print(f"after eleven more, in blocks of {config.block}: {data[:4].to_numpy()}")


if __name__ == "__main__":
    main()
