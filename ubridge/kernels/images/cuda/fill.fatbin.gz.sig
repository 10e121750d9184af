fill_u8: u8* buf, u8 value, u64 numel
const_set_u8: u64 numel, u64 num_dims, const u64* info, u8 value, u8* out
copy2d_u8: const u8* src, u8* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_u32: u32* buf, u32 value, u64 numel
const_set_u32: u64 numel, u64 num_dims, const u64* info, u32 value, u32* out
copy2d_u32: const u32* src, u32* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_i16: i16* buf, i16 value, u64 numel
const_set_i16: u64 numel, u64 num_dims, const u64* info, i16 value, i16* out
copy2d_i16: const i16* src, i16* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_i32: i32* buf, i32 value, u64 numel
const_set_i32: u64 numel, u64 num_dims, const u64* info, i32 value, i32* out
copy2d_i32: const i32* src, i32* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_i64: i64* buf, i64 value, u64 numel
const_set_i64: u64 numel, u64 num_dims, const u64* info, i64 value, i64* out
copy2d_i64: const i64* src, i64* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_f32: f32* buf, f32 value, u64 numel
const_set_f32: u64 numel, u64 num_dims, const u64* info, f32 value, f32* out
copy2d_f32: const f32* src, f32* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_f64: f64* buf, f64 value, u64 numel
const_set_f64: u64 numel, u64 num_dims, const u64* info, f64 value, f64* out
copy2d_f64: const f64* src, f64* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_f16: f16* buf, f16 value, u64 numel
const_set_f16: u64 numel, u64 num_dims, const u64* info, f16 value, f16* out
copy2d_f16: const f16* src, f16* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_bf16: bf16* buf, bf16 value, u64 numel
const_set_bf16: u64 numel, u64 num_dims, const u64* info, bf16 value, bf16* out
copy2d_bf16: const bf16* src, bf16* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_f8e4m3: f8e4m3* buf, f8e4m3 value, u64 numel
const_set_f8e4m3: u64 numel, u64 num_dims, const u64* info, f8e4m3 value, f8e4m3* out
copy2d_f8e4m3: const f8e4m3* src, f8e4m3* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
fill_f8_e4m3: f8e4m3* buf, f8e4m3 value, u64 numel
const_set_f8_e4m3: u64 numel, u64 num_dims, const u64* info, f8e4m3 value, f8e4m3* out
copy2d_f8_e4m3: const f8e4m3* src, f8e4m3* dst, u32 d1, u32 d2, u32 src_s, u32 dst_s
