// Matrix product of the demo network: out = a b in f32, row-major, any size, any launch geometry.
//
// The product is cut into strips, short runs of values of one row (strip.h); each work-item keeps
// one strip in registers. The strips of a block lie below each other, so all need the same columns
// of b. The block copies these columns to shared memory in tiles of 16 rows.
#include "strip.h"

// Rows of a tile of b.
enum : u32 { DEPTH = 16 };

// a: m x k, b: k x n, out: m x n.
KERNEL(batch_matmul_legacy, (const f32 *a, const f32 *b, f32 *out, u32 m, u32 k, u32 n))
{
    SHARED(f32, b_tile, DEPTH * STRIP);
    REGISTER(Strip, sums, MAX_THREADS);

    const u32 work_items = blockDim.x * blockDim.y * blockDim.z;
    const u64 blocks = (u64)gridDim.x * gridDim.y * gridDim.z;
    const u64 block = blockIdx.x + (u64)gridDim.x * (blockIdx.y + (u64)gridDim.y * blockIdx.z);
    const u64 tiles_across = ((u64)n + STRIP - 1) / STRIP;
    const u64 tiles_down = ((u64)m + work_items - 1) / work_items;

    for (u64 tile = block; tile < tiles_across * tiles_down; tile += blocks) {
        const u64 first_column = tile % tiles_across * STRIP;
        const u64 first_row = tile / tiles_across * work_items;
        const u32 columns = n - first_column < STRIP ? (u32)(n - first_column) : STRIP;
        const u32 rows = m - first_row < work_items ? (u32)(m - first_row) : work_items;

        THREADS(t) {
            if (t < rows)
                sums(t) = Strip{};
        }
        for (u64 first = 0; first < k; first += DEPTH) {
            const u32 depth = k - first < DEPTH ? (u32)(k - first) : DEPTH;
            THREADS(t) {
                for (u32 i = t; i < depth * STRIP; i += work_items) {
                    const u64 row = first + i / STRIP;
                    const u32 column = i % STRIP;
                    b_tile[i] = column < columns ? b[row * n + first_column + column] : 0.0f;
                }
            }
            BARRIER();
            THREADS(t) {
                if (t < rows) {
                    const f32 *a_row = a + (first_row + t) * k + first;
                    Strip sum = sums(t);
                    for (u32 i = 0; i < depth; ++i)
                        add_multiple(sum, a_row[i], &b_tile[i * STRIP]);
                    sums(t) = sum;
                }
            }
            BARRIER();
        }
        THREADS(t) {
            if (t < rows)
                store(sums(t), out + (first_row + t) * n + first_column, columns);
        }
    }
}
