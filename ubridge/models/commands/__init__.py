"""`python -m uhal generate|chat|bench|make-model`, and models by name as in Candle's examples.

Each command is a module's `run`: it takes what stands behind its name, and returns the exit status.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from ubridge.models.commands.seeds import SEEDS
from uhal.errors import DeviceError

_MODULES = {
    "generate": "ubridge.models.commands.generate",
    "chat": "ubridge.models.commands.chat",
    "bench": "ubridge.models.commands.bench",
    "make-model": "ubridge.models.commands.make_model",
}
INTERRUPTED = 130
"""What a shell says of a program that Ctrl-C ended."""


def main(command: str, arguments: Sequence[str]) -> int:
    """Run a command; 1 and a sentence on standard error when it cannot be done."""
    try:
        if command in SEEDS:
            return int(import_module("ubridge.models.commands.by_name").run(command, arguments))
        return int(import_module(_MODULES[command]).run(arguments))
    except BrokenPipeError:
        # The reader has seen enough; the program's end sees to it.
        raise
    except (DeviceError, ImportError, MemoryError, OSError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
