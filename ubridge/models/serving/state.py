"""`Server`: the engine, its driver, the key and the limits that all HTTP requests share."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest

from ubridge.models.model import Model
from ubridge.models.serving.engine import Engine
from ubridge.models.serving.fields import BadRequest, Fields
from ubridge.models.serving.request import Request
from ubridge.models.text.assembling import Choice
from uhal.errors import DeviceError


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


@dataclass(frozen=True)
class ServerLimits:
    """Limits for requests of strangers."""

    max_tokens: int = 4096
    """The most tokens of an answer."""
    requests: int = 64
    """The most texts that wait and run at once; more are refused with status 429."""
    body: int = 1 << 20
    """The most bytes of a request's body; a longer body is refused with status 413."""


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
