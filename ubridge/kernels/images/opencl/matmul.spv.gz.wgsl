//! kernel matmul_vectors_bf16: const bf16* lines, const bf16* vectors, bf16* out, u64 n, u32 m, u64 k, u64 line_batch, u64 line_pitch, u64 vector_batch, u64 vector_pitch, u64 out_batch, u64 out_line, u64 out_vector
//! kernel matmul_vectors_f16: const f16* lines, const f16* vectors, f16* out, u64 n, u32 m, u64 k, u64 line_batch, u64 line_pitch, u64 vector_batch, u64 vector_pitch, u64 out_batch, u64 out_line, u64 out_vector
//! kernel matmul_vectors_f32: const f32* lines, const f32* vectors, f32* out, u64 n, u32 m, u64 k, u64 line_batch, u64 line_pitch, u64 vector_batch, u64 vector_pitch, u64 out_batch, u64 out_line, u64 out_vector

// As in matmul.cu: 32 work-items take a line, for eight vectors at most.
const LINES = 8u;
const VECTORS = 8u;
var<workgroup> parts: array<f32, 256>;

fn product(line: u32, vector: u32, lane: u32) -> f32 {
  var sum = 0.0f;
  var i = lane * 8u;
  if (((lines_at() | vectors_at()) & 3u) == 0u && ((line | vector) & 1u) == 0u) {
    // Words hold two numbers each, or one.
    for (; i + 8u <= k(); i += 256u) {
      for (var j = 0u; j < 8u; j += 2u) {
        let both = lines_pair(line + i + j) * vectors_pair(vector + i + j);
        sum += both.x + both.y;
      }
    }
  }
  for (; i < k(); i += 256u) {
    for (var j = i; j < min(i + 8u, k()); j++) {
      sum += lines_load(line + j) * vectors_load(vector + j);
    }
  }
  return sum;
}

@compute @workgroup_size(block_x, block_y, block_z)
fn kernel(@builtin(local_invocation_index) thread: u32,
          @builtin(workgroup_id) dispatched: vec3<u32>) {
  let lane = thread & 31u;
  let here = (dispatched.x + first_block()) * LINES + (thread >> 5u);
  let first = dispatched.y * VECTORS;
  let line = dispatched.z * line_batch() + min(here, n() - 1u) * line_pitch();
  for (var v = first; v < min(first + VECTORS, m()); v++) {
    parts[thread] = product(line, dispatched.z * vector_batch() + v * vector_pitch(), lane);
    workgroupBarrier();
    if (lane < 4u) {
      var sum = parts[thread];
      for (var j = 4u; j < 32u; j += 4u) { sum += parts[thread + j]; }
      parts[thread] = sum;
    }
    workgroupBarrier();
    if (lane == 0u && here < n()) {
      let sum = (parts[thread] + parts[thread + 1u]) + (parts[thread + 2u] + parts[thread + 3u]);
      out_store(dispatched.z * out_batch() + here * out_line() + v * out_vector(), sum);
    }
    workgroupBarrier();
  }
}
//! kernel matmul_bf16: const bf16* a, const bf16* b, bf16* out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch
//! kernel matmul_f16: const f16* a, const f16* b, f16* out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch
//! kernel matmul_f32: const f32* a, const f32* b, f32* out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch

// As in product_tiles.h: a block makes 64 x 64 results, 16 deep at a time. A work-item adds 4 x 4
// results in registers. A block of fewer than 256 work-items takes the tile in several rounds.
const TILE = 64u;
const DEPTH = 16u;
const PARTS = 256u;
const PITCH = 17u;
var<workgroup> left: array<vec4<f32>, 272>;
var<workgroup> right: array<vec4<f32>, 272>;

// Where part `i` of a tile lies: (place along the sums, first of four lines). Neighboring work-items
// read neighbors in memory.
fn place(i: u32, is_deep: bool) -> vec2<u32> {
  return select(vec2<u32>(i >> 4u, i & 15u), vec2<u32>(i & 15u, i >> 4u), is_deep);
}

fn load_left(base: u32, row: u32, depth: u32) -> vec4<f32> {
  var found = vec4<f32>(0.0f);
  for (var j = 0u; j < 4u && depth < k(); j++) {
    if (row + j < m()) { found[j] = a_load(base + (row + j) * a_row() + depth * a_column()); }
  }
  return found;
}

fn load_right(base: u32, column: u32, depth: u32) -> vec4<f32> {
  var found = vec4<f32>(0.0f);
  for (var j = 0u; j < 4u && depth < k(); j++) {
    if (column + j < n()) { found[j] = b_load(base + depth * b_row() + (column + j) * b_column()); }
  }
  return found;
}

fn store(base: u32, row: u32, column: u32, sums: vec4<f32>) {
  for (var j = 0u; j < 4u && row < m(); j++) {
    if (column + j < n()) { out_store(base + row * n() + column + j, sums[j]); }
  }
}

@compute @workgroup_size(block_x, block_y, block_z)
fn kernel(@builtin(local_invocation_index) thread: u32,
          @builtin(workgroup_id) dispatched: vec3<u32>) {
  let threads = block_x * block_y * block_z;
  let row = dispatched.y * TILE;
  let column = (dispatched.x + first_block()) * TILE;
  for (var first = 0u; first < PARTS; first += threads) {
    let down = 4u * ((first + thread) >> 4u);
    let across = 4u * ((first + thread) & 15u);
    var sums = array<vec4<f32>, 4>();
    for (var depth = 0u; depth < k(); depth += DEPTH) {
      for (var i = thread; i < PARTS; i += threads) {
        let a_at = place(i, a_column() == 1u);
        let b_at = place(i, b_row() == 1u);
        left[a_at.x * PITCH + a_at.y] =
            load_left(dispatched.z * a_batch(), row + 4u * a_at.y, depth + a_at.x);
        right[b_at.x * PITCH + b_at.y] =
            load_right(dispatched.z * b_batch(), column + 4u * b_at.y, depth + b_at.x);
      }
      workgroupBarrier();
      if (first + thread < PARTS) {
        for (var i = 0u; i < DEPTH; i++) {
          let x = left[i * PITCH + down / 4u];
          let y = right[i * PITCH + across / 4u];
          sums[0] += x.x * y;
          sums[1] += x.y * y;
          sums[2] += x.z * y;
          sums[3] += x.w * y;
        }
      }
      workgroupBarrier();
    }
    if (first + thread < PARTS) {
      let base = dispatched.z * out_batch();
      store(base, row + down, column + across, sums[0]);
      store(base, row + down + 1u, column + across, sums[1]);
      store(base, row + down + 2u, column + across, sums[2]);
      store(base, row + down + 3u, column + across, sums[3]);
    }
  }
}
