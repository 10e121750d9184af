"""The table of instructions is complete: handlers, operands, and what ptxas says of it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from simulators.ptx import families  # noqa: F401
from simulators.ptx.table import ROWS
from tests.ptx.ptxas import compiled, needs_ptxas, targets
from uhal.ptx.instructions import FORMS, MMA_REGISTERS, SPECIAL, Form, find, needs

TOKENS = {"t", "t0", "w", "n", "l", "[]", "pred", "f32", "f64"} | {
    f"{letter}{width}" for letter in "bus" for width in (16, 32, 64)
}


def test_every_form_has_a_handler_and_every_handler_a_form() -> None:
    assert set(ROWS) == {form.key for form in FORMS}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.pattern)
def test_a_form_is_well_described(form: Form, seed: int) -> None:
    rng = random.Random(seed)
    for word in form.operands.split():
        for one in word.lstrip("=").rstrip("?").split("|"):
            assert one.strip("{}") in TOKENS, form
    assert re.match(r"9\.7\.\d+ [\w -]+: \S", form.section)
    spelling = "".join(rng.choice(part) for part in form.parts())
    found = find(spelling)
    assert found is not None and found.key == form.key
    target, version = needs(spelling)
    assert target >= found.target and version >= found.version


# -- as ptxas has it -------------------------------------------------------------------------------

WIDTHS = {"8": "b", "16": "h", "32": "r", "64": "d"}
LEFT_OUT = {
    **dict.fromkeys(("bra", "brx.idx", "call", "ret", "exit"), "every kernel has it"),
    **dict.fromkeys(("wmma.load", "wmma.store", "wmma.mma"), "nvcc's kernels have it"),
    "cvt.floats": "rounding is needed or refused by both types",
    "mad.float": "without rounding for sm_1x only",
    "hint": "setmaxnreg is for sm_90a, pmevent takes a number or a mask",
}
"""Keys that the tests do not try with ptxas, each with its reason."""
NAMES = re.compile(r"pred|[busf]\d+|bf16|tf32")


def statement(form: Form, spelling: str) -> str:
    """Return an instruction with operands of the kinds that its form describes."""
    types = [one for one in spelling.split(".")[1:] if NAMES.fullmatch(one) or "x2" in one]
    words = form.operands.split()
    counts = vector_counts(form, spelling)
    texts = []
    for index, word in enumerate(words):
        if word.endswith("?"):
            continue
        one = word.lstrip("=").split("|")[0]
        inner = one.strip("{}")
        kind = {"t": types[-1], "t0": types[0]}.get(inner, inner) if types else inner
        if inner == "w":
            kind = f"b{2 * int(kind_width(types[-1]))}"
        if one == "n":
            texts.append({"cp.async": "16", "cache": "128"}.get(form.key, "0"))
        elif one == "[]":
            texts.append("[%sp]" if ".shared" in spelling and not texts else "[%dp]")
        elif "|" in word and form.key == "elect":
            texts.append("%r0|%p0")
        elif one[0] == "{" and counts[index]:
            texts.append(f"{{{', '.join(register(kind, n) for n in range(counts[index]))}}}")
        else:
            texts.append(register(kind, index))
    return f"{spelling} {', '.join(texts)};" if texts else f"{spelling};"


def vector_counts(form: Form, spelling: str) -> list[int]:
    if form.key == "mma":
        shape = spelling.split(".")[3]
        kinds = [one for one in spelling.split(".") if NAMES.fullmatch(one)]
        key = f"{shape}.{kinds[0]}"
        return list(MMA_REGISTERS.get(f"{key}.{kinds[1]}") or MMA_REGISTERS[key])
    found = re.search(r"\.[vx]([1248])\b", spelling)
    return [int(found[1]) if found else 0] * 4


def kind_width(kind: str) -> str:
    if kind in ("tf32",) or kind.endswith("x2"):
        return "16" if kind.startswith("e") else "32"
    return re.sub(r"\D", "", kind)


def register(kind: str, number: int) -> str:
    return f"%p{number}" if kind == "pred" else f"%{WIDTHS[kind_width(kind)]}{number}"


def module(target: int, version: tuple[int, int], lines: list[str]) -> str:
    body = "\n".join(lines)
    return (
        f".version {version[0]}.{version[1]}\n.target sm_{target}\n.address_size 64\n"
        ".shared .align 16 .b8 tile[4096];\n"
        ".visible .entry k(.param .u64 k_0)\n{\n.reg .pred %p<20>; .reg .b16 %h<20>;\n"
        ".reg .b8 %b<20>; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .b32 %sp; .reg .b64 %dp;\n"
        "ld.param.u64 %dp, [k_0]; mov.u32 %sp, tile;\n" + body + "\nret;\n}\n"
    )


def refused_lines(text: str, target: str, folder: Path) -> dict[int, str]:
    """ptxas' messages for rejected lines."""
    done = compiled(text, target, folder, "-O0")
    found = re.findall(r"line (\d+); (?:error|fatal)\s*:\s*(.*)", done.stdout + done.stderr)
    assert found or done.returncode == 0, done.stderr
    return {int(line): words for line, words in found}


FIRST_TARGETS = {75: (6, 3), 80: (7, 0), 89: (7, 8), 90: (7, 8), 100: (8, 6)}
"""Targets, each with the first version of PTX that supports it."""


@needs_ptxas
@pytest.mark.parametrize("target", FIRST_TARGETS)
def test_ptxas_takes_forms_from_their_first_target_and_version(
    target: int, seed: int, tmp_path: Path
) -> None:
    """ptxas accepts a random spelling of each form whose first target is this one."""
    rng = random.Random(seed)
    by_version: dict[tuple[int, int], list[str]] = {}
    for form in FORMS:
        if form.key in LEFT_OUT:
            continue
        unusual = (".b128", ".u32") if form.key == "cvta" else (".b128",)
        parts = [[one for one in part if one not in unusual] for part in form.parts()]
        spelling = "".join("" if "" in part else rng.choice(part) for part in parts)
        found = find(spelling)
        assert found is not None
        least, version = needs(spelling)
        if next(one for one in FIRST_TARGETS if one >= least) == target:
            version = max(version, FIRST_TARGETS[target])
            by_version.setdefault(version, []).append(statement(found, spelling))
    assert by_version
    for version, lines in sorted(by_version.items()):
        text = module(target, version, lines)
        for runs_on in targets(target, rng):
            refused = refused_lines(text, runs_on, tmp_path)
            assert not refused, [
                f"{runs_on}, {text.splitlines()[one - 1]}: {words}"
                for one, words in refused.items()
            ]


def test_special_registers_are_executed() -> None:
    from simulators.ptx.launch import Module

    lines = []
    for name, kind in SPECIAL.items():
        register = "%d1" if kind == "u64" else "%r1"
        lines.append(f"mov.{kind} {register}, {name};")
    Module(module(75, (6, 3), lines)).kernel("k").launch([1], [1], [0])
