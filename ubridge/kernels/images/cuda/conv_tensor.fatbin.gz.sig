conv_tensor_bf16: const u64* info, const bf16* src, const bf16* kernel, bf16* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
conv_tensor_f16: const u64* info, const f16* src, const f16* kernel, f16* dst, u64 h_out, u64 w_out, u64 groups, u64 stride, u64 h_padding, u64 w_padding, u64 dilation, bool transposed
