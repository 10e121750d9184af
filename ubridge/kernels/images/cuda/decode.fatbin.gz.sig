kv_append_bf16: u64 numel, const i64* position, const bf16* inp, bf16* target, u64 tokens, u64 capacity, u64 width
paged_append_bf16: u64 numel, const i64* slots, const bf16* inp, bf16* target, u64 capacity, u64 width
rope_at_bf16: u64 rows, const i64* position, const bf16* inp, const f32* cos, const f32* sin, bf16* out, u64 heads, u64 width, u64 turned, u64 positions, bool neighbors
kv_append_f16: u64 numel, const i64* position, const f16* inp, f16* target, u64 tokens, u64 capacity, u64 width
paged_append_f16: u64 numel, const i64* slots, const f16* inp, f16* target, u64 capacity, u64 width
rope_at_f16: u64 rows, const i64* position, const f16* inp, const f32* cos, const f32* sin, f16* out, u64 heads, u64 width, u64 turned, u64 positions, bool neighbors
kv_append_f32: u64 numel, const i64* position, const f32* inp, f32* target, u64 tokens, u64 capacity, u64 width
paged_append_f32: u64 numel, const i64* slots, const f32* inp, f32* target, u64 capacity, u64 width
rope_at_f32: u64 rows, const i64* position, const f32* inp, const f32* cos, const f32* sin, f32* out, u64 heads, u64 width, u64 turned, u64 positions, bool neighbors
kv_append_f64: u64 numel, const i64* position, const f64* inp, f64* target, u64 tokens, u64 capacity, u64 width
paged_append_f64: u64 numel, const i64* slots, const f64* inp, f64* target, u64 capacity, u64 width
rope_at_f64: u64 rows, const i64* position, const f64* inp, const f32* cos, const f32* sin, f64* out, u64 heads, u64 width, u64 turned, u64 positions, bool neighbors
