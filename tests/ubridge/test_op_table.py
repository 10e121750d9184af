"""The op table against the existing kernels and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import ubridge
from ubridge import OPS
from ubridge.core.accuracy import EXACT, OF_PRODUCT, ROUNDED, ROUNDING
from ubridge.core.kernel_def import block_per_result, by_vectors, norm_threads
from ubridge.definitions.table import FAMILIES
from ubridge.prepare.candle.table import CANDLE_ON_CPUS
from ubridge.prepare.gcu.kernels import gcu_kernel
from ubridge.quantized import FORMATS
from uhal import Device, DeviceLimits

DEVICES = ("host",)
UNREACHED = {
    "fill": "const_set does the same and takes strides",
    "embedding": "index_select gives the same rows",
    "sum": "fast_sum sums any axes and needs no zeros before",
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"),
        "conv_tiles computes all convolutions, in one launch for all groups",
    ),
}
MODULES = (
    "affine",
    "binary",
    "block_matmul",
    "cast",
    "conv",
    "fill",
    "indexing",
    "reduce",
    "sort",
    "ternary",
    "unary",
)


def promised() -> Iterator[tuple[str, str, str]]:
    """Every (operation, module, entry) that the table promises."""
    others = {"cast": OPS["astype"].dtypes}
    ids = ("u8", "u32", "i64")
    for op in OPS.values():
        lowering = CANDLE_ON_CPUS.get(op) or CANDLE_ON_CPUS.get(op.family)
        if op.composed is not None and op not in CANDLE_ON_CPUS:
            continue
        if lowering is None:
            assert not op.dtypes, f"{op.name} promises dtypes without a lowering"
            continue
        kernel = lowering.kernel
        assert kernel is not None, f"{op.name} has no kernels under its name"
        parts = {
            "dtype": op.dtypes,
            "other": others.get(op.family.name, ids),
            "format": tuple(FORMATS),
            "elements": (32, 256),
        }
        named = [one for one in parts if f"{{{one}}}" in kernel.entry]
        for values in product(*(parts[one] for one in named)):
            names = dict(zip(named, values, strict=True))
            yield op.name, kernel.module, kernel.entry.format(root=op.root, **names)


def test_every_kernel_promised_is_there(device: Device) -> None:
    modules = ubridge.modules(device.backend)
    kernels = {module: set(ubridge.load_module(module).kernels) for module in modules}
    missing = [(name, entry) for name, module, entry in promised() if entry not in kernels[module]]
    assert not missing


def test_every_kernel_there_is_promised(device: Device) -> None:
    """The table omits another spelling of f8, other ids, the steps of a long sort, and kernels that
    others replace."""
    entries = {entry for _, _, entry in promised()}
    forgotten = []
    for module in MODULES:
        for entry in ubridge.load_module(module).kernels:
            parts = entry.split("_")
            other_spelling = "e4m3" in parts
            other_ids = parts[0] == "where" and parts[1] in ("i16", "i32")
            of_a_sort = parts[0] == "asort" and parts[1] in ("runs", "merge")
            is_unreached = bool({parts[0], "_".join(parts[:-1])} & UNREACHED.keys())
            left_out = is_unreached or other_spelling or other_ids or of_a_sort
            if entry not in entries and not left_out:
                forgotten.append(entry)
    assert not forgotten


def test_results_are_shared_out_by_how_they_lie() -> None:
    limits = DeviceLimits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 49152, 32, 80)
    some = replace(limits, processors=2, max_blocks_for_elements=128)
    lone = replace(some, processors=1)
    for device, expected in (
        (limits, (10**6, 10**6, 10**6, 100)),
        (some, (128, 10**6, 128, 100)),
        (lone, (1, 1, 1, 1)),
    ):
        configure = block_per_result(device)
        work = ((10**6, 16), (10**6, 16, True), (10**6, 4096, True), (100, 16))
        assert tuple(configure(*one)[0] for one in work) == expected
        assert configure(10**6, 17, True)[1:] == (32, 0)
    # Lanes of a warp take results: 32 of them need a block, and a GPU takes 1,024 blocks.
    by_lanes = block_per_result(limits)
    assert [by_lanes(n, 16, True, 32)[0] for n in (100, 5000, 10**6)] == [100, 1024, 31_250]


def test_threads_of_elementwise_kernels_take_vectors() -> None:
    limits = DeviceLimits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 49152, 32, 80)
    host = replace(limits, max_blocks_for_elements=128)
    for device, work, blocks in (
        (limits, (1 << 12, 4), 2),
        (limits, (1 << 20, 4), 256),
        (limits, (1 << 20, 2), 128),
        (limits, (5, 1), 1),
        (host, (1 << 12, 4), 16),
    ):
        assert by_vectors(device)(*work) == (blocks, limits.block_for_elements, 0)


def test_threads_of_a_gpu_hold_a_row() -> None:
    limits = DeviceLimits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 49152, 32, 80)
    host = replace(limits, max_blocks_for_elements=128)
    assert [norm_threads(limits, n) for n in (1, 1024, 2048, 1 << 20)] == [32, 32, 64, 1024]
    assert [norm_threads(host, n) for n in (1, 1023, 1024)] == [32, 32, 1024]


def test_kernels_of_gcus_ask_for_shared_memory_only_where_they_use_it() -> None:
    limits = DeviceLimits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 60 << 20, 32, 2)
    plain, with_l2 = gcu_kernel("a", "b"), gcu_kernel("a", "b", in_l2=True)
    assert plain.geometry(limits)(10) == (2, limits.block_for_elements, 0)
    assert with_l2.geometry(limits)(10) == (2, limits.block_for_elements, 1 << 20)


def test_elementwise_operations_have_functions() -> None:
    families = ("unary", "unary_scalar", "binary", "compare")
    for op in OPS.values():
        if op.family.name in families:
            function = getattr(ubridge, op.name)
            assert op.name in ubridge.__all__
            assert function.__name__ == op.name
            assert function.__doc__


def test_names_are_unique_and_exported() -> None:
    assert len(set(ubridge.__all__)) == len(ubridge.__all__)
    for name in ubridge.__all__:
        assert hasattr(ubridge, name)


@pytest.mark.parametrize("name", ["nothing", "Exp"])
def test_an_unknown_operation_is_named(name: str, device: Device) -> None:
    x = ubridge.zeros(3, device=device)
    with pytest.raises(KeyError, match=f"no operation '{name}'; there are copy, negative"):
        ubridge.launch_unary(name, x.buffer, x.layout)


def test_an_unsupported_dtype_says_what_there_is(device: Device) -> None:
    x = ubridge.from_numpy([1, 2], "f32", device=device)
    with pytest.raises(
        TypeError,
        match=r"^bitwise_and: dtype f32 is not supported on \w+. Cast first, for example x.astype",
    ):
        x & x


def test_operations_are_named_by_their_objects() -> None:
    """Only definitions and lowerings spell an operation's name as a literal."""
    # These folders use the standard's names, or such words as keys of model configurations.
    exempt = ("array_api", "definitions", "kernels", "prepare", "models")
    others = {
        ("launching.py", "cos"),  # operands
        ("launching.py", "sin"),
        ("launching_writes.py", "cache"),
        ("refusals.py", "power"),  # numpy's ufunc
        ("selection.py", "sort"),  # functions of several operations
        ("quantized.py", "quantized_matmul"),
        ("__main__.py", "quantize"),  # a command
        ("tracing.py", "fill"),  # kinds of work that a context tells of
        ("tracing.py", "copy"),
        ("collectives.py", "sum"),  # what a library of collectives does
    }
    names = {*OPS, *FAMILIES}
    root = Path(ubridge.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in exempt:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = {id(one) for node in ast.walk(tree) for one in skipped_parts(node)}
        found += [
            f"{path.relative_to(root)}:{node.lineno} {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in names
            and id(node) not in skipped
            and (path.name, node.value) not in others
        ]
    assert not found


def skipped_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield docstrings and public names of a statement, which the check skips."""
    if isinstance(node, ast.Expr):
        yield node.value
    if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
        yield from ast.walk(node)


def test_the_walks_of_the_design_name_what_there_is() -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "docs" / "design.md").read_text("utf-8")
    walks = text.partition("The walks, ")[2].partition("\n## ")[0]
    named = 0
    for step in re.split(r"\n\s*(?:\d\.|\*) ", walks):
        files = re.findall(r"`([\w/]+\.py)`", step)
        for file in files:
            assert (root / "ubridge" / file).is_file(), file
        if len(files) == 1:
            source = (root / "ubridge" / files[0]).read_text("utf-8")
            for name in re.findall(r"`([A-Za-z_]+)`", step.partition(files[0])[2]):
                assert re.search(rf"\b{name}\b", source), (files[0], name)
                named += 1
    assert named > 15


@pytest.mark.parametrize("dtype", sorted(ROUNDING))
def test_bounds_count_roundings_of_the_dtype_and_of_the_computation(dtype: str) -> None:
    inner = 2.0**-53 if dtype == "f64" else 2.0**-24
    last = ROUNDING[dtype]
    assert EXACT.bound(dtype, 3.0, 5.0) == 0
    assert ROUNDED.bound(dtype, -3.0, 5.0) == last * 3 + inner * 3
    assert OF_PRODUCT.bound(dtype, -3.0, 5.0, terms=7) == last * 3 + inner * (3 + 35)
