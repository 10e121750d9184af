"""Runs one function in this process, which uses AMD's runtime over a model: see `machine.py`.

`python -m tests.rocr.child MODULE FUNCTION ARGUMENTS`
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import traceback

model = ctypes.CDLL(os.environ["HSA_MODEL_LIB"])


def main(module: str, function: str, arguments: str) -> None:
    """Print the function's result, and leave."""

    def body() -> int:
        try:
            called = getattr(importlib.import_module(module), function)
            print(json.dumps(called(*json.loads(arguments))))
        except BaseException:
            traceback.print_exc()
            return 1
        return 0

    status = model.model_run(ctypes.CFUNCTYPE(ctypes.c_int)(body))
    sys.stdout.flush()
    sys.stderr.flush()
    # The runtime's exit handlers would shut it down, which fails over a model.
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
