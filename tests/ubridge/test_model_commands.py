"""Commands that run tiny models, made for the test."""

from __future__ import annotations

import argparse
import io
import itertools
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.sampling import rounds
from ubridge.files.__main__ import main as convert
from ubridge.files.settings import Settings
from ubridge.models import Model
from ubridge.models.commands import main, options
from ubridge.models.commands.published import PUBLISHED
from ubridge.models.commands.seeds import SEEDS
from ubridge.models.making import CONFIGS, make_model
from ubridge.models.table import ROWS, architecture_of, spelled_alike
from uhal import Api, Device
from uhal.__main__ import _MODELS, _MODELS_BY_NAME
from uhal.errors import ArgumentValueError

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

TOLD = re.compile(r"^(\d+) tokens generated \(([\d.e+-]+) token/s\)$", re.MULTILINE)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "llama"
    with Device(0, backend="host"):
        make_model(folder, seed=11)
    return folder


@pytest.fixture
def bigcode(tmp_path: Path, host: Device) -> Path:
    make_model(tmp_path / "bigcode", "gpt_bigcode")
    return tmp_path / "bigcode"


def test_the_program_knows_every_command() -> None:
    assert set(_MODELS_BY_NAME) == set(SEEDS)
    assert set(_MODELS) == {"generate", "chat", "serve", "bench", "make-model", "stable-diffusion"}


def test_every_architecture_can_be_made() -> None:
    assert set(CONFIGS) == {*ROWS, "rwkv5"}


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("architecture", sorted(CONFIGS))
def test_what_was_made_runs(architecture: str, tmp_path: Path, host: Device, seed: int) -> None:
    made = make_model(tmp_path / "m", architecture, seed=seed % 2**32)
    model = Model.load(made.folder)
    assert model.architecture == architecture
    generation = model.generate("Hello", max_tokens=3, ignore_end=True)
    generation.read()
    assert len(generation.tokens) == 3
    tokens = model.tokenizer.encode("Hello")
    every = model(tokens).to_numpy()
    assert np.isfinite(every).all() and every.std() > 0.1
    assert generation.tokens[0] == int(every[-1].argmax())


def test_a_seed_makes_the_same_model(tmp_path: Path, host: Device) -> None:
    one, two = (make_model(tmp_path / name, seed=5) for name in "ab")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()


@pytest.mark.parametrize(
    ("command", "kind", "parameters"),
    [
        # The counts are from the models' pages on Hugging Face.
        ("mistral", "7b-v0.1", 7_241_732_096),
        ("mistral", "7b-instruct-v0.2", 7_241_732_096),
        ("yi", "6b", 6_061_035_520),
        ("yi", "34b", 34_388_917_248),
        ("phi", "1.5", 1_418_270_720),
        ("phi", "2", 2_779_683_840),
        ("stable-lm", "v1-zephyr", 2_795_443_200),
        ("stable-lm", "v2-zephyr", 1_644_515_328),
        ("bigcode", "1b", 1_137_207_296),
    ],
)
def test_published_configurations_have_the_published_size(
    command: str, kind: str, parameters: int
) -> None:
    config = PUBLISHED[command][kind]
    name = config["model_type"]
    told = spelled_alike(Settings("published", config), ROWS[name].defaults)
    design = architecture_of(name, told)
    assert sum(prod(shape) for _, _, shape in design.tensors()) == parameters
    assert config["model_type"] in SEEDS[command].architectures
    assert kind in SEEDS[command].kinds


def test_what_cannot_be_made(tmp_path: Path, host: Device) -> None:
    with pytest.raises(ArgumentValueError, match=r"expected one of .*llama.*, got 'gpt9'"):
        make_model(tmp_path / "m", "gpt9")
    with pytest.raises(ArgumentValueError, match=r"at least 259.* got 100"):
        make_model(tmp_path / "m", changes={"vocab_size": 100})
    assert not (tmp_path / "m").exists()
    make_model(tmp_path / "m")
    with pytest.raises(ArgumentValueError, match="a model is there already"):
        make_model(tmp_path / "m")


def test_generate_writes_the_text_alone(
    llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(perf_counter=itertools.count(0, 0.7).__next__)
    monkeypatch.setattr("ubridge.models.text.generation.time", clock)
    status = main("generate", [str(llama), "--prompt", "Hello", "-n", "9", "--cpu", "--ignore-end"])
    told = capsys.readouterr()
    assert status == 0
    with Device(0, backend="host"):
        expected = Model.load(llama).generate("Hello", max_tokens=9, ignore_end=True).read()
    assert told.out == expected + "\n"
    found = TOLD.search(told.err)
    assert found and found.groups() == ("9", f"{9 / 7:.2f}")
    assert "the first answered after 0.700 s" in told.err
    assert re.search(r"^loaded the model in [\d.]{1,8}s$", told.err, re.MULTILINE)


def test_what_is_not_done_is_a_line_on_standard_error(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--prompt", "H", "-n", "2", "--cpu", "--quant", "Q4_K_M"]
    assert main("generate", [str(llama), *options]) == 0
    lines = capsys.readouterr().err.splitlines()
    (line,) = (one for one in lines if "matrices became" in one)
    assert line.startswith(f"{llama}: quantize Q4_K_M: ") and "became q5_0" in line


def parsed(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_loading(parser)
    options.add_sampling(parser, top_p=0.9, temperature=0.7)
    return parser.parse_args(given)


def test_options_of_a_choice_are_taken_as_they_are_given() -> None:
    usual = options.sampling_of(parsed())
    assert (usual.top_p, usual.temperature, usual.repetition_penalty) == (0.9, 0.7, 1.0)
    assert (usual.repetition_window, usual.top_k, usual.seed) == (64, None, options.SEED)
    for option, name, value in (
        ("--top-p", "top_p", 0.5),
        ("--repeat-penalty", "repetition_penalty", 1.3),
        ("--repeat-last-n", "repetition_window", 0),
        ("--temperature", "temperature", 0.0),
        ("--top-k", "top_k", 1),
        ("--min-p", "min_p", 0.25),
        ("--presence-penalty", "presence_penalty", -0.5),
        ("--frequency-penalty", "frequency_penalty", 0.75),
        ("--seed", "seed", 0),
    ):
        assert options.sampling_of(parsed(option, str(value))) == replace(usual, **{name: value})
    for option, name in (("--top-p", "top_p"), ("--repeat-penalty", "repetition_penalty")):
        with pytest.raises(ArgumentValueError, match=f"^{name}: expected more than 0"):
            options.sampling_of(parsed(option, "0"))
    with pytest.raises(ArgumentValueError, match="top_k: expected at least 1, got 0"):
        options.sampling_of(parsed("--top-k", "0"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), (0, None)),
        (("--cpu",), (0, "host")),
        (("--cpu", "--backend", "cuda"), (0, "host")),
        (("--backend", "cuda", "--device", "1"), (1, "cuda")),
    ],
)
def test_the_host_is_chosen_over_a_backend(
    given: tuple[str, ...], expected: tuple[int, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, str | None]] = []

    def noted(ordinal: int, *, backend: str | None) -> Device:
        asked.append((ordinal, backend))
        raise ZeroDivisionError

    monkeypatch.setattr(Api, "quick_init", noted)
    with pytest.raises(ZeroDivisionError):
        options.loaded(parsed(*given), Path("nowhere"), None)
    assert asked == [expected]


def test_generate_reads_standard_input(
    llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outs = []
    for given in (["--prompt", "Hello"], []):
        monkeypatch.setattr("sys.stdin", io.StringIO("Hello"))
        options = ["-n", "5", "--temperature", "2", "--top-k", "50", "--seed", "3", "--cpu"]
        assert main("generate", [str(llama), *given, *options]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]


def test_llama_as_the_seeds_have_it(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--local-weights", f"{llama}/", "--prompt", "Once", "--cpu", "-n", "7"]
    assert main("llama", options) == 0
    out = capsys.readouterr().out
    assert re.match(r"loaded the model in [\d.e-]+s\nstarting the inference loop\nOnce", out)
    found = TOLD.search(out)
    assert found and out.endswith(f"\n\n{found[0]}\n")
    assert int(found[1]) <= 7


def test_a_gguf_file_needs_no_configuration_beside_it(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "llama.gguf"
    assert convert(["convert", str(llama), str(file)]) == 0
    capsys.readouterr()
    rest = ["--prompt", "Once", "--cpu", "-n", "6"]
    assert main("llama", ["--local-weights", str(llama), *rest]) == 0
    whole = capsys.readouterr().out
    assert main("llama", ["--weight-files", str(file), *rest]) == 0
    assert capsys.readouterr().out.splitlines()[1:-1] == whole.splitlines()[1:-1]


def test_weights_and_tokenizer_from_anywhere(
    bigcode: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main("bigcode", ["--local-weights", str(bigcode), "--prompt", "def f", "--cpu", "-n", "6"])
    whole = capsys.readouterr().out
    weights = (bigcode / "model.safetensors").rename(tmp_path / "w.safetensors")
    tokenizer = (bigcode / "tokenizer.json").rename(tmp_path / "t.json")
    options = ["--weight-file", str(weights), "--tokenizer-file", str(tokenizer)]
    rest = ["--prompt", "def f", "--cpu", "-n", "6"]
    assert main("starcoder2", [*options, *rest]) == 1
    assert "expected the model's configuration beside its weights" in capsys.readouterr().err
    # The weights do not have the shapes of the command's built-in model.
    assert main("bigcode", [*options, *rest]) == 1
    assert "expected shape (49152, 2048), got (512, 64)" in capsys.readouterr().err
    assert main("bigcode", [*options, "--config", str(bigcode / "config.json"), *rest]) == 0
    parts = capsys.readouterr().out
    assert parts.splitlines()[1:-1] == whole.splitlines()[1:-1]
    told, expected = TOLD.search(parts), TOLD.search(whole)
    assert told and expected and told[1] == expected[1]


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("phi", ["--local-weights", "{llama}"], "a model of phi or phi3, got one of llama"),
        ("llama", [], "expected either --local-weights DIR or --weight-files"),
        ("llama", ["--local-weights", "{llama}", "--weight-files", "x"], "expected either"),
        ("mistral", ["--weight-files", "/none.safetensors"], "/none.safetensors: there is no such"),
        ("generate", ["/none"], "/none: expected a folder with config.json"),
        ("generate", ["{llama}", "--top-p", "2"], "top_p: expected more than 0, at most 1"),
        ("generate", ["{llama}", "-n", "0"], "max_tokens: expected at least 1"),
        ("generate", ["{llama}", "--quant", "Q9"], "got 'Q9'; there is no such format"),
        ("generate", ["~nosuchuser/m"], "~nosuchuser/m: "),
        ("mistral", ["--weight-files", "~nosuchuser/m"], "~nosuchuser/m: "),
        ("bench", ["{llama}", "--decode", "0"], "expected numbers of at least 1"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    llama: Path,
    command: str,
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [one.format(llama=llama) for one in arguments]
    prompt = [] if command == "bench" else ["--prompt", "x"]
    assert main(command, [*given, *prompt, "--cpu"]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"{command}: ") and says in last


def test_bench_tells_a_table_and_json(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [str(llama), "--lengths", "4,9", "--decode", "3", "--runs", "1", "--cpu"]
    assert main("bench", options) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[:3] == ["tokens", "read/s", "written/s"]
    assert [row.split()[0] for row in rows[1:]] == ["4", "9"]
    assert main("bench", [*options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["architecture"] == "llama"
    for row, length in zip(told["rows"], (4, 9), strict=True):
        assert row["length"] == length
        assert row["prefill_rate"] == pytest.approx(length / row["prefill_seconds"])
        assert row["decode_rate"] == pytest.approx(3 / row["decode_seconds"])


def test_chat_answers_line_after_line(
    llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def talk(*lines: str) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        options = ["-n", "4", "--temperature", "0", "--cpu", "--system", "S"]
        assert main("chat", [str(llama), *options]) == 0
        return capsys.readouterr().out

    first = talk("Hello")
    both = talk("Hello", "", "Why?", "/exit", "never")
    assert both.startswith(first) and len(both) > len(first)
    assert talk("Why?", "/reset", "Hello").endswith(first)
    with Device(0, backend="host"):
        messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Hello"}]
        assert Model.load(llama).chat(messages, max_tokens=4).read() + "\n" == first


def spoken(
    monkeypatch: pytest.MonkeyPatch,
    given: bytes,
    command: str,
    *arguments: str,
    ascii: bool = False,
) -> tuple[int, str, str]:
    """Run a command on a terminal of ASCII or UTF-8; return its status and output."""
    encoding = "ascii" if ascii else "utf-8"
    out, err = io.BytesIO(), io.StringIO()
    shown = io.TextIOWrapper(out, encoding)
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given), encoding))
        patch.setattr("sys.stdout", shown)
        patch.setattr("sys.stderr", err)
        status = main(command, arguments)
    shown.flush()
    return status, out.getvalue().decode(encoding), err.getvalue()


def test_a_terminal_of_ascii_shows_every_text(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters that ASCII lacks are written with a backslash; input is still UTF-8."""
    options = ["--local-weights", str(llama), "--cpu", "-n", "4"]
    # Python passes bytes that are not ASCII as surrogate escapes.
    text = "漢é".encode()
    prompt = ["--prompt", text.decode("ascii", "surrogateescape")]
    for given, more in ((b"", prompt), (text, [])):
        status, out, err = spoken(monkeypatch, given, "yi", *options, *more, ascii=True)
        assert status == 0, err
        assert "\nstarting the inference loop\n\\u6f22\\xe9" in out


def test_bytes_that_are_no_text_are_named(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(command: str, *arguments: str, given: bytes = b"") -> str:
        status, _, err = spoken(monkeypatch, given, command, str(llama), "--cpu", *arguments)
        assert status == 1
        return err.splitlines()[-1]

    wrong = "expected UTF-8, got the byte 0xFF behind 3 characters"
    assert said("generate", "--prompt", "abc\udcff") == f"generate: --prompt: {wrong}"
    assert said("generate", given=b"abc\xff") == f"generate: standard input: {wrong}"
    stop = ["--prompt", "x", "--stop", "abc\udcff"]
    assert said("generate", *stop) == f"generate: --stop: {wrong}"
    assert said("chat", "--system", "abc\udcff") == f"chat: --system: {wrong}"


def test_a_line_that_cannot_be_answered_does_not_end_the_talk(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chat does not contain a line that is too long, or bytes that are not text."""
    options = [str(llama), "--cpu", "-n", "4", "--temperature", "0", "--context", "80"]
    _, alone, _ = spoken(monkeypatch, b"Hello\n", "chat", *options)
    lines = b"\n".join([b"x" * 900, b"abc\xff", b"Hello"])
    status, out, err = spoken(monkeypatch, lines, "chat", *options)
    assert (status, out) == (0, alone), err
    told = [one for one in err.splitlines() if one.startswith("chat: ")]
    assert len(told) == 2
    assert "expected at most 80 tokens" in told[0]
    assert "this line: expected UTF-8, got the byte 0xFF behind 3" in told[1]


def test_ctrl_c_ends_the_answer_and_not_the_talk(llama: Path) -> None:
    program = [sys.executable, "-m", "uhal", "chat", str(llama), "--cpu", "--temperature", "0"]
    # The answer continues until the context is full, which takes a while.
    with subprocess.Popen(
        [*program, "--context", "200000", "--repeat-penalty", "1.3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(b"Hello\n")
            process.stdin.flush()
            assert process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            process.stdin.write(b"/exit\n")
            process.stdin.flush()
            out, err = process.communicate(timeout=60)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0, err
    assert out.endswith(b"\n")


def test_a_reader_that_has_seen_enough_ends_it_quietly(llama: Path) -> None:
    program = [sys.executable, "-m", "uhal", "generate", str(llama), "--prompt", "x", "--cpu"]
    with subprocess.Popen(
        [*program, "--ignore-end"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.read(1)
        process.stdout.close()
        told = process.stderr.read().decode()
        assert process.wait(60) == 1
    assert "Broken pipe" not in told and "Traceback" not in told


def test_without_the_extra_it_says_what_to_install(llama: Path) -> None:
    program = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from ubridge.models.commands import main\n"
        f"sys.exit(main('generate', [{str(llama)!r}, '--prompt', 'x', '--cpu']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert "pip install 'uhal-py[llm]'" in done.stderr.splitlines()[-1]


def test_uhal_finds_the_commands() -> None:
    for command in rounds(["make-model"], [*_MODELS, *_MODELS_BY_NAME]):
        done = subprocess.run(
            [sys.executable, "-m", "uhal", command, "--help"], capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: python -m uhal {command}")
