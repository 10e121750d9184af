sdpa_bf16: const bf16* q, const bf16* k, const bf16* v, const bf16* mask, bf16* out, u32 heads, u32 kv_heads, u32 q_len, u32 kv_len, u32 head_dim, u64 mask_batch, u64 mask_head, f64 scale, bool causal
sdpa_cached_bf16: const bf16* q, const bf16* k, const bf16* v, const f32* bias, const i64* position, bf16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
sdpa_merge_bf16: const f32* parts, const i64* position, bf16* out, u32 heads, u32 head_dim, u64 capacity, u64 window, u64 split, u32 splits
sdpa_f16: const f16* q, const f16* k, const f16* v, const f16* mask, f16* out, u32 heads, u32 kv_heads, u32 q_len, u32 kv_len, u32 head_dim, u64 mask_batch, u64 mask_head, f64 scale, bool causal
sdpa_cached_f16: const f16* q, const f16* k, const f16* v, const f32* bias, const i64* position, f16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
sdpa_merge_f16: const f32* parts, const i64* position, f16* out, u32 heads, u32 head_dim, u64 capacity, u64 window, u64 split, u32 splits
sdpa_f32: const f32* q, const f32* k, const f32* v, const f32* mask, f32* out, u32 heads, u32 kv_heads, u32 q_len, u32 kv_len, u32 head_dim, u64 mask_batch, u64 mask_head, f64 scale, bool causal
sdpa_cached_f32: const f32* q, const f32* k, const f32* v, const f32* bias, const i64* position, f32* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
sdpa_merge_f32: const f32* parts, const i64* position, f32* out, u32 heads, u32 head_dim, u64 capacity, u64 window, u64 split, u32 splits
sdpa_f64: const f64* q, const f64* k, const f64* v, const f64* mask, f64* out, u32 heads, u32 kv_heads, u32 q_len, u32 kv_len, u32 head_dim, u64 mask_batch, u64 mask_head, f64 scale, bool causal
sdpa_cached_f64: const f64* q, const f64* k, const f64* v, const f32* bias, const i64* position, f64* out, f64* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
sdpa_merge_f64: const f64* parts, const i64* position, f64* out, u32 heads, u32 head_dim, u64 capacity, u64 window, u64 split, u32 splits
