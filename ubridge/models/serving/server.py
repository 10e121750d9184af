"""`application`: an engine behind the HTTP interface of OpenAI.

Completions and chats, streamed or whole; models, health, metrics for Prometheus, and a page to chat
with. One task runs the engine's steps on a thread, all other work is on the event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from ubridge.models.model import Model
from ubridge.models.serving.engine import Engine
from ubridge.models.serving.fields import BadRequest, Fields
from ubridge.models.serving.request import Request
from ubridge.models.text.assembling import Choice
from ubridge.models.text.session import Session
from uhal.errors import DeviceError

PAGE = Path(__file__).with_name("chat.html")
LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_PATIENCE = 0.25
"""Seconds between two looks whether the client of a whole answer is still there."""
_MOST_STOPS, _MOST_ANSWERS, _MOST_PROMPTS, _MOST_LOGPROBS = 16, 8, 64, 20
_FINISH = {"end": "stop", "stop": "stop", "length": "length", "context": "length"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
Answer = Callable[[HttpRequest], Coroutine[Any, Any, Response]]


@dataclass(frozen=True)
class ServerLimits:
    """Limits of what strangers may ask for."""

    max_tokens: int = 4096
    """The most tokens of an answer."""
    requests: int = 64
    """The most texts that wait and run at once; more are refused with status 429."""
    body: int = 1 << 20
    """The most bytes of a request's body; a longer body is refused with status 413."""


class Server:
    """The state that all requests share: the engine, its driver, the key and the limits."""

    def __init__(
        self, model: Model, engine: Engine, name: str, key: str | None, limits: ServerLimits
    ) -> None:
        """Serve an open engine of a model under a name; without a key everybody may ask."""
        self.model, self.engine, self.name = model, engine, name
        self.key, self.limits = key, limits
        self._wake = asyncio.Event()
        self.failure: str | None = None
        """The error that ended the driver."""
        self.created = int(time.time())
        self.open = 0
        """Texts that wait or run."""

    async def drive(self) -> None:
        """Run steps while there are requests."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while await asyncio.to_thread(self.engine.step):
                    pass
            except DeviceError as error:
                self.failure = str(error)
                await asyncio.to_thread(self.engine.close)
                return

    def submit(self, prompt: str | Sequence[int], options: Mapping[str, Any]) -> Text:
        """Begin a text; refuse it if there are too many."""
        if self.failure is not None:
            raise BadRequest(f"the engine has failed: {self.failure}", status=503)
        if self.open >= self.limits.requests:
            raise BadRequest(
                f"expected at most {self.limits.requests} texts at once. Try again later.",
                status=429,
            )
        request = self.engine.submit(prompt, **options)
        text = Text(self, request)
        self.open += 1
        self._wake.set()
        return text

    def require_key(self, request: HttpRequest) -> None:
        """Refuse a request without the key."""
        if self.key is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        fits = hmac.compare_digest(given.encode(), self.key.encode())
        if kind.lower() != "bearer" or not fits:
            raise BadRequest("expected the header 'Authorization: Bearer KEY'.", status=401)

    async def body_of(self, request: HttpRequest) -> Fields:
        """Read a JSON body of limited size."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            # A page of another site can send other types without the browser's consent.
            raise BadRequest(f"expected application/json, got {kind or 'no type'}.", status=415)
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.limits.body:
                raise BadRequest(f"body: expected at most {self.limits.body} bytes.", status=413)
            parts.append(part)
        try:
            return Fields(json.loads(b"".join(parts)))
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"body: expected JSON, got {error}.") from None


class Text:
    """One text of an engine for the event loop, which waits for its pieces."""

    def __init__(self, server: Server, request: Request) -> None:
        """Watch a request, which the server's driver runs."""
        self.request = request
        self._server = server
        self._changed = asyncio.Event()
        self._told = 0
        self._is_open = True
        loop = asyncio.get_running_loop()
        request.listen(lambda: loop.call_soon_threadsafe(self._changed.set))

    async def pieces(self) -> AsyncIterator[tuple[str, Sequence[Choice]]]:
        """Yield pieces with the choices since the last piece; raise the request's error."""
        while True:
            self._changed.clear()
            if not self.request.has_pieces and self.request.finish is None:
                await self._changed.wait()
                continue
            piece = next(self.request, None)
            choices = self.request.choices[self._told :]
            self._told += len(choices)
            if piece is None:
                if choices:
                    yield "", choices
                return
            yield piece, choices

    def close(self) -> None:
        """End the text; closing waits for a step, so a thread does it."""
        if self._is_open:
            self._is_open = False
            self._server.open -= 1
            if self.request.finish is None:
                asyncio.get_running_loop().run_in_executor(None, self.request.close)

    @property
    def usage(self) -> tuple[int, int, int]:
        """Numbers of tokens: of the prompt, chosen, and of the prompt found in pages."""
        request = self.request
        return request.prompt_tokens, len(request.tokens), request.reused_tokens


class Api:
    """The answers to the paths of the interface."""

    def __init__(self, server: Server) -> None:
        """Answer with a server's engine."""
        self._server = server

    async def health(self, request: HttpRequest) -> Response:
        """Say whether the engine runs."""
        failure = self._server.failure
        told = {"status": "ok"} if failure is None else {"status": "failed", "error": failure}
        return JSONResponse(told, 200 if failure is None else 503)

    async def models(self, request: HttpRequest) -> Response:
        """List the one model."""
        server = self._server
        one = {"id": server.name, "object": "model", "created": server.created, "owned_by": "uhal"}
        wanted = request.path_params.get("name")
        if wanted is None:
            return JSONResponse({"object": "list", "data": [one]})
        if wanted != server.name:
            raise BadRequest(f"model: expected {server.name}, got {wanted}.", "model", 404)
        return JSONResponse(one)

    async def metrics(self, request: HttpRequest) -> Response:
        """Return the engine's numbers in the text format of Prometheus."""
        stats = await asyncio.to_thread(self._server.engine.stats)
        gauges = {
            "requests_waiting": stats.waiting,
            "requests_running": stats.running,
            "pages_live": stats.pages.live,
            "pages_reusable": stats.pages.reusable,
            "pages_free": stats.pages.free,
        }
        counters = {
            "requests_finished": stats.finished,
            "steps": stats.steps,
            "read_tokens": stats.read_tokens,
            "reused_tokens": stats.reused_tokens,
            "chosen_tokens": stats.chosen_tokens,
            "drafted_tokens": stats.drafted_tokens,
            "accepted_tokens": stats.accepted_tokens,
            "preemptions": stats.preemptions,
            "failures": stats.failures,
        }
        lines = [
            f"# TYPE uhal_{name}{end} {kind}\nuhal_{name}{end} {value}\n"
            for kind, end, values in (("gauge", "", gauges), ("counter", "_total", counters))
            for name, value in values.items()
        ]
        return PlainTextResponse("".join(lines), media_type="text/plain; version=0.0.4")

    async def page(self, request: HttpRequest) -> Response:
        """Return the page to chat with."""
        return HTMLResponse(PAGE.read_text(encoding="utf-8"), headers=_HEADERS)

    async def completions(self, request: HttpRequest) -> Response:
        """Answer prompts."""
        fields = await self._server.body_of(request)
        self._require_model(fields)
        for name in ("echo", "suffix", "best_of"):
            fields.refuse(name, "is not supported.")
        options = self._options(fields, "max_tokens", 16)
        options["log_probabilities"] = fields.integer("logprobs", None, 0, _MOST_LOGPROBS)
        return await self._answer(request, fields, _prompts(fields.get("prompt")), options, False)

    async def chat(self, request: HttpRequest) -> Response:
        """Answer the messages of a chat."""
        fields = await self._server.body_of(request)
        self._require_model(fields)
        for name in ("tools", "functions", "audio"):
            fields.refuse(name, "is not supported.")
        name = (
            "max_tokens"
            if fields.get("max_completion_tokens") is None
            else ("max_completion_tokens")
        )
        options = self._options(fields, name, None)
        best = fields.integer("top_logprobs", 0, 0, _MOST_LOGPROBS)
        options["log_probabilities"] = best if fields.flag("logprobs") else None
        messages = _messages(fields.get("messages"))
        session = Session(self._server.model, self._server.model.tokenizer)

        def encoded() -> list[int]:
            prompt = session.prompt_of(messages)
            return self._server.model.tokenizer.encode(prompt, add_special=False)

        tokens = await asyncio.to_thread(encoded)
        return await self._answer(request, fields, [tokens], options, True)

    # -- inside ----------------------------------------------------------------------------------

    def _require_model(self, fields: Fields) -> None:
        wanted = fields.get("model")
        if wanted not in (None, "", self._server.name):
            raise BadRequest(
                f"model: expected {self._server.name}, got {wanted!s:.80}.", "model", 404
            )

    def _options(self, fields: Fields, limit: str, usual: int | None) -> dict[str, Any]:
        """The options of `Engine.submit`."""
        most = self._server.limits.max_tokens
        return {
            "max_tokens": fields.integer(limit, usual or most, 1, most),
            "temperature": fields.number("temperature", 1.0, 0, 2),
            "top_p": fields.number("top_p", 1.0, 1e-6, 1),
            "presence_penalty": fields.number("presence_penalty", 0.0, -2, 2),
            "frequency_penalty": fields.number("frequency_penalty", 0.0, -2, 2),
            "seed": fields.integer("seed", None, 0, (1 << 63) - 1),
            "stop": fields.texts("stop", _MOST_STOPS),
        }

    async def _answer(
        self,
        request: HttpRequest,
        fields: Fields,
        prompts: Sequence[str | Sequence[int]],
        options: dict[str, Any],
        is_chat: bool,
    ) -> Response:
        streams = fields.flag("stream")
        more = Fields(fields.get("stream_options") or {})
        count = fields.integer("n", 1, 1, _MOST_ANSWERS) or 1
        texts: list[Text] = []
        try:
            for prompt in prompts:
                for index in range(count):
                    own = dict(options)
                    if own["seed"] is not None:
                        own["seed"] += index
                    texts.append(self._server.submit(prompt, own))
        except BaseException:
            for text in texts:
                text.close()
            raise
        form = _Form(self._server, is_chat)
        if streams:
            events = _events(texts, form, more.flag("include_usage"))
            return StreamingResponse(events, media_type="text/event-stream")
        return await _whole(request, texts, form)


class _Form:
    """The JSON of answers: completions or chats."""

    def __init__(self, server: Server, is_chat: bool) -> None:
        self.is_chat = is_chat
        self._decode = server.model.tokenizer.decode
        kind = "chatcmpl" if is_chat else "cmpl"
        self._head = {
            "id": f"{kind}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": server.name,
        }

    def chunk(self, choices: list[dict[str, Any]], texts: Sequence[Text] | None) -> dict[str, Any]:
        """Return a part of a stream; the last has the usage of all texts."""
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        told = {**self._head, "object": kind, "choices": choices}
        return told if texts is None else {**told, "usage": _usage(texts)}

    def whole(self, choices: list[dict[str, Any]], texts: Sequence[Text]) -> dict[str, Any]:
        """Return a whole answer."""
        kind = "chat.completion" if self.is_chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": _usage(texts)}

    def choice(
        self,
        index: int,
        text: str,
        choices: Sequence[Choice],
        finish: str | None,
        part: str | None = None,
    ) -> dict[str, Any]:
        """Return one text or a piece of it; `part` is `delta` in a chat's stream."""
        told: dict[str, Any] = {"index": index, "finish_reason": finish, "logprobs": None}
        if choices:
            told["logprobs"] = self._logprobs(choices)
        if not self.is_chat:
            return {**told, "text": text}
        return {**told, part or "message": {"role": "assistant", "content": text}}

    def _logprobs(self, choices: Sequence[Choice]) -> dict[str, Any]:
        if self.is_chat:
            return {
                "content": [
                    {
                        **self._token(one.token, one.log_probability),
                        "top_logprobs": [self._token(*best) for best in one.best],
                    }
                    for one in choices
                ]
            }
        spelled = [self._decode([one.token]) for one in choices]
        return {
            "tokens": spelled,
            "token_logprobs": [one.log_probability for one in choices],
            "top_logprobs": [
                {self._decode([token]): value for token, value in one.best} for one in choices
            ],
            "text_offset": [sum(map(len, spelled[:one])) for one in range(len(spelled))],
        }

    def _token(self, token: int, value: float) -> dict[str, Any]:
        text = self._decode([token])
        return {"token": text, "logprob": value, "bytes": list(text.encode())}


async def _whole(request: HttpRequest, texts: Sequence[Text], form: _Form) -> Response:
    """Wait for all texts; end them if the client goes away."""

    async def read(text: Text) -> tuple[str, list[Choice]]:
        pieces: list[str] = []
        choices: list[Choice] = []
        async for piece, some in text.pieces():
            pieces.append(piece)
            choices += some
        return "".join(pieces), choices

    reading = asyncio.gather(*map(read, texts))
    try:
        while not reading.done():
            await asyncio.wait([reading], timeout=_PATIENCE)
            if not reading.done() and await request.is_disconnected():
                return Response(status_code=499)
        found = reading.result()
    except Exception as error:
        return _refused(str(error), None, 500)
    finally:
        reading.cancel()
        for text in texts:
            text.close()
    made = [
        form.choice(index, text, choices, _FINISH.get(one.request.finish or "", "stop"))
        for index, (one, (text, choices)) in enumerate(zip(texts, found, strict=True))
    ]
    return JSONResponse(form.whole(made, texts))


async def _events(texts: Sequence[Text], form: _Form, has_usage: bool) -> AsyncIterator[str]:
    """Yield server-sent events of all texts, as their pieces come."""
    ready: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()

    async def read(index: int, text: Text) -> None:
        try:
            async for piece, choices in text.pieces():
                await ready.put(form.choice(index, piece, choices, None, "delta"))
            why = _FINISH.get(text.request.finish or "", "stop")
            await ready.put(form.choice(index, "", (), why, "delta"))
        except Exception as error:
            await ready.put(error)
        await ready.put(None)

    tasks = [asyncio.ensure_future(read(index, text)) for index, text in enumerate(texts)]
    try:
        left = len(tasks)
        while left:
            found = await ready.get()
            if found is None:
                left -= 1
            elif isinstance(found, BaseException):
                yield _event({"error": _told(str(found), None, "server_error")})
            else:
                yield _event(form.chunk([found], None))
        if has_usage:
            yield _event(form.chunk([], texts))
        yield "data: [DONE]\n\n"
    finally:
        for task in tasks:
            task.cancel()
        for text in texts:
            text.close()


def application(
    model: Model,
    engine: Engine,
    name: str,
    *,
    key: str | None = None,
    limits: ServerLimits | None = None,
    hosts: Sequence[str] = LOOPBACK,
) -> Starlette:
    """Return the server of an engine, which it closes at its end.

    With a `key`, all paths but `/`, the page, and `/health` need it. Without, only requests for the
    names in `hosts` are answered, so that no page of another site reaches the server.
    """
    server = Server(model, engine, name, key, limits or ServerLimits())
    api = Api(server)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        driver = asyncio.ensure_future(server.drive())
        try:
            yield
        finally:
            driver.cancel()
            await asyncio.to_thread(engine.close)

    def answered(answer: Answer, is_open: bool = False) -> Answer:
        async def answering(request: HttpRequest) -> Response:
            try:
                if not is_open:
                    server.require_key(request)
                return await answer(request)
            except BadRequest as error:
                return _refused(str(error), error.field, error.status)
            except (DeviceError, ValueError, TypeError) as error:
                # The engine checks what the fields leave open, such as the length of a prompt.
                return _refused(str(error), None, 400)

        return answering

    return Starlette(
        routes=[
            Route("/", answered(api.page, True)),
            Route("/health", answered(api.health, True)),
            Route("/metrics", answered(api.metrics)),
            Route("/v1/models", answered(api.models)),
            Route("/v1/models/{name:path}", answered(api.models)),
            Route("/v1/completions", answered(api.completions), methods=["POST"]),
            Route("/v1/chat/completions", answered(api.chat), methods=["POST"]),
        ],
        middleware=[]
        if key is not None
        else [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        lifespan=lifespan,
    )


def _prompts(given: object) -> Sequence[str | Sequence[int]]:
    """A prompt or several, each a text or tokens."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if all(_is_token(one) for one in given):
            return [given]
        if len(given) > _MOST_PROMPTS:
            raise BadRequest(f"prompt: expected at most {_MOST_PROMPTS} prompts.", "prompt")
        if all(
            isinstance(one, str) or (isinstance(one, list) and one and all(map(_is_token, one)))
            for one in given
        ):
            return given
    raise BadRequest("prompt: expected a text, tokens, or a list of these.", "prompt")


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _messages(given: object) -> list[Mapping[str, Any]]:
    """Messages with a role and a text; a list of text parts is joined."""
    if not isinstance(given, list) or not given:
        raise BadRequest("messages: expected a list of messages.", "messages")
    made: list[Mapping[str, Any]] = []
    for one in given:
        content = one.get("content") if isinstance(one, dict) else None
        if isinstance(content, list) and all(
            isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
        ):
            content = "".join(part["text"] for part in content)
        if not isinstance(content, str) or not isinstance(one.get("role"), str):
            raise BadRequest("messages: expected a role and a text in each.", "messages")
        made.append({**one, "content": content})
    return made


def _usage(texts: Sequence[Text]) -> dict[str, Any]:
    read, chosen, reused = (sum(one) for one in zip(*(text.usage for text in texts), strict=True))
    return {
        "prompt_tokens": read,
        "completion_tokens": chosen,
        "total_tokens": read + chosen,
        "prompt_tokens_details": {"cached_tokens": reused},
    }


def _event(told: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(told)}\n\n"


def _told(message: str, field: str | None, kind: str) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": field, "code": None}


def _refused(message: str, field: str | None, status: int) -> Response:
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    return JSONResponse({"error": _told(message, field, kind)}, status)
