"""`python -m uhal sim run`: a kernel from the command line, and programs."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simulators.compilers.nvcc import forwarded
from tests.requirements import needed
from tests.simulated_driver import LIBRARY, ROOT
from uhal._simulated_run import ArgumentError, Buffer, parse, show

PTX = "tests/simulated/planted/bugs.ptx"

pytestmark = needed(LIBRARY.exists(), "make simulators")


def sim_run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "UHAL" not in name}
    return subprocess.run(
        [sys.executable, "-m", "uhal", "sim", "run", *arguments],
        cwd=ROOT,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_buffers_are_printed(tmp_path: Path, rng: np.random.Generator) -> None:
    x = rng.standard_normal(256).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ("--entry", "with_barrier", "--block", "256", "--seed", "5")
    done = sim_run(PTX, *arguments, "--args", f"f32[]={tmp_path / 'x.npy'}", "f32[256]")
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[0] == "with_barrier: ptr, ptr  # PTX by its use"
    first, second = (
        [
            float(one)
            for one in re.findall(r"-?[\d.e+-]+", lines[at].partition("] [")[2])
            if one != "..."
        ]
        for at in (1, 3)
    )
    np.testing.assert_allclose(first, [*x[:8], *x[-8:]], rtol=5e-6)  # the output has six digits
    assert second == first[::-1]
    assert lines[-1] == "seed 5"


def test_a_thread_is_traced() -> None:
    arguments = ("--entry", "with_barrier", "--block", "256", "--trace", "0:7")
    done = sim_run(PTX, *arguments, "--args", "f32[256]=range", "f32[256]=0")
    assert done.returncode == 0, done
    text = (ROOT / PTX).read_text().splitlines()
    told = re.findall(r"^ *(\d+)  (.+)$", done.stderr, re.MULTILINE)
    body = [one for one in told if not one[1].startswith("%")]
    assert all(" ".join(text[int(line) - 1].split()) == words for line, words in body)
    assert body[-1][1] == "ret;"
    assert re.search(r"mov\.u32 %r1, %tid\.x;\n +%r1 = 0x7\n", done.stderr)
    assert re.search(r"ld\.shared\.f32 .*\n +%f2 = 248 ", done.stderr)


def test_a_fault_is_told_in_words() -> None:
    done = sim_run(PTX, "--entry", "store_past_end", "--block", "32", "--args", "f32[32]")
    assert done.returncode == 1
    assert "0 bytes past the end of allocation of 128 bytes" in done.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_printed_is_seen() -> None:
    done = sim_run(PTX, "--entry", "prints", "--block", "1", "--args", "u32=1")
    assert "thread 0 of block 0: text 0.00 c %" in done.stdout


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--args", "f32[4]"), "--entry: expected one of missing_barrier, with_barrier"),
        (("--entry", "copy", "--args", "f33[4]"), "expected a dtype, one of bool i8"),
        (("--entry", "copy", "--args", "f32[4]"), "copy, arguments: expected 2 arguments"),
        (
            (
                "--entry",
                "absent",
            ),
            "absent",
        ),
        (("--entry", "copy", "--block", "1x"), "expected one to three numbers, got '1x'"),
    ],
)
def test_mistakes_are_told_in_words(arguments: tuple[str, ...], words: str) -> None:
    done = sim_run(PTX, *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_arguments_are_what_they_say(rng: np.random.Generator) -> None:
    scalar = parse("i16=-5", rng)
    assert (type(scalar), int(scalar)) == (np.int16, -5)
    assert parse("null", rng) is None
    filled = parse("u8[3]=0x10", rng)
    assert isinstance(filled, Buffer) and filled.start is not None
    assert filled.start.tolist() == [16, 16, 16]
    unwritten = parse("f64[7]", rng)
    assert isinstance(unwritten, Buffer) and unwritten.start is None and unwritten.count == 7
    drawn = parse("i32[4096]=random", rng)
    assert isinstance(drawn, Buffer) and drawn.start is not None
    assert drawn.start.min() < 0 < drawn.start.max()


@pytest.mark.parametrize("text", ["", "f32", "f32[]", "f32[4]=much", "i8=300", "u32=1.5", "x y"])
def test_arguments_that_say_nothing(text: str, rng: np.random.Generator) -> None:
    with pytest.raises(ArgumentError, match=r"^--args "):
        parse(text, rng)


def test_what_is_not_finite_is_counted() -> None:
    assert show(np.array([1, np.nan, np.inf], np.float32)).endswith("2 not finite")
    assert show(np.zeros(0, np.float32)) == "[0] []"


def test_a_program_gets_its_own_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; print(sys.argv[1:]); sys.exit(3)")
    done = sim_run("--profile=sm_90", str(program), "--check", "none", "--help")
    assert (done.returncode, done.stdout) == (3, "['--check', 'none', '--help']\n"), done
    module = sim_run("-m", "platform", "--terse")
    assert module.returncode == 0 and module.stdout.startswith("Linux"), module
    assert sim_run("true").returncode == 0
    assert sim_run("false").returncode == 1


def test_a_program_finds_the_driver_and_its_settings() -> None:
    text = """
import ctypes
one, other = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcuda.so")
address = lambda library: ctypes.cast(library.cuInit, ctypes.c_void_p).value
assert address(one) == address(other)
from uhal import Api
device = Api.quick_init(0)
major = device.attributes["CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR"]
print(device.backend, one.uhal_sim_live(b"context"), major)
"""
    done = sim_run("--backend", "cuda", "--profile", "sm_90", "-c", text)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert re.search(r"^cuda 1 9$", done.stdout), done


def test_programs_of_other_backends_run() -> None:
    text = "from uhal import Api; print(Api.quick_init(0).backend)"
    for backend in ("rocm", "tops"):
        done = sim_run("--backend", backend, "-c", text)
        assert (done.returncode, done.stdout.strip()) == (0, backend), done


def test_planted_libraries_are_not_loaded(tmp_path: Path) -> None:
    """Libraries in a folder that others can write to, or under the links' names, are not loaded."""
    cache = tmp_path / "cache"
    run = ("--backend", "rocm", "-c", "import ctypes; ctypes.CDLL('libhsa-runtime64.so.1')")
    done = sim_run(*run, XDG_CACHE_HOME=str(cache))
    assert done.returncode == 0, done
    made = [cache, *(one for one in cache.rglob("*") if one.is_dir())]
    assert len(made) == 4
    assert {stat.S_IMODE(one.stat().st_mode) for one in made} == {0o700}
    (link,) = cache.rglob("libhsa-runtime64.so.1")
    link.unlink()
    link.write_bytes(b"planted")
    assert sim_run(*run, XDG_CACHE_HOME=str(cache)).returncode == 0
    assert link.is_symlink()
    for folder in (link.parent, link.parent.parent):
        folder.chmod(0o777)
        done = sim_run(*run, XDG_CACHE_HOME=str(cache))
        assert done.returncode == 1, done
        assert done.stderr == f"sim run: {folder} may be written by others: chmod go-w it\n"
        folder.chmod(0o700)


def test_a_mistaken_setting_is_told() -> None:
    done = sim_run("--backend", "vulkan", "program.py")
    assert done.returncode == 2 and "invalid choice: 'vulkan'" in done.stderr


@pytest.mark.parametrize("program", [("program.py", "--backend", "rocm"), ("-m", "x"), ("-c", "")])
def test_an_unknown_setting_is_told_before_the_programs_own(program: tuple[str, ...]) -> None:
    done = sim_run("--rocm", *program)
    assert done.returncode == 2
    assert "error: --rocm: expected settings before the program" in done.stderr
    assert "--backend cuda or rocm or tops" in done.stderr


def test_lookups_still_know_their_caller(tmp_path: Path) -> None:
    # A preloaded library precedes dlsym, and RTLD_NEXT means "after the caller".
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler is not None
    (tmp_path / "behind.c").write_text("int marker(void) { return 41; }")
    (tmp_path / "before.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n"
        'int marker(void) { return 1 + ((int (*)(void))dlsym(RTLD_NEXT, "marker"))(); }'
    )
    for name, needs in (("behind", ()), ("before", (f"-L{tmp_path}", "-l:behind.so"))):
        options = ("-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-rpath,{tmp_path}")
        files = ("-o", str(tmp_path / f"{name}.so"), str(tmp_path / f"{name}.c"))
        subprocess.run([compiler, *options, *files, *needs, "-ldl"], check=True)
    library = tmp_path / "before.so"
    done = sim_run("-c", f"import ctypes; print(ctypes.CDLL('{library}').marker())")
    assert (done.returncode, done.stdout) == (0, "42\n"), done


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["-arch=sm_86", "k.cu"], ["-arch=sm_86", "k.cu"]),
        (["--cubin", "-arch", "sm_86", "k.cu"], "--ptx -arch sm_86 k.cu -o k.cubin".split()),
        (["-cubin", "-o", "x.bin", "k.cu"], ["--ptx", "-o", "x.bin", "k.cu"]),
    ],
)
def test_nvcc_makes_ptx_of_a_cubin(given: list[str], wanted: list[str]) -> None:
    assert forwarded(given) == wanted
