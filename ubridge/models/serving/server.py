"""`application`: an engine behind the HTTP interface of OpenAI.

Completions and chats, streamed or whole; models, health, metrics for Prometheus, and a page to chat
with. One task runs the engine's steps on a thread. All other work runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
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
from ubridge.models.serving.answers import Form, events, refused, whole
from ubridge.models.serving.engine import Engine
from ubridge.models.serving.fields import BadRequest, Fields, messages_of, prompts_of
from ubridge.models.serving.state import Server, ServerLimits, Text
from ubridge.models.text.session import Session
from uhal.errors import DeviceError

PAGE = Path(__file__).with_name("chat.html")
LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
_MOST_STOPS, _MOST_ANSWERS, _MOST_LOGPROBS = 16, 8, 20
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
Answer = Callable[[HttpRequest], Coroutine[Any, Any, Response]]


def application(
    model: Model,
    engine: Engine,
    name: str,
    *,
    key: str | None = None,
    limits: ServerLimits | None = None,
    hosts: Sequence[str] = LOOPBACK,
) -> Starlette:
    """Return the server of an engine; the server closes the engine at its end.

    With a `key`, all paths need it, except `/` (the page) and `/health`. Without a key, only
    requests for the names in `hosts` are answered, so that no page of another site reaches the
    server.
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
                return refused(str(error), error.field, error.status)
            except (DeviceError, ValueError, TypeError) as error:
                # The engine makes the checks that the fields cannot, such as the length of a
                # prompt.
                return refused(str(error), None, 400)

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
        return await self._answer(request, fields, prompts_of(fields.get("prompt")), options, False)

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
        messages = messages_of(fields.get("messages"))
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
        form = Form(self._server, is_chat)
        if streams:
            parts = events(texts, form, more.flag("include_usage"))
            return StreamingResponse(parts, media_type="text/event-stream")
        return await whole(request, texts, form)
