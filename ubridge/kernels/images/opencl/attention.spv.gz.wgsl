//! kernel sdpa_cached_bf16: const bf16* q, const bf16* k, const bf16* v, const f32* bias, const i64* position, bf16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
//! kernel sdpa_cached_f16: const f16* q, const f16* k, const f16* v, const f32* bias, const i64* position, f16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
//! kernel sdpa_cached_f32: const f32* q, const f32* k, const f32* v, const f32* bias, const i64* position, f32* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale, f64 cap
//! needs exp tanh

// As in attention.h: runs of 256 keys, joined in order. A work-item scores keys, then adds two
// columns of the values. Each of 16 work-items finds the largest of 16 scores, and their sum.
const MOST_KEYS = 256u;
const EACH = 16u;
var<workgroup> query: array<f32, 256>;
var<workgroup> scores: array<f32, 256>;
var<workgroup> sums: array<f32, 256>;
var<workgroup> some: array<f32, 16>;
var<workgroup> some_sum: array<f32, 16>;

fn lowest() -> f32 { return with_sign(infinity(), 0x80000000u); }

// A NaN if there is one.
fn larger(a: f32, b: f32) -> f32 { return select(b, a, a > b || is_nan(a)); }

// The products of two keys with the query, whose numbers are read once.
fn products(one: u32, other: u32) -> vec2<f32> {
  var sum = vec2<f32>(0.0f);
  var i = 0u;
  if (((k_at() >> 1u) & 1u) == 0u && ((one | other) & 1u) == 0u) {
    for (; i + 1u < head_dim(); i += 2u) {
      let even = query[i];
      let odd = query[i + 1u];
      let first = k_pair(one + i);
      let second = k_pair(other + i);
      sum += even * vec2<f32>(first.x, second.x);
      sum += odd * vec2<f32>(first.y, second.y);
    }
  }
  for (; i < head_dim(); i++) {
    sum += query[i] * vec2<f32>(k_load(one + i), k_load(other + i));
  }
  return sum;
}

fn score(head: u32, key: u32, found: f32) -> f32 {
  var bounded = found * scale();
  if (cap() != 0.0f) { bounded = cap() * math_tanh(bounded / cap()); }
  if (bias_is_null()) { return bounded; }
  return bounded + bias_load(head * capacity() + key);
}

struct Joint { largest: f32, kept: f32, share: f32 }

fn joint_of(before: f32, added: f32) -> Joint {
  let is_above = added > before || is_nan(added);
  let largest = select(before, added, is_above);
  var less = 0.0f;
  if (largest != lowest()) { less = math_exp(select(added - before, before - added, is_above)); }
  return Joint(largest, select(1.0f, less, is_above), select(less, 1.0f, is_above));
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
  for (var i = t; i < width; i += threads) {
    query[i] = q_load(row * width + i);
    sums[i] = 0.0f;
  }
  workgroupBarrier();
  var largest = lowest();
  var total = 0.0f;
  for (var begin = max(first, start); begin < last;) {
    let next = begin - begin % MOST_KEYS + MOST_KEYS;
    let count = min(next, last) - begin;
    for (var i = t; i < count; i += 2u * threads) {
      let other = min(i + threads, count - 1u);
      let both = products(kv + (begin + i) * width, kv + (begin + other) * width);
      scores[i] = score(head, begin + i, both.x);
      if (i + threads < count) { scores[other] = score(head, begin + other, both.y); }
    }
    workgroupBarrier();
    for (var one = t; one < EACH; one += threads) {
      var mine = lowest();
      for (var i = one; i < count; i += EACH) { mine = larger(mine, scores[i]); }
      some[one] = mine;
    }
    workgroupBarrier();
    var above = some[0];
    for (var i = 1u; i < EACH; i++) { above = larger(above, some[i]); }
    let base = select(above, 0.0f, above == lowest());
    for (var i = t; i < count; i += threads) { scores[i] = math_exp(scores[i] - base); }
    workgroupBarrier();
    for (var one = t; one < EACH; one += threads) {
      var mine = 0.0f;
      for (var i = one; i < count; i += EACH) { mine += scores[i]; }
      some_sum[one] = mine;
    }
    workgroupBarrier();
    var added = 0.0f;
    for (var i = 0u; i < EACH; i++) { added += some_sum[i]; }
    let both = joint_of(largest, above);
    total = fma(added, both.share, total * both.kept);
    largest = both.largest;
    let values = kv + begin * width;
    if ((width & 1u) == 0u && (v_at() & 3u) == 0u) {
      for (var column = 2u * t; column < width; column += 2u * threads) {
        var sum = vec2<f32>(0.0f);
        for (var i = 0u; i < count; i++) { sum += scores[i] * v_pair(values + i * width + column); }
        sums[column] = fma(sum.x, both.share, sums[column] * both.kept);
        sums[column + 1u] = fma(sum.y, both.share, sums[column + 1u] * both.kept);
      }
    } else {
      for (var column = t; column < width; column += threads) {
        var sum = 0.0f;
        for (var i = 0u; i < count; i++) { sum += scores[i] * v_load(values + i * width + column); }
        sums[column] = fma(sum, both.share, sums[column] * both.kept);
      }
    }
    workgroupBarrier();
    begin = max(next, start);
  }
  let part = (row * blocks.y + dispatched.y) * ((width + 9u) / 8u * 8u);
  for (var i = t; i < width; i += threads) {
    if (is_whole) {
      out_store(row * width + i, select(sums[i] / total, 0.0f, total == 0.0f));
    } else {
      parts_store(part + i, sums[i]);
    }
  }
  if (!is_whole && t == 0u) {
    parts_store(part + width, total);
    parts_store(part + width + 1u, largest);
  }
}
