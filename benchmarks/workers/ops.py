"""Times cases of `benchmarks.ops_host` in one library: `python -m benchmarks.workers.ops NAME`.

Each line of standard input is a case as JSON. Each line of output is the case's timing, or the
reason why the library has no timing. A library waits for its next line while another library runs.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.ops import Array, Case, Library, timing

NUMPY = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "u8": np.uint8,
    "u32": np.uint32,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}


class Numpy:
    name = "numpy"

    def names(self, case: Case) -> dict[str, Any]:
        return {"np": np, "dtype": NUMPY.get(case.dtype)}

    def tensor(self, array: Array, dtype: str) -> Any:
        if dtype not in NUMPY:
            raise TypeError(f"numpy has no {dtype}")
        return array.astype(NUMPY[dtype])

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(x, shape)

    def wait(self) -> None:
        pass

    def to_numpy(self, result: Any) -> Array:
        return np.asarray(result)

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__}


class Torch:
    name = "torch"

    def __init__(self, threads: int) -> None:
        import torch  # type: ignore[import-not-found]

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._torch = torch
        self._dtypes = {
            "bf16": torch.bfloat16,
            "f8e4m3": torch.float8_e4m3fn,
            **{name: getattr(torch, np.dtype(one).name) for name, one in NUMPY.items()},
        }

    def names(self, case: Case) -> dict[str, Any]:
        torch = self._torch
        return {"torch": torch, "F": torch.nn.functional, "dtype": self._dtypes.get(case.dtype)}

    def tensor(self, array: Array, dtype: str) -> Any:
        return self._torch.from_numpy(array).to(self._dtypes[dtype])

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.broadcast_to(shape)

    def wait(self) -> None:
        pass

    def to_numpy(self, result: Any) -> Array:
        found: Array = result.double().numpy()
        return found

    def versions(self) -> dict[str, str]:
        return {"torch": self._torch.__version__}


class Ubridge:
    name = "ubridge"

    def __init__(self) -> None:
        import ubridge
        import uhal

        self._ubridge, self._uhal = ubridge, uhal
        self._device = uhal.Api.quick_init(0, backend="host")

    def names(self, case: Case) -> dict[str, Any]:
        return {"ub": self._ubridge, "dtype": case.dtype}

    def tensor(self, array: Array, dtype: str) -> Any:
        return self._ubridge.asarray(array).astype(dtype)

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.broadcast_to(shape)

    def wait(self) -> None:
        self._device.synchronize()

    def to_numpy(self, result: Any) -> Array:
        found: Array = result.astype("f64").to_numpy()
        return found

    def versions(self) -> dict[str, str]:
        one = self._ubridge.ones((1, 1))
        product = self._ubridge.matmul_choice(one, one).kernel
        return {"uhal": self._uhal.__version__, "product": product}


def library_of(name: str, threads: int) -> Library:
    """Return the library of a name."""
    return Torch(threads) if name == "torch" else Ubridge() if name == "ubridge" else Numpy()


def main() -> None:
    name, seed, *processors = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(map(int, processors)))
    library = library_of(name, len(processors))
    print(json.dumps(library.versions()), flush=True)
    for line in sys.stdin:
        try:
            case = Case(**json.loads(line))
            answer = asdict(timing(library, case, int(seed), len(processors)))
        except Exception as error:  # any library's own refusal
            text = str(error).strip().splitlines() or [""]
            answer = {"gap": f"{type(error).__name__}: {text[0]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
