dequantize_block_q4_0_f32: const ptr vx, f32* yy, i32 nb32
dequantize_block_q4_0_f16: const ptr vx, f16* yy, i32 nb32
dequantize_block_q4_1_f32: const ptr vx, f32* yy, i32 nb32
dequantize_block_q4_1_f16: const ptr vx, f16* yy, i32 nb32
dequantize_block_q5_0_f32: const ptr vx, f32* yy, i32 k
dequantize_block_q5_0_f16: const ptr vx, f16* yy, i32 k
dequantize_block_q5_1_f32: const ptr vx, f32* yy, i32 k
dequantize_block_q5_1_f16: const ptr vx, f16* yy, i32 k
dequantize_block_q8_0_f32: const ptr vx, f32* yy, i32 nb32
dequantize_block_q8_0_f16: const ptr vx, f16* yy, i32 nb32
dequantize_block_q2_K_f32: const ptr vx, f32* yy
dequantize_block_q2_K_f16: const ptr vx, f16* yy
dequantize_block_q3_K_f32: const ptr vx, f32* yy
dequantize_block_q3_K_f16: const ptr vx, f16* yy
dequantize_block_q4_K_f32: const ptr vx, f32* yy
dequantize_block_q4_K_f16: const ptr vx, f16* yy
dequantize_block_q5_K_f32: const ptr vx, f32* yy
dequantize_block_q5_K_f16: const ptr vx, f16* yy
dequantize_block_q6_K_f32: const ptr vx, f32* yy
dequantize_block_q6_K_f16: const ptr vx, f16* yy
dequantize_block_q8_K_f32: const ptr vx, f32* yy
dequantize_block_q8_K_f16: const ptr vx, f16* yy
get_rows_q4_0: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q4_1: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q5_0: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q5_1: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q8_0: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q2_K: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q3_K: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q4_K: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q5_K: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_q6_K: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_f32: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_f16: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
get_rows_bf16: const ptr src0, const u32* ids, f32* dst, i64 ne00, u64 nb01
dequantize_mul_mat_vec_q4_0_cuda: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q4_1_cuda: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q5_0_cuda: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q5_1_cuda: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q8_0_cuda: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q2_k: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q3_k: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q4_k: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q6_k: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
dequantize_mul_mat_vec_q5_k: const ptr vx, const f32* y, f32* dst, i32 ncols
quantize_q8_1: const f32* x, ptr vy, i32 kx, i32 kx_padded
mul_mat_vec_q4_0_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_0_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_0_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_0_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_0_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_0_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_0_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_0_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_1_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_0_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_1_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q8_0_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q2_K_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q3_K_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q4_K_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q5_K_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda2: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda3: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda4: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda5: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda6: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda7: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_vec_q6_K_q8_1_cuda8: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
mul_mat_q4_0: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q4_1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q5_0: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q5_1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q8_0: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q2_K: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q3_K: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q4_K: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q5_K: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
mul_mat_q6_K: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 ncols_y, i32 nrows_y, i32 nrows_dst
indexed_moe_forward_q2k_q8_1: const ptr all_weights, const ptr all_inputs, const u32* indices, f32* all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded, i32 input_dim1
indexed_moe_forward_q3k_q8_1: const ptr all_weights, const ptr all_inputs, const u32* indices, f32* all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded, i32 input_dim1
indexed_moe_forward_q4k_q8_1: const ptr all_weights, const ptr all_inputs, const u32* indices, f32* all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded, i32 input_dim1
indexed_moe_forward_q5k_q8_1: const ptr all_weights, const ptr all_inputs, const u32* indices, f32* all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded, i32 input_dim1
indexed_moe_forward_q6k_q8_1: const ptr all_weights, const ptr all_inputs, const u32* indices, f32* all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded, i32 input_dim1
indexed_moe_forward_q8_0_q8_1: const ptr all_weights, const ptr all_inputs, const u32* indices, f32* all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded, i32 input_dim1
