read_table: f32* out
count: u64 by
who: u32* out
