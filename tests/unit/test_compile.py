"""Run-time compilation: the arguments of cuda.core, and the error without it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import uhal.compile
from tests.host_kernels import has_compiler
from tests.requirements import missing, needed
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError, LibraryNotFoundError
from uhal.images.hsaco import read_hsaco

ROOT = Path(__file__).resolve().parents[2]
SOURCE = 'extern "C" __global__ void k(float *x) { x[0] = 1; }'


class Options:
    def __init__(self, arch: str | None = None) -> None:
        self.arch = arch


class FakeCore:
    """Replaces cuda.core and notes its arguments."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, str | None]] = []
        self.closed = 0
        self.failure: Exception | None = None
        self.result: Any = b"image"

    def program(self, source: str, language: str, options: Options) -> Any:
        self.made.append((source, language, options.arch))

        def compile_to(target: str) -> Any:
            if self.failure is not None:
                raise self.failure
            return SimpleNamespace(code=self.result, target=target)

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(compile=compile_to, close=close)


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> FakeCore:
    fake = FakeCore()
    module: Any = ModuleType("cuda.core")
    module.Program = fake.program
    module.ProgramOptions = Options
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", module)
    return fake


def test_source_and_options_go_to_program(core: FakeCore) -> None:
    assert uhal.compile.cuda(SOURCE, {"arch": "sm_90"}) == b"image"
    core.result = bytearray(b"other")
    assert uhal.compile.cuda(SOURCE, target="cubin") == b"other"
    assert core.made == [(SOURCE, "c++", "sm_90"), (SOURCE, "c++", None)]
    assert core.closed == 2


def test_the_compilers_log_is_the_message(core: FakeCore) -> None:
    core.failure = RuntimeError("default_program(1): error: expected a ;")
    with pytest.raises(DeviceError, match="expected a ;") as caught:
        uhal.compile.cuda("oops")
    assert not isinstance(caught.value, LibraryNotFoundError)
    assert caught.value.__cause__ is core.failure
    assert core.closed == 1


def test_a_missing_compiler_is_named(core: FakeCore) -> None:
    core.failure = type("DynamicLibNotFoundError", (RuntimeError,), {})("libnvrtc.so.13.")
    words = r'with: libnvrtc\.so\.13\. Install them: pip install "uhal-py\[cuda\]"'
    with pytest.raises(LibraryNotFoundError, match=words):
        uhal.compile.cuda(SOURCE)


def test_cuda_core_of_before_its_first_version(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    older: Any = sys.modules["cuda.core"]
    monkeypatch.setitem(sys.modules, "cuda.core.experimental", older)
    monkeypatch.setitem(sys.modules, "cuda.core", ModuleType("cuda.core"))
    assert uhal.compile.cuda(SOURCE) == b"image"


def test_without_cuda_core_it_says_what_it_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "cuda.core", "cuda.core.experimental"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LibraryNotFoundError) as caught:
        uhal.compile.cuda(SOURCE)
    message = str(caught.value)
    assert re.search(r"cuda\.core: .+; cuda\.core\.experimental: ", message)
    assert 'pip install "uhal-py[cuda]"' in message


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((b"x",), ArgumentTypeError, "source: expected a str, got bytes"),
        ((SOURCE, "-O3"), ArgumentTypeError, "options: expected a mapping or None, got str"),
        ((SOURCE, {"bla": 1}), ArgumentValueError, "options: .*bla"),
    ],
)
def test_wrong_arguments_are_refused(
    core: FakeCore, arguments: tuple[Any, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        uhal.compile.cuda(*arguments)
    with pytest.raises(ArgumentValueError, match="target: expected 'ptx' or 'cubin', got str 'c'"):
        uhal.compile.cuda(SOURCE, target="c")  # type: ignore[arg-type]
    assert core.made == []


def test_nothing_in_the_packages_calls_it() -> None:
    code = "import sys, uhal, ubridge, cuda_backend; assert 'uhal.compile' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    pattern = re.compile(r"uhal\.compile\b|from uhal import [^\n]*\bcompile\b")
    for package in ("uhal", "ubridge", "cuda_backend", "host_backend"):
        for path in (ROOT / package).rglob("*.py"):
            # Advice names it.
            if path.name not in ("compile.py", "habits.py"):
                assert not pattern.search(path.read_text(encoding="utf-8")), path


def test_the_real_compiler() -> None:
    pytest.importorskip("cuda.core")
    try:
        image = uhal.compile.cuda(SOURCE, {"arch": "sm_90"}, target="cubin")
    except LibraryNotFoundError as error:
        pytest.skip(str(error))
    assert image.startswith(b"\x7fELF")
    with pytest.raises(DeviceError, match="oops"):
        uhal.compile.cuda("oops", {"arch": "sm_90"}, target="cubin")


TEMPLATE = """#include <uhal/kernel.h>
template <class T>
KERNEL(scale, (u64 n, T a, T *x)) { GRID_STRIDE(i, n) { x[i] *= a; } }
"""


def compiler_of(target: str) -> Any:
    """Return the function that compiles sources for a backend, or skip the test."""
    if target == "host":
        if not has_compiler():
            missing("kernels are compiled here")
        return uhal.compile.host
    if not importlib.util.find_spec("ziglang"):
        missing("needs the extra kernels")
    kernels = importlib.import_module(f"{target}_backend.compile").kernels
    return partial(kernels, target="gfx942") if target == "rocm" else kernels


@pytest.mark.parametrize("target", ["host", "opencl", "rocm"])
def test_a_kernel_as_template_is_explained(target: str) -> None:
    compiled = compiler_of(target)
    with pytest.raises(DeviceError, match=r"error: (.|\n)*A KERNEL cannot be a template: "):
        compiled(TEMPLATE)
    with pytest.raises(DeviceError) as caught:
        compiled(TEMPLATE.replace("template <class T>", "typedef int T; oops"))
    assert "template" not in str(caught.value)


MISSPELLED = {
    "__global__ void f(float *x) { x[0] = 1; }": ["KERNEL(name, (parameters))", "compile.cuda"],
    "KERNEL(f, f32 *x) { x[0] = 1; }": ["Parameters stand in parentheses of their own"],
    "KERNEL(f, (f32 *x)) { __shared__ f32 s[8]; x[threadIdx.x] = 1; __syncthreads(); }": [
        "SHARED(type, name, count)",
        "THREADS(t)",
        "BARRIER()",
    ],
    "KERNEL(f, (f32 *x)) { atomicAdd(x, 1); }": ["<uhal/atomics.h>, and atomic_add"],
    "KERNEL(f, (f32 *x)) { ASSERT(x != nullptr); }": ["<uhal/messages.h>"],
}


@pytest.mark.parametrize("source", MISSPELLED)
def test_names_of_cuda_in_a_kernel_are_explained(source: str) -> None:
    with pytest.raises(DeviceError) as caught:
        compiler_of("host")(f"#include <uhal/kernel.h>\n{source}")
    for advice in MISSPELLED[source]:
        assert advice in str(caught.value)


def test_clang_quotes_names_otherwise() -> None:
    with pytest.raises(DeviceError, match=r"Write #include <uhal/messages\.h>"):
        compiler_of("opencl")(
            "#include <uhal/kernel.h>\nKERNEL(f, (f32 *x)) { ASSERT(x != nullptr); }"
        )


@needed(importlib.util.find_spec("ziglang"), "needs the extra kernels")
def test_code_objects_without_rocm() -> None:
    from rocm_backend.compile import kernels

    source = (
        "#include <uhal/kernel.h>\nKERNEL(set, (u32 n, f32 *x)) { GRID_STRIDE(i, n) x[i] = F; }"
    )
    image = kernels(source, "gfx1100", ["-DF=2"])
    assert read_hsaco(image).signatures["set"].declaration == "u32 n, f32* x"
    with pytest.raises(DeviceError, match=r"rocm_backend\.compile: <stdin>:2:.*error"):
        kernels(source, "gfx1100")
    with pytest.raises(ArgumentValueError, match="expected a target such as 'gfx942', got 'sm_90'"):
        kernels(source, "sm_90")
    with pytest.raises(ArgumentTypeError, match="source: expected a str"):
        kernels(Path("kernels.cu"), "gfx942")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="options: expected a sequence"):
        kernels(source, "gfx942", "-DF=2")
