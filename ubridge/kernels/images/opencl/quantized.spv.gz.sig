dequantize_mul_mat_vec_q4_0_cuda: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q8_0_cuda: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q4_k: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
