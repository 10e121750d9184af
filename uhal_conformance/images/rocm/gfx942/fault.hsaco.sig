fault: u32 now, u32* out
