"""Run a six-layer network on any device and compare every value with numpy in double precision.

Inputs and weights are random; the printed seed repeats them. With `--constant` they are constants,
and the result is 0.00272 everywhere. `--table` prints the whole result.

Exit status: 0 the result is right, 1 it is not, 2 a wrong option, 3 it could not be computed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge import Layout, launch_convolution, launch_matmul, launch_unary
from uhal import Api, Device, DeviceBuffer, Event, Stream
from uhal.errors import DeviceError

Matrix = npt.NDArray[np.float32]
Reference = npt.NDArray[np.float64]

LAYERS = (
    ("matmul", "b"),
    ("tanh", None),
    ("matmul", "w1"),
    ("relu", None),
    ("matmul", "w2"),
    ("tanh", None),
    ("convolution", "w3"),
    ("tanh", None),
    ("matmul", "w4"),
    ("tanh", None),
    ("matmul", "w5"),
    ("gelu", None),
)
"""Operations on `a` in order; each has its second operand or None."""

CONSTANTS = {"a": 0.5, "b": 0.5, "w1": 0.01, "w2": 0.02, "w3": 0.03, "w4": 0.04, "w5": 0.05}
KERNEL_SIDE = 3
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Layer:
    """A layer's square result on the device, and the events around its launch."""

    name: str
    side: int
    values: DeviceBuffer
    start: Event
    end: Event

    @property
    def milliseconds(self) -> float:
        """Device time of the layer; the layer must be complete."""
        return self.end.elapsed_since(self.start)

    def to_numpy(self) -> Matrix:
        """Wait for the layer and copy it to the host."""
        return self.values.to_numpy().reshape(self.side, self.side)


def constant_inputs(n: int) -> dict[str, Matrix]:
    """The two inputs and five weights of the original network, n x n each."""
    return {name: np.full((n, n), value, np.float32) for name, value in CONSTANTS.items()}


def random_inputs(n: int, seed: int) -> dict[str, Matrix]:
    """Uniform inputs and weights, scaled so that values keep their size through the layers."""
    generator = np.random.default_rng(seed)
    # Few values may all cancel to zero: small networks use positive values.
    least = 0.1 if n < 16 else -1.0
    scale = np.sqrt(n)
    return {
        name: (generator.uniform(least, 1.0, (n, n)) / scale).astype(np.float32)
        for name in CONSTANTS
    }


def forward(inputs: dict[str, Matrix], stream: Stream) -> list[Layer]:
    """Enqueue the network on the stream and return its layers without waiting for them.

    If a layer needs fewer values than its weight has, the layer takes the first values.
    """
    device = stream.device

    def uploaded(name: str) -> DeviceBuffer:
        return DeviceBuffer.from_numpy(inputs[name].ravel(), device=device, stream=stream)

    side = len(inputs["a"])
    values = uploaded("a")
    layers = []
    for operation, operand in LAYERS:
        out_side = side - KERNEL_SIDE + 1 if operation == "convolution" else side
        out = DeviceBuffer.uninitialized(out_side * out_side, "f32", device=device)
        weight = uploaded(operand) if operand else None
        matrix = Layout.contiguous((side, side))
        start, end = Event(device=device), Event(device=device)
        start.record(stream)
        if weight is None:
            launch_unary(operation, values, matrix, out=out, stream=stream)
        elif operation == "matmul":
            launch_matmul(values, matrix, weight, matrix, out=out, stream=stream)
        else:
            image = Layout.contiguous((1, 1, side, side))
            window = Layout.contiguous((1, 1, KERNEL_SIDE, KERNEL_SIDE))
            launch_convolution("conv2d", values, image, weight, window, out=out, stream=stream)
        end.record(stream)
        values, side = out, out_side
        layers.append(Layer(f"{operation} {operand or ''}".strip(), side, out, start, end))
    return layers


ACTIVATIONS: dict[str, Callable[[Reference], Reference]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def reference(inputs: dict[str, Matrix]) -> list[Reference]:
    """Every layer of the same network, computed by numpy in double precision."""
    values = inputs["a"].astype(np.float64)
    layers = []
    for operation, operand in LAYERS:
        if operand is None:
            values = ACTIVATIONS[operation](values)
        elif operation == "matmul":
            values = values @ inputs[operand].ravel()[: values.size].reshape(values.shape)
        else:
            weight = inputs[operand].ravel()[: KERNEL_SIDE**2].reshape(KERNEL_SIDE, KERNEL_SIDE)
            windows = np.lib.stride_tricks.sliding_window_view(values, weight.shape)
            values = np.einsum("ijkl,kl->ij", windows, weight)
        layers.append(values)
    return layers


def relative_error(got: Matrix, expected: Reference) -> float:
    """The largest difference, relative to the largest value expected (absolute when that is 0)."""
    largest = np.max(np.abs(expected))
    difference = np.max(np.abs(got - expected))
    return float(difference / largest if largest else difference)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        return run(options)
    except (DeviceError, MemoryError, OSError) as error:
        print(error, file=sys.stderr)
        return 3


def run(options: argparse.Namespace) -> int:
    device = Api.quick_init(options.device, backend=options.backend)
    if options.constant:
        inputs = constant_inputs(options.n)
    else:
        inputs = random_inputs(options.n, options.seed)
    with Stream(device=device) as stream:
        if options.time:
            # The first run also loads the kernels, which the measurement excludes.
            forward(inputs, stream)
        layers = forward(inputs, stream)
        stream.synchronize()

    results = [layer.to_numpy() for layer in layers]
    expected = reference(inputs)[-1]
    error = relative_error(results[-1], expected)
    right = error <= TOLERANCE
    if options.save:
        save(options.save, inputs, layers, results)
    if options.json:
        print(json.dumps(report(options, device, layers, results[-1], error)))
        return 0 if right else 1

    print(f"{device.backend}:{device.ordinal} {device.name}")
    inputs_text = "constant" if options.constant else f"random (--seed {options.seed})"
    print(f"{len(LAYERS)} operations on matrices of {options.n} x {options.n}, {inputs_text}")
    if options.time:
        print_times(layers)
    if options.table:
        print_matrix(results[-1])
    print(f"  device, f32  {first_values(results[-1])}")
    print(f"  numpy, f64   {first_values(expected)}")
    print(f"largest error {error:.1e} of the largest value")
    if not right:
        print(f"The result is wrong: at most {TOLERANCE:.0e} is rounding.", file=sys.stderr)
        return 1
    print("Launched compute kernel successfully.")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="network_test", description=(__doc__ or "").partition("\n")[0]
    )
    option = parser.add_argument
    option("--backend", metavar="NAME", help="cuda, rocm, tops, host; default: the first with one")
    option("--device", type=int, default=0, metavar="I", help="ordinal of the device (default 0)")
    option("--n", type=int, default=16, metavar="N", help="side of the matrices (default 16)")
    option("--time", action="store_true", help="print a table of the layers' times")
    option("--json", action="store_true", help="print everything as one JSON object instead")
    option("--save", metavar="FILE.npz", help="write inputs, weights, every layer and the result")
    option("--constant", action="store_true", help="constant inputs and weights, no random ones")
    option("--table", action="store_true", help="print the result as a table")
    option("--seed", type=int, metavar="S", help="seed of the inputs; by default a fresh one")
    options = parser.parse_args(argv)
    if options.n < KERNEL_SIDE:
        parser.error(f"--n {options.n}: the 3 x 3 convolution needs matrices of at least 3 x 3")
    if options.seed is None:
        options.seed = int(np.random.SeedSequence().generate_state(1)[0])
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: a seed is not negative")
    return options


def report(
    options: argparse.Namespace,
    device: Device,
    layers: Sequence[Layer],
    result: Matrix,
    error: float,
) -> dict[str, object]:
    """Output of `--json`."""
    return {
        "backend": device.backend,
        "device": device.ordinal,
        "device_name": device.name,
        "n": options.n,
        "seed": None if options.constant else options.seed,
        "layers": [
            {"name": layer.name, "side": layer.side, "milliseconds": layer.milliseconds}
            for layer in layers
        ],
        "error": error,
        "tolerance": TOLERANCE,
        "right": error <= TOLERANCE,
        "result": result.tolist(),
    }


def save(
    path: str, inputs: dict[str, Matrix], layers: Sequence[Layer], results: Sequence[Matrix]
) -> None:
    """Write everything as `a`, `b`, `w1` …, `layer_01_matmul_b` …, `result`."""
    arrays: dict[str, Any] = {
        f"layer_{position:02}_{layer.name.replace(' ', '_')}": values
        for position, (layer, values) in enumerate(zip(layers, results, strict=True), start=1)
    }
    arrays |= inputs
    np.savez(path, **arrays, result=results[-1])


def print_times(layers: Sequence[Layer]) -> None:
    print("layer  operation       result         milliseconds")
    for position, layer in enumerate(layers, start=1):
        size = f"{layer.side} x {layer.side}"
        print(f"{position:5}  {layer.name:<14}  {size:<11}  {layer.milliseconds:14.4f}")
    total = sum(layer.milliseconds for layer in layers)
    print(f"{'':5}  {'all':<14}  {'':<11}  {total:14.4f}")


def first_values(matrix: npt.NDArray[Any], most: int = 6) -> str:
    """The first values of the first row, as text."""
    return " ".join(f"{value:9.6f}" for value in matrix[0, :most]) + (
        " ..." if matrix.size > most else ""
    )


def print_matrix(matrix: Matrix, most: int = 14) -> None:
    for row in matrix[:most, :most]:
        print(" ".join(f"{value:.5f}" for value in row))
    if len(matrix) > most:
        print(f"(the upper left {most} x {most} of {len(matrix)} x {len(matrix)})")


if __name__ == "__main__":
    sys.exit(main())
