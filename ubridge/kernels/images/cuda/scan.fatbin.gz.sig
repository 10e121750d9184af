scan_totals_bf16: const bf16* src, f32* totals, u64 left, u64 length, u64 right, u64 part
scan_bf16: const bf16* src, bf16* dst, const f32* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_f16: const f16* src, f32* totals, u64 left, u64 length, u64 right, u64 part
scan_f16: const f16* src, f16* dst, const f32* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_f32: const f32* src, f32* totals, u64 left, u64 length, u64 right, u64 part
scan_f32: const f32* src, f32* dst, const f32* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_f64: const f64* src, f64* totals, u64 left, u64 length, u64 right, u64 part
scan_f64: const f64* src, f64* dst, const f64* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_u8: const u8* src, u8* totals, u64 left, u64 length, u64 right, u64 part
scan_u8: const u8* src, u8* dst, const u8* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_u32: const u32* src, u32* totals, u64 left, u64 length, u64 right, u64 part
scan_u32: const u32* src, u32* dst, const u32* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_i16: const i16* src, i16* totals, u64 left, u64 length, u64 right, u64 part
scan_i16: const i16* src, i16* dst, const i16* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_i32: const i32* src, i32* totals, u64 left, u64 length, u64 right, u64 part
scan_i32: const i32* src, i32* dst, const i32* totals, u64 left, u64 length, u64 right, u64 part
scan_totals_i64: const i64* src, i64* totals, u64 left, u64 length, u64 right, u64 part
scan_i64: const i64* src, i64* dst, const i64* totals, u64 left, u64 length, u64 right, u64 part
