"""Messages of a chat as one prompt, by a model's template in Jinja's language.

A template comes with a model and is not trusted. It runs in Jinja's sandbox, in its own process
with limits of time and memory. Templates get the same names and filters as in `transformers`.
"""

from __future__ import annotations

import atexit
import importlib.util
import marshal
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, TypedDict

from ubridge.core.fits import require
from ubridge.models.text import template_process
from ubridge.models.text.template_process import ANSWERS, LENGTH, MOST_BYTES, MOST_SECONDS, READY
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

_MOST_DEPTH = 100
"""Levels of lists and mappings in messages."""


class _Role(TypedDict):
    role: str


class Message(_Role, total=False):
    """One turn of a chat, as in OpenAI's interface."""

    content: Any
    """A text, or another value for the template, such as parts with images."""
    name: str
    tool_calls: Any
    reasoning_content: str


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    **names: Any,
) -> str:
    """Return the prompt of messages.

    `names` are variables of the template: `bos_token` and `eos_token`, `tools`, `documents`, and
    others. Their values are texts, numbers, lists and mappings of these. A template may take 2
    seconds of processor time, and 64 MB of memory besides its messages.

    Raises `ArgumentTypeError` unless `messages` is a list of messages, and for other values. Raises
    `ArgumentValueError` when the template is wrong, refuses the messages or exceeds a limit. Raises
    `ImportError` without Jinja, `NotSupportedError` if no process can be started. Any thread may
    call it; one template runs at a time.
    """
    _require_library()
    require_messages(messages)
    given = {"messages": messages, "add_generation_prompt": add_generation_prompt}
    values = {
        name: _plain(name, value)
        for name, value in {"tools": None, "documents": None, **names, **given}.items()
    }
    kind, text = _process.ask(marshal.dumps((str(template), values)))
    if kind == ANSWERS["text"]:
        return text
    limit = "takes more than {}. Use another template."
    why = {
        ANSWERS["refused"]: f"refuses these messages: {text}",
        ANSWERS["syntax"]: f"has a mistake {text}",
        ANSWERS["memory"]: limit.format(f"{MOST_BYTES >> 20} MB of memory"),
        ANSWERS["time"]: limit.format(f"{MOST_SECONDS} seconds of processor time"),
    }
    raise ArgumentValueError(f"the chat template {why.get(kind, text)}")


class _Process:
    """The process for templates: started for the first template, ended with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes) -> tuple[bytes, str]:
        """Return the kind of an answer and its text. Raises as `render`."""
        with self._lock:
            child = self._child if self._child is not None else self._started()
            try:
                assert child.stdin is not None
                # A template may have ended the process before it read the whole request.
                with suppress(BrokenPipeError):
                    child.stdin.write(LENGTH.pack(len(request)) + request)
                    child.stdin.flush()
                answer = _answer(child.stdout)
            except BaseException:
                # After Ctrl-C the next request would read this answer, so the process ends.
                self.end()
                raise
            if answer is None:
                is_late = child.wait() == -signal.SIGPROF
                self.end()
                # The process may also end for lack of memory for its stack.
                return ANSWERS["time" if is_late else "memory"], ""
        return answer[:1], answer[1:].decode("utf-8", "surrogatepass")

    def _started(self) -> subprocess.Popen[bytes]:
        path = marshal.dumps([str(one) for one in sys.path]).hex()
        command = [sys.executable or "", "-I", "-S", template_process.__file__, path]
        pipe = subprocess.PIPE
        try:
            # In a frozen program `sys.executable` would start the program itself.
            frozen = getattr(sys, "frozen", False)
            child = (
                None
                if frozen
                else subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            )
        except OSError:
            child = None
        self._child = child
        if child is None or _answer(child.stdout) != READY:
            self.end()
            raise NotSupportedError(
                f"chat templates run in a process of Python, which {sys.executable!r} does not "
                "start. Write the prompt yourself."
            )
        return child

    def end(self) -> None:
        """End the process; the next question starts another."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                with suppress(OSError):
                    pipe and pipe.close()

    def forget(self) -> None:
        """After a fork, leave the process to the parent."""
        self._lock = threading.Lock()
        if self._child is not None:
            self._child.returncode = 0
            self._child = None


_process = _Process()
atexit.register(_process.end)
os.register_at_fork(after_in_child=_process.forget)


def _answer(stream: IO[bytes] | None) -> bytes | None:
    """The next answer of the process; `None` if it ended."""
    assert stream is not None
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (nbytes,) = LENGTH.unpack(head)
    content = stream.read(nbytes)
    return content if len(content) == nbytes else None


def _plain(name: str, value: Any, depth: int = 0) -> Any:
    """A value of Python's own types, which can be sent to another process."""
    if depth > _MOST_DEPTH:
        raise ArgumentValueError(f"{name}: expected at most {_MOST_DEPTH} levels of lists")
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {
            _plain(name, key, depth + 1): _plain(name, one, depth + 1) for key, one in value.items()
        }
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain(name, one, depth + 1) for one in value]
    raise ArgumentTypeError(
        f"{name}: expected texts, numbers, lists and mappings, got {type(value).__name__}"
    )


def _require_library() -> None:
    if importlib.util.find_spec("jinja2") is None:
        raise ImportError(
            "chat templates are run by the jinja2 library: pip install 'uhal-py[llm]'"
        )


def require_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse anything but a list of messages."""
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise ArgumentTypeError(
            f"messages: expected a list such as [{{'role': 'user', 'content': 'Hello'}}], got "
            f"{type(messages).__name__}"
        )
    require(messages, "messages: expected at least one, got none")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ArgumentTypeError(
                f"messages[{index}]: expected a mapping with the texts role and content, got "
                f"{message!r:.80}"
            )
        if message.get("content") is None and not message.get("tool_calls"):
            raise ArgumentTypeError(
                f"messages[{index}]: expected a content, or tool_calls instead, got {message!r:.80}"
            )
