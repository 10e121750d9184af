conv_tiles_bf16: const u64* info, const bf16* src, const bf16* kernel, bf16* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
conv_tiles_f16: const u64* info, const f16* src, const f16* kernel, f16* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
conv_tiles_f32: const u64* info, const f32* src, const f32* kernel, f32* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
conv_tiles_f64: const u64* info, const f64* src, const f64* kernel, f64* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
conv_tiles_u8: const u64* info, const u8* src, const u8* kernel, u8* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
conv_tiles_u32: const u64* info, const u32* src, const u32* kernel, u32* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
