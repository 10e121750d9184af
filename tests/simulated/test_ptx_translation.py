"""How the simulated driver gets kernels out of PTX, and its errors."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.requirements import needed
from tests.shipped_ptx import shipped_ptx
from tests.simulated_driver import HEADER, LIBRARY, Driver, Failure, copy_of_library, refused

pytestmark = needed(LIBRARY.exists(), "make simulators")

MODULE = """
.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 first = 17;
.const .align 8 .b8 bytes[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
.visible .global .align 8 .u64 addresses[2] = {generic(first), generic(first)+4};
.visible .global .align 4 .f32 zeros[5];

.visible .entry read(.param .u64 out) {
    .reg .b32 %r<4>; .reg .b64 %d<3>;
    ld.param.u64 %d0, [out];
    ld.global.u64 %d1, [addresses];
    ld.u32 %r0, [%d1];
    ld.const.u32 %r1, [bytes+8];
    ld.global.u32 %r2, [zeros+16];
    st.global.u32 [%d0], %r0; st.global.u32 [%d0+4], %r1; st.global.u32 [%d0+8], %r2;
    add.u32 %r3, %r0, 1;
    st.global.u32 [first], %r3;
    ret;
}

.visible .entry textured(.param .u64 out) {
    .reg .f32 %f<5>; .reg .b64 %d;
    ld.param.u64 %d, [out];
    tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d, {%f4}];
    ret;
}
"""

Opener = Callable[..., Driver]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
    """Opens a driver; settings are given without UHAL_SIM_. The cache begins empty."""
    numbers = itertools.count()

    def open_driver(**settings: str) -> Driver:
        for name in [name for name in os.environ if name.startswith("UHAL_SIM_")]:
            monkeypatch.delenv(name)
        for name, value in {"CACHE": str(tmp_path / "cache"), **settings}.items():
            monkeypatch.setenv(f"UHAL_SIM_{name}", value)
        driver = Driver(copy_of_library(tmp_path / str(next(numbers))))
        driver.open()
        return driver

    return open_driver


def load(driver: Driver, text: str) -> Any:
    return driver.make("cuModuleLoadData", "CUmodule", text.encode())


def load_with_log(driver: Driver, text: str) -> tuple[int, str]:
    """Load a text; return the result and the log buffer's text."""
    log = ctypes.create_string_buffer(b"?" * 8, 1024)
    options = (HEADER.ctype("CUjit_option") * 2)(5, 6)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    module = HEADER.ctype("CUmodule")()
    call = driver.call.unchecked("cuModuleLoadDataEx")
    code = call(ctypes.byref(module), text.encode(), 2, options, values)
    assert (values[1] or 0) == len(log.value)
    return code, log.value.decode()


def read_three(driver: Driver, module: Any) -> list[int]:
    out = driver.allocate(3)
    function = driver.function(module, "read")
    driver.launch(function, ctypes.c_uint64(out), grid=(1, 1, 1), block=(1, 1, 1))
    return [int(one) for one in driver.download(out, 3).view(np.uint32)]


def variable(driver: Driver, module: Any, name: str) -> tuple[int, int]:
    address, size = HEADER.ctype("CUdeviceptr")(), ctypes.c_size_t()
    driver.call.cuModuleGetGlobal_v2(
        ctypes.byref(address), ctypes.byref(size), module, name.encode()
    )
    return int(address.value), int(size.value)


def leaky_relu(data: np.ndarray[Any, Any], slope: np.float32) -> np.ndarray[Any, Any]:
    return np.where(data < 0, data * slope, data)


def run_leaky_relu(
    driver: Driver, module: Any, entry: str, data: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    address = driver.allocate(data.size)
    driver.upload(address, data)
    rows, columns, kind = ctypes.c_uint32(1), ctypes.c_uint32(data.size), ctypes.c_int32(2)
    driver.launch(driver.function(module, entry), ctypes.c_uint64(address), rows, columns, kind)
    return driver.download(address, data.size)


def test_the_shipped_bytes_are_what_runs(opened: Opener, rng: np.random.Generator) -> None:
    """A renamed entry is found by its new name; another constant changes the result."""
    text = shipped_ptx("activation").decode()
    data = rng.standard_normal(300).astype(np.float32)
    shipped_slope = np.float32(0.1)
    driver = opened()

    found = run_leaky_relu(driver, load(driver, text), "activationf32", data)
    np.testing.assert_array_equal(found, leaky_relu(data, shipped_slope))

    name = f"renamed_{secrets.token_hex(4)}"
    renamed = load(driver, re.sub(r"\bactivationf32\b", name, text))
    found = run_leaky_relu(driver, renamed, name, data)
    np.testing.assert_array_equal(found, leaky_relu(data, shipped_slope))
    with refused("CUDA_ERROR_NOT_FOUND"):
        driver.function(renamed, "activationf32")

    slope = np.float32(rng.uniform(0.2, 0.9))
    changed = text.replace(
        f"0f{shipped_slope.view(np.uint32):08X}", f"0f{slope.view(np.uint32):08X}"
    )
    assert changed != text
    found = run_leaky_relu(driver, load(driver, changed), "activationf32", data)
    np.testing.assert_array_equal(found, leaky_relu(data, slope))


def test_variables_start_as_the_text_says(opened: Opener) -> None:
    driver = opened()
    modules = [load(driver, MODULE) for _ in range(2)]
    assert read_three(driver, modules[0]) == [17, 0x0C0B0A09, 0]
    # The first kernel has changed its own module's variable.
    assert read_three(driver, modules[0])[0] == 18
    assert read_three(driver, modules[1])[0] == 17
    address, size = variable(driver, modules[1], "zeros")
    assert size == 20
    driver.upload(address, np.arange(5, dtype=np.uint32).view(np.float32))
    assert read_three(driver, modules[1])[2] == 4
    addresses = [
        driver.download(variable(driver, module, "addresses")[0], 4).view(np.uint64)
        for module in modules
    ]
    assert all(second == first + 4 for first, second in addresses)
    assert addresses[0][0] != addresses[1][0]
    # Access past the variable's end is refused, although its neighbor is near.
    with refused("CUDA_ERROR_INVALID_VALUE"):
        driver.upload(address, np.zeros(6, np.float32))
    with refused("CUDA_ERROR_NOT_FOUND"):
        variable(driver, modules[0], "first")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (("st.global.u32 [first], %r3;", "st.global.u32 [first, %r3;"), "line 19: "),
        (("add.u32 %r3, %r0, 1;", "ad.u32 %r3, %r0, 1;"), "line 18: there is no instruction"),
        ((".global .align 4 .u32 first = 17;", ".global .align 3 .u32 first;"), "line 5: "),
    ],
)
def test_what_is_no_ptx_fails_at_load(opened: Opener, damage: tuple[str, str], words: str) -> None:
    assert damage[0] in MODULE
    code, log = load_with_log(opened(), MODULE.replace(*damage))
    assert code == 218  # CUDA_ERROR_INVALID_PTX
    assert words in log


@pytest.mark.parametrize("through", ["module", "library"])
def test_what_cannot_be_executed_is_refused_when_asked_for(
    opened: Opener, tmp_path: Path, through: str
) -> None:
    report = tmp_path / "report"
    driver = opened(REPORT=str(report))
    code, log = load_with_log(driver, MODULE)
    assert (code, log) == (0, "")
    words = "line 26: tex.1d.v4.f32.f32 is not executed here (PTX ISA §9.7.10 Texture)"
    if through == "module":
        module = load(driver, MODULE)
        with refused("CUDA_ERROR_INVALID_PTX", words):
            driver.function(module, "textured")
        assert read_three(driver, module)[0] == 17
    else:
        library, kernel, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        options = (None, None, 0, None, None, 0)
        load_library = driver.dll.cuLibraryLoadData
        assert load_library(ctypes.byref(library), MODULE.encode(), *options) == 0
        get_kernel = driver.dll.cuLibraryGetKernel
        assert get_kernel(ctypes.byref(kernel), library, b"absent") == 500
        assert get_kernel(ctypes.byref(kernel), library, b"textured") == 0
        assert driver.dll.cuKernelGetFunction(ctypes.byref(function), kernel) == 218
        with refused("CUDA_ERROR_INVALID_PTX", words):
            driver.launch(ctypes.cast(kernel, HEADER.ctype("CUfunction")), ctypes.c_uint64())
    text = report.read_text()
    assert "kernel textured cannot be executed" in text
    assert "line 26 of" in text and "tex.1d.v4.f32.f32 {%f0" in text


def test_targets_after_sm_90_are_read_and_not_run(opened: Opener) -> None:
    driver = opened(CUDA_PROFILE="sm_100")
    code, log = load_with_log(driver, MODULE.replace("sm_75", "sm_100").replace("7.0", "8.6"))
    assert (code, log) == (0, "")
    module = load(driver, MODULE.replace("sm_75", "sm_100").replace("7.0", "8.6"))
    words = "line 3: .target sm_100: at most sm_90 is executed here (PTX ISA §11.1.2"
    with refused("CUDA_ERROR_INVALID_PTX", words):
        driver.function(module, "read")
    with refused("CUDA_ERROR_INVALID_PTX", "sm_120 cannot be compiled for sm_100"):
        load(driver, MODULE.replace("sm_75", "sm_120"))
    with refused("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"):
        load(driver, MODULE.replace(".version 7.0", ".version 9.9"))


def test_what_is_in_the_cache_needs_no_translator(opened: Opener) -> None:
    driver = opened()
    assert read_three(driver, load(driver, MODULE))[0] == 17
    warm = opened(PYTHON="/nonexistent/python")
    assert read_three(warm, load(warm, MODULE))[0] == 17
    other = MODULE.replace("17", "18")
    with refused("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "/nonexistent/python cannot be started"):
        load(warm, other)
    with refused("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "cannot be started"):
        # Other checks need another translation of the kernel, which is not cached.
        strict = opened(PYTHON="/nonexistent/python", CHECK="strict")
        driver.function(load(strict, MODULE), "read")
        strict.function(load(strict, MODULE), "read")


def interpreter(folder: Path, script: str) -> str:
    """Replace Python by a shell script that is called with `-I TRANSLATOR serve`."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_translator_that_hangs_is_stopped(opened: Opener, tmp_path: Path) -> None:
    process = tmp_path / "process"
    hangs = interpreter(tmp_path, f"echo $$ > {process}; exec sleep 600")
    driver = opened(PYTHON=hangs, TRANSLATION_SECONDS="1")
    with refused("CUDA_ERROR_OPERATING_SYSTEM", "did not answer within 1 s"):
        load(driver, MODULE)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process.read_text()), 0)


@pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "echo; exit"])
def test_a_translator_that_breaks_is_an_error(opened: Opener, tmp_path: Path, script: str) -> None:
    driver = opened(PYTHON=interpreter(tmp_path, script))
    with pytest.raises(Failure, match=r"JIT_COMPILER_NOT_FOUND|OPERATING_SYSTEM"):
        load(driver, MODULE)


def test_the_translator_inherits_nothing_it_should_not(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    script = f'( echo "preload=$LD_PRELOAD"; ls -l /proc/$$/fd ) > {seen}; exit 1'
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent/libpreloaded.so")
    with open(tmp_path / "secret", "w") as secret, pytest.raises(Failure):
        assert not os.get_inheritable(secret.fileno())
        driver = opened(PYTHON=interpreter(tmp_path, script))
        load(driver, MODULE)
    text = seen.read_text()
    assert "preload=\n" in text
    assert "secret" not in text and "/dev/null" in text


def test_the_cache_must_be_writable(opened: Opener, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    driver = opened(CACHE=str(tmp_path / "file" / "folder"))
    with refused("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "cannot be written; UHAL_SIM_CACHE names"):
        load(driver, MODULE)


def test_folders_of_the_cache_are_made_for_this_user_alone(opened: Opener, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load(opened(CACHE=str(tmp_path / "made" / "here")), MODULE)
    finally:
        os.umask(before)
    for folder in (tmp_path / "made", tmp_path / "made" / "here"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_kept_text_is_named_by_its_sha256(opened: Opener, tmp_path: Path) -> None:
    """The lengths are beside the ends of blocks of 64 bytes, and beside the last with a length."""
    driver = opened()
    head = ".version 7.0\n.target sm_75\n.address_size 64\n// "
    texts = [head.ljust(length, "x") for length in (119, 120, 127, 128, 129)]
    for text in texts:
        load(driver, text)
    kept = {path.stem: path.read_text() for path in (tmp_path / "cache").glob("*.ptx")}
    assert kept == {hashlib.sha256(text.encode()).hexdigest()[:40]: text for text in texts}


def test_libraries_of_others_are_not_loaded(opened: Opener, tmp_path: Path) -> None:
    driver = opened()
    assert read_three(driver, load(driver, MODULE))[0] == 17
    folder = tmp_path / "cache"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}
    copied = shutil.copytree(folder, tmp_path / "copied")
    (library,) = [one for one in copied.glob("*.so") if not one.name.startswith("runtime-")]
    library.chmod(0o666)
    again = opened(CACHE=str(copied))
    with refused("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "can be written by others"):
        read_three(again, load(again, MODULE))
    library.unlink()
    library.symlink_to(next(folder.glob("*.so")))
    with refused("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "is no file"):
        read_three(again, load(again, MODULE))
    library.unlink()
    assert read_three(again, load(again, MODULE))[0] == 17
    copied.chmod(0o777)
    third = opened(CACHE=str(copied))
    with refused("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "are not trusted. UHAL_SIM_CACHE names"):
        load(third, MODULE)


def test_a_damaged_library_is_translated_again(opened: Opener, tmp_path: Path) -> None:
    driver = opened()
    assert read_three(driver, load(driver, MODULE))[0] == 17
    # Use another folder: the loader has already loaded the libraries of this folder.
    copied = shutil.copytree(tmp_path / "cache", tmp_path / "copied")
    libraries = list(copied.glob("*.so"))
    for library in libraries:
        library.write_bytes(b"no library")
    again = opened(CACHE=str(copied))
    assert read_three(again, load(again, MODULE))[0] == 17
    assert any(library.stat().st_size > 1000 for library in libraries)
