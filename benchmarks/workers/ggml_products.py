"""ggml's products of block weights and vectors, by the library of `llama-cpp-python`.

The peers' Python runs it as a script. It answers lines on its standard input: a JSON object
prepares matrices, `features` lists the CPU features in use, and `run` multiplies by all once and
prints the seconds.

Declarations come from ggml.h, ggml-alloc.h, ggml-backend.h and ggml-cpu.h.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import time
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

TYPES = {"q4_0": 2, "q8_0": 8, "q4_K": 12, "q5_K": 13, "q6_K": 14, "bf16": 30}
"""`enum ggml_type`."""
HAS = ("avx", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx_int8", "llamafile")


class InitParams(ctypes.Structure):
    """`struct ggml_init_params`."""

    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


class Library:
    """The functions, with their results' types."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("llama_cpp")
        if found is None or found.origin is None:
            raise SystemExit("llama-cpp-python is not installed")
        folder = Path(found.origin).parent / "lib"
        # Each library needs the previous library.
        self._libraries = [
            ctypes.CDLL(str(folder / f"lib{name}.so"), ctypes.RTLD_GLOBAL)
            for name in ("ggml-base", "ggml-cpu", "ggml")
        ]

    def __call__(self, name: str, *arguments: object, result: type | None = c_void_p) -> Any:
        for library in self._libraries:
            function = getattr(library, name, None)
            if function is not None:
                function.restype = result
                return function(*arguments)
        raise SystemExit(f"ggml has no {name}")

    def has(self, feature: str) -> bool:
        return bool(self(f"ggml_cpu_has_{feature}", result=c_int))


class Products:
    """A graph with a product for each matrix."""

    def __init__(self, ggml: Library, reported: dict[str, Any]) -> None:
        self._ggml = ggml
        rows, columns, vectors, count = (
            reported[name] for name in ("rows", "columns", "vectors", "count")
        )
        backend = c_void_p(ggml("ggml_backend_cpu_init"))
        ggml("ggml_backend_cpu_set_n_threads", backend, c_int(reported["threads"]))
        room = InitParams(4_000_000, None, True)
        weights, others = (c_void_p(ggml("ggml_init", room)) for _ in range(2))
        kind = TYPES[reported["format"]]
        matrices = [
            ggml("ggml_new_tensor_2d", weights, c_int(kind), c_int64(columns), c_int64(rows))
            for _ in range(count)
        ]
        place = self._place(reported["repacked"])
        held = ggml("ggml_backend_alloc_ctx_tensors_from_buft", weights, place)
        x = ggml("ggml_new_tensor_2d", others, c_int(0), c_int64(columns), c_int64(vectors))
        graph = c_void_p(
            ggml("ggml_new_graph_custom", others, c_size_t(2 * count + 8), c_bool(False))
        )
        for matrix in matrices:
            product = ggml("ggml_mul_mat", others, c_void_p(matrix), c_void_p(x))
            ggml("ggml_build_forward_expand", graph, c_void_p(product), result=None)
        device = c_void_p(ggml("ggml_backend_get_device", backend))
        self.is_known = ggml(
            "ggml_backend_dev_supports_op", device, c_void_p(product), result=c_bool
        )
        """Whether the buffer supports the format; else it must not be filled."""
        usual = ggml("ggml_backend_get_default_buffer_type", backend)
        results = ggml("ggml_backend_alloc_ctx_tensors_from_buft", others, c_void_p(usual))
        data, values = (Path(reported[name]).read_bytes() for name in ("blocks", "x"))
        for matrix in matrices if self.is_known else ():
            ggml(
                "ggml_backend_tensor_set",
                c_void_p(matrix),
                data,
                c_size_t(0),
                c_size_t(len(data)),
                result=None,
            )
        ggml(
            "ggml_backend_tensor_set",
            c_void_p(x),
            values,
            c_size_t(0),
            c_size_t(len(values)),
            result=None,
        )
        self._backend, self._graph = backend, graph
        self._memory = (c_void_p(held), c_void_p(results))
        self._contexts = (weights, others)
        self._last = c_void_p(product), 4 * rows * vectors

    def _place(self, repacked: bool) -> c_void_p:
        ggml = self._ggml
        usual = c_void_p(ggml("ggml_backend_cpu_buffer_type"))
        if not repacked:
            return usual
        registry = c_void_p(ggml("ggml_backend_cpu_reg"))
        device = c_void_p(ggml("ggml_backend_reg_dev_get", registry, c_size_t(0)))
        address = ggml(
            "ggml_backend_reg_get_proc_address", registry, b"ggml_backend_dev_get_extra_bufts"
        )
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(address)(device)
        names = []
        for place in extra:
            if not place:
                break
            names.append(ggml("ggml_backend_buft_name", c_void_p(place), result=c_char_p))
            if b"REPACK" in names[-1]:
                return c_void_p(place)
        raise SystemExit(f"ggml has no buffers of interleaved weights, only {names}")

    def run(self) -> tuple[float, float]:
        """Multiply by each matrix once; return wall seconds and this process's seconds."""
        start = time.perf_counter(), time.process_time()
        status = self._ggml("ggml_backend_graph_compute", self._backend, self._graph, result=c_int)
        if status != 0:
            raise SystemExit(f"ggml_backend_graph_compute gave {status}")
        return time.perf_counter() - start[0], time.process_time() - start[1]

    def last(self) -> bytes:
        memory = ctypes.create_string_buffer(self._last[1])
        self._ggml(
            "ggml_backend_tensor_get",
            self._last[0],
            memory,
            c_size_t(0),
            c_size_t(self._last[1]),
            result=None,
        )
        return memory.raw

    def close(self) -> None:
        for memory in self._memory:
            self._ggml("ggml_backend_buffer_free", memory, result=None)
        for context in self._contexts:
            self._ggml("ggml_free", context, result=None)
        self._ggml("ggml_backend_free", self._backend, result=None)


def main() -> None:
    ggml = Library()
    ggml("ggml_cpu_init", result=None)
    products: Products | None = None
    for line in sys.stdin:
        if line == "features\n":
            print(json.dumps([feature for feature in HAS if ggml.has(feature)]), flush=True)
        elif line.startswith("{"):
            if products is not None:
                products.close()
            reported = json.loads(line)
            products = Products(ggml, reported)
            if products.is_known:
                products.run()
                Path(reported["result"]).write_bytes(products.last())
            print("ready" if products.is_known else "none", flush=True)
        else:
            assert products is not None
            print(json.dumps(products.run()), flush=True)


if __name__ == "__main__":
    main()
