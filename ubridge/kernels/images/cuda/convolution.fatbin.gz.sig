convolution: const f32* input, const f32* weight, f32* out, u32 width, u32 height, u32 kw, u32 kh
