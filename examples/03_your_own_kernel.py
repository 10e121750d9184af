"""Compile a kernel of your own with the system's C++ compiler, load the result and launch it.

The kernel is `03_your_own_kernel.cu`, beside this file. `python -m uhal cflags` prints the options
a compiler needs. Kernels for GPUs are compiled by their vendor's compiler instead.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from uhal import Api, DeviceBuffer, LaunchConfig, Module, launch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="host", help="only host: CPUs need no other compiler")
    device = Api.quick_init(0, backend=parser.parse_args().backend)
    if device.backend != "host":
        sys.exit("This example compiles for CPUs: run it with --backend host.")

    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "saxpy.so"
        compile_kernel(Path(__file__).with_suffix(".cu"), image)
        module = Module.from_file(image)
    print("kernels", module.kernels)
    saxpy = module.get_function("saxpy")
    print("signature", saxpy.signature)

    n = 1_000_000
    x = np.linspace(0, 1, n, dtype=np.float32)
    on_device = DeviceBuffer.from_numpy(x)
    y = DeviceBuffer.zeros(n, "f32")
    moved = DeviceBuffer.uninitialized(n, "f32")
    launch(saxpy, config=LaunchConfig.for_num_elems(n), args=(n, 2.0, on_device, y, moved))
    assert np.array_equal(y.to_numpy(), 2 * x)
    print(f"y = 2 x + y over {n} elements: right")


def compile_kernel(source: Path, image: Path) -> None:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        sys.exit(f"No compiler {compiler[0]}: apt-get install g++, or set CXX to the one you have.")
    options = subprocess.check_output([sys.executable, "-m", "uhal", "cflags"], text=True)
    command = [*compiler, *shlex.split(options), "-x", "c++", str(source), "-o", str(image)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
