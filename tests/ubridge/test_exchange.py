"""The table of docs/guide/interop.md: each cell is tried where the library is installed."""

from __future__ import annotations

import copy
import operator
import pickle
import re
import warnings
import weakref
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import ubridge as ub
import uhal
from tests.children import ROOT
from tests.ubridge.exchange import ASPECTS, LIBRARIES
from uhal import Device, DeviceBuffer, Event, HostBuffer, Stream
from uhal.errors import ArgumentTypeError, NoDeviceError


def table() -> dict[str, dict[str, str]]:
    """Return the cells of the page's table by library and column."""
    text = (ROOT / "docs" / "guide" / "interop.md").read_text("utf-8")
    lines = re.findall(r"^\| .* \|$", text.partition("<!-- exchange -->")[2], re.MULTILINE)
    (_, *columns), *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[: len(LIBRARIES) + 2]
    ]
    return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows}


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("library", [*LIBRARIES, "cuda.core"])
def test_the_cell_says_what_happens(host: Device, library: str, aspect: str) -> None:
    said = table()[library][aspect]
    if library == "cuda.core":
        pytest.skip("its memory is CUDA's: tests/unit/test_lane_interop.py has a model of it")
    used = LIBRARIES[library]
    if find_spec(used.module) is None:
        pytest.skip(f"{used.module} is not installed")
    if used.module == "numpy" and aspect == "bf16" and find_spec("ml_dtypes") is None:
        pytest.skip("ml_dtypes is not installed")
    with warnings.catch_warnings():
        # Exporters from before DLPack 1.0 warn.
        warnings.simplefilter("ignore", DeprecationWarning)
        assert ASPECTS[aspect](used) == said


def test_the_table_has_every_library_and_column() -> None:
    found = table()
    assert list(found) == [*LIBRARIES, "cuda.core"]
    assert all(list(cells) == list(ASPECTS) for cells in found.values())


# -- tensors unlike their memory -----------------------------------------------------


def test_unaligned_memory_is_refused_and_copied_by_asarray(
    host: Device, rng: np.random.Generator
) -> None:
    values = rng.standard_normal(5).astype("f4")
    unaligned = np.frombuffer(b"." + values.tobytes(), "f4", offset=1)
    for take in (DeviceBuffer.from_dlpack, ub.from_dlpack):
        with pytest.raises(BufferError, match="at a multiple of 4 bytes"):
            take(unaligned)
    assert (ub.asarray(unaligned).to_numpy() == values).all()


class Negated:
    """Tensors like torch's with the negative bit: memory has the opposite signs."""

    requires_grad = False

    def __init__(self, array: Any, negated: bool = True, requires_grad: bool = False) -> None:
        self.array, self.negated, self.requires_grad = array, negated, requires_grad

    def is_neg(self) -> bool:
        return self.negated

    def __array__(self, *asked: Any, **more: Any) -> Any:
        raise RuntimeError("Can't call numpy() on it")

    def __dlpack__(self, **asked: Any) -> Any:
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


Immutable = type("ArrayImpl", (Negated,), {"__module__": "jaxlib._jax"})
"""Arrays like JAX's: read-only, but DLPack does not say so."""


def test_signs_and_gradients_of_a_tensor_are_respected(host: Device) -> None:
    exp = ub.load_module("unary").get_function("uexp_f32")
    array, out = np.ones(4, np.float32), DeviceBuffer.zeros(4, "f32")
    for take in (ub.from_dlpack, DeviceBuffer.from_dlpack, ub.asarray):
        with pytest.raises((BufferError, ArgumentTypeError), match=r"opposite signs .*resolve_neg"):
            take(Negated(array))
        with pytest.raises((BufferError, ArgumentTypeError), match=r"gradients, .*detach\(\)"):
            take(Negated(array, False, True))
    with pytest.raises(ArgumentTypeError, match=r"opposite signs .*resolve_neg"):
        exp[1, 32](4, 1, None, Negated(array), out)
    assert ub.from_dlpack(Negated(array, False)).sum().item() == 4


def test_a_comparison_takes_no_other_librarys_elements(host: Device) -> None:
    """`==` returns False for an object without elements, and refuses other objects, as `+` does."""
    x = ub.ones((4,))
    for other in (Negated(np.ones(4, np.float32), False), DeviceBuffer.zeros(4, "f32")):
        for compare in (operator.eq, operator.ne, operator.add):
            with pytest.raises(ArgumentTypeError, match="expected a DeviceTensor or a number"):
                compare(x, other)
    assert (x == Negated) is False


def test_the_advice_names_functions_that_are_no_operations(host: Device) -> None:
    with pytest.raises(ArgumentTypeError, match=r"ubridge\.isnan\(x\) computes on the device"):
        np.isnan(ub.ones((4,)))


def test_arrays_of_jax_are_read_only(host: Device) -> None:
    exp = ub.load_module("unary").get_function("uexp_f32")
    array, out = np.ones(4, np.float32), DeviceBuffer.zeros(4, "f32")
    given = Immutable(array, False)
    tensor = ub.from_dlpack(given)
    assert tensor.buffer.readonly
    with pytest.raises(ArgumentTypeError, match="read-only"):
        tensor.fill(7)
    with pytest.raises(ArgumentTypeError, match="read-only"):
        exp[1, 32](4, 1, None, out, given)
    assert (array == 1).all()


# -- numpy's functions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda x: np.sort(x), r"np\.sort: .*ubridge\.sort\(x\) computes on the device"),
        (lambda x: np.mean(x), r"np\.mean: .*ubridge\.mean\(x\) computes on the device"),
        (lambda x: np.concatenate([x, x]), r"np\.concatenate: .*ubridge\.concatenate\(x\)"),
        (lambda x: np.where(x > 1, x, x), r"np\.where: .*ubridge\.where\(x\)"),
        (lambda x: np.transpose(x), r"np\.transpose: .*x\.transpose is of the device"),
        (lambda x: np.linalg.norm(x), r"np\.linalg\.norm: .*np\.linalg\.norm\(x\.to_numpy\(\)\)"),
        (lambda x: np.copyto(np.zeros(3), x), r"np\.copyto: expected numpy arrays"),
    ],
)
def test_functions_of_numpy_are_refused(host: Device, call: Any, advice: str) -> None:
    with pytest.raises(ArgumentTypeError, match=advice):
        call(ub.arange(3))


def test_functions_that_read_no_element_are_answered(host: Device) -> None:
    x = ub.zeros((2, 3))
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 3), 2, 6)
    assert not np.iscomplexobj(x)


# -- devices without a type of DLPack --------------------------------------------------------------


def test_without_a_type_of_dlpack_the_host_gets_a_copy(
    host: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenCL's memory has no type of DLPack."""
    x = ub.arange(6).reshape(2, 3).T
    expected = x.to_numpy()
    monkeypatch.setattr(type(x), "_is_shared_by_dlpack", False)
    assert x.__dlpack_device__() == (1, 0)
    for array in (np.from_dlpack(x), np.from_dlpack(x, device="cpu")):
        assert (array == expected).all()
    x.fill(7)
    assert (array == expected).all()
    with pytest.raises(BufferError, match=r"copied to the host, not to \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))


# -- text ------------------------------------------------------------------------------------------


def test_text_of_closed_and_empty_tensors(host: Device) -> None:
    assert repr(ub.zeros((0, 3))) == "DeviceTensor([], shape=(0, 3), dtype=f32, device='host:0')"
    assert repr(ub.zeros(0)) == "DeviceTensor([], dtype=f32, device='host:0')"
    x = ub.arange(3)
    x.buffer.close()
    assert repr(x) == "DeviceTensor(<closed>, shape=(3,), dtype=i64, device='host:0')"
    assert str(x) == "<closed>"


# -- pickles and copies ----------------------------------------------------------------------------


def test_a_quantized_weight_is_pickled_and_copied(host: Device, rng: np.random.Generator) -> None:
    weight = ub.QuantizedWeight.from_numpy(rng.standard_normal((2, 3, 64)), "q8_0")
    for again in (pickle.loads(pickle.dumps(weight)), copy.deepcopy(weight), weight[1]):
        expected = weight[1] if again.shape != weight.shape else weight
        assert again.format is weight.format and again.shape == expected.shape
        assert (again.to_numpy() == expected.to_numpy()).all()
    assert weakref.ref(weight)() is weight
    elsewhere = pickle.dumps(weight).replace(b"host:0", b"host:9")
    with pytest.raises(NoDeviceError, match=r"unpickling a QuantizedWeight: it was on host:9"):
        pickle.loads(elsewhere)


def test_objects_of_this_process_are_not_pickled_but_name_what_to_send(host: Device) -> None:
    module = ub.load_module("unary")
    function = module.get_function(module.kernels[0])
    x, stream = ub.zeros(3), Stream()
    with stream.capture() as plan:
        x.buffer.set_8(1, stream=stream)
    with ub.trace(host) as graph:
        ub.relu(x)
    for held, advice in (
        (x.buffer, r"Send to_numpy\(\), or ipc_handle\(\)"),
        (HostBuffer(3, "f32"), r"Send array\.copy\(\)"),
        (x.buffer.as_device_ptr(), r"Send to_numpy\(\) of its buffer"),
        (stream, "Send the device; make a Stream there"),
        (Event(), "Make an Event there"),
        (module, "Send the image's bytes or its path"),
        (function, r"Send the image and the entry; get_function\(\) there"),
        (function[1, 1], r"Send the image and the entry; get_function\(\) there"),
        (plan, "Capture it there"),
        (ub.DeviceExecutor.of(host), r"Send its device; DeviceExecutor\.of\(device\) there"),
        (graph, r"Send the file that save\(\) writes; ComputeGraph\.load\(\) there"),
        (graph.instantiate(stream), r"Send the graph as a file; instantiate\(\) it there"),
    ):
        name = re.escape(type(held).__name__)
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(
                TypeError, match=f"{name}: expected no pickle or copy of .*{advice}"
            ):
                way(held)


@pytest.mark.parametrize("module", [ub, uhal], ids=lambda one: one.__name__)
def test_public_names_are_pickled_copied_and_referred_to(module: Any) -> None:
    for name in module.__all__:
        found = getattr(module, name)
        if callable(found):
            assert pickle.loads(pickle.dumps(found)) is found, name
            assert copy.deepcopy(found) is found, name
            assert weakref.ref(found)() is found, name


def test_what_is_no_number_is_not_equal(host: Device) -> None:
    x = ub.arange(3)
    for other in (None, "a", object(), {}):
        assert (x == other) is False
        assert (x != other) is True
