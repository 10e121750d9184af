dequantize_q4_0_f32: u64 numel, const ptr blocks, f32* out
dequantize_q4_0_f16: u64 numel, const ptr blocks, f16* out
dequantize_q4_0_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q4_1_f32: u64 numel, const ptr blocks, f32* out
dequantize_q4_1_f16: u64 numel, const ptr blocks, f16* out
dequantize_q4_1_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q5_0_f32: u64 numel, const ptr blocks, f32* out
dequantize_q5_0_f16: u64 numel, const ptr blocks, f16* out
dequantize_q5_0_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q5_1_f32: u64 numel, const ptr blocks, f32* out
dequantize_q5_1_f16: u64 numel, const ptr blocks, f16* out
dequantize_q5_1_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q8_0_f32: u64 numel, const ptr blocks, f32* out
dequantize_q8_0_f16: u64 numel, const ptr blocks, f16* out
dequantize_q8_0_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q2_K_f32: u64 numel, const ptr blocks, f32* out
dequantize_q2_K_f16: u64 numel, const ptr blocks, f16* out
dequantize_q2_K_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q3_K_f32: u64 numel, const ptr blocks, f32* out
dequantize_q3_K_f16: u64 numel, const ptr blocks, f16* out
dequantize_q3_K_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q4_K_f32: u64 numel, const ptr blocks, f32* out
dequantize_q4_K_f16: u64 numel, const ptr blocks, f16* out
dequantize_q4_K_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q5_K_f32: u64 numel, const ptr blocks, f32* out
dequantize_q5_K_f16: u64 numel, const ptr blocks, f16* out
dequantize_q5_K_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q6_K_f32: u64 numel, const ptr blocks, f32* out
dequantize_q6_K_f16: u64 numel, const ptr blocks, f16* out
dequantize_q6_K_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q8_1_f32: u64 numel, const ptr blocks, f32* out
dequantize_q8_1_f16: u64 numel, const ptr blocks, f16* out
dequantize_q8_1_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_q8_K_f32: u64 numel, const ptr blocks, f32* out
dequantize_q8_K_f16: u64 numel, const ptr blocks, f16* out
dequantize_q8_K_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq2_xxs_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq2_xxs_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq2_xxs_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq2_xs_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq2_xs_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq2_xs_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq2_s_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq2_s_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq2_s_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq3_xxs_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq3_xxs_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq3_xxs_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq3_s_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq3_s_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq3_s_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq1_s_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq1_s_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq1_s_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq1_m_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq1_m_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq1_m_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq4_nl_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq4_nl_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq4_nl_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_iq4_xs_f32: u64 numel, const ptr blocks, f32* out
dequantize_iq4_xs_f16: u64 numel, const ptr blocks, f16* out
dequantize_iq4_xs_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_tq1_0_f32: u64 numel, const ptr blocks, f32* out
dequantize_tq1_0_f16: u64 numel, const ptr blocks, f16* out
dequantize_tq1_0_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_tq2_0_f32: u64 numel, const ptr blocks, f32* out
dequantize_tq2_0_f16: u64 numel, const ptr blocks, f16* out
dequantize_tq2_0_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_mxfp4_f32: u64 numel, const ptr blocks, f32* out
dequantize_mxfp4_f16: u64 numel, const ptr blocks, f16* out
dequantize_mxfp4_bf16: u64 numel, const ptr blocks, bf16* out
dequantize_nvfp4_f32: u64 numel, const ptr blocks, f32* out
dequantize_nvfp4_f16: u64 numel, const ptr blocks, f16* out
dequantize_nvfp4_bf16: u64 numel, const ptr blocks, bf16* out
matvec_q4_0: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q4_1: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q5_0: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q5_1: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q8_0: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q2_K: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q3_K: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q4_K: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q5_K: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q6_K: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q8_1: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_q8_K: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq2_xxs: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq2_xs: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq2_s: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq3_xxs: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq3_s: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq1_s: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq1_m: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq4_nl: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_iq4_xs: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_tq1_0: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_tq2_0: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_mxfp4: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
matvec_nvfp4: const ptr vx, const f32* y, f32* dst, i32 ncols, i32 nrows
product_q8_1: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_q8_K: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq2_xxs: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq2_xs: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq2_s: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq3_xxs: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq3_s: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq1_s: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq1_m: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq4_nl: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_iq4_xs: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_tq1_0: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_tq2_0: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_mxfp4: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
product_nvfp4: const ptr vx, const ptr vy, f32* dst, i32 ncols, i32 nrows
