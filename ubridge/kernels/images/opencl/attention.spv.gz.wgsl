//! kernel sdpa_cached_bf16: const bf16* q, const bf16* k, const bf16* v, const f32* bias, const i64* position, bf16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
//! kernel sdpa_cached_f16: const f16* q, const f16* k, const f16* v, const f32* bias, const i64* position, f16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
//! kernel sdpa_cached_f32: const f32* q, const f32* k, const f32* v, const f32* bias, const i64* position, f32* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
//! needs exp tanh
//! with attention_runs.wgsl

fn score(head: u32, key: u32, found: f32) -> f32 {
  if (bias_is_null()) { return bounded(found); }
  return bounded(found) + bias_load(head * capacity() + key);
}

@compute @workgroup_size(block_x, block_y, block_z)
fn kernel(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) dispatched: vec3<u32>,
          @builtin(num_workgroups) blocks: vec3<u32>) {
  let row = dispatched.x + first_block();
  let threads = block_x * block_y * block_z;
  let width = head_dim();
  let head = row % heads();
  let kv = head / (heads() / kv_heads()) * capacity() * width;
  // Capacities are below 2^31, so the low word has the sign, too.
  let place = bitcast<i32>(position[position_at() >> 2u]) + i32(row / heads());
  let seen = u32(max(place + 1, 0));
  let end = min(seen, capacity());
  let start = select(seen - window_limited(), 0u, window_limited() == 0u || seen < window_limited());
  let is_whole = blocks.y == 1u;
  let first = select(dispatched.y * split(), 0u, is_whole);
  let last = select(min(end, first + split()), end, is_whole);
  if (max(first, start) >= last && !is_whole) { return; }
  begin_row(t, threads, row);
  var state = State(lowest(), 0.0f);
  for (var begin = max(first, start); begin < last;) {
    let next = begin - begin % MOST_KEYS + MOST_KEYS;
    let count = min(next, last) - begin;
    for (var i = t; i < count; i += 2u * threads) {
      let other = min(i + threads, count - 1u);
      let at = kv + (begin + i) * width;
      let other_at = kv + (begin + other) * width;
      let both = products(at, other_at);
      places[i] = at;
      scores[i] = score(head, begin + i, both.x);
      if (i + threads < count) {
        places[other] = other_at;
        scores[other] = score(head, begin + other, both.y);
      }
    }
    state = joined(t, threads, count, state);
    begin = max(next, start);
  }
  end_row(t, threads, row, dispatched.y, blocks.y, state);
}
