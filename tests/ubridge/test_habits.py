"""Habits of CuPy, PyTorch, PyCUDA and Numba: each error names what to write here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
import uhal
from tests.unit.test_first_day import answer
from ubridge.habits import (
    OF_CACHE,
    OF_GENERATION,
    OF_MODEL,
    OF_MODULE,
    OF_SESSION,
    OF_TENSOR,
    OF_TOKENIZER,
)
from ubridge.models import Cache, Generation, Model, Session
from ubridge.models.tokenizers.tokenizer import Tokenizer
from uhal import (
    Api,
    Device,
    DeviceBuffer,
    Event,
    EventFlags,
    Function,
    HostBuffer,
    Module,
    Stream,
    StreamFlags,
    habits,
)
from uhal.dtypes import DType
from uhal.errors import ArgumentTypeError, ArgumentValueError

GOLDEN = Path(__file__).with_name("habits.txt")
HABITS = """
ub.tensor([1, 2])
ub.Tensor([1, 2])
ub.device("cuda")
ub.cuda.is_available()
ub.nn.Linear(3, 4)
ub.float32
ub.asnumpy(x)
ub.dot(x, x)
ub.transpose(x)
ub.manual_seed(0)
ub.randint(0, 5, (2,))
ub.allclose(x, x)
ub.compile(print)
ub.RawKernel("source", "name")
uhal.RawKernel("source", "name")
uhal.SourceModule("source")
uhal.cuda.jit(print)
uhal.mem_alloc(100)
uhal.to_device(array)
uhal.synchronize()
x.buffer.get()
x.buffer.shape
x.buffer.fill(0)
x.buffer.ptr
x.buffer.astype("f64")
DeviceBuffer.empty(8, "f32")
x.buffer > 0
-x.buffer
x.buffer % 2
abs(x.buffer)
float(x.buffer)
pinned[0] = 1
pinned + 1
pinned.to_numpy()
pinned.to("cuda")
x.buffer.wait()
x.wait()
np.asarray(pinned)
np.save("x.npy", x)
stream.wait()
uhal.Event().wait()
stream.wait_event(stream)
stream.record_event(array)
stream.wait_stream(stream)
stream.begin_capture()
stream.capture(5)
stream.is_capturing
uhal.Stream(non_blocking=True)
uhal.Stream(high_priority=True)
uhal.Event(enable_timing=True)
uhal.Event().elapsed_time(uhal.Event())
uhal.Event().elapsed_since(0)
uhal.Device().use()
uhal.Device().compute
relu.prepare("Pi")
relu.launch(1, 8)
relu[1, 8][stream](x, 1, 6, 0)
module.activationf32
module.activation
module["activationf32"]
uhal.Module("kernel.so")
uhal.Api.quick_init("host")
uhal.debugger
x.cpu()
x.numpy()
x.get()
x.cuda()
x.to("cuda")
x.float()
x.view(3, 2)
x.dim()
x.unsqueeze(0)
x.clone()
x.detach()
x.add_(1)
x.exp()
-(x > 1)
ub.negative(x > 1)
ub.sign(x > 1)
x.data_ptr()
x.sum(dim=1)
x.mean(1, keepdim=True)
ub.softmax(x, dim=1)
ub.cat([x, x], dim=0)
ub.var(x, unbiased=False)
ub.zeros((2, 3), order="F")
ub.zeros(2, 3)
ub.randn(2, 3)
ub.arange(3, dtype="f33")
ub.arange(0, 10, 0)
ub.max(x, x)
ub.maximum(x)
ub.where(x > 1)
ub.std(x, ddof=1, correction=1)
x + [1, 2, 3]
ub.exp([1, 2])
ub.array([1, "a"])
ub.array(None)
ub.save("x.npy", x)
ub.trace(print)
ub.execute_graph(x)
ub.execute_graph(graph, x)
graph.run()
graph.replay()
graph.instantiate(None)
graph.name(array, "y")
plan.launch()
relu[1, 8, stream](x, 1, 6, 0)
relu((1,), (8,), (x, 1, 6, 0))
relu(x, 1, 6, 0, block=(8, 1, 1), grid=(1, 1))
Model.load("owner/name")
Model("tiny")
Model.from_pretrained("tiny")
Tokenizer.__call__(None, "text")
generation[0]
generation + "text"
"text" + generation
generation.text
generation.strip()
ub.save("no_folder/x.safetensors", {"x": x})
ub.files.load(zipped)
ub.stack([x, ub.zeros(3)])
uhal.compile.host("kernel.cu")
uhal.compile.opencl("source")
uhal.compile.gpu("source")
uhal.compile("source")
uhal.device("cuda")
uhal.Kernel
uhal.load("kernel.so")
uhal.float32
uhal.dtypes.float32
uhal.dtypes.int
uhal.Api.default_device()
uhal.Api.nothing_like_it()
uhal.Device.list()
Stream.current()
uhal.Module.load("kernel.so")
uhal.Module.from_source("source")
module.functions
DeviceBuffer.from_list([1, 2])
HostBuffer.zeros(3, "f32")
x.buffer == DeviceBuffer.zeros(6, "f32")
x.buffer != 0
x.buffer in [pinned, x.buffer]
pinned == HostBuffer(3, "f32")
uhal.Device() == "cuda"
x == x.buffer
relu.signature == "f32* data"
uhal.Signature.parse(5)
ub.DeviceTensor(x.buffer, (3, 2))
relu[1, 8](x, 1, 6, 0, stream=stream)
uhal.Stream("cuda")
graph(x)
graph.inputs
len(generation)
"text" in generation
generation == "text"
Model.stream("text")
""".strip().splitlines()


def test_every_habit_is_answered(host: Device, tmp_path: Path) -> None:
    x, stream = ub.asarray(np.arange(6, dtype=np.float32).reshape(2, 3)), Stream()
    module = ub.load_module("activation")
    (tmp_path / "x.pt").write_bytes(b"PK\3\4 a pickle")
    with ub.trace() as graph:
        graph.name(x, "x")
        y = x + 1
    names: dict[str, Any] = {
        **{"ub": ub, "uhal": uhal, "Model": Model, "x": x, "stream": stream, "graph": graph},
        **{"array": np.ones((2, 3), np.float32), "plan": graph.instantiate(stream), "y": y},
        **{"DeviceBuffer": DeviceBuffer, "np": np, "Tokenizer": Tokenizer},
        **{"HostBuffer": HostBuffer, "Stream": Stream},
        **{
            "pinned": HostBuffer(3, "f32"),
            "generation": Generation.__new__(Generation),
            "module": module,
            "zipped": tmp_path / "x.pt",
        },
        "relu": module.get_function("activationf32"),
    }
    said = "".join(f"{code}\n    {answer(code, names, tmp_path)}\n" for code in HABITS)
    said = re.sub(r"<Stream \d+", "<Stream …", said)
    said = re.sub(r"/tmp/\w+/", "FOLDER/", said)
    if not GOLDEN.exists():
        GOLDEN.write_text(said, encoding="utf-8")
        pytest.fail(f"wrote {GOLDEN}: read it")
    assert said == GOLDEN.read_text(encoding="utf-8")


def test_names_with_advice_are_absent(host: Device) -> None:
    x = ub.zeros(3)
    for name, advice in OF_TENSOR.items():
        assert not hasattr(x, name) and not hasattr(type(x), name) and name not in dir(x)
        with pytest.raises(AttributeError) as caught:
            getattr(x, name)
        assert advice in str(caught.value) and caught.value.name == name
    assert not any(hasattr(ub, name) for name in OF_MODULE)
    assert not any(hasattr(uhal, name) for name in habits.OF_MODULE)
    assert not hasattr(ub, "relue") and not hasattr(ub, "__wrapped__")


def test_names_with_advice_are_absent_from_compiled_classes(host: Device) -> None:
    kernel = ub.load_module("activation").get_function("activationf32")
    objects: list[tuple[Any, dict[str, str]]] = [
        *((DeviceBuffer.zeros(3, "f32"), habits.OF_BUFFER), (Stream(), habits.OF_STREAM)),
        (HostBuffer(3, "f32"), habits.OF_HOST_BUFFER),
        *((Event(), habits.OF_EVENT), (host, habits.OF_DEVICE), (kernel, habits.OF_FUNCTION)),
        (ub.load_module("activation"), habits.OF_LOADED_MODULE),
    ]
    for one, table in objects:
        for name, advice in table.items():
            assert not hasattr(one, name) and not hasattr(type(one), name), name
            assert name not in dir(one)
            with pytest.raises(AttributeError, match=re.escape(advice)):
                getattr(one, name)
        assert "close" in dir(one) or isinstance(one, Function)
        with pytest.raises(AttributeError):
            getattr(one, "no_such_name")  # noqa: B009


def test_advice_names_what_exists() -> None:
    """Each name in the advice, such as `ubridge.name` or `x.name`, can be called as written."""
    tables = [OF_MODULE, OF_TENSOR, habits.OF_BUFFER, habits.OF_STREAM, habits.OF_EVENT]
    tables += [habits.OF_DEVICE, habits.OF_FUNCTION, habits.KEYWORDS, OF_MODEL]
    tables += [OF_CACHE, OF_SESSION, OF_TOKENIZER, OF_GENERATION]
    tables += [habits.OF_API, habits.OF_LOADED_MODULE]
    owners = {"ubridge": ub, "uhal": uhal, "x": ub.DeviceTensor, "buffer": DeviceBuffer}
    owners |= {"generation": Generation, "cache": Cache, "session": Session}
    owners |= {"tokenizer": Tokenizer}
    owners |= {"model": Model, "stream": Stream, "event": Event, "end": Event, "device": Device}
    owners |= {one.__name__: one for one in (DeviceBuffer, Stream, StreamFlags, EventFlags)}
    owners |= {"Api": Api, "Device": Device, "Module": Module, "module": Module}
    attributes: dict[Any, Any] = {
        Model: re.findall(r"self\.([a-z]\w*)", inspect.getsource(Model.__init__)),
        Tokenizer: Tokenizer.__annotations__,
    }
    for advice in (advice for table in tables for advice in table.values()):
        for word in advice.replace("(", " ").replace(",", " ").replace(".T.", ".T").split():
            owner, dot, name = word.rstrip(".:)").partition(".")
            if dot and owner in owners:
                found = owners[owner]
                for part in name.split("."):
                    if part in attributes.get(found, ()):
                        break
                    typed = {"buffer": DeviceBuffer, "dtype": DType, "tokenizer": Tokenizer}
                    found = typed.get(part) or getattr(found, part)


@pytest.mark.parametrize("call", [ub.var, ub.std])
def test_correction_is_another_name_of_ddof(
    host: Device, rng: np.random.Generator, call: Any
) -> None:
    x = ub.asarray(rng.standard_normal((3, 5)).astype(np.float32))
    expected = call(x, 1, ddof=1).to_numpy()
    np.testing.assert_array_equal(call(x, 1, correction=1).to_numpy(), expected)
    assert (call(x, 1, correction=0).to_numpy() < expected).all()
    with pytest.raises(ArgumentValueError, match="expected ddof or correction, got both"):
        call(x, 1, ddof=1, correction=0)
    assert "correction" in inspect.signature(call).parameters


def test_sums_keep_the_dtype_and_halves_leave_zero(host: Device) -> None:
    """The guide for users of numpy says both, and names the functions with numpy's results."""
    from ubridge import array_api

    large = ub.full(2, 2**31 - 1, "i32")
    assert large.sum().item() == -2 and large.sum(dtype="i64").item() == 2**32 - 2
    assert array_api.sum(large).item() == 2**32 - 2
    halves = ub.asarray([-2.5, -0.5, 0.5, 1.5, 2.5], "f32")
    assert ub.round(halves).tolist() == [-3, -1, 1, 2, 3]
    assert array_api.round(halves).tolist() == np.round(halves.to_numpy()).tolist()


def test_an_unknown_keyword_names_the_parameters(host: Device) -> None:
    calls: tuple[Any, ...] = (ub.sum, ub.DeviceTensor.sum, ub.exp, ub.conv2d, ub.take)
    for call in calls:
        with pytest.raises(ArgumentTypeError, match=r"expected \w+, .*, got nothing_like_it=\."):
            call(ub.zeros(3), nothing_like_it=1)
