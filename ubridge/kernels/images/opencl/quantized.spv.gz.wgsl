//! kernel mul_mat_vec_q4_K_q8_1_cuda1: const ptr vx, const ptr vy, f32* dst, i32 ncols_x, i32 nrows_x, i32 nrows_y, i32 nrows_dst
//! needs half

// A row of q4_K times a vector of Q8_1, as in block_products_q8_1.h. A work-item takes a word: four
// elements of one run of 32, and four of the next run.
const BLOCK_WORDS = 36u;

struct Level { scale: f32, minimum: f32 }

fn level(block: u32, k: u32) -> Level {
  let both = halves_of(vx[block]);
  let first = vx[block + 1u] >> (8u * (k & 3u));
  let second = vx[block + 2u] >> (8u * (k & 3u));
  let lower = vx[block + 3u] >> (8u * (k & 3u));
  let scale = select((lower & 15u) | ((first >> 2u) & 48u), first & 63u, k < 4u);
  let minimum = select(((lower >> 4u) & 15u) | ((second >> 2u) & 48u), second & 63u, k < 4u);
  return Level(both.x * f32(scale), both.y * f32(minimum));
}

fn dot(own: Level, quants: u32, side: u32, place: u32) -> f32 {
  let others = vy[side + 1u + place];
  let product = f32(dot4I8Packed(quants, others));
  let total = f32(dot4I8Packed(0x01010101u, others));
  return halves_of(vy[side]).x * (own.scale * product - own.minimum * total);
}

fn product(row: u32, thread: u32, threads: u32) -> f32 {
  let blocks = ncols_x() / 256u;
  var sum = 0.0f;
  for (var word = thread; word < blocks * 32u; word += threads) {
    let run = (word & 31u) / 8u;
    let block = vx_at() / 4u + (row * blocks + word / 32u) * BLOCK_WORDS;
    let side = vy_at() / 4u + (word / 32u * 8u + 2u * run) * SIDE_WORDS;
    let quants = vx[block + 4u + (word & 31u)];
    sum += dot(level(block, 2u * run), quants & 0x0f0f0f0fu, side, word & 7u);
    sum += dot(level(block, 2u * run + 1u), (quants >> 4u) & 0x0f0f0f0fu, side + SIDE_WORDS,
               word & 7u);
  }
  return sum;
}

const SIDE_WORDS = 9u;
var<workgroup> parts: array<f32, 128>;

@compute @workgroup_size(block_x, block_y, block_z)
fn kernel(@builtin(local_invocation_index) thread: u32,
          @builtin(workgroup_id) dispatched: vec3<u32>) {
  let row = dispatched.x + first_block();
  let threads = block_x * block_y * block_z;
  let is_there = row < nrows_x();
  parts[thread] = select(0.0f, product(min(row, nrows_x() - 1u), thread, threads), is_there);
  workgroupBarrier();
  if (thread < 8u) {
    var sum = parts[thread];
    for (var other = thread + 8u; other < threads; other += 8u) { sum += parts[other]; }
    parts[thread] = sum;
  }
  workgroupBarrier();
  if (thread == 0u && is_there) {
    var sum = parts[0];
    for (var other = 1u; other < min(threads, 8u); other++) { sum += parts[other]; }
    dst_store(row, sum);
  }
}
