fast_sum_bf16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const bf16* src, bf16* dst
fast_min_bf16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const bf16* src, bf16* dst
fast_max_bf16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const bf16* src, bf16* dst
fast_argmin_bf16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const bf16* src, u32* dst
fast_argmax_bf16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const bf16* src, u32* dst
fast_sum_f16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f16* src, f16* dst
fast_min_f16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f16* src, f16* dst
fast_max_f16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f16* src, f16* dst
fast_argmin_f16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f16* src, u32* dst
fast_argmax_f16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f16* src, u32* dst
fast_sum_f32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f32* src, f32* dst
fast_min_f32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f32* src, f32* dst
fast_max_f32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f32* src, f32* dst
fast_argmin_f32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f32* src, u32* dst
fast_argmax_f32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f32* src, u32* dst
fast_sum_f64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f64* src, f64* dst
fast_min_f64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f64* src, f64* dst
fast_max_f64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f64* src, f64* dst
fast_argmin_f64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f64* src, u32* dst
fast_argmax_f64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const f64* src, u32* dst
fast_sum_u8: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u8* src, u8* dst
fast_min_u8: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u8* src, u8* dst
fast_max_u8: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u8* src, u8* dst
fast_argmin_u8: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u8* src, u32* dst
fast_argmax_u8: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u8* src, u32* dst
fast_sum_u32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u32* src, u32* dst
fast_min_u32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u32* src, u32* dst
fast_max_u32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u32* src, u32* dst
fast_argmin_u32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u32* src, u32* dst
fast_argmax_u32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const u32* src, u32* dst
fast_sum_i16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i16* src, i16* dst
fast_min_i16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i16* src, i16* dst
fast_max_i16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i16* src, i16* dst
fast_argmin_i16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i16* src, u32* dst
fast_argmax_i16: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i16* src, u32* dst
fast_sum_i32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i32* src, i32* dst
fast_min_i32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i32* src, i32* dst
fast_max_i32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i32* src, i32* dst
fast_argmin_i32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i32* src, u32* dst
fast_argmax_i32: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i32* src, u32* dst
fast_sum_i64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i64* src, i64* dst
fast_min_i64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i64* src, i64* dst
fast_max_i64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i64* src, i64* dst
fast_argmin_i64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i64* src, u32* dst
fast_argmax_i64: u64 src_numel, u64 el_per_block, u64 num_dims, const u64* info, const i64* src, u32* dst
sum_bf16: u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const bf16* inp, bf16* out
sum_f16: u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const f16* inp, f16* out
sum_f32: u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const f32* inp, f32* out
sum_f64: u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const f64* inp, f64* out
sum_u32: u64 numel, u64 num_dims, u64 num_sum_dims, const u64* info, const u32* inp, u32* out
softmax_bf16: const bf16* src, bf16* dst, i32 n_cols
rmsnorm_bf16: const bf16* src, bf16* dst, const bf16* alpha, i32 n_cols, i32 block_size, f32 eps
layernorm_bf16: const bf16* src, bf16* dst, const bf16* alpha, const bf16* beta, i32 n_cols, i32 block_size, f32 eps
softmax_f16: const f16* src, f16* dst, i32 n_cols
rmsnorm_f16: const f16* src, f16* dst, const f16* alpha, i32 n_cols, i32 block_size, f32 eps
layernorm_f16: const f16* src, f16* dst, const f16* alpha, const f16* beta, i32 n_cols, i32 block_size, f32 eps
softmax_f32: const f32* src, f32* dst, i32 n_cols
rmsnorm_f32: const f32* src, f32* dst, const f32* alpha, i32 n_cols, i32 block_size, f32 eps
layernorm_f32: const f32* src, f32* dst, const f32* alpha, const f32* beta, i32 n_cols, i32 block_size, f32 eps
softmax_f64: const f64* src, f64* dst, i32 n_cols
rmsnorm_f64: const f64* src, f64* dst, const f64* alpha, i32 n_cols, i32 block_size, f32 eps
layernorm_f64: const f64* src, f64* dst, const f64* alpha, const f64* beta, i32 n_cols, i32 block_size, f32 eps
rope_i_bf16: const bf16* src, const bf16* cos, const bf16* sin, bf16* dst, u32 bh, u32 td, u32 stride_b
rope_bf16: const bf16* src, const bf16* cos, const bf16* sin, bf16* dst, u32 bh, u32 td, u32 d, u32 stride_b
rope_thd_bf16: const bf16* src, const bf16* cos, const bf16* sin, bf16* dst, u32 b, u32 t, u32 h, u32 d, u32 stride_b
rope_i_f16: const f16* src, const f16* cos, const f16* sin, f16* dst, u32 bh, u32 td, u32 stride_b
rope_f16: const f16* src, const f16* cos, const f16* sin, f16* dst, u32 bh, u32 td, u32 d, u32 stride_b
rope_thd_f16: const f16* src, const f16* cos, const f16* sin, f16* dst, u32 b, u32 t, u32 h, u32 d, u32 stride_b
rope_i_f32: const f32* src, const f32* cos, const f32* sin, f32* dst, u32 bh, u32 td, u32 stride_b
rope_f32: const f32* src, const f32* cos, const f32* sin, f32* dst, u32 bh, u32 td, u32 d, u32 stride_b
rope_thd_f32: const f32* src, const f32* cos, const f32* sin, f32* dst, u32 b, u32 t, u32 h, u32 d, u32 stride_b
rope_i_f64: const f64* src, const f64* cos, const f64* sin, f64* dst, u32 bh, u32 td, u32 stride_b
rope_f64: const f64* src, const f64* cos, const f64* sin, f64* dst, u32 bh, u32 td, u32 d, u32 stride_b
rope_thd_f64: const f64* src, const f64* cos, const f64* sin, f64* dst, u32 b, u32 t, u32 h, u32 d, u32 stride_b
