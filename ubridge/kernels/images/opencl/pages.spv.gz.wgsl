//! kernel sdpa_paged_bf16: const bf16* q, const bf16* k, const bf16* v, const i64* tables, const i64* sequences, const i64* positions, const i64* ancestors, const f32* bias, const f32* sinks, bf16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 pages, u32 page_size, u64 table_rows, u64 table_pages, u64 window, u64 sink_tokens, f64 scale, f64 cap
//! kernel sdpa_paged_f16: const f16* q, const f16* k, const f16* v, const i64* tables, const i64* sequences, const i64* positions, const i64* ancestors, const f32* bias, const f32* sinks, f16* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 pages, u32 page_size, u64 table_rows, u64 table_pages, u64 window, u64 sink_tokens, f64 scale, f64 cap
//! kernel sdpa_paged_f32: const f32* q, const f32* k, const f32* v, const i64* tables, const i64* sequences, const i64* positions, const i64* ancestors, const f32* bias, const f32* sinks, f32* out, f32* parts, u32 heads, u32 kv_heads, u32 head_dim, u64 pages, u32 page_size, u64 table_rows, u64 table_pages, u64 window, u64 sink_tokens, f64 scale, f64 cap
//! needs exp tanh
//! reports
//! with attention_runs.wgsl

// As in pages.cu: keys in pages.
//
// Keys in u32: capacities are below 2^31. Bit j of `hidden` hides the key j places before the last.
struct Shown { first: u32, begin: u32, end: u32, hidden: vec2<u32> }

fn shown_to(own: u32, ancestors: vec2<u32>) -> Shown {
  let low = select(0xffffffffu, (1u << (own & 31u)) - 1u, own < 32u);
  let high = select(select(0xffffffffu, (1u << (own & 31u)) - 1u, own < 64u), 0u, own < 32u);
  let hidden = ~ancestors & vec2<u32>(low, high);
  var back = window_limited();
  if ((hidden.x | hidden.y) != 0u) {
    let most = back;
    var seen = 0u;
    back = 0u;
    for (; back < 64u && seen < most; back++) { seen += 1u - bit_of(hidden, back); }
    back += min(most - seen, 0xffffffffu - back);
  }
  let begin = select(own - back, 0u, window_limited() == 0u || own < back);
  return Shown(min(sink_tokens_limited(), begin), begin, min(own, table_pages() * page_size()),
               hidden);
}

fn bit_of(bits: vec2<u32>, index: u32) -> u32 {
  return (select(bits.x, bits.y, index >= 32u) >> (index & 31u)) & 1u;
}

// The first key that is shown from `key` on.
fn key_from(shown: Shown, key: u32) -> u32 {
  return select(shown.begin, key, key < shown.first || key > shown.begin);
}

fn sees(shown: Shown, key: u32) -> bool {
  let back = shown.end - 1u - key;
  let is_hidden = back < 64u && bit_of(shown.hidden, back) == 1u;
  return (key < shown.first || key >= shown.begin) && !is_hidden;
}

// A key's number among those that `ancestors` shows, for its bias.
fn column_of(shown: Shown, key: u32) -> u32 {
  let back = shown.end - 1u - key;
  if (back >= 63u) { return key; }
  let shift = (back + 1u) & 31u;
  if (back >= 31u) { return key - countOneBits(shown.hidden.y >> shift); }
  return key - countOneBits(shown.hidden.y) - countOneBits(shown.hidden.x >> shift);
}

struct Noted { at: u32, is_seen: bool }

// A hidden key may have any value: the query's own key stands for it, with the weight 0.
fn noted(shown: Shown, row: u32, kv: u32, key: u32) -> Noted {
  let is_seen = sees(shown, key);
  let stand_in = select(shown.end - 1u, key, is_seen);
  let index = stand_in / page_size();
  let word = (tables_at() >> 2u) + 2u * (row + index);
  let page = vec2<u32>(tables[word], tables[word + 1u]);
  if (page.y != 0u || page.x >= pages_limited()) {
    report_index(index, page, pages_limited());
    return Noted(kv, false);
  }
  let at = (page.x * page_size() + stand_in % page_size()) * kv_heads() * head_dim();
  return Noted(at + kv, is_seen);
}

fn score(shown: Shown, head: u32, key: u32, found: f32) -> f32 {
  if (bias_is_null()) { return bounded(found); }
  return bounded(found) + bias_load(head * table_pages() * page_size() + column_of(shown, key));
}

@compute @workgroup_size(block_x, block_y, block_z)
fn kernel(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) dispatched: vec3<u32>,
          @builtin(num_workgroups) blocks: vec3<u32>) {
  let row = dispatched.x + first_block();
  let threads = block_x * block_y * block_z;
  let width = head_dim();
  let head = row % heads();
  let token = row / heads();
  let kv = head / (heads() / kv_heads()) * width;
  let word = 2u * token;
  let at_position = (positions_at() >> 2u) + word;
  let position = vec2<u32>(positions[at_position], positions[at_position + 1u]);
  let at_sequence = (sequences_at() >> 2u) + word;
  let sequence = vec2<u32>(sequences[at_sequence], sequences[at_sequence + 1u]);
  let is_token = (position.y >> 31u) == 0u;
  let is_there = sequence.y == 0u && sequence.x < table_rows_limited();
  if (is_token && t == 0u) {
    let capacity = table_pages() * page_size();
    if (!is_there) {
      report_index(token, sequence, table_rows_limited());
    } else if (position.y != 0u || position.x >= capacity) {
      report_index(token, position, capacity);
    }
  }
  // Positions behind all keys count as 2^32 - 2.
  var own = min(position.x, 0xfffffffeu) + 1u;
  if (position.y != 0u) { own = 0xffffffffu; }
  if (!is_token || !is_there) { own = 0u; }
  var bits = vec2<u32>(0xffffffffu);
  if (!ancestors_is_null()) {
    let at = (ancestors_at() >> 2u) + word;
    bits = vec2<u32>(ancestors[at], ancestors[at + 1u]);
  }
  let shown = shown_to(own, bits);
  let table = select(0u, sequence.x * table_pages(), own != 0u);
  let is_whole = blocks.y == 1u;
  let first = select(dispatched.y * MOST_KEYS, 0u, is_whole);
  let last = select(min(shown.end, first + MOST_KEYS), shown.end, is_whole);
  if (key_from(shown, first) >= last && !is_whole) { return; }
  begin_row(t, threads, row);
  var largest = lowest();
  if (is_whole && !sinks_is_null()) { largest = sinks_load(head); }
  var state = State(largest, select(1.0f, 0.0f, largest == lowest()));
  for (var begin = key_from(shown, first); begin < last;) {
    let next = begin - begin % MOST_KEYS + MOST_KEYS;
    let count = min(next, last) - begin;
    for (var i = t; i < count; i += 2u * threads) {
      let other = i + threads;
      let one = noted(shown, table, kv, begin + i);
      var two = one;
      if (other < count) { two = noted(shown, table, kv, begin + other); }
      let both = products(one.at, two.at);
      places[i] = one.at;
      scores[i] = lowest();
      if (one.is_seen) { scores[i] = score(shown, head, begin + i, both.x); }
      if (other < count) {
        places[other] = two.at;
        scores[other] = lowest();
        if (two.is_seen) { scores[other] = score(shown, head, begin + other, both.y); }
      }
    }
    state = joined(t, threads, count, state);
    begin = key_from(shown, next);
  }
  end_row(t, threads, row, dispatched.y, blocks.y, state);
}
