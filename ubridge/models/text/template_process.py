"""The process in which chat templates run: `templates.py` starts this file and sends requests.

A template is an untrusted program. This process has no device and ends with the process that
started it. The system limits a template's processor time by a timer, and its memory. Requests and
answers are a length in 8 bytes, then the content. A request is the template and its names, by
`marshal`. An answer begins with a letter of `ANSWERS`; the rest is text.
"""

from __future__ import annotations

import datetime
import json
import marshal
import struct
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

MOST_SECONDS = 2
"""Processor time of one template."""
MOST_BYTES = 64 << 20
"""Memory that a template may take, in addition to its messages."""
LENGTH = struct.Struct("<Q")
READY = b"ready"
"""First answer, when the process is ready."""
ANSWERS = {
    "text": b"t",
    "refused": b"r",
    "syntax": b"s",
    "failed": b"f",
    "memory": b"m",
    "time": b"l",
}
"""First byte of an answer. The letter of `time` means that the timer ended the process."""
_MESSAGES = 16
"""Bytes of objects for each byte of a request."""


class _Refused(Exception):
    """An error raised by the template itself."""


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


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}…` marks an answer for training; only its body is rendered."""

        tags = {"generation"}  # noqa: RUF012  # as its base class declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    made = ImmutableSandboxedEnvironment(
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


def _rendered(template: str, names: dict[str, Any]) -> tuple[str, str]:
    """Return the kind of an answer and its text."""
    from jinja2 import TemplateSyntaxError
    from jinja2.exceptions import SecurityError

    try:
        return "text", str(_compiled(template).render(names))
    except _Refused as error:
        return "refused", str(error)
    except TemplateSyntaxError as error:
        line = "".join(template.splitlines()[error.lineno - 1 : error.lineno])
        return "syntax", f"in line {error.lineno}: {error.message}: {line!r:.100}"
    except SecurityError as error:
        return "failed", f"attempts a forbidden operation: {error}"
    except MemoryError:
        return "memory", ""
    # A template may raise any exception.
    except Exception as error:
        return "failed", f"failed on these messages: {type(error).__name__}: {error!s:.1000}"


def _bound_memory(nbytes: int) -> None:
    """Limit the memory that this process takes from now on, if the system supports it."""
    import resource

    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + nbytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _serve() -> None:
    import signal

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    # Ctrl-C in a terminal is for the parent process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})

    def answer(content: bytes) -> None:
        answers.write(LENGTH.pack(len(content)))
        answers.write(content)
        answers.flush()

    _environment()
    answer(READY)
    while head := requests.read(LENGTH.size):
        nbytes = LENGTH.unpack(head)[0]
        _bound_memory(MOST_BYTES + _MESSAGES * nbytes)
        # The timer ends the process even within one long operation.
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        try:
            template, names = marshal.loads(requests.read(nbytes))
            kind, text = _rendered(template, names)
            content = ANSWERS[kind] + text.encode("utf-8", "surrogatepass")
        except MemoryError:
            content = ANSWERS["memory"]
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer(content)


if __name__ == "__main__":
    sys.path[:] = marshal.loads(bytes.fromhex(sys.argv[1]))
    _serve()
