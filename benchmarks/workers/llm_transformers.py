"""transformers' part of `benchmarks/llm.py`, on torch in bf16: FILE THREADS SHAPE, then lines."""

from __future__ import annotations

import sys
import time

import torch
import transformers

from benchmarks.llm_models import CONTEXT, SHAPES, Shape


def made(shape: Shape) -> transformers.LlamaForCausalLM:
    """Return a model of random weights, which are as fast as trained weights."""
    config = transformers.LlamaConfig(
        hidden_size=shape.embedding,
        intermediate_size=shape.inner,
        vocab_size=shape.vocabulary,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=CONTEXT,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval()


@torch.inference_mode()
def main(path: str, threads: str, way: str) -> None:
    """Answer each line with seconds."""
    torch.set_num_threads(int(threads))
    model = made(SHAPES[way])
    tokens = torch.randint(3, 8000, (1, CONTEXT))
    cache = transformers.DynamicCache()
    for line in sys.stdin:
        what, count = line.split()
        start = time.perf_counter()
        if what == "prefill":
            cache = transformers.DynamicCache()
            model(tokens[:, : int(count)], past_key_values=cache, logits_to_keep=1)
        else:
            for index in range(int(count)):
                one = tokens[:, index : index + 1]
                model(one, past_key_values=cache).logits.argmax(-1).item()
        taken = time.perf_counter() - start
        if what == "decode":
            # Negative: the number of tokens to remove.
            cache.crop(-int(count))
        print(taken, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
