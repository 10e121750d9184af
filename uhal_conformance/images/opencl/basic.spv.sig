echo_bool: bool value, const bool* x, bool* y, u64 n
echo_i8: i8 value, const i8* x, i8* y, u64 n
echo_u8: u8 value, const u8* x, u8* y, u64 n
echo_i16: i16 value, const i16* x, i16* y, u64 n
echo_u16: u16 value, const u16* x, u16* y, u64 n
echo_i32: i32 value, const i32* x, i32* y, u64 n
echo_u32: u32 value, const u32* x, u32* y, u64 n
echo_i64: i64 value, const i64* x, i64* y, u64 n
echo_u64: u64 value, const u64* x, u64* y, u64 n
echo_f16: f16 value, const f16* x, f16* y, u64 n
echo_bf16: bf16 value, const bf16* x, bf16* y, u64 n
echo_f32: f32 value, const f32* x, f32* y, u64 n
echo_f64: f64 value, const f64* x, f64* y, u64 n
mixed: bool a, i64 b, i8 c, f64 d, u16 e, f32 f, i16 g, u64 h, u8 i, i32 j, u32 k, i64* whole, f64* real
aggregate: u8 before, bytes[16] shape, u8 after, f64* out
where: u32* out
reverse: const f32* x, f32* y
block_sum: const f64* x, f64* sums
saxpy: u64 n, f32 a, const f32* x, f32* y
fill: u64 n, u32 value, u32* out
step: u64 n, u32 multiply, u32 add, u32* x
bounded: u32* out
nothing: 
gate: const u32* flag, u32* opened
