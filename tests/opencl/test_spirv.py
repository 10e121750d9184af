"""The reader of SPIR-V and the cutter agree with Khronos's own tools."""

from __future__ import annotations

import gzip
import os
import re
import struct
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from opencl_backend import compile as opencl_compile
from opencl_backend.loads import done_once
from tests.conformance.rows import KERNELS, compile_for_opencl
from tests.sampling import rounds
from uhal.errors import InvalidImageError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_slices import SHARED, Cutter
from uhal_conformance.images import IMAGES

OP_GENERIC_CAST_TO_PTR_EXPLICIT, OP_ATOMIC_LOAD, OP_ATOMIC_STORE = 123, 227, 228

SOURCE = """
#include <uhal/kernel.h>
#include <uhal/report.h>
struct Pair { f64 a; u8 b; };
struct Node { Node *next; u32 value; };
DEVICE_GLOBAL(u32, hits, 3);
DEVICE_FUNCTION u64 twice(u64 x) { return 2 * x; }
KERNEL(takes, (bool a, i8 b, u16 c, f16 d, f32 e, f64 f, i64 g, bf16 h, Pair p, const f32 *x,
               u32 *y)) {
    THREADS(t) { y[t] = a + b + c + f32(d) + e + f + g + f32(h) + p.a + p.b + x[t] + twice(t); }
}
KERNEL(small, (u32 *y)) { THREADS(t) { y[t] = t; } }
KERNEL(shares, (u32 *y)) {
    DYNAMIC_SHARED(u32, scratch);
    THREADS(t) { scratch[t] = y[t]; }
    BARRIER();
    THREADS(t) { y[t] = scratch[t ^ 1]; }
}
KERNEL(shares_wide, (f64 *y)) {
    DYNAMIC_SHARED(f64, scratch);
    SHARED(f64, fixed, 8);
    THREADS(t) { scratch[t] = y[t]; fixed[t & 7] = y[t]; }
    BARRIER();
    THREADS(t) { y[t] = scratch[t ^ 1] + fixed[0]; }
}
KERNEL(counts, ()) { THREADS(t) { if (t == 0) hits[1] += 1; } }
KERNEL(reports, (u32 n)) { report_index("reports", 0, n, 1); }
KERNEL(walks, (const Node *list, u32 *y)) {
    u32 sum = 0;
    for (const Node *one = list; one != nullptr; one = one->next) sum += one->value;
    y[0] = sum;
}
KERNEL_BOUNDED(bounded, 96, (u32 *y)) { THREADS(t) { y[t] = 1; } }
"""


@pytest.fixture(scope="module")
def image() -> bytes:
    return opencl_compile.kernels(SOURCE)


@pytest.fixture(scope="module")
def module(image: bytes) -> SpirvModule:
    return SpirvModule(image)


def tool(packages: Path, name: str, image: bytes, folder: Path, *options: str) -> str:
    """Return the output of a Khronos tool for a module, which it must accept."""
    path = folder / f"{name}.spv"
    path.write_bytes(image)
    found = packages / "usr" / "bin" / name
    done = subprocess.run([str(found), *options, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_signatures(module: SpirvModule) -> None:
    told = {name: signature.declaration for name, signature in module.signatures.items()}
    assert told == {
        "takes": "bool a, i8 b, u16 c, f16 d, f32 e, f64 f, i64 g, bf16 h, bytes[16] p, "
        "const f32* x, u32* y",
        "small": "u32* y",
        "shares": "u32* y",
        "shares_wide": "f64* y",
        "counts": "",
        "reports": "u32 n",
        "walks": "const ptr list, u32* y",
        "bounded": "u32* y",
    }
    assert module.largest_block(module.entries["bounded"]) == 96
    assert module.largest_block(module.entries["small"]) == 1024


def test_capabilities_and_entries_are_what_the_disassembler_prints(
    packages: Path, image: bytes, module: SpirvModule, tmp_path: Path
) -> None:
    text = tool(packages, "spirv-dis", image, tmp_path, "--no-color")
    assert list(module.entries) == re.findall(r'OpEntryPoint Kernel \S+ "(\w+)"', text)
    assert len(module.capabilities) == len(re.findall(r"^\s*OpCapability ", text, re.MULTILINE))
    assert len(module.functions) == len(re.findall(r"= OpFunction ", text))


def test_each_slice_is_a_module_of_one_kernel(
    packages: Path, module: SpirvModule, tmp_path: Path
) -> None:
    cutter = Cutter(module)
    assert not cutter.whole
    assert sorted(cutter.variables.values()) == ["hits", "uhal_fault"]
    names = {identifier: name for identifier, name in cutter.variables.items()}
    assert {names[one]: cutter.size_of(one) for one in names} == {"hits": 12, "uhal_fault": 8}
    hidden = {}
    for entry in module.entries.values():
        cut = cutter.cut(entry)
        tool(packages, "spirv-val", cut.image, tmp_path, "--target-env", "spv1.2")
        alone = SpirvModule(cut.image)
        assert list(alone.entries) == [entry.name]
        function = alone.function_of(alone.entries[entry.name])
        given = len(module.signature(entry)) + len(cut.hidden)
        assert len(function.parameters) == given
        hidden[entry.name] = [names.get(one, one) for one in cut.hidden]
        assert cut.indirect == (entry.name in ("walks", "reports"))
        has_doubles = entry.name in ("takes", "shares_wide")
        assert (10 in cut.capabilities) == has_doubles, entry.name
        assert (9 in cut.capabilities) == (entry.name == "takes")
        assert len(cut.image) < len(module.words) * 4
    assert hidden == {
        **{name: [] for name in module.entries},
        "shares": [SHARED],
        "shares_wide": [SHARED],
        "counts": ["hits"],
        "reports": ["uhal_fault"],
    }


def test_variables_that_cannot_be_arguments_leave_the_module_whole() -> None:
    for text in (
        "__attribute__((device)) u32 begins[2] = {4, 5};",
        # the variable is used in a function that is not inlined
        "__attribute__((device)) u32 begins[2];\n"
        "__attribute__((device, noinline)) u32 first() { return begins[0]; }",
    ):
        use = "first()" if "first" in text else "begins[1]"
        image = opencl_compile.kernels(
            f"#include <uhal/kernel.h>\n{text}\nKERNEL(reads, (u32 *y)) {{ y[0] = {use}; }}"
        )
        assert Cutter(SpirvModule(image)).whole


def test_what_is_damaged_is_refused_or_read(image: bytes, rng: np.random.Generator) -> None:
    """Random damage is refused, and quickly."""
    words = np.frombuffer(image, "<u4")
    refused = 0
    for _ in range(rounds(300, 20_000)):
        broken = words.copy()
        for _ in range(int(rng.integers(1, 4))):
            index = int(rng.integers(0, broken.size))
            broken[index] = rng.choice(
                [0, 1, 0xFFFFFFFF, int(rng.integers(1 << 32)), broken[index] ^ 1]
            )
        data = broken.tobytes()[: 4 * int(rng.integers(1, broken.size + 1))]
        try:
            module = SpirvModule(data)
            cutter = Cutter(module)
            for entry in module.entries.values():
                module.signature(entry)
                cutter.cut(entry)
            for variable in cutter.variables:
                cutter.size_of(variable)
        except InvalidImageError:
            refused += 1
    assert refused


def test_what_is_no_module_is_refused_in_words(image: bytes) -> None:
    swapped = struct.pack(f">{len(image) // 4}I", *struct.unpack(f"<{len(image) // 4}I", image))
    for data, words in (
        (b"", "has 0 bytes"),
        (image[:-1], "which is no SPIR-V module"),
        (swapped, "in big-endian order"),
        (b"\x7fELF" + image[4:], "begins with b'\\x7fELF"),
        (image[:-4], "ends in a function"),
    ):
        with pytest.raises(InvalidImageError) as error:
            SpirvModule(data)
        assert words in str(error.value)


def test_slices_of_every_kernel_are_valid(
    packages: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Khronos's validator accepts a slice for each kernel of the shipped images, or for a
    sample."""
    folder = KERNELS.parents[2] / "ubridge" / "kernels" / "images" / "opencl"
    for path in sorted(folder.glob("*.spv.gz")):
        module = SpirvModule(gzip.decompress(path.read_bytes()), path.name)
        cutter = Cutter(module)
        assert not cutter.whole, path.name
        names = list(module.entries)
        for name in rng.permutation(names)[: rounds(2, len(names))]:
            cut = cutter.cut(module.entries[str(name)])
            tool(packages, "spirv-val", cut.image, tmp_path, "--target-env", "spv1.2")


def opcodes(image: bytes) -> Counter[int]:
    """Return the count of each instruction in a module."""
    words = struct.unpack(f"<{len(image) // 4}I", image)
    found: Counter[int] = Counter()
    position = 5
    while position < len(words):
        found[words[position] & 0xFFFF] += 1
        position += words[position] >> 16
    return found


LANGUAGE = IMAGES / "opencl" / "language.spv"
ATOMICS = ["atomics_i32", "atomics_u64", "atomics_f64", "atomics_block", "last_block", "asserts"]


@pytest.mark.parametrize("kernel", ATOMICS)
def test_a_kernel_asks_at_one_place_where_a_pointer_points(kernel: str) -> None:
    """PoCL 7.1 and Intel's runtime of 2022 abort the process when a kernel asks at two
    places."""
    module = SpirvModule(LANGUAGE.read_bytes())
    found = opcodes(Cutter(module).cut(module.entries[kernel]).image)
    assert found[OP_GENERIC_CAST_TO_PTR_EXPLICIT] == 1


def test_drivers_may_inline_what_the_compiler_had_to_keep() -> None:
    """On Intel's runtime, a call for each atomic operation took four times as long."""
    module = SpirvModule(LANGUAGE.read_bytes())

    def kept(one: SpirvModule) -> int:
        return sum(one.words[each.start + 3] & 2 for each in one.functions.values())

    assert kept(module)
    cut = SpirvModule(Cutter(module).cut(module.entries["atomics_u32"]).image)
    assert len(cut.functions) == 2
    assert not kept(cut)


def test_atomic_loads_and_stores_are_atomic_instructions() -> None:
    module = SpirvModule(LANGUAGE.read_bytes())
    for kernel in ("atomics_u32", "atomics_f64", "atomics_block", "atomics_system"):
        found = opcodes(Cutter(module).cut(module.entries[kernel]).image)
        # one store for pointers to shared memory, and one for pointers to global memory
        assert found[OP_ATOMIC_STORE] == 2, kernel
        assert found[OP_ATOMIC_LOAD] >= 2, kernel


def test_loads_of_kernels_with_barriers_are_made_volatile(packages: Path, tmp_path: Path) -> None:
    """Loads of memory that others write, for PoCL. A kernel without barriers is unchanged."""
    module = SpirvModule(LANGUAGE.read_bytes())
    cutter = Cutter(module)
    plain = cutter.cut(module.entries["atomics_i32"]).image
    assert done_once(plain, "atomics_i32") == plain
    cut = cutter.cut(module.entries["lanes_i32"]).image
    made = done_once(cut, "lanes_i32")
    assert opcodes(made) == opcodes(cut)
    told = tool(packages, "spirv-dis", made, tmp_path, "--no-color")
    tool(packages, "spirv-val", made, tmp_path, "--target-env", "spv1.2")
    loads = [line for line in told.splitlines() if " OpLoad " in line]
    of_others = [line for line in loads if "%gl_" not in line and "Function" not in line]
    assert len(of_others) > 50
    # UHAL_IN_ORDER's counters are volatile by themselves
    assert all("Volatile" in line for line in of_others)
    assert not any("Volatile" in line for line in loads if "%gl_" in line)


def test_a_source_compiles_to_the_same_bytes_anywhere(image: bytes, tmp_path: Path) -> None:
    before = os.getcwd()
    try:
        os.chdir(tmp_path)
        assert opencl_compile.kernels(SOURCE) == image
    finally:
        os.chdir(before)
    assert compile_for_opencl(KERNELS / "twin.cu", tmp_path).read_bytes()
