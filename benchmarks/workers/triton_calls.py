"""Triton: its C launcher alone, and a compiled kernel called as its documentation shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from benchmarks import kernels
from benchmarks.measuring import (
    Form,
    Gap,
    absent,
    control,
    launch_form,
    load,
    loop,
    measure,
    pin,
    report,
    spelled,
)
from benchmarks.workers.opened import BLOCK, GRID, Opened, as_seen, open_driver, values

WARP = 32
TYPES = {"u64": "u64", "u32": "u32", "f32": "fp32"}
KERNEL_SOURCE = """
import triton


@triton.jit(do_not_specialize=["rank", "mode"])
def eight(n, rank, info, x, out, mul, add, mode):
    pass


@triton.jit
def three(n, x, out):
    pass
"""
ELSEWHERE = "Triton has no such calls, torch makes them for it"
GAPS = tuple(Gap(what, "", ELSEWHERE) for what in ("alloc+free", "copy 4 KiB", "sync", "record"))


class WithoutTorch:
    """Hides torch from Triton, which would ask torch for the device: torch does not start here."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
        return None


class Pointer:
    """A memory argument for Triton: any object with a type and a `data_ptr`."""

    dtype = "fp32"

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def main(library: str, backend: str) -> None:
    pin()
    sys.meta_path.insert(0, WithoutTorch())  # type: ignore[arg-type]
    triton: Any = load("triton")
    opened = open_driver(backend, library)
    try:
        triton.runtime.driver.active.get_current_device()
    except RuntimeError as failure:
        absent(str(failure))
    forms = [control(), *launcher_forms(opened), *jit_forms(opened)]
    rows = measure("Triton", forms, opened.counts)
    report(rows, gaps=GAPS, versions={"triton": triton.__version__})


def launcher_forms(opened: Opened) -> Iterator[Form]:
    """The rest of a launch after Triton has found the compiled kernel."""
    driver: Any = load("triton.backends.nvidia.driver")
    launch = load("triton").runtime.driver.active.utils.launch  # type: ignore[attr-defined]
    for entry, parameters in kernels.KERNELS.items():
        types = [_triton_type(parameter) for parameter in parameters]
        given = values(entry, opened.x, opened.out)
        plain = tuple(value.value for value in given)
        for name, passed in (("addresses", plain), ("data_ptr", _as_tensors(types, plain))):
            if name == "data_ptr" and not given:
                continue
            run = loop(
                "launch(8, 1, 1, stream, function, False, False, metadata, None, None, None, "
                "None, None, annotations, signature, arguments)",
                launch=launch,
                stream=opened.stream,
                function=opened.functions[entry],
                metadata=(BLOCK // WARP, 1, 0),
                annotations=driver.annotate_arguments(types),
                signature=driver.make_kernel_signature(types),
                arguments=passed,
            )
            yield launch_form(f"C launcher, {name}", run, as_seen(given))


def _as_tensors(types: Sequence[str], plain: Sequence[object]) -> tuple[object, ...]:
    return tuple(
        Pointer(int(value)) if kind.startswith("*") else value  # type: ignore[call-overload]
        for kind, value in zip(types, plain, strict=True)
    )


def _triton_type(parameter: str) -> str:
    kind = parameter.removeprefix("const ").split()[0]
    return "*" + TYPES[kind[:-1]] if kind.endswith("*") else TYPES[kind]


def jit_forms(opened: Opened) -> Iterator[Form]:
    """`kernel[grid](…)`, which compiles at its first call; Triton passes small ints as 32 bits."""
    made = _compiled_source()
    x, out, nothing = Pointer(opened.x), Pointer(opened.out), Pointer(0)
    eight = (1000, 1, nothing, x, out, 1.0, 2.0, 3)
    for entry, passed in (("three", (1000, x, out)), ("eight", eight)):
        listed, names = spelled(passed)
        statement = f"kernel[({GRID},)]({listed}, num_warps={BLOCK // WARP})"
        arrived = [
            (4, bits) if isinstance(value, int) else (size, bits)
            for value, (size, bits) in zip(
                passed, as_seen(values(entry, opened.x, opened.out)), strict=True
            )
        ]
        run = loop(statement, kernel=made[entry], **names)
        yield launch_form("kernel[grid]()", run, arrived)


def _compiled_source() -> dict[str, Any]:
    """The kernels, from a file, because Triton reads their source."""
    import importlib.util
    import tempfile
    from pathlib import Path

    path = Path(tempfile.mkdtemp(prefix="uhal-triton-"), "triton_kernels.py")
    path.write_text(KERNEL_SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("triton_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


if __name__ == "__main__":
    main(*sys.argv[1:])
