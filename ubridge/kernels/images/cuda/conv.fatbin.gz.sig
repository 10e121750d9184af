im2col1d_bf16: u64 threads, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation, const u64* info, const bf16* src, bf16* dst
im2col_bf16: u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding, u64 dilation, const u64* info, const bf16* src, bf16* dst
col2im1d_bf16: u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const bf16* src, bf16* dst
im2col1d_f16: u64 threads, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation, const u64* info, const f16* src, f16* dst
im2col_f16: u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding, u64 dilation, const u64* info, const f16* src, f16* dst
col2im1d_f16: u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const f16* src, f16* dst
im2col1d_f32: u64 threads, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation, const u64* info, const f32* src, f32* dst
im2col_f32: u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding, u64 dilation, const u64* info, const f32* src, f32* dst
col2im1d_f32: u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const f32* src, f32* dst
im2col1d_f64: u64 threads, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation, const u64* info, const f64* src, f64* dst
im2col_f64: u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding, u64 dilation, const u64* info, const f64* src, f64* dst
col2im1d_f64: u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const f64* src, f64* dst
im2col1d_u8: u64 threads, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation, const u64* info, const u8* src, u8* dst
im2col_u8: u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding, u64 dilation, const u64* info, const u8* src, u8* dst
col2im1d_u8: u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const u8* src, u8* dst
im2col1d_u32: u64 threads, u64 l_out, u64 l_k, u64 stride, u64 padding, u64 dilation, const u64* info, const u32* src, u32* dst
im2col_u32: u64 dst_numel, u64 h_out, u64 w_out, u64 h_k, u64 w_k, u64 stride, u64 padding, u64 dilation, const u64* info, const u32* src, u32* dst
col2im1d_u32: u64 dst_el, u64 l_out, u64 l_in, u64 c_out, u64 k_size, u64 stride, const u32* src, u32* dst
conv1d_bf16: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64* info, const bf16* src, const bf16* kernel, bf16* dst
conv2d_bf16: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation, const u64* info, const bf16* src, const bf16* kernel, bf16* dst
conv_transpose1d_bf16: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const bf16* src, const bf16* kernel, bf16* dst
conv_transpose2d_bf16: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const bf16* src, const bf16* kernel, bf16* dst
conv1d_f16: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64* info, const f16* src, const f16* kernel, f16* dst
conv2d_f16: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation, const u64* info, const f16* src, const f16* kernel, f16* dst
conv_transpose1d_f16: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const f16* src, const f16* kernel, f16* dst
conv_transpose2d_f16: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const f16* src, const f16* kernel, f16* dst
conv1d_f32: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64* info, const f32* src, const f32* kernel, f32* dst
conv2d_f32: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation, const u64* info, const f32* src, const f32* kernel, f32* dst
conv_transpose1d_f32: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const f32* src, const f32* kernel, f32* dst
conv_transpose2d_f32: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const f32* src, const f32* kernel, f32* dst
conv1d_f64: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64* info, const f64* src, const f64* kernel, f64* dst
conv2d_f64: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation, const u64* info, const f64* src, const f64* kernel, f64* dst
conv_transpose1d_f64: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const f64* src, const f64* kernel, f64* dst
conv_transpose2d_f64: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const f64* src, const f64* kernel, f64* dst
conv1d_u8: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64* info, const u8* src, const u8* kernel, u8* dst
conv2d_u8: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation, const u64* info, const u8* src, const u8* kernel, u8* dst
conv_transpose1d_u8: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const u8* src, const u8* kernel, u8* dst
conv_transpose2d_u8: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const u8* src, const u8* kernel, u8* dst
conv1d_u32: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 dilation, const u64* info, const u32* src, const u32* kernel, u32* dst
conv2d_u32: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 dilation, const u64* info, const u32* src, const u32* kernel, u32* dst
conv_transpose1d_u32: u64 src_numel, u64 l_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const u32* src, const u32* kernel, u32* dst
conv_transpose2d_u32: u64 src_numel, u64 w_out, u64 h_out, u64 stride, u64 padding, u64 out_padding, u64 dilation, const u64* info, const u32* src, const u32* kernel, u32* dst
avg_pool2d_bf16: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const bf16* src, bf16* dst
max_pool2d_bf16: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const bf16* src, bf16* dst
avg_pool2d_f16: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const f16* src, f16* dst
max_pool2d_f16: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const f16* src, f16* dst
avg_pool2d_f32: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const f32* src, f32* dst
max_pool2d_f32: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const f32* src, f32* dst
avg_pool2d_f64: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const f64* src, f64* dst
max_pool2d_f64: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const f64* src, f64* dst
avg_pool2d_u8: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const u8* src, u8* dst
max_pool2d_u8: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const u8* src, u8* dst
avg_pool2d_u32: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const u32* src, u32* dst
max_pool2d_u32: u64 src_numel, u64 w_k, u64 h_k, u64 w_stride, u64 h_stride, const u64* info, const u32* src, u32* dst
upsample_nearest2d_bf16: u64 w_out, u64 h_out, f64 w_scale, f64 h_scale, const u64* info, const bf16* src, bf16* dst
upsample_bilinear2d_bf16: u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h, bool has_scale_w, f64 scale_w, const u64* info, const bf16* src, bf16* dst
upsample_nearest2d_f16: u64 w_out, u64 h_out, f64 w_scale, f64 h_scale, const u64* info, const f16* src, f16* dst
upsample_bilinear2d_f16: u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h, bool has_scale_w, f64 scale_w, const u64* info, const f16* src, f16* dst
upsample_nearest2d_f32: u64 w_out, u64 h_out, f64 w_scale, f64 h_scale, const u64* info, const f32* src, f32* dst
upsample_bilinear2d_f32: u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h, bool has_scale_w, f64 scale_w, const u64* info, const f32* src, f32* dst
upsample_nearest2d_f64: u64 w_out, u64 h_out, f64 w_scale, f64 h_scale, const u64* info, const f64* src, f64* dst
upsample_bilinear2d_f64: u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h, bool has_scale_w, f64 scale_w, const u64* info, const f64* src, f64* dst
upsample_nearest2d_u8: u64 w_out, u64 h_out, f64 w_scale, f64 h_scale, const u64* info, const u8* src, u8* dst
upsample_bilinear2d_u8: u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h, bool has_scale_w, f64 scale_w, const u64* info, const u8* src, u8* dst
upsample_nearest2d_u32: u64 w_out, u64 h_out, f64 w_scale, f64 h_scale, const u64* info, const u32* src, u32* dst
upsample_bilinear2d_u32: u64 w_out, u64 h_out, bool align_corners, bool has_scale_h, f64 scale_h, bool has_scale_w, f64 scale_w, const u64* info, const u32* src, u32* dst
