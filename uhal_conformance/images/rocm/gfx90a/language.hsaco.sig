atomics_i32: u64 n, const i32* values, i32* out, u32* tickets, u32* taken
atomics_u32: u64 n, const u32* values, u32* out, u32* tickets, u32* taken
atomics_i64: u64 n, const i64* values, i64* out, u32* tickets, u32* taken
atomics_u64: u64 n, const u64* values, u64* out, u32* tickets, u32* taken
atomics_f32: u64 n, const f32* values, f32* out, u32* tickets, u32* taken
atomics_f64: u64 n, const f64* values, f64* out, u32* tickets, u32* taken
atomics_system: u64 n, const u32* values, u32* out, u32* tickets, u32* taken
contended: u32 rounds, u32* added, u64* exchanged
atomics_block: u64 n, const u32* values, u32* out
returns_i32: u64 n, const i32* values, i32* words, i32* told
returns_u32: u64 n, const u32* values, u32* words, u32* told
returns_i64: u64 n, const i64* values, i64* words, i64* told
returns_u64: u64 n, const u64* values, u64* words, u64* told
returns_block: u64 n, const u32* values, u32* words, u32* told
returns_system: u64 n, const u32* values, u32* words, u32* told
returns_f32: u64 n, const f32* values, f32* words, f32* told
returns_f64: u64 n, const f64* values, f64* words, f64* told
atomics_pairs: u64 n, const f16* x, const bf16* y, ptr halves, ptr brains
last_block: u32* written, u32* arrived, u32* sum
lanes_f32: u32 amount, const f32* x, const u32* source, f32* out
lanes_f64: u32 amount, const f64* x, const u32* source, f64* out
lanes_f16: u32 amount, const f16* x, const u32* source, f16* out
lanes_i32: u32 amount, const i32* x, const u32* source, i32* out
votes: const u32* flags, u32* masks, u32* found
operations: const u32* x, u32* out
extremes: const f32* x, f32* out
vectors_f32: u64 n, const f32* x, f32* y
vectors_f64: u64 n, const f64* x, f64* y
vectors_f16: u64 n, const f16* x, f16* y
vectors_u8: u64 n, const u8* x, u8* y
vectors_u16: u64 n, const u16* x, u16* y
weighted: u64 n, const f32* x, f32* y
fast: u64 n, const f32* x, const f32* y, f32* out
speaks: u32 n, const f32* x
asserts: u32 bound, const u32* x, u32* y
counting_sort: u32 n, const u8* values, u32* counts, u32* places
