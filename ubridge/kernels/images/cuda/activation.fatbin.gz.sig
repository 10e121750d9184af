activationf32: f32* data, u32 rows, u32 cols, i32 kind
