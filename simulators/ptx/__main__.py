"""The translator as a child process, which makes libraries of kernels for any caller.

    python -I simulators/ptx/__main__.py check FILE          read the text, list kernels, variables
    python -I simulators/ptx/__main__.py library FILE ENTRY [off|on|strict]
                                                             translate a kernel, print its library
    python -I simulators/ptx/__main__.py runtime             build the run time, print its library
    python -I simulators/ptx/__main__.py serve               answer questions (serve.py)

`off`, `on` and `strict` select the checks of accesses to memory; the default is `on`. Standard
output holds one line of JSON. Exit status: 0 done, 1 the text is no PTX, 2 it cannot be executed
here, 3 there is no working C compiler, 4 llvmlite is not installed. With any other status than 0,
the JSON is {"problem": words, "line": number}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Isolated (-I), no folder of ours is on the path; it is `uhal_simulators` where it is installed.
SIMULATORS = Path(__file__).resolve().parents[1]
if str(SIMULATORS.parent) not in sys.path:
    sys.path.insert(0, str(SIMULATORS.parent))
__package__ = f"{SIMULATORS.name}.ptx"

from .cache import BuildError, kernel_library, runtime_library  # noqa: E402
from .errors import PtxError, UnsupportedPtxError  # noqa: E402
from .parser import parse  # noqa: E402
from .serve import serve  # noqa: E402
from .unit import variable_offsets  # noqa: E402

if TYPE_CHECKING:
    from .sites import Check


def main(arguments: list[str]) -> int:
    """Answer one request; returns the exit status."""
    if arguments == ["serve"]:
        serve()
        return 0
    try:
        answer = _answer(arguments)
    except UnsupportedPtxError as error:
        return _refuse(2, error.problem, error.line)
    except PtxError as error:
        return _refuse(1, error.problem, error.line)
    except BuildError as error:
        return _refuse(3, str(error), 0)
    except ModuleNotFoundError as error:
        return _refuse(4, f"{error.name} is not installed: pip install 'uhal-py[sim]'", 0)
    print(json.dumps(answer))
    return 0


def _answer(arguments: list[str]) -> dict[str, Any]:
    if arguments == ["runtime"]:
        return {"library": str(runtime_library())}
    if len(arguments) == 2 and arguments[0] == "check":
        return describe(_text(arguments[1]))
    if len(arguments) in (3, 4) and arguments[0] == "library":
        return {
            "library": str(kernel_library(_text(arguments[1]), arguments[2], _check(arguments[3:])))
        }
    raise SystemExit(__doc__)


def describe(text: str) -> dict[str, Any]:
    """Facts that a driver needs before it runs anything.

    `variables` lie in one area at their offsets; `data` is hexadecimal and `references` are the
    words of it that hold the address of another variable.
    """
    program = parse(text)
    offsets, size = variable_offsets(program.variables)
    variables = []
    for name, offset in offsets.items():
        variable = program.variables[name]
        references = [[one.offset, one.symbol, one.addend] for one in variable.references]
        variables.append(
            {
                "name": name,
                "offset": offset,
                "bytes": variable.size,
                "data": variable.data.hex(),
                "references": references,
            }
        )
    return {
        "version": list(program.version),
        "target": program.target,
        "kernels": program.entries,
        "variables": variables,
        "variable_bytes": size,
    }


def _check(said: list[str]) -> Check:
    match said:
        case [] | ["on"]:
            return "on"
        case ["off"]:
            return "off"
        case ["strict"]:
            return "strict"
    raise SystemExit(__doc__)


def _text(path: str) -> str:
    # Names and directives are ASCII; comments may hold anything.
    return Path(path).read_bytes().decode("latin-1")


def _refuse(status: int, problem: str, line: int) -> int:
    print(json.dumps({"problem": problem, "line": line}))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
