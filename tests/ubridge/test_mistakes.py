"""Exact error messages for mistakes in each family of operations.

`mistakes.txt` contains the messages. After a change of messages, delete the file, run this test
twice, and read the difference. Every message begins with the operation's name. Every error has a
class that numpy users catch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.op_calls import call_of
from ubridge import OPS, DeviceTensor, Op
from uhal import Device
from uhal.errors import DeviceError, InvalidHandleError

GOLDEN = Path(__file__).with_name("mistakes.txt")
Attempt = Callable[[], object]
_CALLED = {"index_select": {"embedding"}, "block_elements": {"launch_dequantize"}}
"""Functions that replace the functions named by definitions."""
CAUGHT = (IndexError, OverflowError, TypeError, ValueError)
"""Exceptions that a numpy user catches."""


class Tensors:
    """Small tensors for mistakes, with right and wrong shapes, dtypes and devices."""

    def __init__(self, device: Device, other: Device) -> None:
        self.x = self.of((2, 3), device)
        self.y = self.of((2, 4), device)
        self.row = self.of((3,), device)
        self.half = self.of((2, 3), device, "f16")
        self.wide = self.of((2, 32), device, "f16")
        self.narrow = self.of((2, 32), device, "u16")
        self.short = self.of((2, 3), device, "f8e4m3")
        self.flags = self.of((2, 3), device, "u8")
        self.image = self.of((1, 2, 4, 4), device)
        self.line = self.of((1, 2, 4), device)
        self.number = self.of((), device)
        self.position = self.of((1,), device, "i64")
        self.weight = ub.QuantizedWeight.from_numpy(
            np.zeros((2, 32), np.float32), "q4_0", device=device
        )
        self.experts = ub.QuantizedWeight.from_numpy(
            np.zeros((2, 1, 32), np.float32), "q4_0", device=device
        )
        self.far = self.of((2, 3), other)
        self.far_image = self.of((1, 2, 4, 4), other)
        self.array = np.zeros((2, 3), np.float32)

    @staticmethod
    def of(shape: tuple[int, ...], device: Device, dtype: str = "f32") -> DeviceTensor:
        return ub.zeros(shape, dtype, device=device)


def mistakes(t: Tensors) -> dict[str, list[tuple[str, Attempt]]]:
    """For each family: a mistake, and a call that makes it."""
    x, y, far, half, short, array = t.x, t.y, t.far, t.half, t.short, t.array
    image, line, row, number = t.image, t.line, t.row, t.number
    ids: Any = [0, 1]
    of = attrgetter("buffer", "layout")
    wrong: Any = array
    kernel = ub.zeros((2, 2, 3, 3), device=x.device)
    taps = ub.zeros((2, 2, 3), device=x.device)
    return {
        "unary": [
            ("no tensor", lambda: ub.exp(wrong)),
            ("dtype", lambda: ub.tan(short)),
            ("out's shape", lambda: ub.exp(x, out=y)),
            ("out's dtype", lambda: ub.exp(x, out=half)),
            ("out's device", lambda: ub.exp(x, out=far)),
            ("dtype of a buffer", lambda: ub.launch_unary("exp", *of(x), out=half.buffer)),
        ],
        "unary_scalar": [
            ("no tensor", lambda: ub.elu(wrong, 1.0)),
            ("exponent", lambda: ub.power(x, y)),
            ("no number", lambda: ub.power(x, "2")),
        ],
        "affine": [
            ("no tensor", lambda: ub.affine(wrong, 1, 2)),
            ("range", lambda: ub.affine(t.flags, 256, 0)),
            ("no number", lambda: ub.affine(x, "1", 0)),  # type: ignore[arg-type]
        ],
        "binary": [
            ("shapes", lambda: ub.add(x, y)),
            ("devices", lambda: ub.add(x, far)),
            ("no tensor", lambda: ub.add(x, array)),
            ("no number", lambda: ub.add(x, "1")),
            ("range", lambda: ub.add(t.flags, -1)),
            ("dtype", lambda: ub.bitwise_and(x, x)),
            ("dtypes", lambda: ub.add(half, half.astype("bf16"))),
            ("out's shape", lambda: ub.add(x, row, out=row)),
        ],
        "compare": [
            ("shapes", lambda: ub.less(x, y)),
            ("devices", lambda: ub.less(x, far)),
            ("out's dtype", lambda: ub.less(x, x, out=x.copy())),
        ],
        "cast": [
            ("no tensor", lambda: ub.astype(wrong, "f32")),
            ("unknown dtype", lambda: ub.astype(x, "f33")),
        ],
        "where": [
            ("no tensor", lambda: ub.where(wrong, x, x)),
            ("shapes", lambda: ub.where(x > 0, x, y)),
            ("devices", lambda: ub.where(x > 0, far, 1)),
            ("range", lambda: ub.where(x > 0, t.flags, 256)),
        ],
        "masked_fill": [
            ("no tensor", lambda: ub.masked_fill(x, wrong, 1)),
            ("shapes", lambda: ub.masked_fill(x, y, 1)),
            ("devices", lambda: ub.masked_fill(x, far, 1)),
            ("value", lambda: ub.masked_fill(t.flags, x, 0.5)),
        ],
        "gated": [
            ("shapes", lambda: ub.silu_mul(x, y)),
            ("dtypes", lambda: ub.silu_mul(x, half)),
            ("devices", lambda: ub.silu_mul(x, far)),
        ],
        "fill": [
            ("range", lambda: t.flags.fill(256)),
            ("aliases", lambda: row.broadcast_to((2, 3)).fill(1)),
        ],
        "copy2d": [
            ("size", lambda: ub.launch_copy2d(x.buffer, y.buffer, 2, 4, 3, 4)),
        ],
        "index_select": [
            ("id", lambda: ub.take(x, [0, 2])),
            ("ids' dtype", lambda: ub.take(x, [0.5])),
            ("axis", lambda: ub.take(x, ids, 2)),
            ("devices", lambda: ub.take(x, ub.zeros(2, "u32", device=far.device))),
            ("table", lambda: ub.embedding(ids, row)),
            ("out's shape", lambda: ub.take(x, ids, out=y)),
        ],
        "gather": [
            ("id", lambda: ub.gather(x, [[0, 0, 2]], 0)),
            ("shapes", lambda: ub.gather(x, [[0]], 0)),
            ("shapes of buffers", lambda: ub.launch_gather(*of(x), *of(y), 0)),
            ("axes of buffers", lambda: ub.launch_gather(*of(x), *of(y[None]), 0)),
            ("axis", lambda: ub.gather(x, [[0, 0, 0]], -3)),
            ("devices", lambda: ub.gather(x, ub.zeros((2, 3), "u32", device=far.device), 0)),
        ],
        "scatter": [
            ("id", lambda: ub.scatter(x, [[2, 0, 0]], x[:1], 0)),
            ("shapes", lambda: ub.scatter(x, [[0]], x, 0)),
            ("shapes of buffers", lambda: ub.launch_scatter("scatter", *of(x), *of(y), *of(y), 0)),
            ("axes", lambda: ub.launch_scatter("scatter", *of(x), *of(y[None]), *of(y[None]), 0)),
            ("dtypes", lambda: ub.scatter_add(x, [[0, 0, 0]], half[:1], 0)),
            ("devices", lambda: ub.scatter(x, [[0, 0, 0]], far[:1], 0)),
        ],
        "index_add": [
            ("id", lambda: ub.index_add(x, [2], x[:1], 0)),
            ("shapes", lambda: ub.index_add(x, [0], x, 0)),
            ("devices", lambda: ub.index_add(x, [0], far[:1], 0)),
        ],
        "reduce": [
            ("axis", lambda: ub.sum(x, 2)),
            ("twice an axis", lambda: ub.sum(x, (0, -2))),
            ("empty", lambda: ub.max(x[:0])),
            ("dtype", lambda: ub.max(short)),
            ("out's shape", lambda: ub.sum(x, 0, out=x)),
        ],
        "arg_reduce": [
            ("axes", lambda: ub.argmax(x, (0, 1))),  # type: ignore[arg-type]
            ("axis", lambda: ub.argmin(x, 2)),
            ("empty", lambda: ub.argmax(x[:, :0], 1)),
        ],
        "softmax": [
            ("axis", lambda: ub.softmax(x, 2)),
            ("dtype", lambda: ub.softmax(t.flags)),
            ("no axis", lambda: ub.softmax(number)),
        ],
        "log_softmax": [
            ("axis", lambda: ub.log_softmax(x, -3)),
            ("dtype", lambda: ub.log_softmax(t.flags)),
        ],
        "rmsnorm": [
            ("shapes", lambda: ub.rms_norm(x, y[0])),
            ("dtypes", lambda: ub.rms_norm(x, half[0])),
            ("devices", lambda: ub.rms_norm(x, far[0])),
        ],
        "group_norm": [
            ("groups", lambda: ub.group_norm(x, row, row, 5)),
            ("shapes", lambda: ub.group_norm(x, row, y[0], 1)),
            ("devices", lambda: ub.group_norm(x, row, far[0], 1)),
        ],
        "layernorm": [
            ("shapes", lambda: ub.layer_norm(x, row, y[0])),
            ("devices", lambda: ub.layer_norm(x, row, far[0])),
        ],
        "rope": [
            ("shape", lambda: ub.rope(x, x, x)),
            ("tables", lambda: ub.rope(image, x, x)),
            ("dtypes", lambda: ub.rope(image, half, half)),
        ],
        "rope_i": [("tables", lambda: ub.rope(image, x, x, interleaved=True))],
        "rope_thd": [("tables", lambda: ub.rope(image, x, x, heads_last=True))],
        "sort": [
            ("axis", lambda: ub.argsort(x, 2)),
            ("dtype", lambda: ub.argsort(short)),
        ],
        "random": [
            ("dtype", lambda: ub.rand(3, "i32")),
            ("seed", lambda: ub.rand(3, seed=-1)),
        ],
        "im2col1d": [
            ("window", lambda: ub.launch_im2col(line.buffer, line.layout, (5,))),
        ],
        "im2col": [
            ("axes", lambda: ub.launch_im2col(line.buffer, line.layout, (2, 2))),
        ],
        "col2im1d": [
            ("stride", lambda: ub.launch_col2im1d(image.buffer, image.layout, stride=0)),
        ],
        "conv1d": [
            ("axes", lambda: ub.conv1d(x, taps)),
            ("channels", lambda: ub.conv1d(line, taps[:, :1])),
            ("window", lambda: ub.conv1d(line, taps, dilation=3)),
            ("groups", lambda: ub.conv1d(line, taps, groups=3)),
        ],
        "conv2d": [
            ("channels", lambda: ub.conv2d(image, kernel[:, :1])),
            ("dtypes", lambda: ub.conv2d(image, kernel.astype("f16"))),
            ("devices", lambda: ub.conv2d(image, t.far_image)),
        ],
        "conv_transpose1d": [
            ("channels", lambda: ub.conv_transpose1d(line, taps[:1])),
            ("stride", lambda: ub.conv_transpose1d(line, taps, stride=0)),
        ],
        "conv_transpose2d": [("channels", lambda: ub.conv_transpose2d(image, kernel[:1]))],
        "pool2d": [
            ("axes", lambda: ub.max_pool2d(line, 2)),
            ("window", lambda: ub.avg_pool2d(image, 5)),
        ],
        "nearest2d": [("axes", lambda: ub.upsample_nearest2d(line, 2, 2))],
        "bilinear2d": [("axes", lambda: ub.upsample_bilinear2d(line, 2, 2))],
        "matmul": [
            ("shapes", lambda: x @ y),
            ("no axes", lambda: x @ number),
            ("batches", lambda: image @ ub.zeros((3, 4, 4), device=x.device)),
            ("devices", lambda: x @ far),
            ("dtype", lambda: t.short @ t.short.mT),
        ],
        "attention": [
            ("axes", lambda: ub.attention(x, x, x)),
            ("shapes", lambda: ub.attention(image, image[:, :, :, :2], image[:, :, :, :2])),
            ("mask", lambda: ub.attention(image, image, image, mask=x)),
            ("devices", lambda: ub.attention(image, image, t.far_image)),
        ],
        "kv_concat": [
            ("shapes", lambda: ub.kv_concat(x, y, 0)),
            ("axis", lambda: ub.kv_concat(x, x, 2)),
            ("dtypes", lambda: ub.kv_concat(x, half, 0)),
            ("devices", lambda: ub.kv_concat(x, far, 0)),
        ],
        "kv_append": [
            ("no tensor", lambda: ub.kv_append(x, array, t.position)),
            ("shapes", lambda: ub.kv_append(x, y, t.position)),
            ("too many", lambda: ub.kv_append(x[:1], x, t.position)),
            ("dtypes", lambda: ub.kv_append(x, half, t.position)),
            ("position", lambda: ub.kv_append(x, x, row)),
            ("aliases", lambda: ub.kv_append(x.mT, x.mT, t.position)),
            ("devices", lambda: ub.kv_append(x, far, t.position)),
        ],
        "rope_at": [
            ("no tensor", lambda: ub.rope_at(array, row, row, t.position)),
            ("shapes", lambda: ub.rope_at(x, x, x, t.position)),
            ("position", lambda: ub.rope_at(x, x, x, row)),
            ("dtypes", lambda: ub.rope_at(x[None], half[:, :1], half[:, :1], t.position)),
            ("devices", lambda: ub.rope_at(x[None], far, far, t.position)),
        ],
        "cached_attention": [
            ("no tensor", lambda: ub.cached_attention(array, x, x, t.position)),
            ("shapes", lambda: ub.cached_attention(x, x, x, t.position)),
            ("widths", lambda: ub.cached_attention(x[None], y[None], y[None], t.position)),
            ("window", lambda: ub.cached_attention(*[x[None]] * 3, t.position, window=-1)),
            ("position", lambda: ub.cached_attention(*[x[None]] * 3, row)),
            ("dtypes", lambda: ub.cached_attention(x[None], *[half[None]] * 2, t.position)),
            ("bias", lambda: ub.cached_attention(*[x[None]] * 3, t.position, bias=row)),
            ("devices", lambda: ub.cached_attention(x[None], *[far[None]] * 2, t.position)),
        ],
        "quantized_matvec": [
            ("no weight", lambda: ub.quantized_matmul(x, x)),  # type: ignore[arg-type]
            ("no tensor", lambda: ub.quantized_matmul(wrong, t.weight)),
            ("columns", lambda: ub.quantized_matmul(x, t.weight)),
            ("dtype", lambda: ub.quantized_matmul(t.narrow, t.weight)),
            ("devices", lambda: ub.quantized_matmul(far, t.weight)),
            ("size", lambda: ub.launch_quantized_matvec("q4_0", x.buffer, row.buffer, 1, 32)),
        ],
        "activations": [
            ("dtype", lambda: ub.quantized.quantize_activations(t.narrow, "q4_0")),
        ],
        "quantized_product": [
            ("kind", lambda: ub.quantized_matmul(t.wide, t.weight, activations="q4")),  # type: ignore[call-overload]
            ("columns", lambda: ub.quantized_matmul(t.flags, t.weight, activations="q8")),
        ],
        "indexed_product": [
            ("no tensor", lambda: ub.indexed_matmul(wrong, t.experts, [[0]])),
            ("no weights", lambda: ub.indexed_matmul(t.wide[:, None], wrong, [[0], [1]])),
            ("one weight", lambda: ub.indexed_matmul(t.wide[:, None], t.weight, [[0], [1]])),
            ("columns", lambda: ub.indexed_matmul(x[None], t.experts, [[0]])),
            ("shapes", lambda: ub.indexed_matmul(t.wide[None], t.experts, [[0]])),
            ("bounds", lambda: ub.indexed_matmul(t.wide[None], t.experts, [[0, 2]])),
            ("ids", lambda: ub.indexed_matmul(t.wide[None], t.experts, t.position[None])),
            ("dtype", lambda: ub.indexed_matmul(t.narrow[None], t.experts, [[0, 1]])),
            ("devices", lambda: ub.indexed_matmul(far[None], t.experts, [[0]])),
            (
                "counts",
                lambda: ub.indexed_matmul(t.wide[None], [t.experts, t.experts[:1]], [[0, 1]]),
            ),
        ],
        "block_elements": [
            ("size", lambda: ub.launch_dequantize("q4_0", t.weight.buffer, 100, 32)),
            ("no bytes", lambda: ub.launch_dequantize("q4_0", x.buffer, 0, 32)),
            ("dtype", lambda: t.weight.dequantize("f64")),
            (
                "out",
                lambda: ub.launch_dequantize("q4_0", t.weight.buffer, 1, 32, out=half.buffer),
            ),
        ],
    }


def all_mistakes(t: Tensors) -> dict[str, list[tuple[str, Attempt]]]:
    """Return the mistakes above; for other families, mistakes in each operand's type and device."""
    found = mistakes(t)
    for op in OPS.values():
        if op.dtypes and op.family.name not in found:
            found[op.family.name] = operand_mistakes(op, t)
    return found


def operand_mistakes(op: Op, t: Tensors) -> list[tuple[str, Attempt]]:
    """Replace each operand by an array, and by another device's tensor; ids may be on the host."""
    call = call_of(op, t.x.device, np.random.default_rng(0))
    attempts: list[tuple[str, Attempt]] = []
    for name, operand in call.operands.items():
        far = ub.zeros(operand.shape, operand.dtype, device=t.far.device)
        if name != "ids":
            attempts.append((f"{name} no tensor", partial(call, **{name: t.array})))
        if len(call.operands) > 1:
            attempts.append((f"{name} elsewhere", partial(call, **{name: far})))
    return attempts


def answers(t: Tensors) -> str:
    lines = []
    for family, attempts in all_mistakes(t).items():
        lines.append(f"[{family}]")
        for what, attempt in attempts:
            with pytest.raises(Exception) as caught:
                attempt()
                pytest.fail(f"{family}, {what}: not refused")
            kinds = [one.__name__ for one in type(caught.value).__mro__ if one in CAUGHT]
            lines.append(f"{what}: {' '.join(kinds)}: {caught.value}")
        lines.append("")
    return "\n".join(lines)


@pytest.fixture
def tensors(host: Device, simulated_cuda: None) -> Tensors:
    with Device(0, backend="cuda") as other:
        return Tensors(host, other)


def test_every_mistake_is_answered_as_before(tensors: Tensors) -> None:
    said = answers(tensors)
    if not GOLDEN.exists():
        GOLDEN.write_text(said, encoding="utf-8")
        pytest.fail(f"wrote {GOLDEN}: read it")
    assert said == GOLDEN.read_text(encoding="utf-8")


def test_every_family_has_mistakes(tensors: Tensors) -> None:
    assert set(all_mistakes(tensors)) == {op.family.name for op in OPS.values() if op.dtypes}


def test_every_answer_names_the_operation(tensors: Tensors) -> None:
    for family, attempts in all_mistakes(tensors).items():
        ops = [op for op in OPS.values() if op.family.name == family]
        names = {name for op in ops for name in (op.name, op.called)} | _CALLED.get(family, set())
        for what, attempt in attempts:
            with pytest.raises((DeviceError, IndexError, TypeError, ValueError)) as caught:
                attempt()
            said = str(caught.value)
            assert said.partition(":")[0].partition(",")[0] in names, f"{family}, {what}: {said}"


OTHERWISE_CALLED = ("astype", "matmul", "rand", "randn")
"""Operations whose runs use a method, an operator, or no operand."""


def test_each_operand_has_to_be_a_tensor_of_the_device(tensors: Tensors) -> None:
    tried = 0
    for op in OPS.values():
        if op.dtypes and op.called in ub.__all__ and op.called not in OTHERWISE_CALLED:
            for what, attempt in operand_mistakes(op, tensors):
                with pytest.raises((InvalidHandleError, TypeError, ValueError)):
                    attempt()
                    pytest.fail(f"{op.name}, {what}: not refused")
                tried += 1
    assert tried > 150
