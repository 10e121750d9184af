"""Answers of OpenAI's interface as JSON: whole, as a stream of events, or a refusal."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from ubridge.models.serving.state import Server, Text
from ubridge.models.text.assembling import Choice

_PATIENCE = 0.25
"""Seconds between two checks whether the client of a whole answer is still connected."""
_FINISH = {"end": "stop", "stop": "stop", "length": "length", "context": "length"}


async def whole(request: HttpRequest, texts: Sequence[Text], form: Form) -> Response:
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
        return refused(str(error), None, 500)
    finally:
        reading.cancel()
        for text in texts:
            text.close()
    made = [
        form.choice(index, text, choices, _FINISH.get(one.request.finish or "", "stop"))
        for index, (one, (text, choices)) in enumerate(zip(texts, found, strict=True))
    ]
    return JSONResponse(form.whole(made, texts))


async def events(texts: Sequence[Text], form: Form, has_usage: bool) -> AsyncIterator[str]:
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


def refused(message: str, field: str | None, status: int) -> Response:
    """Return an error's answer: its message, the wrong field, and the status."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    return JSONResponse({"error": _told(message, field, kind)}, status)


class Form:
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
