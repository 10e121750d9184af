count: u64 by
who: u32* out
