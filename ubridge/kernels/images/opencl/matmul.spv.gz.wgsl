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
