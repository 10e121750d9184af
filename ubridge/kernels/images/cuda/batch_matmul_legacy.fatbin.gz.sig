batch_matmul_legacy: const f32* a, const f32* b, f32* out, u32 m, u32 k, u32 n
