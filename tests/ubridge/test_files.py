"""Files of weights: exchange with other libraries in both directions, without loss."""

from __future__ import annotations

import gc
import json
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import ubridge as ub
import uhal
from tests.children import check_child, run_module
from tests.ubridge.block_data import Array, elements, random_blocks
from ubridge.files.__main__ import main
from ubridge.models import Model
from ubridge.models.diffusion import StableDiffusion
from ubridge.models.tokenizers.tokenizer import Tokenizer
from ubridge.quantized import ENCODED, FORMATS, QuantizedWeight, block_format
from ubridge.recipes import MIXTURES, Shape, recipe_of
from uhal import Device
from uhal.dtypes import as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError, InvalidImageError

PLAIN = ("f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64")
"""Element types of GGUF."""
SAFE = (*PLAIN, "u8", "u16", "u32", "u64", "f8e4m3")


def drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return an array of random bits."""
    kind = as_dtype(dtype).dtype
    raw = rng.bytes(int(np.prod(shape)) * kind.itemsize)
    return np.frombuffer(raw, kind).reshape(shape)


def same(got: object, expected: Array) -> None:
    values = got.to_numpy() if not isinstance(got, np.ndarray) else got  # type: ignore[attr-defined]
    assert values.dtype == expected.dtype and values.shape == expected.shape
    assert values.tobytes() == expected.tobytes()


@pytest.fixture
def tensors(rng: np.random.Generator) -> Mapping[str, Array]:
    shapes = [(3, 5), (7,), (2, 3, 4), (1,), (0, 4)]
    return {
        f"{dtype}.{i}": drawn(rng, dtype, shape) for dtype in SAFE for i, shape in enumerate(shapes)
    }


# -- safetensors ---------------------------------------------------------------------------------


def test_the_package_reads_what_is_saved(
    host: Device, tmp_path: Path, tensors: Mapping[str, Array]
) -> None:
    path = tmp_path / "a.safetensors"
    ub.save(
        path,
        {**tensors, "on a device": ub.asarray(np.arange(6.0).reshape(2, 3)).T},
        metadata={"format": "pt", "ü": "ß"},
    )
    with safetensors.safe_open(str(path), "numpy") as judge:
        assert judge.metadata() == {"format": "pt", "ü": "ß"}
        assert set(judge.keys()) == {*tensors, "on a device"}
        for name, array in tensors.items():
            if not name.startswith("f8"):
                same(judge.get_tensor(name), array)
        same(judge.get_tensor("on a device"), np.arange(6.0).reshape(2, 3).T.copy())


def test_what_the_package_saves_is_read(
    device: Device, tmp_path: Path, tensors: Mapping[str, Array]
) -> None:
    path = tmp_path / "a.safetensors"
    given = {**tensors, "flags": np.array([[True, False]])}
    safetensors.numpy.save_file(given, str(path), metadata={"a": "b"})
    weights = ub.load(path)
    assert set(weights) == set(given) and dict(weights.metadata) == {"a": "b"}
    assert weights.nbytes == sum(array.nbytes for array in given.values())
    for name, array in given.items():
        assert weights.entries[name].shape == array.shape
        same(weights[name], array)
        assert weights.raw(name).tobytes() == array.tobytes()
    everything = weights.to_device()
    assert list(everything) == list(weights)
    for name, array in given.items():
        same(everything[name], array)


def test_an_index_of_several_files(host: Device, tmp_path: Path) -> None:
    arrays = {f"t{i}": np.full((3,), i, np.float32) for i in range(4)}
    for i in range(2):
        part = {name: arrays[name] for name in (f"t{2 * i}", f"t{2 * i + 1}")}
        safetensors.numpy.save_file(part, str(tmp_path / f"m-{i}.safetensors"))
    index = tmp_path / "m.safetensors.index.json"
    files = {f"t{i}": f"m-{i // 2}.safetensors" for i in range(4)}
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    for given in (index, [tmp_path / "m-1.safetensors", tmp_path / "m-0.safetensors"]):
        weights = ub.load(given)
        for name, array in arrays.items():
            same(weights[name], array)
    index.write_text(json.dumps({"weight_map": {"t0": "../x.safetensors"}}))
    with pytest.raises(ub.InvalidFileError, match="names of files beside it"):
        ub.load(index)
    first = tmp_path / "m-0.safetensors"
    with pytest.raises(ub.InvalidFileError, match=r"'t0' is in .*m-0\.safetensors, too"):
        ub.load([first, first])


def test_askew_tensors_are_copied(host: Device, tmp_path: Path) -> None:
    header = json.dumps(
        {
            "b": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
            "f": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]},
        }
    ).encode()
    path = tmp_path / "askew.safetensors"
    values = np.array([1.5, -2], np.float32)
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"abc" + values.tobytes())
    same(ub.load(path)["f"], values)
    assert not ub.load(path)["f"].buffer.readonly  # type: ignore[union-attr]
    assert ub.load(path)["b"].buffer.readonly  # type: ignore[union-attr]


BROKEN = {
    "an end": (lambda h, d: (h[:-1], d), "is no JSON"),
    "a gap": (lambda h, d: (h, d + b"x"), "expected the last tensor to end with the file"),
    "too few": (lambda h, d: (h, d[:-1]), "expected offsets within the 7 bytes"),
    "a name twice": (lambda h, d: (h[:-1] + b',"a":' + h[5:-1] + b"}", d), "a name stands twice"),
    "a dtype": (lambda h, d: (h.replace(b"F32", b"F33"), d), "expected a dtype among BOOL, U8"),
    "a size": (lambda h, d: (h.replace(b"[2]", b"[3]"), d), "expected 12 bytes of it"),
    "below 0": (lambda h, d: (h.replace(b"[2]", b"[-2]"), d), "expected a shape of numbers"),
    "huge": (lambda h, d: (h.replace(b"[2]", b"[9223372036854775808]"), d), "a shape of numbers"),
    "turned": (lambda h, d: (h.replace(b"[0,8]", b"[8,0]"), d), "expected offsets within"),
    "no offsets": (lambda h, d: (h.replace(b"data_offsets", b"data"), d), "dtype, shape and data_"),
    "a list": (lambda h, d: (b"[]", b""), "expected a header of names|safetensors or GGUF"),
    "deep": (lambda h, d: (b"{" + b'"a":{' * 100_000, d), "is no JSON"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_damage_is_named(host: Device, tmp_path: Path, what: str) -> None:
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    change, words = BROKEN[what]
    changed, data = change(header, bytes(8))
    path = tmp_path / "broken.safetensors"
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + data)
    with pytest.raises(InvalidImageError, match=words) as caught:
        ub.load(path)
    assert str(path) in str(caught.value)


# -- GGUF ----------------------------------------------------------------------------------------


VALUES: Mapping[str, Any] = {
    "u8": np.uint8(200),
    "i8": np.int8(-3),
    "u16": np.uint16(60000),
    "i16": np.int16(-300),
    "u32": 7,
    "i32": -7,
    "u64": 1 << 40,
    "i64": -(1 << 40),
    "f32": 0.5,
    "f64": np.float64(0.1),
    "bool": True,
    "text": "ü\n",
    "none": "",
    "texts": ["a", "", "ß"],
    "numbers": [1, 2, 3],
    "floats": [0.5, 1],
    "flags": [True, False],
    "array": np.array([-1, 2], np.int16),
    "empty": [],
    "nested": [[1, 2], [3]],
}


def plain(value: Any) -> Any:
    """Return a value as plain Python objects."""
    if isinstance(value, (np.ndarray, list)):
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def gguf_of(path: Path, *, big_endian: bool = False, **values: Any) -> gguf.GGUFWriter:
    order = gguf.GGUFEndian.BIG if big_endian else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    for key, value in values.items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    return writer


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_reads_what_is_saved(
    host: Device, tmp_path: Path, rng: np.random.Generator, tensors: Mapping[str, Array]
) -> None:
    path = tmp_path / "a.gguf"
    kept = {name: a for name, a in tensors.items() if name.partition(".")[0] in PLAIN and a.size}
    weights: dict[str, Any] = dict(kept)
    blocks = {name: random_blocks(rng, name, 6) for name in FORMATS}
    for name, raw in blocks.items():
        columns = 2 * FORMATS[name].elements
        weights[f"w.{name}"] = QuantizedWeight.from_blocks(raw.ravel(), name, 3, columns)
    ub.save(path, weights, metadata=VALUES)
    # gguf assumes blocks of q8_1 to have 40 bytes.
    del weights["w.q8_1"]
    ub.save(tmp_path / "judged.gguf", weights, metadata=VALUES)
    judge = gguf.GGUFReader(tmp_path / "judged.gguf")
    for key, value in VALUES.items():
        if key not in ("nested", "empty"):
            assert plain(judge.fields[key].contents()) == plain(value), key
    assert {one.name for one in judge.tensors} == set(weights)
    for one in judge.tensors:
        if one.name.startswith("w."):
            name = one.name[2:]
            assert one.tensor_type.name == name.upper() and tuple(one.shape)[::-1] == (
                3,
                2 * FORMATS[name].elements,
            )
            assert one.data.tobytes() == blocks[name].tobytes()
        else:
            assert tuple(one.shape)[::-1] == kept[one.name].shape
            assert one.data.tobytes() == kept[one.name].tobytes()
    ours = ub.load(path)
    assert {key: plain(ours.metadata[key]) for key in VALUES} == {
        key: plain(value) for key, value in VALUES.items()
    }
    for name, array in kept.items():
        same(ours[name], array)
    for name, raw in blocks.items():
        found = ours[f"w.{name}"]
        assert isinstance(found, QuantizedWeight) and found.format is FORMATS[name]
        same(found, elements(raw, name).reshape(3, -1))


def test_what_gguf_saves_is_read(device: Device, tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "a.gguf"
    writer = gguf_of(path, count=7, name="x", tokens=["a", "ü"], scores=[0.5, 1.5])
    writer.add_custom_alignment(64)
    dense = rng.standard_normal((3, 4)).astype(np.float32)
    values = rng.standard_normal((2, 3, 64)).astype(np.float32)
    raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q5_1)
    writer.add_tensor("dense", dense)
    writer.add_tensor("experts", raw, raw_dtype=gguf.GGMLQuantizationType.Q5_1)
    finish(writer)
    weights = ub.load(path)
    assert weights.metadata["general.alignment"] == 64
    assert list(weights.metadata["tokens"]) == ["a", "ü"]
    same(weights["dense"], dense)
    exact = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q5_1)
    for experts in (weights["experts"], weights.to_device()["experts"]):
        assert isinstance(experts, QuantizedWeight)
        assert experts.shape == (2, 3, 64) and experts.rows == 6
        same(experts, exact)
        same(experts[1], exact[1])
        same(experts[-1][1:], exact[1, 1:])
        same(experts[0].take([2, 0, 2]), exact[0][[2, 0, 2]])
        with pytest.raises(IndexError, match="out of bounds"):
            experts[2]


def test_split_files(host: Device, tmp_path: Path) -> None:
    arrays = {f"t{i}": np.full((32,), i, np.float32) for i in range(3)}
    parts = []
    for i, (name, array) in enumerate(arrays.items()):
        path = tmp_path / f"m-{i + 1:05}-of-00003.gguf"
        split = {
            "split.no": np.uint16(i),
            "split.count": np.uint16(3),
            "split.tensors.count": np.int32(3),
        }
        ub.save(path, {name: array}, metadata={**split, "first": "yes"} if i == 0 else split)
        parts.append(path)
    weights = ub.load(parts[1])
    assert list(weights) == ["t0", "t1", "t2"] and weights.metadata["first"] == "yes"
    for name, array in arrays.items():
        same(weights[name], array)
    with pytest.raises(ub.InvalidFileError, match=r"split\.no: expected 0"):
        ub.load(parts[::-1])
    parts[2].unlink()
    with pytest.raises(FileNotFoundError, match="m-00003-of-00003"):
        ub.load(parts[0])


def test_what_of_gguf_is_refused(host: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    writer = gguf_of(path, big_endian=True, a=1)
    writer.add_tensor("x", np.zeros(4, np.float32))
    finish(writer)
    with pytest.raises(ub.InvalidFileError, match="got a big-endian file"):
        ub.load(path)
    ub.save(path, {"x": np.zeros(64, np.float32)}, metadata={"a": 1})
    good = path.read_bytes()

    def refused(raw: bytes, words: str) -> None:
        path.write_bytes(raw)
        with pytest.raises(ub.InvalidFileError, match=words):
            ub.load(path)

    def changed(at: int, raw: bytes) -> bytes:
        return good[:at] + raw + good[at + len(raw) :]

    refused(changed(4, struct.pack("<I", 1)), "expected version 2 or 3 of GGUF, got 1; version 1")
    refused(changed(4, struct.pack("<I", 9)), "expected version 2 or 3 of GGUF, got 9$")
    refused(changed(8, struct.pack("<Q", 1 << 60)), "expected at most .* tensors in")
    refused(changed(16, struct.pack("<Q", 1 << 60)), "expected at most .* keys in")
    refused(changed(24, struct.pack("<Q", 1 << 60)), "expected a key of at most 65535 bytes")
    refused(changed(33, struct.pack("<I", 13)), "a: expected a kind of value in 0…12, got 13")
    refused(good[:-1], r"'x': expected 256 bytes at a multiple of 32 within the 255")
    refused(good[:50], "there are")
    refused(b"", "the file is empty")
    gc.collect()
    os.fstat(0)  # a file that failed to open must not close another descriptor
    refused(b"GGUX" + good[4:], "expected a file of safetensors or GGUF, got one that begins with")
    second = changed(4, struct.pack("<I", 2))
    path.write_bytes(second)
    same(ub.load(path)["x"], np.zeros(64, np.float32))


# -- pages ---------------------------------------------------------------------------------------


def test_pages_are_memory_of_the_host(host: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    ub.save(path, {"x": np.arange(1024, dtype=np.float32)})
    tensor = ub.load(path)["x"]
    assert isinstance(tensor, ub.DeviceTensor) and tensor.buffer.readonly
    same((tensor + tensor), np.arange(1024, dtype=np.float32) * 2)
    with pytest.raises(ValueError, match="read-only memory"):
        tensor.buffer.set_8(1)
    with pytest.raises(TypeError, match="read-only"):
        tensor.fill(1)


def test_a_file_cut_short_is_named(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    ub.save(path, {"x": np.arange(100_000, dtype=np.float32)})
    weights = ub.load(path)
    os.truncate(path, 5000)
    words = r"a\.gguf: expected 400000 bytes at .*, the file has 5000 now; .* cut short since"
    with pytest.raises(ub.InvalidFileError, match=words):
        weights["x"]
    with pytest.raises(ub.InvalidFileError, match=words):
        weights.to_device()


def read_what_is_gone(path: str, how: str) -> None:
    """In a child process: print the error of a kernel or a copy that reads truncated pages."""
    with Device(0, backend="host"):
        values = np.random.default_rng(0).standard_normal((2048, 512)).astype(np.float32)
        ub.save(path, {"dense": values, "rounded": QuantizedWeight.from_numpy(values, "q8_0")})
        weights = ub.load(path)
        dense, rounded = weights["dense"], weights["rounded"]
        assert isinstance(dense, ub.DeviceTensor) and isinstance(rounded, QuantizedWeight)
        x = ub.asarray(np.ones((1, 512), np.float32))
        name = "rounded" if how == "product" else "dense"
        os.truncate(path, weights.entries[name].start + 70_000)
        try:
            if how == "product":
                ub.quantized_matmul(x, rounded, activations="q8").to_numpy()
            elif how == "sum":
                dense.sum().to_numpy()
            else:
                dense.to_numpy()
        except DeviceError as error:
            print(error)


@pytest.mark.drawn(1)
@pytest.mark.skipif(sys.platform != "linux", reason="the handler asks Linux for the file's name")
@pytest.mark.parametrize(
    ("how", "culprit"),
    [("product", "kernel product_q8_0_f32"), ("sum", "kernel fast_sum_f32"), ("copy", "copy")],
)
def test_reading_what_was_cut_off_is_an_error_of_its_own(
    tmp_path: Path, how: str, culprit: str
) -> None:
    path = tmp_path / "a model.gguf"
    said = check_child(read_what_is_gone, str(path), how)
    words = rf"{culprit}: the file {path} has no byte (\d+) any more: it was cut short"
    found = re.search(words, said)
    assert found is not None, said
    assert int(found[1]) >= os.path.getsize(path)


_SPARSE = """
import resource, sys, time
import numpy as np
import ubridge as ub
from uhal import Device

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

with Device(0, backend="host"):
    ub.zeros(4).to_numpy()
    before, start = resident(), time.perf_counter()
    weights = ub.load(sys.argv[1])
    half = [weights[name] for name in weights]
    took, grew = time.perf_counter() - start, resident() - before
    assert len(half) == 50 and weights.nbytes > 5_000_000_000
    print(took, grew)
    assert took < 1 and grew < 50_000_000
    first = half[0][:1024] if isinstance(half[0], ub.DeviceTensor) else half[0]
    assert (first.to_numpy() == 0).all()
"""


@pytest.mark.parametrize("suffix", ["safetensors", "gguf"])
def test_five_gigabytes_open_at_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"sparse.{suffix}"
    rows = 25_600_000
    small = {f"t{i}": np.zeros((0, 1), np.float32) for i in range(50)}
    if suffix == "safetensors":
        nbytes = 4 * rows
        header = {
            name: {
                **{"dtype": "F32", "shape": [rows]},
                "data_offsets": [i * nbytes, (i + 1) * nbytes],
            }
            for i, name in enumerate(small)
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        os.truncate(path, 8 + len(text) + 50 * 4 * rows)
    else:
        text = b"GGUF" + struct.pack("<IQQ", 3, 50, 0)
        for i, name in enumerate(small):
            text += struct.pack("<Q", len(name)) + name.encode()
            text += struct.pack("<IQIQ", 1, rows, 0, i * 4 * rows)
        path.write_bytes(text)
        os.truncate(path, -(-len(text) // 32) * 32 + 50 * 4 * rows)
    done = subprocess.run(
        [sys.executable, "-c", _SPARSE, str(path)], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [None, 0, 1])
def test_to_a_device_in_pieces(
    device: Device,
    tmp_path: Path,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    threads: int | None,
) -> None:
    """Loading also works when the system starts one thread, or none."""
    monkeypatch.setattr("ubridge.files.transfers.PIECE_BYTES", 4096)
    start, started = threading.Thread.start, []

    def start_some(thread: threading.Thread) -> None:
        if threads is not None and len(started) >= threads:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    arrays = {f"t{i}": drawn(rng, "u8", (int(rng.integers(1, 20_000)),)) for i in range(9)}
    paths = []
    for i in range(3):
        paths.append(tmp_path / f"{i}.safetensors")
        ub.save(paths[-1], {name: arrays[name] for name in list(arrays)[3 * i : 3 * i + 3]})
    told: list[tuple[int, int]] = []
    weights = ub.load(paths)
    found = weights.to_device(progress=lambda done, total: told.append((done, total)))
    for name, array in arrays.items():
        same(found[name], array)
        assert not found[name].buffer.readonly
    assert told[-1] == (weights.nbytes, weights.nbytes)


def test_too_large_is_said_first(
    host: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.preadv", lambda *given: pytest.fail("something was read"))
    ub.save(tmp_path / "a.gguf", {"x": np.zeros(1000, np.float32)})
    weights = ub.load(tmp_path / "a.gguf")
    monkeypatch.setattr("ubridge.files.transfers.free_bytes", lambda device: 3999)
    with pytest.raises(MemoryError, match=r"room for 4000 bytes of 1 tensors, there are 3999"):
        weights.to_device()


def test_saving_leaves_what_is_there_when_it_fails(host: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    ub.save(path, {"x": np.zeros(3, np.float32)})
    before = path.read_bytes()
    weight = QuantizedWeight.from_numpy(np.zeros((1, 32)), "q4_0")
    with pytest.raises(TypeError, match=r"w: safetensors have no q4_0; save as \.gguf"):
        ub.save(path, {"w": weight})
    with pytest.raises(TypeError, match=r"metadata 'a': safetensors hold texts, got int"):
        ub.save(path, {}, metadata={"a": 1})
    with pytest.raises(ValueError, match=r"ends in \.safetensors or \.gguf"):
        ub.save(tmp_path / "a.bin", {})
    with pytest.raises(TypeError, match=r"GGUF has no type for u8"):
        ub.save(tmp_path / "a.gguf", {"x": np.zeros(3, np.uint8)})
    with pytest.raises(TypeError, match=r"k: expected a list of one kind, got int, str"):
        ub.save(tmp_path / "a.gguf", {}, metadata={"k": [1, "a"]})
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


# -- the command line ----------------------------------------------------------------------------


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_module("ubridge.files", [*map(str, arguments)], os.environ)


def test_the_command_line(host: Device, tmp_path: Path, rng: np.random.Generator) -> None:
    safe, whole, small = (tmp_path / name for name in ("a.safetensors", "a.gguf", "q.gguf"))
    matrix = rng.standard_normal((4, 64)).astype(np.float32)
    ub.save(safe, {"w.weight": matrix, "w.bias": np.ones(4, np.float32)}, metadata={"k": "v"})
    assert command("convert", safe, whole).returncode == 0
    assert command("quantize", whole, small, "--format", "q8_0", "--only", "weight$").stderr == ""
    weights = ub.load(small)
    same(weights["w.bias"], np.ones(4, np.float32))
    assert isinstance(weights["w.weight"], QuantizedWeight)
    raw = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    assert weights.raw("w.weight").tobytes() == raw.tobytes()
    listed = command("ls", small)
    assert listed.returncode == 0
    lines = listed.stdout.splitlines()
    assert lines[0] == "k: 'v'" and lines[-1] == f"2 tensors, {4 * 68 + 16} bytes"
    assert any(line.split() == ["w.weight", "q8_0", "4x64", "272", "bytes"] for line in lines)
    wrong = command("ls", tmp_path / "none")
    assert wrong.returncode == 1 and wrong.stderr.startswith("ubridge.files: ")
    assert "Traceback" not in wrong.stderr
    wrong = command("convert", small, tmp_path / "q.safetensors")
    assert wrong.returncode == 1 and "safetensors have no q8_0" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: command"),
        (["ls"], "required: file"),
        (["convert", "a"], "required: out"),
        (["quantize", "a", "b.gguf"], "required: --format"),
        (["quantise"], "invalid choice: 'quantise'"),
    ],
)
def test_a_command_that_lacks_something_says_what(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize("path", ["a\0.gguf", "\ud800.gguf", b"a.gguf", 3, None])
def test_what_is_no_path_is_refused(host: Device, path: Any) -> None:
    with ub.trace() as graph, uhal.profile(measure_copy=False) as profile:
        ub.ones(3, device=host).to_numpy()
    for call in (
        *(ub.load, lambda path: ub.load([path]), lambda path: ub.save(path, {})),
        *(graph.save, ub.ComputeGraph.load, uhal.Module.from_file),
        *(Model.load, StableDiffusion.load, Tokenizer.load),
        *(profile.export_json, profile.export_html, profile.export_chrome_trace),
    ):
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match=", path: expected "):
            call(path)
    with pytest.raises(ArgumentValueError, match="save, path: expected the name of a file"):
        graph.save("")


def test_folders_stand_for_their_files(
    host: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"a": np.ones(3, np.float32)}
    for names, read in (
        (("x.gguf",), ["a"]),
        (("model.safetensors", "other.gguf"), ["a"]),
        (("p.safetensors", "q.safetensors"), None),
    ):
        folder = tmp_path / names[0]
        folder.mkdir()
        for number, name in enumerate(names):
            ub.save(folder / name, one if read else {f"{number}": one["a"]})
        assert list(ub.load(folder)) == (read or ["0", "1"])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DeviceError, match=r"expected \*\.safetensors or one \.gguf file, got nei"):
        ub.load(empty)
    folder, out = str(tmp_path / "x.gguf"), str(empty / "a.gguf")
    assert main(["ls", folder]) == 0 and "1 tensors" in capsys.readouterr().out
    assert main(["convert", folder, out]) == 0
    assert main(["quantize", folder, out, "--format", "Q8_0"]) == 0
    assert "no matrix was quantized" in capsys.readouterr().err
    os.mkfifo(tmp_path / "fifo")
    assert main(["ls", str(tmp_path / "fifo")]) == 1
    assert main(["quantize", folder, out, "--format", "q7"]) == 1
    told = capsys.readouterr().err
    assert "fifo: expected a file, got a FIFO" in told and "Q4_K_M, Q5_K_S" in told


def test_a_part_under_another_name_is_named(host: Device, tmp_path: Path) -> None:
    split = {"split.no": 0, "split.count": 3, "split.tensors.count": 3}
    ub.save(tmp_path / "renamed.gguf", {"a": np.ones(3, np.float32)}, metadata=split)
    with pytest.raises(ub.InvalidFileError, match=r"renamed\.gguf: split\.count: .*one of 3 parts"):
        ub.load(tmp_path / "renamed.gguf")
    ub.save(tmp_path / "whole.gguf", {"a": np.ones(3, np.float32)}, metadata={"split.count": 1})
    assert list(ub.load(tmp_path / "whole.gguf")) == ["a"]


@pytest.mark.parametrize(
    "index",
    [
        *("[", "[]", "{}", '{"weight_map": 1}', '{"weight_map": {"a": null}}'),
        *('{"weight_map": {"a": 1}}', '{"weight_map": {"a": "../b"}}', "\xff"),
    ],
)
def test_a_wrong_index_is_named(host: Device, tmp_path: Path, index: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(index, "latin-1")
    with pytest.raises(ub.InvalidFileError, match=f"^{re.escape(str(path))}: "):
        ub.load(path)


def test_what_only_the_format_may_say(host: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match="the format's own __metadata__"):
        ub.save(path, {"__metadata__": np.ones(1, np.float32)})
    header = b'{"__metadata__": null}  '
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert dict(ub.load(path).metadata) == {}
    for alignment in (1 << 40, 1 << 17, 3, 0):
        with pytest.raises(ValueError, match=r"general\.alignment: expected a power of two"):
            ub.save(tmp_path / "a.gguf", {}, metadata={"general.alignment": alignment})
    good = tmp_path / "a.gguf"
    ub.save(good, {}, metadata={"general.alignment": np.uint64(64)})
    good.write_bytes(good.read_bytes().replace(struct.pack("<Q", 64), struct.pack("<Q", 1 << 40)))
    with pytest.raises(ub.InvalidFileError, match=r"a\.gguf: general\.alignment: .*at most 65536"):
        ub.load(good)


def test_a_new_file_has_the_rights_of_the_process(host: Device, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        ub.save(tmp_path / "a.gguf", {})
    finally:
        os.umask(before)
    assert (tmp_path / "a.gguf").stat().st_mode & 0o777 == 0o640


# -- recipes -------------------------------------------------------------------------------------


def test_names_of_formats_are_read_in_any_case() -> None:
    for name in FORMATS:
        for written in (name, name.upper(), name.lower()):
            assert block_format(written) is FORMATS[name]
            if name in ENCODED:
                assert recipe_of(written).usual is FORMATS[name]
                continue
            with pytest.raises(
                ValueError, match=r"quantize: expected one of .*not written"
            ) as told:
                recipe_of(written)
            assert f" {name}," not in str(told.value).partition("got")[0]
    for name in MIXTURES:
        assert recipe_of(name.lower()).name == name
    with pytest.raises(ValueError, match=r"Q4_K_M.*got 'Q9'; there is no such format"):
        recipe_of("Q9")


_GROUPED = Shape(17, is_grouped=True)
_FALCON = Shape(18, is_falcon=True, is_grouped=True)
_EIGHT = Shape(9, experts=8, is_grouped=True)
_70B = Shape(80, is_grouped=True)
_MIXED = [
    # The bits in files that llama.cpp's own `quantize` wrote, layer by layer.
    ("Q3_K_M", _GROUPED, "v", "55444444444444444"),
    ("Q3_K_M", _GROUPED, "output", "44444444444444444"),
    ("Q3_K_M", _GROUPED, "down", "54444444444444444"),
    ("Q3_K_L", _GROUPED, "down", "55555555555555555"),
    ("Q4_K_S", _GROUPED, "v", "55554444444444444"),
    ("Q4_K_S", _GROUPED, "down", "55444444444444444"),
    ("Q4_K_M", _GROUPED, "v", "66446446446446666"),
    ("Q4_K_M", _GROUPED, "down", "66446446446446666"),
    ("Q4_K_M", _GROUPED, "output", "44444444444444444"),
    ("Q5_K_M", _GROUPED, "v", "66556556556556666"),
    ("Q5_K_S", _GROUPED, "v", "55555555555555555"),
    ("Q3_K_M", _FALCON, "down", "543343343343343444"),
    ("Q3_K_M", _FALCON, "output", "333333333333333333"),
    ("Q3_K_L", _FALCON, "output", "444444444444444444"),
    ("Q3_K_L", _FALCON, "down", "444444444444444444"),
    ("Q4_K_M", _FALCON, "down", "654454454454454555"),
    ("Q5_K_M", _FALCON, "down", "665565565565565666"),
    ("Q4_K_M", _EIGHT, "k", "888888888"),
    ("Q4_K_M", _EIGHT, "v", "888888888"),
    ("Q4_K_M", _EIGHT, "output", "555555555"),
    ("Q4_K_S", _EIGHT, "down", "544444444"),
    ("Q3_K_L", _EIGHT, "output", "333333333"),
    ("Q5_K_M", _EIGHT, "output", "555555555"),
    ("Q3_K_M", _70B, "v", "5" * 80),
    ("Q3_K_M", _70B, "down", "5" * 5 + "4" * 75),
]


@pytest.mark.parametrize(("name", "model", "role", "bits"), _MIXED)
def test_mixtures_are_those_of_llama_cpp(name: str, model: Shape, role: str, bits: str) -> None:
    recipe = recipe_of(name)
    found = [recipe.format_of(role, layer, model, 256) for layer in range(model.layers)]
    assert "".join(one.name[1] for one in found if one is not None) == bits


def test_heads_and_other_matrices_of_mixtures() -> None:
    for name in MIXTURES:
        recipe = recipe_of(name)
        assert recipe.format_of("head", -1, _GROUPED, 256) is FORMATS["q6_K"]
        assert recipe.format_of("head", -1, _FALCON, 256) is FORMATS["q8_0"]
        assert recipe.format_of("head", -1, _GROUPED, 64) is FORMATS["q8_0"]
        assert recipe.format_of("up", 0, _GROUPED, 256) is recipe.usual


@pytest.mark.parametrize("name", ENCODED)
def test_rows_of_no_whole_blocks_fall_back_or_are_counted(
    host: Device,
    tmp_path: Path,
    rng: np.random.Generator,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    widths = {f"blk.{i}.ffn_up.weight": width for i, width in enumerate((256, 64, 32, 33, 33))}
    given = {key: rng.standard_normal((2, one), np.float32) for key, one in widths.items()}
    more = {"blk.0.attn_q_norm.weight": given["blk.0.ffn_up.weight"]}
    source, out = tmp_path / "in.gguf", tmp_path / "out.gguf"
    ub.save(source, given | more, metadata={"general.file_type": 0, "k": "v"})
    assert main(["quantize", str(source), str(out), "--format", name.upper()]) == 0
    told = capsys.readouterr().err
    weights = ub.load(out)
    kinds = [weights.entries[key].kind_name for key in widths]
    fallback = (
        FORMATS[name]
        if FORMATS[name].elements == 32
        else FORMATS.get(
            {
                "q2_K": "iq4_nl",
                "q3_K": "iq4_nl",
                "q4_K": "q5_0",
                "q5_K": "q5_1",
                "q6_K": "q8_0",
                "iq4_xs": "iq4_nl",
                "tq1_0": "q4_0",
                "tq2_0": "q4_0",
            }.get(name, "")
        )
    )
    narrow = "f32" if fallback is None else fallback.name
    assert kinds == [name, narrow, narrow, "f32", "f32"]
    assert weights.entries["blk.0.attn_q_norm.weight"].kind_name == "f32"
    kept = kinds.count("f32")
    assert f"{kept} matrices stayed as they were" in told and "whole blocks" in told
    assert fallback in (None, FORMATS[name]) or f"2 matrices became {narrow}" in told
    assert weights.metadata["general.quantization_version"] == 2 and weights.metadata["k"] == "v"
    kind = f"MOSTLY_{_FILE_TYPE.get(name, name.upper())}"
    assert weights.metadata.get("general.file_type") == getattr(gguf.LlamaFileType, kind, None)


_FILE_TYPE = {"q3_K": "Q3_K_S", "q4_K": "Q4_K_S", "q5_K": "Q5_K_S", "mxfp4": "MXFP4_MOE"}
