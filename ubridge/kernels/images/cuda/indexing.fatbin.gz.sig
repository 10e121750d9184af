is_i64_bf16: u64 numel, u64 num_dims, const u64* info, const i64* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_bf16: u64 numel, const i64* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_bf16: const i64* ids, u64 ids_dim, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_bf16: const i64* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_bf16: const i64* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_f16: u64 numel, u64 num_dims, const u64* info, const i64* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_f16: u64 numel, const i64* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_f16: const i64* ids, u64 ids_dim, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_f16: const i64* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_f16: const i64* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_f32: u64 numel, u64 num_dims, const u64* info, const i64* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_f32: u64 numel, const i64* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_f32: const i64* ids, u64 ids_dim, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_f32: const i64* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_f32: const i64* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_f64: u64 numel, u64 num_dims, const u64* info, const i64* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_f64: u64 numel, const i64* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_f64: const i64* ids, u64 ids_dim, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_f64: const i64* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_f64: const i64* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_f8e4m3: u64 numel, u64 num_dims, const u64* info, const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_f8e4m3: u64 numel, const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_f8e4m3: const i64* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_f8e4m3: const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_f8e4m3: const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_f8_e4m3: u64 numel, u64 num_dims, const u64* info, const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_f8_e4m3: u64 numel, const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_f8_e4m3: const i64* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_f8_e4m3: const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_f8_e4m3: const i64* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_u8: u64 numel, u64 num_dims, const u64* info, const i64* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_u8: u64 numel, const i64* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_u8: const i64* ids, u64 ids_dim, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_u8: const i64* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_u8: const i64* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_u32: u64 numel, u64 num_dims, const u64* info, const i64* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_u32: u64 numel, const i64* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_u32: const i64* ids, u64 ids_dim, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_u32: const i64* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_u32: const i64* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_i16: u64 numel, u64 num_dims, const u64* info, const i64* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_i16: u64 numel, const i64* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_i16: const i64* ids, u64 ids_dim, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_i16: const i64* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_i16: const i64* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_i32: u64 numel, u64 num_dims, const u64* info, const i64* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_i32: u64 numel, const i64* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_i32: const i64* ids, u64 ids_dim, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_i32: const i64* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_i32: const i64* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i64_i64: u64 numel, u64 num_dims, const u64* info, const i64* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i64_i64: u64 numel, const i64* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i64_i64: const i64* ids, u64 ids_dim, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i64_i64: const i64* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_i64_i64: const i64* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_bf16: u64 numel, u64 num_dims, const u64* info, const u32* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_bf16: u64 numel, const u32* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_bf16: const u32* ids, u64 ids_dim, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_bf16: const u32* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_bf16: const u32* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_f16: u64 numel, u64 num_dims, const u64* info, const u32* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_f16: u64 numel, const u32* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_f16: const u32* ids, u64 ids_dim, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_f16: const u32* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_f16: const u32* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_f32: u64 numel, u64 num_dims, const u64* info, const u32* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_f32: u64 numel, const u32* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_f32: const u32* ids, u64 ids_dim, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_f32: const u32* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_f32: const u32* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_f64: u64 numel, u64 num_dims, const u64* info, const u32* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_f64: u64 numel, const u32* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_f64: const u32* ids, u64 ids_dim, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_f64: const u32* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_f64: const u32* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_f8e4m3: u64 numel, u64 num_dims, const u64* info, const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_f8e4m3: u64 numel, const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_f8e4m3: const u32* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_f8e4m3: const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_f8e4m3: const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_f8_e4m3: u64 numel, u64 num_dims, const u64* info, const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_f8_e4m3: u64 numel, const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_f8_e4m3: const u32* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_f8_e4m3: const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_f8_e4m3: const u32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_u8: u64 numel, u64 num_dims, const u64* info, const u32* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_u8: u64 numel, const u32* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_u8: const u32* ids, u64 ids_dim, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_u8: const u32* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_u8: const u32* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_u32: u64 numel, u64 num_dims, const u64* info, const u32* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_u32: u64 numel, const u32* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_u32: const u32* ids, u64 ids_dim, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_u32: const u32* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_u32: const u32* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_i16: u64 numel, u64 num_dims, const u64* info, const u32* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_i16: u64 numel, const u32* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_i16: const u32* ids, u64 ids_dim, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_i16: const u32* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_i16: const u32* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_i32: u64 numel, u64 num_dims, const u64* info, const u32* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_i32: u64 numel, const u32* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_i32: const u32* ids, u64 ids_dim, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_i32: const u32* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_i32: const u32* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u32_i64: u64 numel, u64 num_dims, const u64* info, const u32* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u32_i64: u64 numel, const u32* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u32_i64: const u32* ids, u64 ids_dim, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u32_i64: const u32* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u32_i64: const u32* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_bf16: u64 numel, u64 num_dims, const u64* info, const u8* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_bf16: u64 numel, const u8* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_bf16: const u8* ids, u64 ids_dim, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_bf16: const u8* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_bf16: const u8* ids, const bf16* inp, bf16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_f16: u64 numel, u64 num_dims, const u64* info, const u8* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_f16: u64 numel, const u8* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_f16: const u8* ids, u64 ids_dim, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_f16: const u8* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_f16: const u8* ids, const f16* inp, f16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_f32: u64 numel, u64 num_dims, const u64* info, const u8* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_f32: u64 numel, const u8* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_f32: const u8* ids, u64 ids_dim, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_f32: const u8* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_f32: const u8* ids, const f32* inp, f32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_f64: u64 numel, u64 num_dims, const u64* info, const u8* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_f64: u64 numel, const u8* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_f64: const u8* ids, u64 ids_dim, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_f64: const u8* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_f64: const u8* ids, const f64* inp, f64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_f8e4m3: u64 numel, u64 num_dims, const u64* info, const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_f8e4m3: u64 numel, const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_f8e4m3: const u8* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_f8e4m3: const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_f8e4m3: const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_f8_e4m3: u64 numel, u64 num_dims, const u64* info, const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_f8_e4m3: u64 numel, const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_f8_e4m3: const u8* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_f8_e4m3: const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_f8_e4m3: const u8* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_u8: u64 numel, u64 num_dims, const u64* info, const u8* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_u8: u64 numel, const u8* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_u8: const u8* ids, u64 ids_dim, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_u8: const u8* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_u8: const u8* ids, const u8* inp, u8* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_u32: u64 numel, u64 num_dims, const u64* info, const u8* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_u32: u64 numel, const u8* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_u32: const u8* ids, u64 ids_dim, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_u32: const u8* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_u32: const u8* ids, const u32* inp, u32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_i16: u64 numel, u64 num_dims, const u64* info, const u8* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_i16: u64 numel, const u8* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_i16: const u8* ids, u64 ids_dim, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_i16: const u8* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_i16: const u8* ids, const i16* inp, i16* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_i32: u64 numel, u64 num_dims, const u64* info, const u8* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_i32: u64 numel, const u8* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_i32: const u8* ids, u64 ids_dim, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_i32: const u8* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_i32: const u8* ids, const i32* inp, i32* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_u8_i64: u64 numel, u64 num_dims, const u64* info, const u8* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_u8_i64: u64 numel, const u8* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_u8_i64: const u8* ids, u64 ids_dim, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_u8_i64: const u8* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
s_u8_i64: const u8* ids, const i64* inp, i64* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i32_f8_e4m3: u64 numel, u64 num_dims, const u64* info, const i32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i32_f8_e4m3: u64 numel, const i32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i32_f8_e4m3: const i32* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i32_f8_e4m3: const i32* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
is_i16_f8_e4m3: u64 numel, u64 num_dims, const u64* info, const i16* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
gather_i16_f8_e4m3: u64 numel, const i16* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 ids_dim, u64 right
ia_i16_f8_e4m3: const i16* ids, u64 ids_dim, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
sa_i16_f8_e4m3: const i16* ids, const f8e4m3* inp, f8e4m3* out, u64 left, u64 src_dim, u64 dst_dim, u64 right
embedding_i64_bf16: const i64* ids, const bf16* table, bf16* out, u64 count, u64 rows, u64 width
embedding_i64_f16: const i64* ids, const f16* table, f16* out, u64 count, u64 rows, u64 width
embedding_i64_f32: const i64* ids, const f32* table, f32* out, u64 count, u64 rows, u64 width
embedding_i64_f64: const i64* ids, const f64* table, f64* out, u64 count, u64 rows, u64 width
embedding_u32_bf16: const u32* ids, const bf16* table, bf16* out, u64 count, u64 rows, u64 width
embedding_u32_f16: const u32* ids, const f16* table, f16* out, u64 count, u64 rows, u64 width
embedding_u32_f32: const u32* ids, const f32* table, f32* out, u64 count, u64 rows, u64 width
embedding_u32_f64: const u32* ids, const f64* table, f64* out, u64 count, u64 rows, u64 width
embedding_u8_bf16: const u8* ids, const bf16* table, bf16* out, u64 count, u64 rows, u64 width
embedding_u8_f16: const u8* ids, const f16* table, f16* out, u64 count, u64 rows, u64 width
embedding_u8_f32: const u8* ids, const f32* table, f32* out, u64 count, u64 rows, u64 width
embedding_u8_f64: const u8* ids, const f64* table, f64* out, u64 count, u64 rows, u64 width
