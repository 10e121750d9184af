"""Causal attention by tiles of keys, with an online softmax."""

from __future__ import annotations

import functools
from typing import Any

from uhal import ptx
from uhal.ptx import f32, fast_exp, if_, loop, maximum, minimum, select, shared, u64, variable
from uhal.ptx.ready.blocks import warp_reduce
from uhal.ptx.ready.tiles import add_rows, fetch, row_products

OWN, ROWS, KEYS, NEVER = 4, 16, 32, float("-inf")  # queries per warp and per block; keys per tile


@functools.cache
def attention(of: ptx.Type = f32, width: int = 64) -> ptx.Kernel:
    """Return `attention(u32 queries, u32 keys, u32 group, f32 scale, const T* q, const T* k, ...)`.

    The last parameters are `const T* v, T* out`. q and out are (heads, queries, width), k and v
    (heads / group, keys, width), at multiples of 16 bytes; width is 32, 64, 96 or 128. The last
    query sees all keys. Grid (⌈queries / 16⌉, heads), block 128.
    """
    signature = f"u32 queries, u32 keys, u32 group, f32 scale, const {of}* q, const {of}* k"

    @ptx.kernel(f"{signature}, const {of}* v, {of}* out", max_threads=128)
    def attention(
        queries: Any, keys: Any, group: Any, scale: Any, q: Any, k: Any, v: Any, out: Any
    ) -> None:
        lane, own = ptx.lane_index(), (ptx.thread_index() >> 5) * OWN
        first, head = ptx.block_index("x") * ROWS, ptx.block_index("y")
        asked, weights = shared(f32, ROWS, width), shared(f32, ROWS, KEYS)
        key, value = shared(f32, KEYS, width + 4), shared(f32, KEYS, width)
        fetch(asked, q.at(u64(head * queries) * width), first, queries)
        initial, of_keys = (NEVER, 0, *[0] * (width // 32)), u64(head // group * keys) * width
        states = [[variable(f32, one) for one in initial] for _ in range(OWN)]
        for start in loop(0, keys - queries + minimum(first + ROWS, queries), KEYS):
            ptx.barrier()
            fetch(key, k.at(of_keys), start, keys)
            fetch(value, v.at(of_keys), start, keys)
            ptx.barrier()
            scores = row_products(key.at(lane * (width + 4)), asked.at(own * width), width, OWN)
            for one, (largest, total, *sums) in enumerate(states):
                is_seen = start + lane + queries <= first + own + one + keys
                seen = select(is_seen, scores[one] * scale, NEVER)
                most = maximum(largest, warp_reduce(seen, maximum))
                kept, weight = fast_exp(largest - most), fast_exp(seen - most)
                for x in (total, *sums):
                    x *= kept
                largest.set(most)
                total += weight
                weights.at(own * KEYS + lane)[one * KEYS] = weight
            add_rows([sums for _, _, *sums in states], weights.at(own * KEYS), value)
        for one, (_, total, *sums) in enumerate(states):
            whole, row = warp_reduce(total.copy()), first + own + one
            with if_(row < queries):
                for part, x in enumerate(sums):
                    out.at(u64(head * queries + row) * width + u64(lane))[32 * part] = of(x / whole)

    return attention
