"""Messages of a chat as one prompt, by a model's template in Jinja's language.

A template comes with a model, from strangers: it runs in Jinja's sandbox, and changes nothing that
it is given. Names and filters are those that `transformers` gives templates.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, TypedDict

from uhal.errors import ArgumentTypeError, ArgumentValueError


class _Role(TypedDict):
    role: str


class Message(_Role, total=False):
    """One turn of a chat, as OpenAI's interface has it."""

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
    others. Raises `ArgumentTypeError` unless `messages` is a list of messages, and
    `ArgumentValueError` when the template is wrong or refuses them.
    """
    jinja2 = _library()
    _require_messages(messages)
    try:
        return str(
            _compiled(template).render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                **{"tools": None, "documents": None, **names},
            )
        )
    except _Refused as error:
        raise ArgumentValueError(f"the chat template refuses these messages: {error}") from None
    except jinja2.TemplateSyntaxError as error:
        line = template.splitlines()[error.lineno - 1 : error.lineno]
        raise ArgumentValueError(
            f"the chat template has a mistake in line {error.lineno}: {error.message}: "
            f"{''.join(line)!r:.100}"
        ) from error
    except jinja2.sandbox.SecurityError as error:
        raise ArgumentValueError(
            f"the chat template attempts a forbidden operation: {error}"
        ) from error
    # A template may raise anything for its arguments.
    except Exception as error:
        raise ArgumentValueError(
            f"the chat template failed on these messages: {type(error).__name__}: {error}"
        ) from error


class _Refused(Exception):
    """Error that a template raises itself."""


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter writes for HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _library() -> Any:
    try:
        import jinja2
        import jinja2.sandbox
    except ImportError as error:
        raise ImportError(
            "chat templates are run by the jinja2 library: pip install 'uhal-py[llm]'"
        ) from error
    return jinja2


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja2 = _library()
    from jinja2.ext import Extension

    class Generation(Extension):
        """`{% generation %}…`, which marks an answer for training: here only its body."""

        tags = {"generation"}  # noqa: RUF012  # as its base class declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        # An answer that only calls tools has None as its content.
        finalize=lambda value: "" if value is None else value,
        extensions=[Generation, "jinja2.ext.loopcontrols"],
    )
    made.filters["tojson"] = _json
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = _now
    return made


@lru_cache(maxsize=32)
def _compiled(template: str) -> Any:
    return _environment().from_string(template)


def _require_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise ArgumentTypeError(
            f"messages: expected a list such as [{{'role': 'user', 'content': 'Hello'}}], got "
            f"{type(messages).__name__}"
        )
    if not messages:
        raise ArgumentValueError("messages: expected at least one, got none")
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
