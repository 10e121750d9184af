"""Reading models, errors and their messages; caches, and messages about memory."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.models.cases import Array, drawn, prompt
from tests.ubridge.models.files import known, written
from tests.ubridge.models.judging import SEED
from ubridge.models import Model
from uhal import Device
from uhal.errors import (
    ArgumentValueError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
)

pytestmark = pytest.mark.usefixtures("host")


@pytest.fixture
def llama() -> tuple[dict[str, Any], dict[str, Array]]:
    config, weights, _ = known("llama")
    return config, weights


Llama = tuple[dict[str, Any], dict[str, Array]]


def refused(folder: Path, words: str, error: type[Exception] = ub.InvalidFileError) -> None:
    with pytest.raises(error, match=words):
        Model.load(folder)


# -- forms of files ------------------------------------------------------------------------------


def test_shards_and_the_older_spelling_of_rope(tmp_path: Path) -> None:
    config, weights, expected = known("llama31")
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {**rope, "type": rope.pop("rope_type")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    names = sorted(weights)
    places = {}
    for part in range(3):
        file = f"model-{part + 1:05}-of-00003.safetensors"
        some = {name: weights[name] for name in names[part::3]}
        ub.save(tmp_path / file, some)
        places |= dict.fromkeys(some, file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    got = Model.load(tmp_path)(prompt(SEED)).to_numpy()
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def test_end_tokens_of_the_generation_configuration_win(tmp_path: Path, llama: Llama) -> None:
    folder = written(tmp_path, *llama)
    assert Model.load(folder).end_tokens == (2,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    model = Model.load(folder)
    assert model.end_tokens == (5, 7)
    assert (model.architecture, model.vocabulary, model.context) == ("llama", 97, 128)
    assert model.source == folder


def test_experts_as_transformers_5_may_write_them(tmp_path: Path) -> None:
    config, weights, expected = known("mixtral")
    for layer in range(2):
        old, new = (f"model.layers.{layer}.{one}" for one in ("block_sparse_moe", "mlp"))
        gate, down, up = (
            np.stack(
                [
                    weights.pop(f"{old}.experts.{one}.{name}.weight")
                    for one in range(config["num_local_experts"])
                ]
            )
            for name in ("w1", "w2", "w3")
        )
        weights[f"{new}.experts.gate_up_proj"] = np.hstack([gate, up])
        weights[f"{new}.experts.down_proj"] = down
        weights[f"{new}.gate.weight"] = weights.pop(f"{old}.gate.weight")
    got = Model.load(written(tmp_path, config, weights))(prompt(SEED)).to_numpy()
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


# -- what does not fit ---------------------------------------------------------------------------


def test_tensors_that_do_not_fit_are_named(tmp_path: Path, llama: Llama) -> None:
    config, weights = llama
    name = "model.layers.1.mlp.up_proj.weight"
    lacking = {key: value for key, value in weights.items() if key != name}
    refused(written(tmp_path, config, lacking), rf"{name} of shape \(96, 64\) is missing")
    wrong = {**weights, name: drawn(name, (95, 64), SEED)}
    refused(written(tmp_path, config, wrong), rf"{name}: expected shape \(96, 64\), got \(95, 64\)")
    more = {**weights, "model.layers.1.mlp.up_proj.bias": drawn("b.bias", (96,), SEED)}
    refused(written(tmp_path, config, more), r"up_proj.bias of shape \(96,\) is there, and nothing")
    refused(
        written(tmp_path, {**config, "num_hidden_layers": 3}, weights),
        r"not a llama model.*model.layers.2.input_layernorm.weight.*; and 3 more",
    )
    # Older versions also saved buffers, which are not weights.
    old = {**weights, "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    assert Model.load(written(tmp_path, config, old)).architecture == "llama"


def test_an_unknown_architecture_lists_those_there_are(tmp_path: Path, llama: Llama) -> None:
    config, weights = llama
    folder = written(tmp_path, {**config, "model_type": "mamba"}, weights)
    with pytest.raises(NotSupportedError) as told:
        Model.load(folder)
    words = str(told.value)
    assert "falcon, gemma" in words and "'mamba'" in words and "adding-a-model.md" in words
    ub.save(tmp_path / "other.gguf", weights, metadata={"general.architecture": "mamba"})
    refused(tmp_path / "other.gguf", "architecture: expected one of .*qwen2", NotSupportedError)


def test_kinds_of_files_that_are_not_read_are_named(tmp_path: Path, llama: Llama) -> None:
    config, weights = llama
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "config.json").write_text(json.dumps(config))
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    refused(tmp_path / "pickle", "pytorch_model.bin: a pickle can run any", NotSupportedError)
    refused(tmp_path / "pickle" / "pytorch_model.bin", "save_pretrained", NotSupportedError)
    (tmp_path / "a.bin").write_bytes(np.array([64, 172, 5, 8, 4, 512, 512], "<i4").tobytes())
    refused(tmp_path / "a.bin", "this is a checkpoint of llama2.c", NotSupportedError)
    (tmp_path / "b.bin").write_bytes(b"24ka" + bytes(60))
    refused(tmp_path / "b.bin", "this is a checkpoint of llama2.c", NotSupportedError)
    (tmp_path / "c.bin").write_bytes(b"anything")
    refused(tmp_path / "c.bin", "expected a file of safetensors or GGUF, got", NotSupportedError)
    for method in ("gptq", "awq"):
        quantized = {**config, "quantization_config": {"quant_method": method, "bits": 4}}
        refused(written(tmp_path, quantized, weights), method.upper(), NotSupportedError)
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    refused(tmp_path / "lora", "LoRA adapter.*merge_and_unload", NotSupportedError)
    refused(tmp_path / "nothing", "expected a folder with config.json", NotFoundError)
    (tmp_path / "empty").mkdir()
    lacking = r"expected \*\.safetensors or one \.gguf file, got neither"
    refused(tmp_path / "empty", lacking, NotFoundError)
    (tmp_path / "empty" / "config.json").write_text(json.dumps(config))
    refused(tmp_path / "empty", lacking, NotFoundError)
    folder = written(tmp_path, config, weights)
    (folder / "config.json").write_text("[")
    refused(folder, r"config\.json: expected JSON")
    (folder / "config.json").unlink()
    refused(folder, r"config\.json: expected a model's configuration", NotFoundError)


def test_a_configuration_that_says_nonsense(tmp_path: Path, llama: Llama) -> None:
    config, weights = llama
    for changes, words, error in (
        ({"hidden_act": "snake"}, "hidden_act: .*silu.*snake", NotSupportedError),
        (
            {"rope_parameters": {"rope_type": "spiral"}},
            r"rope_parameters.rope_type: .*yarn.*spiral",
            NotSupportedError,
        ),
        (
            {"num_key_value_heads": 3},
            "num_key_value_heads: .*divisor of 4 heads",
            ub.InvalidFileError,
        ),
        ({"layer_types": ["chunked_attention"] * 2}, "layer_types: .*chunked", NotSupportedError),
        ({"eos_token_id": "2"}, 'eos_token_id: .*integer.*"2"', ub.InvalidFileError),
        ({"quantization_config": "x"}, "quantization_config: .*object", ub.InvalidFileError),
    ):
        folder = written(tmp_path, {**config, **changes}, weights)
        refused(folder, f"^{folder / 'config.json'}: {words}", error)


# -- memory --------------------------------------------------------------------------------------


def test_what_it_takes_is_said_first(
    tmp_path: Path, llama: Llama, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, *llama)
    Model.load(folder, progress=True)
    said = r"llama: [1-9][\d.]+ kB of weights and [1-9][\d.]+ kB for the cache"
    assert re.search(said, capsys.readouterr().err)
    steps: list[tuple[int, int]] = []
    Model.load(folder, progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps) and steps[-1][0] == steps[-1][1]
    assert steps[-1][1] == sum(values.nbytes for values in llama[1].values())
    assert capsys.readouterr().err == ""


def test_too_large_is_refused_before_anything_is_read(tmp_path: Path, llama: Llama) -> None:
    with pytest.raises(OutOfMemoryError, match=r"GB for the cache.*GB free; nothing was read"):
        Model.load(written(tmp_path, *llama), context=1 << 50)


def test_weights_stay_in_their_files_on_the_host(tmp_path: Path, llama: Llama) -> None:
    model = Model.load(written(tmp_path, *llama))
    with Device(0, backend="host") as host:
        before = host.memory_stats()["allocated_bytes.all.current"]
        again = Model.load(tmp_path)
        weights = sum(values.nbytes for values in llama[1].values())
        made = host.memory_stats()["allocated_bytes.all.current"] - before
        assert made < weights / 10
    assert again.vocabulary == model.vocabulary


# -- caches --------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, llama: Llama) -> Model:
    return Model.load(written(tmp_path, *llama))


def test_a_cache_is_cut_short_and_read_on(model: Model) -> None:
    tokens = prompt(SEED)
    whole = model(tokens).to_numpy()
    with model.cache(64) as cache:
        model.logits(tokens[:30], cache)
        last = model.logits(tokens[30:31], cache).to_numpy()
        assert (cache.length, cache.tokens) == (31, tokens[:31])
        cache.truncate(12)
        assert len(cache) == 12 and cache.tokens == tokens[:12]
        several = model.logits(tokens[12:31], cache, every=True).to_numpy()
        np.testing.assert_allclose(several, whole[12:31], atol=1e-4)
        np.testing.assert_allclose(several[-1], last, atol=1e-4)
        with pytest.raises(ArgumentValueError, match="expected 0 to 31 tokens, got 32"):
            cache.truncate(32)


def test_tokens_that_do_not_fit_leave_the_cache_as_it_was(model: Model) -> None:
    with model.cache(8) as cache:
        model.logits([1, 2, 3], cache)
        for wrong, words in (
            ([], "expected at least one"),
            ([1] * 6, "at most 5, the free capacity of the cache, got 6"),
            ([97], "expected ids of 0 to 96, got 97"),
            ([-1], "got -1"),
        ):
            with pytest.raises(ArgumentValueError, match=words):
                model.logits(wrong, cache)
        assert cache.tokens == [1, 2, 3]
    for asked in (0, -1):
        with pytest.raises(ArgumentValueError, match="expected 1 to"):
            model.cache(asked)


def test_a_recurrent_model_reads_again_what_stays(tmp_path: Path) -> None:
    from tests.ubridge.models.cases import EQUATIONS
    from tests.ubridge.models.files import shapes_of

    config = EQUATIONS["rwkv5"]
    weights = {n: drawn(n, s, SEED) for n, s in shapes_of("rwkv5", config).items()}
    model, tokens = Model.load(written(tmp_path, config, weights)), prompt(SEED, 20)
    whole = model(tokens).to_numpy()
    with model.cache(20) as cache:
        model.logits(tokens[:15], cache)
        cache.truncate(9)
        assert cache.kept == 0 and cache.length == 9
        got = model.logits(tokens[9:], cache, every=True).to_numpy()
        np.testing.assert_allclose(got, whole[9:], atol=1e-4)


def test_a_text_that_outgrows_its_angles_is_read_again(tmp_path: Path) -> None:
    """Longrope rotates all positions again when a text exceeds the trained length."""
    config, weights, expected = known("phi3_long")
    model, tokens = Model.load(written(tmp_path, config, weights)), prompt(SEED)
    with model.cache(64) as cache:
        model.logits(tokens[:31], cache)
        rows = [model.logits([one], cache).to_numpy() for one in tokens[31:]]
    np.testing.assert_allclose(np.stack(rows)[1:], expected[32:], atol=1e-4 * 5)


def test_long_prompts_go_through_in_chunks(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = prompt(SEED)
    whole = model(tokens).to_numpy()
    monkeypatch.setattr("ubridge.models.model.CHUNK", 10)
    np.testing.assert_allclose(model(tokens).to_numpy(), whole, atol=1e-4)
    with model.cache(64) as cache:
        model.logits(tokens[:33], cache)
        got = model.logits(tokens[33:], cache, every=True).to_numpy()
    np.testing.assert_allclose(got, whole[33:], atol=1e-4)


def test_a_step_takes_no_memory_and_no_operation_of_its_own(
    model: Model, host: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A captured step is a single replay, without allocations, uploads or queries."""
    with model.cache(64) as cache:
        model.logits([1, 2, 3], cache)
        model.logits([4], cache)
        host.synchronize()

        def asked(*given: object, **named: object) -> None:
            raise AssertionError("an operation was asked for")

        for name in ("linear", "rms_norm", "rope_at", "cached_attention", "asarray", "embedding"):
            monkeypatch.setattr(ub, name, asked)
        before = host.memory_stats()
        results = [model.logits([token], cache) for token in (5, 6, 7)]
        host.synchronize()
        assert host.memory_stats() == before
        assert all(one.buffer is results[0].buffer for one in results)
        with pytest.raises(AssertionError, match="asked for"):
            model.logits([1, 2], cache)


def test_a_captured_step_refuses_tokens_and_positions_out_of_range(model: Model) -> None:
    last = model.vocabulary - 1
    with model.cache(16) as cache:
        cache.read_one(3, 0)
        cache.read_one(last, cache.room - 1)
        for token, position in ((last + 1, 1), (-1, 1), (3, cache.room), (3, -1)):
            with pytest.raises(ArgumentValueError, match=r"token|position"):
                cache.read_one(token, position)


def test_several_threads_read_texts_of_their_own(model: Model) -> None:
    texts = [prompt(seed, 12) for seed in range(4)]
    alone = [model(text).to_numpy() for text in texts]

    def read(text: list[int]) -> Array:
        with Device(0, backend="host"), model.cache(16) as cache:
            rows = [model.logits([token], cache).to_numpy() for token in text]
        return np.stack(rows)

    with ThreadPoolExecutor(4) as threads:
        for found, expected in zip(threads.map(read, texts), alone, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4)
