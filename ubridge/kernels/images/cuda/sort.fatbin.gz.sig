asort_asc_bf16: const bf16* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_bf16: const bf16* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_bf16: const bf16* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_bf16: const bf16* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_bf16: const bf16* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_bf16: const bf16* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_f16: const f16* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_f16: const f16* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_f16: const f16* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_f16: const f16* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_f16: const f16* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_f16: const f16* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_f32: const f32* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_f32: const f32* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_f32: const f32* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_f32: const f32* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_f32: const f32* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_f32: const f32* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_f64: const f64* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_f64: const f64* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_f64: const f64* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_f64: const f64* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_f64: const f64* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_f64: const f64* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_u8: const u8* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_u8: const u8* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_u8: const u8* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_u8: const u8* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_u8: const u8* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_u8: const u8* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_u32: const u32* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_u32: const u32* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_u32: const u32* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_u32: const u32* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_u32: const u32* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_u32: const u32* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_i16: const i16* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_i16: const i16* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_i16: const i16* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_i16: const i16* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_i16: const i16* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_i16: const i16* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_i32: const i32* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_i32: const i32* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_i32: const i32* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_i32: const i32* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_i32: const i32* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_i32: const i32* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_asc_i64: const i64* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_asc_i64: const i64* x, u32* dst, u64 ncols, u32 run
asort_merge_asc_i64: const i64* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
asort_desc_i64: const i64* x, u32* dst, i32 ncols, i32 ncols_pad
asort_runs_desc_i64: const i64* x, u32* dst, u64 ncols, u32 run
asort_merge_desc_i64: const i64* x, const u32* src, u32* dst, u64 rows, u64 ncols, u64 run
