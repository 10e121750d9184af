"""Extreme values for every public int parameter raise uhal's exceptions, and never a signal.

The parameters come from the signatures of all public names of `uhal` and `uhal.frameworks`; for
compiled classes they come from the stub. A parameter of a new kind needs a sample below.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import random
import re
import resource
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import uhal
import uhal.frameworks
from tests.children import run_child
from tests.host_kernels import build
from uhal import _lane
from uhal_conformance.sampling import rounds

STUB = Path(uhal.__file__).with_name("_lane.pyi")
INTEGERS = re.compile(r"\b(int|Dim3|slice|SupportsIndex|_?LaunchConfig)\b")
# Precise annotations for parameters whose annotation is too general.
UNTOLD = {"Function.__getitem__.configuration": "tuple[Dim3, Dim3, int]"}

EXTREMES: tuple[int, ...] = tuple(
    sign * 2**bits + off
    for bits in (0, 7, 8, 15, 16, 30, 31, 32, 33, 47, 60, 61, 62, 63, 64, 65, 128)
    for sign in (1, -1)
    for off in (-1, 0, 1)
)

# These are exempt: plain records, and addresses and handles of native memory, which the driver
# trusts.
EXEMPT = {
    "DType.__init__": "a row of the table of dtypes",
    "Context.__new__": "an opened device's token; uhal.registry alone makes one",
    "Context.watch_reports.word": "memory that is read at every wait",
    "Context.unwatch_reports.word": "the same",
    "Function.__init__": "a kernel's handle; Module.get_function alone makes one",
    "Stream.from_handle.handle": "another library's stream",
}


@dataclass(frozen=True)
class Place:
    """One parameter, and its owner."""

    owner: str
    function: str
    parameter: str
    annotation: str
    names: tuple[tuple[str, str, bool, str], ...]
    """(name, annotation, whether it has a default, kind) of all parameters."""

    def __str__(self) -> str:
        return ".".join(filter(None, (self.owner, self.function, self.parameter)))


def public() -> Iterator[tuple[str, Any]]:
    for module in (uhal, uhal.frameworks):
        for name in module.__all__:
            found = getattr(module, name)
            if callable(found) and not (
                isinstance(found, type) and issubclass(found, (BaseException, int))
            ):
                yield name, found


def stubbed() -> dict[tuple[str, str], tuple[tuple[str, str, bool, str], ...]]:
    """Return (class or "", function) → its parameters, for the whole stub."""
    found = {}
    for node in ast.parse(STUB.read_text("utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for one in inner:
            if isinstance(one, ast.FunctionDef):
                owner = node.name if isinstance(node, ast.ClassDef) else ""
                setter = any("setter" in ast.unparse(mark) for mark in one.decorator_list)
                key = (owner, f"{one.name}=" if setter else one.name)
                found[key] = tuple(parameters_of(one.args))
    return found


def parameters_of(arguments: ast.arguments) -> Iterator[tuple[str, str, bool, str]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    first = len(positional) - len(arguments.defaults)
    for index, one in enumerate(positional):
        if one.arg not in ("self", "cls"):
            kind = "positional" if one in arguments.posonlyargs else "any"
            yield one.arg, ast.unparse(one.annotation or ast.Constant(0)), index >= first, kind
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield one.arg, ast.unparse(one.annotation or ast.Constant(0)), default is not None, "named"


def inspected(function: Any) -> tuple[tuple[str, str, bool, str], ...]:
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "any",
        inspect.Parameter.KEYWORD_ONLY: "named",
    }
    return tuple(
        (name, str(one.annotation), one.default is not one.empty, kinds[one.kind])
        for name, one in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and one.kind in kinds
    )


def places() -> Iterator[Place]:
    """Return every parameter that takes an int, alone or in a tuple, a sequence or a slice."""
    stub = stubbed()
    for name, found in public():
        functions: dict[tuple[str, str], tuple[tuple[str, str, bool, str], ...]]
        if isinstance(found, type) and vars(_lane).get(name) is found:
            functions = {key: value for key, value in stub.items() if key[0] == name}
        elif isinstance(found, type):
            functions = {
                (name, attribute): inspected(getattr(found, attribute))
                for attribute, value in vars(found).items()
                if isinstance(value, (types.FunctionType, classmethod, staticmethod))
                and (attribute == "__init__" or not attribute.startswith("_"))
                and not (attribute == "__init__" and dataclasses.is_dataclass(found))
            }
        elif ("", name) in stub:
            functions = {("", name): stub["", name]}
        else:
            functions = {("", name): inspected(found)}
        for (owner, function), parameters in functions.items():
            for parameter, annotation, *_ in parameters:
                annotation = UNTOLD.get(f"{owner}.{function}.{parameter}", annotation)
                place = Place(owner, function, parameter, annotation, parameters)
                if INTEGERS.search(re.sub(r"Callable\[.*\]", "", annotation)) and not (
                    {str(place), f"{owner}.{function}"} & set(EXEMPT)
                ):
                    yield place


class Samples:
    """Values for all other parameters, and objects with the methods under test."""

    def __init__(self, device: uhal.Device, image: Path) -> None:
        self.device = device
        self.module = uhal.Module.from_file(image)
        self.kernel = self.module.get_function("nothing")
        self.buffer = uhal.DeviceBuffer.zeros(24, "u32")
        self.other = uhal.DeviceBuffer.zeros(24, "u32")
        self.host = uhal.HostBuffer(24, "u32")
        self.stream = uhal.Stream()
        self.array = np.zeros((4, 6), "u4")
        with uhal.profile(measure_copy=False) as self.profile:
            uhal.launch(self.kernel, 1, 1)
        memory = (self.other, self.host, self.array)
        self.choices: dict[str, Sequence[Any]] = {
            "args": ((),),
            "array": (self.array,),
            "address": (2**40,),
            "block": (1,),
            "buffer": (self.buffer,),
            "destination": memory,
            "device": (device,),
            "dtype": ("u8", "u32", "f64"),
            "element": ("u32",),
            "function": (self.kernel,),
            "graphs": ("nodes",),
            "grid": (1,),
            "index": (0, 1),
            "layout": ((4, 6),),
            "measure_copy": (False,),
            "n": (100,),
            "name": ("nothing",),
            "native": (False,),
            "pitch": (None, 6, 7),
            "shape": ((4, 6),),
            "size": (0, 1, 24),
            "source": memory,
            "start": (0, 4),
            "steps": ([(self.kernel[1, 1], ())],),
            "stream": (self.stream,),
            "strides": ((6, 1),),
            "values": ([1, 2, 3],),
        }

    def receiver(self, owner: str) -> Any:
        """Return an object of a public class; None if its methods are called on the class."""
        made: dict[str, Callable[[], Any]] = {
            "Device": lambda: self.device,
            "Context": lambda: self.device.context,
            "Stream": lambda: self.stream,
            "Event": uhal.Event,
            "DeviceBuffer": lambda: uhal.DeviceBuffer.zeros(24, "u32"),
            "HostBuffer": lambda: uhal.HostBuffer(24, "u32"),
            "DevicePointer": lambda: uhal.DevicePointer(2**40),
            "Function": lambda: self.kernel,
            "BoundLaunch": lambda: self.kernel[1, 1],
            "Module": lambda: self.module,
            "Signature": lambda: uhal.Signature.parse("u64 n, f32* x"),
            "Parameter": lambda: uhal.Signature.parse("u64 n, f32* x")[0],
            "LaunchConfig": lambda: uhal.LaunchConfig(1, 1),
            "DType": lambda: uhal.as_dtype("f32"),
            "Tally": uhal.Tally,
            "DeviceLimits": lambda: self.device.limits,
            "Profile": lambda: self.profile,
        }
        return made[owner]()

    def has(self, name: str) -> bool:
        """Return whether there is a value for parameters of that name."""
        return name in self.choices

    def value(self, name: str, rng: random.Random) -> Any:
        """Return a valid value for a parameter of that name."""
        assert name in self.choices, f"no sample for a parameter {name}; give it one"
        return rng.choice(self.choices[name])


def extreme(annotation: str, rng: random.Random) -> Any:
    """Return an extreme value of the annotated type."""

    def one() -> int:
        return rng.choice(EXTREMES) if rng.random() < 0.8 else rng.choice((0, 1, 2, 4, 6))

    def extent() -> Any:
        return one() if rng.random() < 0.4 else tuple(one() for _ in range(rng.randrange(1, 4)))

    if "LaunchConfig" in annotation:
        cluster = rng.choice((None, extent()))
        priority = rng.choice((None, one()))
        return uhal.LaunchConfig(
            rng.choice((1, extent())),
            rng.choice((1, extent())),
            rng.choice((0, one())),
            cluster,
            rng.random() < 0.2,
            priority,
        )
    if annotation.startswith("tuple[Dim3"):
        return (extent(), extent(), *rng.choice(((), (one(),))))
    if "slice" in annotation:
        parts = [rng.choice((None, one())) for _ in range(rng.choice((1, 2, 2, 3)))]
        return slice(*parts)
    if "Sequence[int" in annotation or "tuple[int, ...]" in annotation:
        return tuple(one() for _ in range(rng.randrange(1, 4)))
    if "Dim3" in annotation:
        return extent()
    if "tuple[int, int]" in annotation and not annotation.startswith("int"):
        return (one(), one())
    return (
        rng.choice((int, np.int64, np.uint64))(value)
        if abs(value := one()) < 2**63 and value >= 0
        else value
    )


def call(place: Place, samples: Samples, rng: random.Random) -> Any:
    """Call the parameter's owner with an extreme value for this and sometimes for other
    parameters."""
    given: dict[str, Any] = {}
    for name, annotation, has_default, _ in place.names:
        takes_int = INTEGERS.search(annotation) is not None and name not in ("stream", "config")
        if place.parameter == "config" and name in ("grid", "block", "shared"):
            continue  # `config` replaces these parameters
        if name == place.parameter:
            given[name] = extreme(place.annotation, rng)
        elif takes_int and rng.random() < 0.2:
            given[name] = extreme(annotation, rng)
        elif not has_default or (rng.random() < 0.5 and samples.has(name)):
            given[name] = samples.value(name, rng)
    named = not place.function.startswith("__") or place.function in ("__init__", "__dlpack__")
    positional = [
        given.pop(name) for name, *_, kind in place.names if kind == "positional" or not named
    ]
    if not place.owner:
        target = getattr(uhal, place.function, None) or getattr(uhal.frameworks, place.function)
        return target(*positional, **given)
    cls = getattr(uhal, place.owner, None) or getattr(uhal.frameworks, place.owner)
    if place.function == "__init__":
        return cls(*positional, **given)
    if place.function.endswith("="):
        return setattr(samples.receiver(place.owner), place.function[:-1], *given.values())
    if isinstance(inspect.getattr_static(cls, place.function), (classmethod, staticmethod)):
        return getattr(cls, place.function)(*positional, **given)
    return getattr(samples.receiver(place.owner), place.function)(*positional, **given)


def call_all(seed: int, count: int, image: str) -> None:
    """Print errors that are not uhal's; stderr names each call before it is made."""
    device = uhal.Api.quick_init(0, "host")
    samples = Samples(device, Path(image))
    device.memory_limit = 2**26
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
    found = list(places())
    for number in range(seed, seed + count):
        place = found[number % len(found)]
        print(number, place, file=sys.stderr, flush=True)
        try:
            call(place, samples, random.Random(number))
        except (uhal.DeviceError, BufferError):
            pass  # DLPack's protocol requires BufferError
        except Exception as failure:
            print(f"{number} {place}: {type(failure).__name__}: {failure}")


def test_extreme_integers_are_refused_or_taken(seed: int, tmp_path: Path) -> None:
    image = tmp_path / "nothing.so"
    image.write_bytes(build("#include <uhal/kernel.h>\nKERNEL(nothing, ()) {}\n"))
    result = run_child(call_all, seed, rounds(1_000, 100_000), str(image))
    assert result.returncode == 0, f"died in {result.stderr.splitlines()[-1:]}"
    assert not result.stdout, f"raised an exception from outside of uhal:\n{result.stdout}"


def test_every_parameter_is_found() -> None:
    """Check that parameters of each kind are found in the stub and in the modules."""
    found = {str(place) for place in places()}
    assert {
        "launch.grid",
        "launch.config",
        "Function.__getitem__.configuration",
        "DeviceBuffer.zeros.size",
        "DeviceBuffer.copy_2d_from.pitch",
        "DeviceBuffer.__getitem__.elements",
        "HostBuffer.__init__.size",
        "LaunchConfig.for_num_elems.n",
        "Passed.scratch.start",
        "dlpack_of.shape",
        "profile.limit",
    } <= found, sorted(found)
