"""Commands over models: generate, chat, serve, bench, make-model and others, models by name.

Commands by name have the options of Candle's examples. Each command is a module's `run`: it takes
its arguments and returns the exit status.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper, UnsupportedOperation

from ubridge.models.commands.seeds import SEEDS
from uhal import terminal
from uhal.errors import DeviceError

_MODULES = {
    "generate": "ubridge.models.commands.generate",
    "chat": "ubridge.models.commands.chat",
    "serve": "ubridge.models.commands.serve",
    "bench": "ubridge.models.commands.bench",
    "make-model": "ubridge.models.commands.make_model",
    "stable-diffusion": "ubridge.models.commands.stable_diffusion",
}
INTERRUPTED = 130
"""Exit status of a program that Ctrl-C ended."""


@contextmanager
def any_characters() -> Iterator[None]:
    """Keep standard input and output usable in any encoding.

    A character that the terminal lacks is written as an escape. Undecodable input bytes become lone
    surrogates, as in `sys.argv`, so that messages can show them.
    """
    changed = []
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace")):
        # A stream cannot be reconfigured after it was read from.
        if isinstance(stream, TextIOWrapper):
            with suppress(UnsupportedOperation):
                usual = stream.errors
                stream.reconfigure(errors=errors)
                changed.append((stream, usual))
    try:
        yield
    finally:
        for one, usual in changed:
            with suppress(UnsupportedOperation, ValueError):
                one.reconfigure(errors=usual)


def main(command: str, arguments: Sequence[str]) -> int:
    """Run a command; on failure return 1 and write a sentence to standard error."""
    try:
        with any_characters():
            if command in SEEDS:
                return int(import_module("ubridge.models.commands.by_name").run(command, arguments))
            return int(import_module(_MODULES[command]).run(arguments))
    except BrokenPipeError:
        # The reader closed the pipe; the exit of the program handles it.
        raise
    except (DeviceError, ImportError, MemoryError, OSError) as error:
        terminal.write(sys.stderr, f"{command}: {terminal.controlled(str(error))}\n")
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
