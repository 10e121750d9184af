kv_append_bf16: u64 numel, const i64* position, const bf16* inp, bf16* target, u64 tokens, u64 capacity, u64 width
kv_append_f16: u64 numel, const i64* position, const f16* inp, f16* target, u64 tokens, u64 capacity, u64 width
kv_append_f32: u64 numel, const i64* position, const f32* inp, f32* target, u64 tokens, u64 capacity, u64 width
kv_append_f64: u64 numel, const i64* position, const f64* inp, f64* target, u64 tokens, u64 capacity, u64 width
