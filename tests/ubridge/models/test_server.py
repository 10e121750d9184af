"""`python -m uhal serve` and its application, under plain HTTP and under the `openai` client."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.requirements import needed_module
from tests.sampling import rounds
from ubridge.models import Engine, Model
from ubridge.models.commands import INTERRUPTED
from ubridge.models.making import make_model
from uhal import Device

uvicorn = needed_module("uvicorn")
needed_module("starlette")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

from ubridge.models.serving.server import application  # noqa: E402
from ubridge.models.serving.state import ServerLimits  # noqa: E402

KEY = "a key for tests"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Device(0, backend="host"):
        return make_model(tmp_path_factory.mktemp("served") / "tiny", seed=7).folder


@contextmanager
def served(folder: Path, key: str | None = None, **limits: int) -> Iterator[tuple[int, Engine]]:
    """Serve a model on a port of its own; check at the end that nothing is left."""
    with Device(0, backend="host"):
        model = Model.load(folder, context=64)
        engine = Engine(model, sequences=4, page_size=4, pages=40)
        app = application(
            model, engine, "tiny", key=key, limits=ServerLimits(**{"requests": 40, **limits})
        )
        config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                port = listening.getsockname()[1]
                assert ask(port, "GET", "/health")[0] == 200
                yield port, engine
                wait_until_idle(engine)
            finally:
                server.should_exit = True
                thread.join()
        assert engine._is_closed


def wait_until_idle(engine: Engine) -> None:
    while (stats := engine.stats()).running or stats.waiting:
        time.sleep(0.01)
    assert stats.pages.live == 0


def ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Return the status and the decoded body."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        raw = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, raw, JSON if headers is None else headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text
    finally:
        connection.close()


def alone(folder: Path, prompt: str, count: int) -> str:
    with Device(0, backend="host"):
        model = Model.load(folder, context=64)
        return Engine(model).submit(prompt, max_tokens=count).read()


def test_answers_whole_and_streamed(folder: Path) -> None:
    expected = alone(folder, "Once upon", 8)
    with served(folder) as (port, _):
        body = {"prompt": "Once upon", "max_tokens": 8, "temperature": 0}
        status, told = ask(port, "POST", "/v1/completions", {**body, "model": "tiny"})
        assert (status, told["choices"][0]["text"]) == (200, expected)
        assert told["object"] == "text_completion"
        usage = told["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert told["choices"][0]["finish_reason"] in ("length", "stop")
        _, text = ask(
            port,
            "POST",
            "/v1/completions",
            {**body, "stream": True, "logprobs": 2, "stream_options": {"include_usage": True}},
        )
        events = [one.removeprefix("data: ") for one in text.split("\n\n") if one]
        assert events.pop() == "[DONE]"
        chunks = [json.loads(one) for one in events]
        again = chunks.pop()["usage"]
        assert again["total_tokens"] == usage["total_tokens"]
        # The whole pages of the first prompt are found.
        assert again["prompt_tokens_details"]["cached_tokens"] in range(0, 64, 4)
        assert "".join(one["choices"][0]["text"] for one in chunks) == expected
        found = [one["choices"][0]["logprobs"] for one in chunks]
        count = sum(len(one["tokens"]) for one in found if one)
        assert count == usage["completion_tokens"]
        # Several prompts and several answers in one request.
        _, told = ask(
            port, "POST", "/v1/completions", {**body, "prompt": ["A", "Once upon"], "n": 2}
        )
        texts = [one["text"] for one in told["choices"]]
        assert texts[2:] == [expected] * 2 and [one["index"] for one in told["choices"]] == [
            0,
            1,
            2,
            3,
        ]
        # A seed repeats a drawn text, and tokens are a prompt.
        drawn = {"prompt": [1, 2, 3], "max_tokens": 6, "seed": 3, "temperature": 1.5}
        first, again = (ask(port, "POST", "/v1/completions", drawn)[1] for _ in range(2))
        assert first["choices"] == again["choices"]


def test_the_client_of_openai(folder: Path) -> None:
    openai = needed_module("openai")
    with served(folder, KEY) as (port, _):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0)
        assert [one.id for one in client.models.list()] == ["tiny"]
        messages = [{"role": "user", "content": "What is a launch?"}]
        whole = client.chat.completions.create(
            model="tiny",
            messages=messages,
            max_tokens=8,
            temperature=0,
            logprobs=True,
            top_logprobs=2,
        )
        answer = whole.choices[0]
        assert answer.message.role == "assistant"
        assert len(answer.logprobs.content) == whole.usage.completion_tokens
        assert (
            answer.logprobs.content[0].top_logprobs[0].logprob == answer.logprobs.content[0].logprob
        )
        streamed = client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=8, temperature=0, stream=True
        )
        pieces = [one.choices[0].delta.content for one in streamed]
        assert "".join(pieces) == answer.message.content
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="other", messages=messages)
        stranger = openai.OpenAI(base_url=client.base_url, api_key="another key", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()


def test_no_stranger_without_the_key_gets_in(folder: Path) -> None:
    with served(folder, KEY) as (port, engine):
        for path, body in (("/v1/models", None), ("/metrics", None), ("/v1/completions", {})):
            for value in ("", "Bearer", "Bearer no", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer ä"):
                headers = {**JSON, "Authorization": value.encode("latin-1").decode("latin-1")}
                method = "GET" if body is None else "POST"
                status, told = ask(port, method, path, body, headers)
                assert (status, told["error"]["type"]) == (401, "authentication_error")
        assert engine.stats().steps == 0
        assert ask(port, "GET", "/metrics", None, {"Authorization": f"Bearer {KEY}"})[0] == 200
        page = ask(port, "GET", "/")[1]
        assert "<title>Chat</title>" in page and KEY not in page
    with served(folder) as (port, _):
        # A foreign name that resolves to this address is refused (DNS rebinding).
        assert ask(port, "GET", "/v1/models", None, {"Host": "evil.example"})[0] == 400


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "expected JSON"),
        (b"\xff\xfe", 400, "expected JSON"),
        (b"[" * 4000, 400, "expected JSON"),
        ([], 400, "expected a JSON object, got a list"),
        ({}, 400, "prompt: expected a text"),
        ({"prompt": []}, 400, "prompt: expected a text"),
        ({"prompt": [[1], "a", 2]}, 400, "prompt: expected a text"),
        ({"prompt": "a" * 2000}, 400, "at most 64 tokens"),
        ({"prompt": [10**9]}, 400, "token"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens: expected 1 to"),
        ({"prompt": "a", "max_tokens": "8"}, 400, "max_tokens: expected an integer, got a text"),
        ({"prompt": "a", "temperature": 3}, 400, "temperature: expected 0 to 2"),
        ({"prompt": "a", "temperature": float("nan")}, 400, "temperature: expected 0 to 2"),
        ({"prompt": "a", "stream": "yes"}, 400, "stream: expected true or false"),
        ({"prompt": "a", "stop": [""]}, 400, "stop: expected a text or texts"),
        ({"prompt": "a", "n": 9}, 400, "n: expected 1 to 8"),
        ({"prompt": "a", "model": "other"}, 404, "model: expected tiny, got other"),
        ({"prompt": "a", "echo": True}, 400, "echo: is not supported"),
        (b" " * 5000, 413, "at most 4096 bytes"),
    ],
)
def test_wrong_bodies_are_refused(
    body: Any, status: int, said: str, wrong: tuple[int, Engine]
) -> None:
    port, engine = wrong
    got, told = ask(port, "POST", "/v1/completions", body)
    assert got == status and said in told["error"]["message"]
    assert engine.stats().running + engine.stats().waiting == 0


@pytest.fixture(scope="module")
def wrong(folder: Path) -> Iterator[tuple[int, Engine]]:
    with served(folder, body=4096) as found:
        yield found


def test_other_requests_are_refused(wrong: tuple[int, Engine]) -> None:
    port, _ = wrong
    assert (
        ask(port, "POST", "/v1/completions", {"prompt": "a"}, {"Content-Type": "text/plain"})[0]
        == 415
    )
    assert ask(port, "GET", "/v1/completions")[0] == 405
    assert ask(port, "GET", "/v1/models/other")[0] == 404
    assert ask(port, "GET", "/nothing")[0] == 404
    for messages in (
        None,
        [],
        [1],
        [{"role": "user"}],
        [{"content": "a"}],
        [{"role": 1, "content": "a"}],
    ):
        status, told = ask(port, "POST", "/v1/chat/completions", {"messages": messages})
        assert status == 400 and "messages: expected" in told["error"]["message"]


def test_clients_at_once_some_of_which_go_away(folder: Path, rng: np.random.Generator) -> None:
    """Killed and slow clients change no other answer, and leave nothing behind."""
    clients = rounds(12, 32)
    expected = {count: alone(folder, "Once upon", count) for count in (3, 12)}
    found: dict[int, str] = {}
    with served(folder) as (port, engine):

        def read(client: int) -> None:
            count = 3 if client % 2 else 12
            body = {"prompt": "Once upon", "max_tokens": count, "temperature": 0}
            found[client] = ask(port, "POST", "/v1/completions", body)[1]["choices"][0]["text"]

        def leave(streams: bool) -> None:
            body = {"prompt": "Once", "max_tokens": 50, "stream": streams, "temperature": 2}
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("POST", "/v1/completions", json.dumps(body), JSON)
            if streams:
                connection.getresponse().read(20)
            else:
                time.sleep(0.05)
            assert connection.sock is None or connection.sock.close() is None
            connection.close()

        threads = [threading.Thread(target=read, args=(one,)) for one in range(clients)]
        threads += [threading.Thread(target=leave, args=(one % 2 == 0,)) for one in range(4)]
        for one in rng.permutation(len(threads)):
            threads[one].start()
        for thread in threads:
            thread.join()
        assert found == {one: expected[3 if one % 2 else 12] for one in range(clients)}
        wait_until_idle(engine)
        text = ask(port, "GET", "/metrics")[1]
        assert "uhal_requests_running 0\n" in text and "uhal_pages_live 0\n" in text


def test_clients_of_openai_at_once(folder: Path) -> None:
    """Streams, slow readers, strangers, large bodies and a client that goes away: none disturbs."""
    openai = needed_module("openai")
    clients = rounds(8, 32)
    expected = {count: alone(folder, "Once upon", count) for count in (3, 12)}
    found: dict[int, object] = {}
    with served(folder, KEY, requests=64, body=4096) as (port, engine):

        def run(client: int) -> None:
            key = "another key" if client % 8 == 7 else KEY
            with openai.OpenAI(
                base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0
            ) as own:
                prompt = "a" * 9000 if client % 8 == 6 else "Once upon"
                streams = client % 2 == 1 or client % 8 == 4
                try:
                    answer = own.completions.create(
                        model="tiny",
                        prompt=prompt,
                        max_tokens=3 if client % 4 < 2 else 12,
                        temperature=0,
                        stream=streams,
                    )
                    if client % 8 == 4:
                        next(iter(answer))
                        answer.close()
                        found[client] = "left"
                    elif streams:
                        pieces = []
                        for one in answer:
                            pieces.append(one.choices[0].text)
                            time.sleep(0.01)
                        found[client] = "".join(pieces)
                    else:
                        found[client] = answer.choices[0].text
                except openai.APIStatusError as error:
                    found[client] = error.status_code

        threads = [threading.Thread(target=run, args=(one,)) for one in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in range(clients):
            usual = expected[3 if client % 4 < 2 else 12]
            assert found[client] == {4: "left", 6: 413, 7: 401}.get(client % 8, usual)
        wait_until_idle(engine)
        assert engine.stats().pages.live == 0


def test_too_many_texts_are_refused(folder: Path) -> None:
    with served(folder, requests=3) as (port, _):
        body = {"prompt": ["a"] * 4, "max_tokens": 30}
        status, told = ask(port, "POST", "/v1/completions", body)
        assert (status, told["error"]["type"]) == (429, "rate_limit_error")
        # The refused texts do not count against the limit.
        assert (
            ask(port, "POST", "/v1/completions", {"prompt": ["a"] * 3, "max_tokens": 2})[0] == 200
        )


def test_a_failed_step_is_an_error_of_the_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(folder) as (port, engine):
        with monkeypatch.context() as patch:

            def failing(*given: Any) -> Any:
                raise MemoryError("no memory in this step")

            patch.setattr(engine._paged, "logits", failing)
            status, told = ask(port, "POST", "/v1/completions", {"prompt": "a"})
            assert status == 500 and "no memory in this step" in told["error"]["message"]
            text = ask(port, "POST", "/v1/completions", {"prompt": "a", "stream": True})[1]
            assert "no memory in this step" in text
        assert ask(port, "POST", "/v1/completions", {"prompt": "a"})[0] == 200


def test_the_command_serves_until_a_signal(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "uhal", "serve", str(folder), "--cpu", "--port", "0"]
    (tmp_path / "key").write_text(" eight888 \nmore\n", encoding="utf-8")
    headers = {**JSON, "Authorization": "Bearer eight888"}
    with subprocess.Popen(
        [*command, "--key-file", str(tmp_path / "key")],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        line = next((one for one in process.stderr if "http://" in one), "it does not serve")
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        text = {"prompt": "a", "max_tokens": 2}
        assert ask(port, "POST", "/v1/completions", text)[0] == 401
        assert ask(port, "POST", "/v1/completions", text, headers)[0] == 200
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait() == INTERRUPTED, rest
        assert "Traceback" not in rest, rest
    (tmp_path / "short").write_text("seven77\n", encoding="utf-8")
    for further, said in (
        (("--host", "0.0.0.0"), "expected --key-file FILE"),
        (("--key-file", str(tmp_path / "short")), "at least 8 characters"),
    ):
        # without the refusal it would serve forever
        refused = subprocess.run(
            [*command, *further], capture_output=True, text=True, check=False, timeout=120
        )
        assert refused.returncode == 1 and said in refused.stderr
