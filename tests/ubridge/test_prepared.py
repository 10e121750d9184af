"""Prepared launches, which the answer to a question lists before they run."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from ubridge import OPS, DeviceExecutor, Layout
from ubridge.core.prepared import Launch, Words
from ubridge.core.question import Question
from ubridge.device.ready import make_ready, parameter_names
from uhal import Device, Passed, as_dtype
from uhal.errors import InvalidImageError

F32 = as_dtype("f32")


def test_questions_are_values() -> None:
    line = (F32, Layout.contiguous(6))
    part = (F32, Layout((3,), (2,), 1).from_start)
    asked = Question(OPS["exp"], (line,), line)
    assert asked == Question(OPS["exp"], ((F32, Layout((6,), (1,))),), line)
    assert hash(asked) == hash(Question(OPS["exp"], (line,), line))
    for other in (
        Question(OPS["log"], (line,), line),
        Question(OPS["exp"], (part,), line),
        Question(OPS["exp"], ((as_dtype("f16"), line[1]),), line),
        Question(OPS["exp"], (line,), (as_dtype("f16"), line[1])),
        Question(OPS["exp"], (line,), line, numbers=1),
        Question(OPS["exp"], (line,), line, (("axis", 1),)),
        asked.for_capture(),
    ):
        assert asked != other
    assert part[1].start_offset == 0
    assert asked.for_capture() is not asked
    assert asked.for_capture().for_capture() == asked.for_capture()


def test_an_answer_holds_no_memory(host: Device) -> None:
    """Numbers, layouts and the call's own arguments have the names of the kernel's parameters."""
    x = Layout((3, 4), (1, 3))
    question = Question(OPS["elu"], ((F32, x),), (F32, Layout.contiguous((3, 4))), numbers=1)
    (step,) = DeviceExecutor.of(host).prepare(question).steps
    assert isinstance(step, Launch)
    assert (step.module, step.entry) == ("unary", "uelu_f32")
    assert step.arguments == {
        "numel": 12,
        "num_dims": 2,
        "info": Words((3, 4, 1, 3)),
        "inp": Passed.operand(0),
        "out": Passed.result(),
        "param": Passed.operand(1),
    }


def test_a_kernel_of_other_parameters_is_refused(host: Device) -> None:
    executor = DeviceExecutor.of(host)
    line = (F32, Layout.contiguous(6))
    prepared = executor.prepare(Question(OPS["exp"], (line,), line))
    (step,) = prepared.launches
    function = executor.get_or_load_func(step.entry, step.module)
    assert parameter_names(function, step) == ("numel", "num_dims", "info", "inp", "out")
    wrong = Launch(step.module, "uelu_f32", step.grid, step.block, 0, step.arguments)
    with pytest.raises(
        InvalidImageError,
        match=r"uelu_f32 of module 'unary': expected a kernel of the parameters numel, num_dims, "
        r"info, inp, out, got .*f32 param",
    ):
        parameter_names(executor.get_or_load_func("uelu_f32", "unary"), wrong)


def test_several_launches_are_one_call(device: Device, rng: np.random.Generator) -> None:
    """Operands with several strides between products are copied into the call's scratch memory."""
    array = rng.integers(-4, 5, (2, 3, 4, 5)).astype("f4")
    x = ubridge.asarray(array, device=device)
    turned = x.transpose(1, 0, 2, 3)
    left = turned[:, :, :, :4]
    question = Question(
        OPS["matmul"],
        ((F32, left.layout.from_start), (F32, turned.layout.from_start)),
        (F32, Layout.contiguous((3, 2, 4, 5))),
        is_capturable=True,
    )
    executor = DeviceExecutor.of(device)
    prepared = executor.prepare(question)
    ready = make_ready(executor, prepared, None)
    made = ready.launch(None, None, left.buffer, turned.buffer)
    got = ubridge.DeviceTensor(made, Layout.contiguous((3, 2, 4, 5))).to_numpy()
    other = array.transpose(1, 0, 2, 3)
    np.testing.assert_array_equal(got, other[:, :, :, :4] @ other)
    assert len(prepared.launches) == 3
    assert prepared.scratch >= 4 * (left.size + turned.size)
