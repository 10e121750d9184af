"""A program of a user with ten typos; a comment marks each. `build_support.typos` checks it."""

import numpy as np

import ubridge as ub
import uhal
from uhal import Api, DeviceBuffer, Event, HostBuffer, Module, Stream, launch

device = Api.quick_init(backend="host")
x = DeviceBuffer.from_numpy(np.ones(8, np.float32))
y = DeviceBuffer.zeros(8)  # typo: the dtype is missing
module = Module.from_fille("kernels.so")  # typo
function = Module.from_file("kernels.so").get_function("saxpy", sig="u64 n")  # typo
launch(function, grid=(1,), blocks=(8,), args=(8, 2.0, x, x))  # typo
stream = Stream(devise=device)  # typo
elapsed: str = Event().elapsed_since(Event())  # typo: a float
total = x + x  # typo: a buffer has no arithmetic
host = HostBuffer("8", "f32")  # typo: the size is text
t = ub.softmax(ub.ones((2, 3)), axes=-1)  # typo
names: list[int] = uhal.Api.backends()  # typo: records

# These lines are right.
launch(function, grid=(1,), block=(8,), args=(8, 2.0, x, x))
z = ub.softmax(ub.ones((2, 3)) @ ub.ones((3, 4)), axis=-1).to_numpy()
with Stream(device=device) as other, uhal.profile() as found:
    x.copy_to_async(host, other)
print(found, z.shape, module, y, stream, elapsed, total, t, names)
