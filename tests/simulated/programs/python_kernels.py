"""Kernels of uhal.ptx, loaded by cuda.core and by numba's driver without uhal."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, ObjectCode, launch
from numba import cuda
from numba.cuda.cudadrv import driver

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
names = sorted(path.stem for path in folder.glob("*.ptx"))
assert len(names) == 10
x, y = np.random.default_rng(seed).standard_normal((2, 1000), dtype=np.float32)
expected = (1.5 * x.astype(np.float64) + y).astype(np.float32)  # rounded once

device = Device(0)
device.set_current()
stream = device.create_stream()
kernels = {
    name: ObjectCode.from_ptx(str(folder / f"{name}.ptx")).get_kernel(name) for name in names
}
assert kernels["saxpy"].num_arguments == 4
memory = LegacyPinnedMemoryResource()
on_host = [memory.allocate(one.nbytes) for one in (x, y)]
on_device = [device.allocate(one.nbytes, stream=stream) for one in (x, y)]
for values, host, buffer in zip((x, y), on_host, on_device, strict=True):
    np.from_dlpack(host).view(np.float32)[:] = values
    buffer.copy_from(host, stream=stream)
arguments = (np.uint32(x.size), np.float32(1.5), *on_device)
launch(stream, LaunchConfig(grid=4, block=64), kernels["saxpy"], *arguments)
on_device[1].copy_to(on_host[1], stream=stream)
stream.sync()
np.testing.assert_array_equal(np.from_dlpack(on_host[1]).view(np.float32), expected)

context = cuda.current_context()
functions = {}
for name in names:
    module = context.create_module_ptx((folder / f"{name}.ptx").read_bytes())
    functions[name] = module.get_function(name)
given = [cuda.to_device(one) for one in (x, y)]
driver.launch_kernel(
    functions["saxpy"].handle,
    *(4, 1, 1),
    *(64, 1, 1),
    0,
    0,
    [ctypes.c_uint32(x.size), ctypes.c_float(1.5), *(one.device_ctypes_pointer for one in given)],
)
np.testing.assert_array_equal(given[1].copy_to_host(), expected)
