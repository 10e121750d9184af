"""Run-time compilation of HIP: the arguments of hip-python, and the error without it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import uhal.compile
from uhal.errors import ArgumentTypeError, DeviceError, LibraryNotFoundError

SOURCE = 'extern "C" __global__ void k(float *x) { x[0] = 1; }'
SUCCESS, FAILURE = 0, 6


class FakeHiprtc(ModuleType):
    """Answers like hip-python: a tuple whose first item is the status."""

    def __init__(self) -> None:
        super().__init__("hip.hiprtc")
        self.hiprtcResult = SimpleNamespace(HIPRTC_SUCCESS=SUCCESS)
        self.status = SUCCESS
        self.texts = {"Code": b"\x7fELF code", "ProgramLog": b"line 1: error\n\0"}
        self.seen: list[Any] = []
        self.alive = 0
        self.library_is_missing = False

    def hiprtcVersion(self) -> tuple[int, int, int]:
        if self.library_is_missing:
            raise RuntimeError("failed to dlopen libhiprtc.so")
        return SUCCESS, 10, 0

    def hiprtcCreateProgram(self, *arguments: Any) -> tuple[int, Any]:
        self.seen.append(arguments)
        self.alive += 1
        return SUCCESS, SimpleNamespace(createRef=lambda: "reference")

    def hiprtcCompileProgram(self, program: Any, count: int, flags: list[bytes]) -> tuple[int]:
        self.seen.append((count, flags))
        return (self.status,)

    def hiprtcDestroyProgram(self, reference: str) -> tuple[int]:
        assert reference == "reference"
        self.alive -= 1
        return (SUCCESS,)

    def __getattr__(self, name: str) -> Any:
        kind = name.removeprefix("hiprtcGet")
        if kind.endswith("Size"):
            return lambda program: (SUCCESS, len(self.texts[kind.removesuffix("Size")]))
        if kind in self.texts:

            def fill(program: Any, into: bytearray) -> tuple[int]:
                into[:] = self.texts[kind]
                return (SUCCESS,)

            return fill
        raise AttributeError(name)


@pytest.fixture
def hiprtc(monkeypatch: pytest.MonkeyPatch) -> FakeHiprtc:
    fake = FakeHiprtc()
    monkeypatch.setitem(sys.modules, "hip", ModuleType("hip"))
    monkeypatch.setitem(sys.modules, "hip.hiprtc", fake)
    return fake


def test_source_and_options_go_to_hiprtc(hiprtc: FakeHiprtc) -> None:
    assert uhal.compile.hip(SOURCE, ["--offload-arch=gfx90a", "-O3"]) == b"\x7fELF code"
    assert hiprtc.seen[0][0] == SOURCE.encode()
    assert hiprtc.seen[1] == (2, [b"--offload-arch=gfx90a", b"-O3"])
    assert hiprtc.alive == 0


def test_the_compilers_log_is_the_message(hiprtc: FakeHiprtc) -> None:
    hiprtc.status = FAILURE
    with pytest.raises(DeviceError, match=r"uhal\.compile\.hip: line 1: error$"):
        uhal.compile.hip(SOURCE)
    assert hiprtc.alive == 0


def test_what_is_no_source_is_refused(hiprtc: FakeHiprtc) -> None:
    with pytest.raises(ArgumentTypeError, match="source: expected a str"):
        uhal.compile.hip(b"x")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="options: expected a sequence of str"):
        uhal.compile.hip(SOURCE, "-O3")
    assert not hiprtc.seen


def test_without_hip_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hip", None)
    monkeypatch.setitem(sys.modules, "hip.hiprtc", None)
    with pytest.raises(LibraryNotFoundError, match="needs hip-python and ROCm's libhiprtc"):
        uhal.compile.hip(SOURCE)


def test_a_name_in_the_package(hiprtc: FakeHiprtc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer releases of hip-python lack a module of that name."""
    monkeypatch.delitem(sys.modules, "hip.hiprtc")
    monkeypatch.setattr(sys.modules["hip"], "hiprtc", hiprtc, raising=False)
    assert uhal.compile.hip(SOURCE) == b"\x7fELF code"


def test_without_rocm(hiprtc: FakeHiprtc) -> None:
    hiprtc.library_is_missing = True
    with pytest.raises(LibraryNotFoundError, match=r"failed to dlopen libhiprtc\.so"):
        uhal.compile.hip(SOURCE)
    assert hiprtc.alive == 0
