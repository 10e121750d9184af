matmul_bf16: const bf16* a, const bf16* b, bf16* out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch
matmul_f16: const f16* a, const f16* b, f16* out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch
matmul_f32: const f32* a, const f32* b, f32* out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch
matmul_f64: const f64* a, const f64* b, f64* out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch
