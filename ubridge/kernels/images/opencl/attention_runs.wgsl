// Attention by runs of 256 keys that are joined in order, as in attention.h, for templates that know
// where keys lie. A work-item notes the keys' places and scores, then adds two columns of the values.
// Each of 16 sums and largest scores is of a sixteenth of a run, so that their order is the same in
// blocks of any size.
const MOST_KEYS = 256u;
const EACH = 16u;
var<workgroup> query: array<f32, 256>;
var<workgroup> places: array<u32, 256>;
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

// A score from a product, before a bias.
fn bounded(found: f32) -> f32 {
  let scaled = found * scale();
  if (cap() == 0.0f) { return scaled; }
  return cap() * math_tanh(scaled / cap());
}

struct Joint { largest: f32, kept: f32, share: f32 }

fn joint_of(before: f32, added: f32) -> Joint {
  let is_above = added > before || is_nan(added);
  let largest = select(before, added, is_above);
  var less = 0.0f;
  if (largest != lowest()) { less = math_exp(select(added - before, before - added, is_above)); }
  return Joint(largest, select(1.0f, less, is_above), select(less, 1.0f, is_above));
}

// Reads a row's query.
fn begin_row(t: u32, threads: u32, row: u32) {
  for (var i = t; i < head_dim(); i += threads) {
    query[i] = q_load(row * head_dim() + i);
    sums[i] = 0.0f;
  }
  workgroupBarrier();
}

struct State { largest: f32, total: f32 }

// Joins a run of `count` keys, whose places and scores all work-items have noted.
fn joined(t: u32, threads: u32, count: u32, before: State) -> State {
  let width = head_dim();
  workgroupBarrier();
  for (var each = t; each < EACH; each += threads) {
    var mine = lowest();
    for (var i = each; i < count; i += EACH) { mine = larger(mine, scores[i]); }
    some[each] = mine;
  }
  workgroupBarrier();
  var above = some[0];
  for (var i = 1u; i < EACH; i++) { above = larger(above, some[i]); }
  let base = select(above, 0.0f, above == lowest());
  for (var i = t; i < count; i += threads) { scores[i] = math_exp(scores[i] - base); }
  workgroupBarrier();
  for (var each = t; each < EACH; each += threads) {
    var mine = 0.0f;
    for (var i = each; i < count; i += EACH) { mine += scores[i]; }
    some_sum[each] = mine;
  }
  workgroupBarrier();
  var added = 0.0f;
  for (var i = 0u; i < EACH; i++) { added += some_sum[i]; }
  let both = joint_of(before.largest, above);
  if ((width & 1u) == 0u && (v_at() & 3u) == 0u) {
    for (var column = 2u * t; column < width; column += 2u * threads) {
      var sum = vec2<f32>(0.0f);
      for (var i = 0u; i < count; i++) { sum += scores[i] * v_pair(places[i] + column); }
      sums[column] = fma(sum.x, both.share, sums[column] * both.kept);
      sums[column + 1u] = fma(sum.y, both.share, sums[column + 1u] * both.kept);
    }
  } else {
    for (var column = t; column < width; column += threads) {
      var sum = 0.0f;
      for (var i = 0u; i < count; i++) { sum += scores[i] * v_load(places[i] + column); }
      sums[column] = fma(sum, both.share, sums[column] * both.kept);
    }
  }
  workgroupBarrier();
  return State(both.largest, fma(added, both.share, before.total * both.kept));
}

// Writes a row's result, or one of its parts for a merge.
fn end_row(t: u32, threads: u32, row: u32, number: u32, parts_of_row: u32, state: State) {
  let width = head_dim();
  let is_whole = parts_of_row == 1u;
  let part = (row * parts_of_row + number) * ((width + 9u) / 8u * 8u);
  for (var i = t; i < width; i += threads) {
    if (is_whole) {
      out_store(row * width + i, select(sums[i] / state.total, 0.0f, state.total == 0.0f));
    } else {
      parts_store(part + i, sums[i]);
    }
  }
  if (!is_whole && t == 0u) {
    parts_store(part + width, state.total);
    parts_store(part + width + 1u, state.largest);
  }
}
