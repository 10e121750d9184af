"""Settings in GGUF files: scaled angles, invalid values, tensors that do not fit."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf")

import ubridge as ub
from tests.sampling import SOAK, rounds
from tests.ubridge.models.cases import Array, prompt
from tests.ubridge.models.files import known, written
from tests.ubridge.models.gguf_files import all_of, written_gguf
from tests.ubridge.models.judging import SEED
from tests.ubridge.test_hostile_files import mutant
from ubridge.models import Model
from ubridge.models.loading import wanted_of
from ubridge.models.positions import Rope
from ubridge.models.sources import open_source
from ubridge.quantized import QuantizedWeight
from uhal import Device
from uhal.errors import DeviceError, NotSupportedError

pytestmark = [pytest.mark.usefixtures("host"), pytest.mark.filterwarnings("error")]
CASES = ("llama", "phi3_long", "mixtral", "gemma2", "stablelm12b", "gpt_bigcode")
WRONG: tuple[Any, ...] = (
    *("a", "", True, 0.5, -1.5, 0, -1, 1, 3, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 64) - 1),
    *(np.float32("nan"), np.float32("inf"), np.array([], np.uint32), np.array([1, 2]), [], ["a"]),
)


class Written:
    """A GGUF file of a case, and copies with other metadata or tensors."""

    def __init__(self, case: str, folder: Path) -> None:
        config, weights, self.expected = known(case)
        self.folder = folder
        self.path = written_gguf(folder / "good.gguf", config, weights, all_of("F32"))
        stored = ub.load(self.path)
        self.metadata = {key: stored.metadata[key] for key in stored.metadata}
        self.tensors: dict[str, Any] = {name: stored[name].to_numpy() for name in stored}

    def changed(
        self, metadata: Mapping[str, Any], tensors: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the file with other metadata or tensors; the value None removes an entry."""
        path = self.folder / "changed.gguf"
        told, held = (
            {**one, **more}
            for one, more in ((self.metadata, metadata), (self.tensors, tensors or {}))
        )
        told, held = ({k: v for k, v in one.items() if v is not None} for one in (told, held))
        ub.save(path, held, metadata=told)
        return path


def opened(path: Path, device: Device) -> None:
    source = open_source(path, device)
    wanted_of(source)
    rope = source.design.rope
    if rope is not None:
        for one in (*rope.rows(0, 5, 5), *rope.growing_rows(3)):
            assert np.isfinite(one).all()


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_value_is_named_with_its_file(
    host: Device, tmp_path: Path, rng: np.random.Generator, case: str
) -> None:
    file = Written(case, tmp_path)
    kind = file.metadata["general.architecture"]
    keys = {key for key in file.metadata if key.startswith(f"{kind}.")}
    scaling = ("type", "factor", "attn_factor", "original_context_length", "yarn_beta_fast")
    keys |= {f"{kind}.rope.scaling.{key}" for key in scaling} | {f"{kind}.rope.scale_linear"}
    keys |= {f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom")}
    for key in sorted(keys | {"general.architecture"}):
        chosen = range(len(WRONG)) if SOAK else rng.permutation(len(WRONG))[:4]
        for value in (None, *(WRONG[one] for one in chosen)):
            path = file.changed({key: value})
            try:
                opened(path, host)
            except (ub.InvalidFileError, NotSupportedError) as error:
                assert str(error).startswith(f"{path}: "), error
                # The error may name another key: a number may conflict with another number or with
                # a tensor.
                is_number = isinstance(value, (int, float, np.generic))
                assert key in str(error) or value is None or is_number, (key, value, error)
            except Warning:
                continue
            except Exception as error:
                raise AssertionError(f"{key}: {value!r}") from error


def test_damaged_files_are_refused_by_name(
    host: Device, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Change, cut or move bytes of a configuration, or of the head of a GGUF file."""
    draw = random.Random(int(rng.integers(1 << 62)))
    case = draw.choice(CASES)
    config, weights, _ = known(case)
    folder = written(tmp_path, config, weights)
    good = Written(case, tmp_path).path.read_bytes()
    for number in range(rounds(100, 10_000)):
        path, raw = tmp_path / "damaged.gguf", mutant(draw, good[:4000]) + good[4000:]
        if number % 2:
            path, raw = folder / "config.json", mutant(draw, json.dumps(config).encode())
        path.write_bytes(raw)
        try:
            opened(path.parent if number % 2 else path, host)
        except DeviceError as error:
            assert str(path.parent) in str(error), error
        except Warning:
            continue
        except Exception as error:
            raise AssertionError(f"{case}, mutant {number}, {raw[:4000].hex()}") from error


def test_an_end_of_all_bits_set_is_none(host: Device, tmp_path: Path) -> None:
    """Converters write an id of all bits set for a missing token; other end tokens stay valid."""
    file = Written("llama", tmp_path)
    keys = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
    for none in (np.uint32(0xFFFFFFFF), np.int32(-1)):
        for ends in ((), (5,), (0, 7)):
            told = dict.fromkeys(keys, none) | {
                key: np.uint32(end) for key, end in zip(keys, ends, strict=False)
            }
            design = open_source(file.changed(told), host).design
            assert design.end_tokens == ends


# -- angles --------------------------------------------------------------------------------------


def rope_of(path: Path, host: Device) -> Rope:
    found = open_source(path, host).design.rope
    assert found is not None
    return found


def test_a_factor_counts_by_any_name_and_without_a_type(host: Device, tmp_path: Path) -> None:
    """As in llama.cpp, a file without a scaling type uses its factor."""
    config, weights, _ = known("llama")
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    folder = written(tmp_path, {**config, "rope_parameters": linear}, weights)
    expected = Model.load(folder)(prompt(SEED)).to_numpy()
    file, factor = Written("llama", tmp_path), np.float32(4)
    plain = Model.load(file.path)(prompt(SEED)).to_numpy()
    assert np.abs(plain - expected).max() > 0.05 * np.abs(expected).max()
    older = "llama.rope.scale_linear"
    newer, kind = (f"llama.rope.scaling.{one}" for one in ("factor", "type"))
    for told in ({older: factor}, {newer: factor}, {newer: factor, kind: "linear"}):
        got = Model.load(file.changed(told))(prompt(SEED)).to_numpy()
        np.testing.assert_allclose(got, expected, atol=2e-5 * np.abs(expected).max())
    got = Model.load(file.changed({newer: factor, kind: "none"}))(prompt(SEED)).to_numpy()
    np.testing.assert_array_equal(got, plain)


def test_divisors_of_pairs_and_a_factor_multiply(host: Device, tmp_path: Path) -> None:
    file = Written("llama", tmp_path)
    divisors = np.linspace(1, 3, 8, dtype=np.float32)
    told = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": np.float32(2.5)}
    rope = rope_of(file.changed(told, {"rope_freqs.weight": divisors}), host)
    alone = rope_of(file.changed({}, {"rope_freqs.weight": divisors}), host)
    plain = rope_of(file.path, host)
    steps = [np.arctan2(*one.rows(1, 1, 1)[::-1])[0] for one in (plain, alone, rope)]
    np.testing.assert_allclose(steps[1], steps[0] / divisors, rtol=1e-5)
    np.testing.assert_allclose(steps[2], steps[0] / divisors / 2.5, rtol=1e-5)
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": np.float32(4)}
    found = rope_of(file.changed(yarn), host)
    assert (found.kind, found.factor) == ("yarn", 4)
    assert found.magnitude == pytest.approx(1 + 0.1 * np.log(4))


def test_longrope_without_its_tables_is_a_factor(host: Device, tmp_path: Path) -> None:
    file = Written("phi3_long", tmp_path)
    tables = {f"rope_factors_{one}.weight": None for one in ("short", "long")}
    told = {"phi3.rope.scaling.type": "longrope", "phi3.rope.scaling.attn_factor": np.float32(1.2)}
    rope = rope_of(file.changed(told, tables), host)
    assert (rope.kind, rope.factor, rope.short, rope.long) == ("linear", 1, (), ())
    assert rope.magnitude == pytest.approx(1.2)


@pytest.mark.parametrize(
    "values",
    [
        None,
        np.ones(7, np.float32),
        np.ones(8, np.float64),
        np.zeros(8, np.float32),
        np.full(8, np.nan, np.float32),
        np.ones(8, np.int32),
    ],
    ids=str,
)
def test_wrong_tables_of_angles_are_named(
    host: Device, tmp_path: Path, values: Array | None
) -> None:
    for case, name in (("phi3_long", "rope_factors_short.weight"), ("llama", "rope_freqs.weight")):
        if values is None and case == "llama":
            continue
        file = Written(case, tmp_path)
        path = file.changed({}, {name: values})
        with pytest.raises(ub.InvalidFileError, match=rf"changed\.gguf: {name}: expected "):
            open_source(path, host)


# -- tensors -------------------------------------------------------------------------------------


def test_an_embedding_without_axes_is_named(host: Device, tmp_path: Path) -> None:
    path = Written("llama", tmp_path).changed({}, {"token_embd.weight": np.array(3, np.float32)})
    with pytest.raises(ub.InvalidFileError, match=r"changed\.gguf: "):
        open_source(path, host)


def test_blocks_that_are_no_matrix_of_a_product_become_dense(host: Device, tmp_path: Path) -> None:
    for case, names in (
        ("llama", ("output_norm.weight", "blk.0.attn_norm.weight")),
        ("mixtral", ("blk.0.ffn_gate_inp.weight",)),
        ("gpt_bigcode", ("position_embd.weight",)),
    ):
        file = Written(case, tmp_path)
        blocks = {}
        for name in names:
            rows = np.atleast_2d(file.tensors[name])
            given = QuantizedWeight.from_numpy(rows, "q8_0")
            shape = file.tensors[name].shape
            blocks[name] = QuantizedWeight(given.buffer, "q8_0", *rows.shape, shape=shape)
        got = Model.load(file.changed({}, blocks))(prompt(SEED)[:8]).to_numpy()
        expected = file.expected[:8]
        assert np.abs(got - expected).max() <= 0.1 * np.abs(expected).max(), case


def test_a_file_by_any_name(host: Device, tmp_path: Path) -> None:
    file = Written("llama", tmp_path)
    other = file.path.rename(tmp_path / "sha256-0123")
    assert Model.load(other).architecture == "llama"
