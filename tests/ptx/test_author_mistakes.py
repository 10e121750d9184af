"""Mistakes of a kernel's author, 66 in all: each message names the line of Python.

The builder finds types, spaces, missing values and sizes; a checked run finds races, barriers and
accesses. The wrong line of each kernel ends with `# here`.
"""

from __future__ import annotations

import ctypes
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.requirements import needed
from tests.simulated_driver import LIBRARY, Driver, Failure, copy_of_library
from uhal import errors, ptx
from uhal.ptx import (
    Kernel,
    barrier,
    else_,
    f32,
    f64,
    i32,
    if_,
    kernel,
    loop,
    select,
    shared,
    thread_index,
    u8,
    variable,
    while_,
)

SIGNATURE = "u32 n, f32 a, const f32* x, f32* y, i32* z, const f16* h"
Mistake = Callable[..., Any]
BUILT: list[tuple[Mistake, str]] = []
RUN: list[tuple[Mistake, str, str]] = []


def built(words: str) -> Callable[[Mistake], Mistake]:
    """Register a mistake that the builder finds, with a part of its message."""

    def enter(body: Mistake) -> Mistake:
        BUILT.append((body, words))
        return body

    return enter


def line_of(body: Mistake) -> int:
    lines, first = inspect.getsourcelines(body)
    (found,) = [number for number, line in enumerate(lines) if "# here" in line]
    return first + found


# -- types -----------------------------------------------------------------------------------------


@built("+: expected operands of one type, got f32 and u32. Convert one: f32(…).")
def mixed_types(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = a + n  # here


@built("*: expected operands of one type, got i32 and u32")
def signs(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    z[0] = z[1] * n  # here


@built("-: expected operands of one type, got f16 and f32")
def widths(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = h[0] - x[0]  # here


@built("store: expected f32, got f16")
def stored_half(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[n] = h[n]  # here


@built("store: expected i32, got u32")
def stored_sign(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    z[0] = n  # here


@built("+: expected a value or a number of type u32, got 1.5")
def fraction_of_integer(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[n + 1.5] = a  # here


@built("+: expected a value or a number of type u32, got -1")
def negative_of_unsigned(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[n + -1] = a  # here


@built("-: expected a signed integer or a float, got a value of type u32")
def negated_unsigned(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    z[0] = i32(-n)  # here


@built("/: expected f32 or f64, got a value of type u32. Use `//` of integers")
def divided_integers(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[n / 2] = a  # here


@built("//: expected integers, got a value of type f32")
def floor_divided_floats(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = a // 2  # here


@built("&: expected integers or predicates, got a value of type f32")
def logic_of_floats(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = a & a  # here


@built("<<: expected an integer, got a value of type f32")
def shifted_float(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = a << 1  # here


@built("~: expected an integer or a predicate, got a value of type f32")
def inverted_float(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = ~a  # here


@built("+: expected numbers, got a value of type pred")
def added_predicates(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    z[0] = i32((n < 3) + (n < 4))  # here


@built("select: expected a predicate first, got a value of type u32")
def selected_by_number(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = select(n, a, 0.0)  # here


@built("if_: expected a predicate, got a value of type u32")
def branch_on_number(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with if_(n):  # here
        y[0] = a


@built("sqrt: expected f32, f64, got a value of type u32")
def root_of_integer(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = ptx.sqrt(n)  # here


@built("fma: expected floats, got a value of type u32")
def fused_integers(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[ptx.fma(n, n, n)] = a  # here


@built("bits_as: expected a type of 32 bits, got f64")
def bits_of_other_width(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = f32(ptx.bits_as(a, f64))  # here


@built("u8: exists in memory only. Convert to u32")
def converted_to_byte(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = f32(u8(n))  # here


@built("set: expected f32, got u32")
def variable_of_other_type(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    total = variable(f32, 0)
    total.set(n)  # here
    y[0] = total


@built("shuffle: expected a number, got a value of type pred")
def shuffled_predicate(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    ptx.shuffle("idx", n < 3, 0)  # here


@built("vote: expected pred, got u32")
def voted_number(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    ptx.vote("ballot", n)  # here


@built("printf: expected a number for %d, got a value of type f32")
def printed_float_as_integer(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    ptx.printf("%d\n", a)  # here


@built("op: expected f32 for sin.approx.f32, got u32")
def instruction_of_other_type(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = ptx.op("sin.approx.f32", n)  # here


# -- values that only the device knows -------------------------------------------------------------


@built("if, while, and, or, not: expected a value known while the kernel is built")
def python_if(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    if n < 3:  # here
        y[0] = a


@built("if, while, and, or, not: expected a value known while the kernel is built")
def python_and(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with if_(n > 1 and n < 3):  # here
        y[0] = a


@built("range, int, float: expected a number known while the kernel is built")
def python_range(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    for i in range(n):  # here
        y[i] = a


@built("for: expected a range, got a value of type u32. Use `loop`.")
def python_for(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    for i in n:  # here
        y[i] = a


@built("shared: expected extents known while the kernel is built")
def array_of_unknown_size(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    shared(f32, n)  # here


@built("while_: expected a function that makes the condition")
def condition_that_is_built_once(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with while_(n < 3):  # here
        y[0] = a


@built("loop: expected its body to run to the end while the kernel is built, got Python's `break`")
def python_break(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    text = """
at the margin"""
    for i in loop(n, unroll=len(text) // 7):
        y[i] = a
        break  # here


@built(
    "if_: expected its body to run to the end while the kernel is built, got Python's `continue`"
)
def python_continue(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    for i in loop(n):
        with if_(i == 3):
            continue  # here
        y[i] = a


@built(
    "else_: expected its body to run to the end while the kernel is built, got Python's `return`"
)
def python_return(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with if_(n < 3):
        y[0] = a
    with else_():
        return  # here
    y[1] = a


# -- values that may be missing --------------------------------------------------------------------


@built("store: expected a variable with a value")
def never_set(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    total = variable(f32)
    y[0] = total  # here


@built("store: expected a variable with a value")
def set_on_one_way(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    total = variable(f32)
    with if_(n < 3):
        total.set(a)
    y[0] = total  # here


@built("+: expected a variable with a value")
def set_in_a_loop_that_may_not_run(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    last = variable(f32)
    for i in loop(n):
        last.set(x[i])
    y[0] = last + 1  # here


@built("store: expected a value computed on every way here")
def used_behind_its_branch(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with if_(n < 3):
        value = a * 2
    y[0] = value  # here


@built("store: expected a value computed on every way here")
def sum_that_is_no_variable(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    total = f32(0)
    for i in loop(n):
        total = total + x[i]
    y[0] = total  # here


@built("-: expected a value computed on every way here")
def used_in_the_other_branch(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with if_(n < 3):
        value = a * 2
    with else_():
        y[0] = value - 1  # here


@built("else_: expected to stand directly behind an `if_`")
def else_of_nothing(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with if_(n < 3):
        y[0] = a
    y[1] = a
    with else_():  # here
        y[2] = a


@built("break_: expected to stand in a loop of the kernel")
def break_of_no_loop(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    with if_(n < 3):
        ptx.break_()  # here


# -- memory ----------------------------------------------------------------------------------------


@built("store: expected memory that the kernel may write, got x, which is const")
def stored_to_const(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    x[0] = a  # here


@built("atomic: expected memory that the kernel may write")
def atomic_on_const(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    x.atomic("add", 0, a)  # here


@built("store: expected memory that the kernel may write, got the constant table")
def stored_to_a_table(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    table = ptx.constant(f32, [1, 2])
    table[0] = a  # here


@built("index: expected an integer, got a value of type f32")
def float_index(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    y[0] = x[a]  # here


@built("index: expected 0 … 31 within the shared array, got 32")
def index_past_the_array(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    tile = shared(f32, 32)
    tile[32] = a  # here


@built("index: expected 2 indices, got 1")
def too_few_indices(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    tile = shared(f32, 4, 8)
    tile[n,] = a  # here


@built("shared: expected at most 49152 bytes in all arrays, got 65536. Use `dynamic_shared`")
def too_much_shared_memory(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    shared(f32, 128, 64)
    shared(f32, 128, 64)  # here


@built("copy_async: expected shared memory, got global memory")
def copy_to_global(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    ptx.copy_async(y, x)  # here


@built("load_matrices: expected shared memory, got global memory")
def matrices_of_global(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    ptx.load_matrices(h)  # here


@built("load: expected 1, 2 or 4 elements of at most 16 bytes together, got 3 of f32")
def vector_of_three(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    x.load(0, 3)  # here


@built("op: expected an instruction of PTX, got 'add.f31'")
def no_instruction(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    ptx.op("add.f31", a, a)  # here


@built("barrier: expected a number of 0 … 15, got 16")
def no_barrier(n: Any, a: Any, x: Any, y: Any, z: Any, h: Any) -> None:
    barrier(16)  # here


@pytest.mark.parametrize(("body", "words"), BUILT, ids=[body.__name__ for body, _ in BUILT])
def test_the_builder_names_the_line(body: Mistake, words: str) -> None:
    with pytest.raises((errors.ArgumentTypeError, errors.ArgumentValueError)) as raised:
        kernel(SIGNATURE)(body).ptx  # noqa: B018
    message = str(raised.value)
    assert words in message
    assert message.endswith(f"[{Path(__file__).name}:{line_of(body)}]")


# -- found by a checked run ------------------------------------------------------------------------


def run(outcome: str, words: str) -> Callable[[Mistake], Mistake]:
    """A mistake of `kernel("i32 n, f32* y")` with 64 threads that a checked run finds."""

    def enter(body: Mistake) -> Mistake:
        RUN.append((body, outcome, words))
        return body

    return enter


ILLEGAL = "CUDA_ERROR_ILLEGAL_ADDRESS"
FAILED = "CUDA_ERROR_LAUNCH_FAILED"


@run(FAILED, "race|uninitialized")
def no_barrier_between(n: Any, y: Any) -> None:
    tile, t = shared(f32, 64), thread_index()
    tile[t] = f32(t)
    y[t] = tile[63 - t]  # here


@run(FAILED, "race")
def all_write_one_element(n: Any, y: Any) -> None:
    tile = shared(f32, 1)
    tile[0] = f32(thread_index())  # here
    barrier()
    y[0] = tile[0]


@run(FAILED, "race")
def no_barrier_before_the_next_turn(n: Any, y: Any) -> None:
    tile, t = shared(f32, 64), thread_index()
    total = variable(f32, 0)
    for i in loop(n):
        tile[t] = f32(i)  # here
        barrier()
        total += tile[(t + 33) & 63]
    y[t] = total


@run(FAILED, "race")
def sum_without_atomics(n: Any, y: Any) -> None:
    tile, t = shared(f32, 1), thread_index()
    with if_(t == 0):
        tile[0] = 0.0
    barrier()
    tile[0] = tile[0] + 1  # here
    barrier()
    y[0] = tile[0]


@run("CUDA_ERROR_LAUNCH_TIMEOUT", "threads that never come")
def barrier_for_some(n: Any, y: Any) -> None:
    t = thread_index()
    with if_(t < 32):
        barrier(1, 64)  # here
    y[t] = 0.0


@run(FAILED, "barrier")
def barrier_in_both_branches_of_a_warp(n: Any, y: Any) -> None:
    t = thread_index()
    with if_((t & 1) == 0):
        barrier(1)  # here
    with else_():
        barrier(2)
    y[t] = 1.0


@run(FAILED, "uninitialized")
def read_before_written(n: Any, y: Any) -> None:
    tile, t = shared(f32, 64), thread_index()
    with if_(t < 60):
        tile[t] = 1.0
    barrier()
    y[t] = tile[t]  # here


@run(ILLEGAL, "past the end")
def stored_past_the_end(n: Any, y: Any) -> None:
    y[thread_index() + 1] = 0.0  # here


@run(ILLEGAL, "load of 4 bytes")
def loaded_past_the_end(n: Any, y: Any) -> None:
    y[0] = y[i32(thread_index()) + n * 64]  # here


@run(ILLEGAL, "before")
def negative_index(n: Any, y: Any) -> None:
    y[i32(thread_index()) - n] = 0.0  # here


@run(ILLEGAL, "shared")
def past_the_shared_array(n: Any, y: Any) -> None:
    tile, t = shared(f32, 64), thread_index()
    tile[t + 1] = 1.0  # here
    y[t] = 0.0


@run("CUDA_ERROR_MISALIGNED_ADDRESS", "load of 16 bytes")
def misaligned_vector(n: Any, y: Any) -> None:
    first, *_ = y.load(thread_index() & 1, 4)  # here
    y[60] = first


def test_there_are_sixty_six() -> None:
    assert len(BUILT) + len(RUN) == 66


def test_pythons_own_loops_may_be_left() -> None:
    @kernel("f32* y")
    def fine(y: Any) -> None:
        for i in range(8):
            if i == 2:
                continue
            with if_(thread_index() == i):
                for k in range(3):
                    if k == 1:
                        break
                    y[k] = float(i)

    assert fine.ptx.count("st.global") == 7


class Arguments:
    """The simulated driver with strict checks, a report and one buffer of 64 f32."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.report = folder / "report"
        patch.setenv("UHAL_SIM_CHECK", "strict")
        patch.setenv("UHAL_SIM_REPORT", str(self.report))
        patch.setenv("UHAL_SIM_SCHEDULE", "eager")
        self.driver = Driver(copy_of_library(folder / "driver"))
        self.driver.open()

    def run(self, made: Kernel) -> None:
        driver = self.driver
        module = driver.make("cuModuleLoadData", "CUmodule", made.ptx.encode())
        address = driver.allocate(64)
        driver.upload(address, np.zeros(64, "f4"))
        values = (ctypes.c_int32(3), ctypes.c_uint64(address))
        driver.launch(driver.function(module, made.name), *values, grid=(1, 1, 1))
        driver.call.cuCtxSynchronize()


@needed(LIBRARY.exists(), "make simulators")
@pytest.mark.drawn(4)
@pytest.mark.parametrize(("body", "outcome", "words"), RUN, ids=[one[0].__name__ for one in RUN])
def test_a_checked_run_names_the_line(
    body: Mistake,
    outcome: str,
    words: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if request.config.getoption("--device"):
        pytest.skip("a process has one CUDA driver")
    arguments = Arguments(tmp_path, monkeypatch)
    with pytest.raises(Failure) as raised:
        arguments.run(kernel("i32 n, f32* y")(body))
    assert raised.value.name == outcome
    report = arguments.report.read_text()
    assert re.search(words, report), report
    lines = re.findall(rf"{re.escape(str(Path(__file__)))}:(\d+)", report)
    assert str(line_of(body)) in lines, report
