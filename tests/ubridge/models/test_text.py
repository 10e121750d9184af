"""Text of whole models: on every backend, from both kinds of files, with caches kept and reused."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.models.gguf_files import all_of, written_gguf
from tests.ubridge.op_rows import row_of
from ubridge.models import Generation, Model, step
from ubridge.models.body import Body, Chunk
from ubridge.models.making import make_model
from uhal import Device
from uhal.errors import ArgumentTypeError, ArgumentValueError

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

DEVICES = rounds(("host", "tops-sim"), ("host", "cuda-sim", "rocm-sim", "tops-sim"))
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "09_perplexity.py"
TOLERANCE = 1e-3
"""Difference of logits below which another device may choose another token."""
MESSAGES = [{"role": "user", "content": "What is a launch?"}]


@pytest.fixture(params=["llama", "rwkv5"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> Path:
    """Make a model whose state has a fixed size, or a model that caches all tokens."""
    with Device(0, backend="host"):
        return make_model(tmp_path / "made", request.param, seed=seed % 2**32).folder


def assert_most_probable(generation: Generation, prompt: list[int], reference: Model) -> None:
    """Check that the reference gives each token the highest logit, within the tolerance."""
    logits = reference([*prompt, *generation.tokens[:-1]]).to_numpy()[len(prompt) - 1 :]
    chosen = logits[np.arange(len(logits)), generation.tokens]
    assert np.all(chosen >= logits.max(1) - TOLERANCE)


def test_the_same_program_on_every_backend(device: Device, tmp_path: Path, seed: int) -> None:
    row_of(device.backend).require_images()
    with Device(0, backend="host"):
        reference = Model.load(make_model(tmp_path / "made", seed=seed % 2**32).folder)
    model = Model.load(tmp_path / "made", device=device, context=64)
    prompt = model.tokenizer.encode("Once upon")
    generation = model.generate(prompt, max_tokens=rounds(3, 12), ignore_end=True)
    assert generation.read() == model.tokenizer.decode(generation.tokens)
    assert_most_probable(generation, prompt, reference)
    drawn = model.generate(prompt, max_tokens=3, temperature=1.0, top_k=20, top_p=0.9, seed=seed)
    drawn.read()
    again = model.generate(prompt, max_tokens=3, temperature=1.0, top_k=20, top_p=0.9, seed=seed)
    again.read()
    assert drawn.tokens == again.tokens


@pytest.mark.usefixtures("host")
def test_a_chat_that_goes_on_reads_only_what_is_new(folder: Path) -> None:
    model = Model.load(folder)
    session = model.session()
    session.chat(MESSAGES, max_tokens=5).read()
    # An answer from the caller is tokenized again.
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": "A kernel runs."},
        {"role": "user", "content": "Why?"},
    ]
    generation = session.chat(messages, max_tokens=8, ignore_end=True)
    generation.read()
    prompt = model.tokenizer.encode(session.prompt_of(messages), add_special=False)
    first = model.tokenizer.encode(session.prompt_of(MESSAGES), add_special=False)
    assert generation.reused_tokens >= len(first)
    assert_most_probable(generation, prompt, model)
    # The model keeps no state for the text, and generates the same text again.
    alone = model.chat(messages, max_tokens=8, ignore_end=True)
    alone.read()
    assert (alone.reused_tokens, alone.prompt_tokens) == (0, len(prompt))
    assert_most_probable(alone, prompt, model)


@pytest.mark.usefixtures("host")
def test_a_cache_goes_on_in_another_process(folder: Path, tmp_path: Path) -> None:
    model = Model.load(folder)
    prompt = model.tokenizer.encode("A long text that was read once")
    session = model.session()
    first = session.generate(prompt, max_tokens=6, ignore_end=True)
    first.read()
    session.save(tmp_path / "cache.safetensors")
    other = Model.load(folder).session()
    other.restore(tmp_path / "cache.safetensors")
    longer = [*prompt, *first.tokens, *other.tokenizer.encode(" and then")]
    generation = other.generate(longer, max_tokens=6, ignore_end=True)
    generation.read()
    assert generation.reused_tokens == len(prompt) + 5
    assert_most_probable(generation, longer, model)


@pytest.mark.usefixtures("host")
def test_two_texts_of_one_session_at_once(folder: Path) -> None:
    model = Model.load(folder)
    prompts = [model.tokenizer.encode(text) for text in ("One two", "Three")]
    session = model.session()
    both = [session.generate(prompt, max_tokens=6, ignore_end=True) for prompt in prompts]
    for _ in range(3):
        for generation in both:
            next(generation, "")
    for generation, prompt in zip(both, prompts, strict=True):
        generation.read()
        assert_most_probable(generation, prompt, model)


class Meeting:
    """A model's body; each call waits until another body is being called, too."""

    def __init__(self, body: Body, barrier: threading.Barrier) -> None:
        self._body, self._barrier = body, barrier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def __call__(self, chunk: Chunk, state: Mapping[str, ub.DeviceTensor]) -> ub.DeviceTensor:
        self._barrier.wait(60)
        return self._body(chunk, state)


def test_models_on_two_devices_read_at_the_same_time(
    tmp_path: Path, seed: int, simulated: Callable[[str], None]
) -> None:
    """Both threads capture a step at the same time: no lock spans devices."""
    simulated("tops-sim")
    row_of("tops").require_images()
    with Device(0, backend="host"):
        folder = make_model(tmp_path / "made", seed=seed % 2**32).folder
        reference = Model.load(folder)
    barrier = threading.Barrier(2)

    def said(backend: str) -> Generation:
        with Device(0, backend=backend):
            model = Model.load(folder, context=32)
            model._body = Meeting(model._body, barrier)
            generation = model.generate([5], max_tokens=3, ignore_end=True)
            generation.read()
        return generation

    with ThreadPoolExecutor(2) as threads:
        for generation in threads.map(said, ("host", "tops")):
            assert_most_probable(generation, [5], reference)


class WatchedLock:
    """A lock that reports each thread that asks for it."""

    def __init__(self) -> None:
        self._lock, self.asked = threading.Lock(), threading.Semaphore(0)

    def __enter__(self) -> None:
        self.asked.release()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_models_of_one_device_capture_in_turn(
    host: Device, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device is traced by one thread at a time: the second thread waits for the first."""
    folder = make_model(tmp_path / "made", seed=seed % 2**32).folder
    models = [Model.load(folder, context=32) for _ in range(2)]
    lock: Any = WatchedLock()
    monkeypatch.setitem(step._TRACING, host.context, lock)

    class Slow(Meeting):
        """A body whose call returns after both threads have asked for the lock."""

        def __call__(self, chunk: Chunk, state: Mapping[str, ub.DeviceTensor]) -> ub.DeviceTensor:
            assert lock.asked.acquire(timeout=60) and lock.asked.acquire(timeout=60)
            return self._body(chunk, state)

    models[0]._body = Slow(models[0]._body, threading.Barrier(1))

    def said(model: Model) -> list[int]:
        generation = model.generate([5], max_tokens=3, ignore_end=True)
        generation.read()
        return generation.tokens

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(said, models)
    assert first == second


@pytest.mark.usefixtures("host")
def test_a_gguf_file_speaks_as_the_folder_does(tmp_path: Path, seed: int) -> None:
    folder = make_model(tmp_path / "made", seed=seed % 2**32).folder
    expected = Model.load(folder)
    config = {"rms_norm_eps": 1e-6, **json.loads((folder / "config.json").read_text())}
    weights = {name: one.to_numpy() for name, one in ub.load(folder / "model.safetensors").items()}
    plain = ub.load(written_gguf(tmp_path / "plain.gguf", config, weights, all_of("F32")))
    path = tmp_path / "whole.gguf"
    ub.save(path, dict(plain), metadata={**plain.metadata, **described(folder, expected)})
    model = Model.load(path)
    assert model.tokenizer.end_tokens == expected.tokenizer.end_tokens
    prompt = expected.tokenizer.encode("Once upon")
    generation = model.generate("Once upon", max_tokens=8, ignore_end=True)
    text = generation.read()
    assert text == expected.tokenizer.decode(generation.tokens)
    assert_most_probable(generation, prompt, expected)
    session = model.session(capacity=80)
    assert session.prompt_of(MESSAGES) == expected.session().prompt_of(MESSAGES)
    assert session.chat(MESSAGES, max_tokens=2).prompt_tokens < session.cache.capacity == 80


def described(folder: Path, model: Model) -> dict[str, Any]:
    """A tokenizer's metadata, as a converter writes it."""
    told = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    tokenizer, special = model.tokenizer, set(model.tokenizer.special.values())
    order = sorted(told["vocab"], key=told["vocab"].__getitem__)
    keys = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": order,
        "token_type": np.array([3 if one in special else 1 for one in range(len(order))], "i4"),
        "merges": [" ".join(pair) for pair in told["merges"]],
        "eos_token_id": np.uint32(tokenizer.end or 0),
        "bos_token_id": np.uint32(tokenizer.begin or 0),
    }
    found: dict[str, Any] = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return {**found, "tokenizer.chat_template": tokenizer.chat_template}


@pytest.mark.usefixtures("host")
def test_a_session_of_other_weights_is_refused(
    tmp_path: Path, seed: int, rng: np.random.Generator
) -> None:
    """A model with other weights, one changed weight or another dtype refuses the cache."""
    folders = [
        make_model(tmp_path / name, seed=(seed + index) % 2**32).folder
        for index, name in enumerate(("one", "other"))
    ]
    model = Model.load(folders[0])
    text = model.tokenizer.encode("A long text")
    session = model.session()
    session.generate(text, max_tokens=3, ignore_end=True).read()
    session.save(tmp_path / "cache.safetensors")
    changed = shutil.copytree(folders[0], tmp_path / "changed")
    weights = {
        name: one.to_numpy() for name, one in ub.load(folders[0] / "model.safetensors").items()
    }
    name = str(rng.choice([one for one in weights if "norm" in one]))
    weights[name] = weights[name] + np.eye(1, len(weights[name]), dtype=np.float32)[0]
    ub.save(changed / "model.safetensors", weights, metadata={"format": "pt"})
    config = json.loads((folders[0] / "config.json").read_text())
    turned = shutil.copytree(folders[0], tmp_path / "turned")
    (turned / "config.json").write_text(json.dumps({**config, "rope_theta": 500.0}))
    for path, quantize, told in (
        (folders[1], None, r"other \(llama; f32\)"),
        (changed, None, r"changed \(llama; f32\)"),
        (turned, None, r"turned \(llama; f32\)"),
        (folders[0], "q8_0", r"one \(llama; q8_0, f32\)"),
    ):
        another = Model.load(path, quantize=quantize).session()
        another.generate(text[:2], max_tokens=1, ignore_end=True).read()
        with pytest.raises(
            ArgumentValueError, match=rf"a cache of {told}, got one of one \(llama; f32\)"
        ):
            another.restore(tmp_path / "cache.safetensors")
        assert another.cache.tokens == text[:2]
    # A copy of the files is the same model.
    copied = Model.load(shutil.copytree(folders[0], tmp_path / "copied"))
    assert copied.fingerprint == model.fingerprint
    again = copied.session()
    again.restore(tmp_path / "cache.safetensors")
    assert again.cache.tokens == session.cache.tokens


def test_a_fingerprint_is_the_same_in_every_process(tmp_path: Path, seed: int) -> None:
    with Device(0, backend="host"):
        folder = make_model(tmp_path / "made", "phi", seed=seed % 2**32).folder
        expected = Model.load(folder).fingerprint
    program = (
        "from uhal import Api\nfrom ubridge.models import Model\nApi.quick_init(0, 'host')\n"
        f"print(Model.load({str(folder)!r}).fingerprint)"
    )
    # Another hash seed changes the order of sets of strings.
    environment = {**os.environ, "PYTHONHASHSEED": str(seed % 2**32)}
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert found.stdout.strip() == expected


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("batch", [["a", "b"], [[1, 2], [3, 4]], np.zeros((2, 3), int), [(1,)]])
def test_a_batch_is_refused_in_words(tmp_path: Path, batch: Any) -> None:
    model = Model.load(make_model(tmp_path / "made").folder)
    said = r"expected one text or the tokens of one, got \d of type \w+\. Batches are not read"
    if isinstance(batch, list) and isinstance(batch[0], (str, list)):
        assert len(model.generate(batch, max_tokens=1)) == len(batch)
    else:
        with pytest.raises(ArgumentTypeError, match=f"^prompt: {said}"):
            model.generate(batch)
    with pytest.raises(ArgumentTypeError, match=f"^model: {said}"):
        model(batch)
    with model.cache() as cache:
        with pytest.raises(ArgumentTypeError, match=f"^model: {said}"):
            model.logits(batch, cache)
        for wrong, told in (("ab", "got str"), (5, "got int"), ([1.5], "expected ints, got float")):
            with pytest.raises(ArgumentTypeError, match=told):
                model.logits(wrong, cache)  # type: ignore[arg-type]
            with pytest.raises(ArgumentTypeError, match=told):
                model(wrong)  # type: ignore[arg-type]
        assert cache.length == 0
    given: Any = np.array([1, 2])
    assert model(given).shape == (2, 512)


@pytest.mark.usefixtures("host")
def test_a_text_beyond_the_trained_context_is_warned_of_once(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    folder = make_model(tmp_path / "made", changes={"max_position_embeddings": 32}).folder
    assert Model.load(folder).context == 32
    model = Model.load(folder, context=64)
    assert (model.context, model.trained_context) == (64, 32)
    tokens = rng.integers(3, 500, 40).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate(tokens[:30], max_tokens=3, ignore_end=True).read()
    said = "this text has 33 tokens and the model was made for 32"
    with pytest.warns(UserWarning, match=said) as told:
        model.generate(tokens[:30], max_tokens=6, ignore_end=True).read()
        model(tokens)
    assert len(told) == 1
    # Learned positions limit the context.
    learned = make_model(tmp_path / "learned", "gpt_bigcode", {"n_positions": 32}).folder
    model = Model.load(learned, context=64)
    assert model.context == model.cache().capacity == model.cache(64).capacity == 32


@pytest.mark.usefixtures("host")
def test_perplexity_reads_all_of_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text is read in parts of the context's length. Each part starts with the last token
    of the part before."""
    changes = {"max_position_embeddings": 32}
    model = Model.load(make_model(tmp_path / "made", changes=changes).folder)
    (tmp_path / "text").write_text("The quick brown fox. " * 9 + "And no more", "utf-8")
    tokens = model.tokenizer.encode((tmp_path / "text").read_text("utf-8"))
    assert len(tokens) > 64
    found = []
    for start in range(0, len(tokens) - 1, 32):
        part = tokens[start : start + 33]
        rows = model(part[:-1]).to_numpy().astype(np.float64)
        sums = np.log(np.exp(rows).sum(1))
        found += (sums - rows[np.arange(len(rows)), part[1:]]).tolist()
    options = ["--model", str(tmp_path / "made"), "--text", str(tmp_path / "text")]
    monkeypatch.setattr("sys.argv", ["09_perplexity.py", "--backend", "host", *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    told = f"{len(tokens)} tokens in {-(-(len(tokens) - 1) // 32)} parts of at most 32, perplexity "
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith(told)
    assert float(said.removeprefix(told)) == pytest.approx(np.exp(np.mean(found)), abs=0.011)
