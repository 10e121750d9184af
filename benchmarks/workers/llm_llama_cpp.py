"""llama.cpp's part of `benchmarks/llm.py`: FILE THREADS WAY, then lines of work and tokens.

Settings are llama.cpp's own, except the context and WAY: `repacked`, its default, or `plain`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp as library
import numpy as np

from benchmarks.llm_models import CONTEXT, TOKENS_TOGETHER


class Text:
    """A model and a context of it."""

    def __init__(self, path: str, threads: int, way: str) -> None:
        how = library.llama_model_default_params()
        how.n_gpu_layers = 0
        how.use_extra_bufts = way == "repacked"
        self.model = library.llama_model_load_from_file(path.encode(), how)
        options = library.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = CONTEXT
        options.n_threads = options.n_threads_batch = threads
        self.context = library.llama_init_from_model(self.model, options)
        self.vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self.model))

    def read(self, tokens: Sequence[int]) -> int:
        """Read tokens; return the most probable next one."""
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        batch: Any = library.llama_batch_get_one(ids, len(tokens))
        if library.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        logits = library.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

    def forget(self, first: int) -> None:
        """Forget all tokens after position `first`."""
        memory = library.llama_get_memory(self.context)
        library.llama_memory_seq_rm(memory, 0, first, -1)

    def close(self) -> None:
        library.llama_free(self.context)
        library.llama_model_free(self.model)

    def together(self, texts: int, tokens: Sequence[int], threads: int) -> float:
        """Seconds to write a token to each of some texts, as often as there are tokens."""
        options = library.llama_context_default_params()
        options.n_ctx = texts * CONTEXT
        options.n_seq_max = texts
        options.n_threads = options.n_threads_batch = threads
        context = library.llama_init_from_model(self.model, options)
        batch: Any = library.llama_batch_init(texts, 0, 1)
        batch.n_tokens = texts

        def step(position: int, token: int) -> None:
            for text in range(texts):
                batch.token[text] = token + text
                batch.pos[text] = position
                batch.n_seq_id[text] = 1
                batch.seq_id[text][0] = text
                batch.logits[text] = True
            if library.llama_decode(context, batch) != 0:
                raise SystemExit("llama_decode failed")
            for text in range(texts):
                logits = library.llama_get_logits_ith(context, text)
                int(np.ctypeslib.as_array(logits, (self.vocabulary,)).argmax())

        step(0, 0)  # not measured
        start = time.perf_counter()
        for position, token in enumerate(tokens, 1):
            step(position, token)
        taken = time.perf_counter() - start
        library.llama_batch_free(batch)
        library.llama_free(context)
        return taken


def main(path: str, threads: str, way: str) -> None:
    """Answer each line with seconds."""
    library.llama_log_set(_SILENT, None)
    library.llama_backend_init()
    tokens = np.random.default_rng(0).integers(3, 8000, CONTEXT).tolist()
    text, length = Text(path, int(threads), way), 0
    for line in sys.stdin:
        what, count = line.split()
        some = tokens[: int(count)]
        if what == "first":
            start = time.perf_counter()
            fresh = Text(path, int(threads), way)
            fresh.read(some)
            taken = time.perf_counter() - start
            fresh.close()
        elif what == "prefill":
            text.forget(0)
            start = time.perf_counter()
            text.read(some)
            taken, length = time.perf_counter() - start, len(some)
        elif what == "together":
            taken = text.together(int(count), tokens[:TOKENS_TOGETHER], int(threads))
        else:
            text.read(tokens[:1])
            start = time.perf_counter()
            for token in some:
                text.read([token])
            taken = time.perf_counter() - start
            text.forget(length)
        print(taken, flush=True)


_SILENT = library.llama_log_callback(lambda level, text, data: None)

if __name__ == "__main__":
    main(*sys.argv[1:])
