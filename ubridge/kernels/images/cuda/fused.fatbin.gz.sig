log_softmax_bf16: const bf16* src, bf16* dst, i32 n_cols, i32 compensated
silu_mul_bf16: u64 numel, const bf16* gate, const bf16* up, bf16* out
maskfill_bf16: u64 numel, u64 num_dims, const u64* info, const u8* mask, const bf16* inp, bf16 value, bf16* out
kvconcat_bf16: const bf16* ltensor, const bf16* rtensor, bf16* out, u64 rows, u64 left, u64 right
log_softmax_f16: const f16* src, f16* dst, i32 n_cols, i32 compensated
silu_mul_f16: u64 numel, const f16* gate, const f16* up, f16* out
maskfill_f16: u64 numel, u64 num_dims, const u64* info, const u8* mask, const f16* inp, f16 value, f16* out
kvconcat_f16: const f16* ltensor, const f16* rtensor, f16* out, u64 rows, u64 left, u64 right
log_softmax_f32: const f32* src, f32* dst, i32 n_cols, i32 compensated
silu_mul_f32: u64 numel, const f32* gate, const f32* up, f32* out
maskfill_f32: u64 numel, u64 num_dims, const u64* info, const u8* mask, const f32* inp, f32 value, f32* out
kvconcat_f32: const f32* ltensor, const f32* rtensor, f32* out, u64 rows, u64 left, u64 right
log_softmax_f64: const f64* src, f64* dst, i32 n_cols, i32 compensated
silu_mul_f64: u64 numel, const f64* gate, const f64* up, f64* out
maskfill_f64: u64 numel, u64 num_dims, const u64* info, const u8* mask, const f64* inp, f64 value, f64* out
kvconcat_f64: const f64* ltensor, const f64* rtensor, f64* out, u64 rows, u64 left, u64 right
