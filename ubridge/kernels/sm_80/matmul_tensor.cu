// Matrix products on tensor cores, for NVIDIA's devices from compute capability 8.0 on:
// matmul_tensor<tile>_<layouts>_<type>, out[i, j] = sum over l of a[i, l] b[l, j], for each batch.
// f16 and bf16; sums are taken in f32 and rounded once.
//
// A matrix lies in lines of neighboring elements, `pitch` elements apart. <layouts> has one letter
// for a and one for b, as in BLAS: n for lines that are rows, t for lines that are columns. out is
// row-major. Any sizes, pitches and addresses are right; lines that begin at multiples of 16 bytes
// are read fastest.
//
// The grid is (ceil(n / tile), ceil(m / tile), batches), of blocks of exactly 256 (tile 128) or 128
// (tile 64). A block makes one tile, going DEPTH deep into the matrices at a time. Tiles of a and
// b are copied to shared memory asynchronously, two tiles ahead of the multiplication.
#include <string.h>

#include "tensor_tiles.h"

enum : u32 { STAGES = 3 };

// The first `count` elements at `source`, then zeros; nothing is read for 0.
DEVICE_FUNCTION void copy_chunk(Chunk *target, const u16 *source, u32 count, bool aligned)
{
    if (aligned) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)),
                     "l"(source), "r"(2 * count)
                     : "memory");
        return;
    }
    Chunk chunk;
    for (u32 i = 0; i < CHUNK; ++i)
        chunk.values[i] = i < count ? source[i] : u16(0);
    *target = chunk;
}

// An operand: `lines` of `length` elements.
struct Lines {
    const u16 *data;
    u64 pitch;
    u64 lines;
    u64 length;

    DEVICE_METHOD bool aligned() const
    {
        return (reinterpret_cast<u64>(data) | pitch * sizeof(u16)) % sizeof(Chunk) == 0;
    }
};

template <u32 THREADS, class Tile>
DEVICE_FUNCTION void load_tile(Chunk *tile, const Lines &matrix, u64 first_line, u64 first_place,
                               bool aligned)
{
    for (u32 i = threadIdx.x; i < Tile::SIZE; i += THREADS) {
        const u32 line = i / Tile::CHUNKS;
        const u32 chunk = i % Tile::CHUNKS;
        const u64 at = first_place + chunk * CHUNK;
        const bool inside = first_line + line < matrix.lines && at < matrix.length;
        const u64 left = matrix.length - at;
        const u32 count = !inside ? 0 : left < CHUNK ? u32(left) : u32(CHUNK);
        const u16 *const source =
            inside ? matrix.data + (first_line + line) * matrix.pitch + at : matrix.data;
        copy_chunk(tile + Tile::place(line, chunk), source, count, aligned);
    }
}

DEVICE_FUNCTION void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most the last STAGES - 2 groups of copies are under way.
DEVICE_FUNCTION void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
}

// Stores two neighboring results, without columns past the end.
template <class T>
DEVICE_FUNCTION void store_pair(T *row, u64 column, u64 columns, bool in_pairs, f32 first, f32 second)
{
    struct alignas(4) Pair {
        T first;
        T second;
    };
    if (in_pairs && column + 1 < columns) {
        *reinterpret_cast<Pair *>(row + column) = Pair{T(first), T(second)};
        return;
    }
    if (column < columns)
        row[column] = T(first);
    if (column + 1 < columns)
        row[column + 1] = T(second);
}

// WARPS_DOWN x WARPS_ACROSS warps make a tile of TILE x TILE.
template <class T, u32 TILE, u32 WARPS_DOWN, u32 WARPS_ACROSS, bool a_is_deep, bool b_is_deep>
DEVICE_FUNCTION void multiply(const Lines &a, const Lines &b, T *out, u64 m, u64 n, u64 k)
{
    typedef TensorSums<T, TILE, WARPS_DOWN, WARPS_ACROSS, a_is_deep, b_is_deep> Sums;
    typedef typename Sums::TileA TileA;
    typedef typename Sums::TileB TileB;
    SHARED(Chunk, a_tiles, STAGES, TileA::SIZE);
    SHARED(Chunk, b_tiles, STAGES, TileB::SIZE);

    const u64 first_row = u64(blockIdx.y) * TILE;
    const u64 first_column = u64(blockIdx.x) * TILE;
    const bool a_aligned = a.aligned();
    const bool b_aligned = b.aligned();
    const u64 steps = (k + DEPTH - 1) / DEPTH;

    const auto load = [&](u64 step) {
        if (step < steps) {
            const u64 depth = step * DEPTH;
            load_tile<Sums::THREADS, TileA>(a_tiles[step % STAGES], a, a_is_deep ? first_row : depth,
                                      a_is_deep ? depth : first_row, a_aligned);
            load_tile<Sums::THREADS, TileB>(b_tiles[step % STAGES], b, b_is_deep ? first_column : depth,
                                      b_is_deep ? depth : first_column, b_aligned);
        }
        // An empty group keeps the count.
        commit_copies();
    };

    Sums sums = {};
    for (u32 stage = 0; stage + 1 < STAGES; ++stage)
        load(stage);
    ROLLED for (u64 step = 0; step < steps; ++step) {
        wait_for_copies();
        // Now all see this step's tiles and no longer read the tiles that are overwritten next.
        BARRIER();
        load(step + STAGES - 1);
        sums.add(a_tiles[step % STAGES], b_tiles[step % STAGES]);
    }

    const bool in_pairs = n % 2 == 0 && reinterpret_cast<u64>(out) % 4 == 0;
    sums.pass_to([&](u32 row, u32 column, f32 first, f32 second) {
        if (first_row + row < m)
            store_pair(out + (first_row + row) * n, first_column + column, n, in_pairs, first, second);
    });
}

template <class T> DEVICE_FUNCTION const u16 *batch_of(const T *data, u64 distance)
{
    return reinterpret_cast<const u16 *>(data) + blockIdx.z * distance;
}

// a's lines go along the summed dim where they are rows, b's where they are columns.
#define PRODUCT(T, TILE, DOWN, ACROSS, layouts, a_is_deep, b_is_deep)                              \
    KERNEL_BOUNDED(matmul_tensor##TILE##_##layouts##_##T, DOWN *ACROSS *32,                        \
                   (const T *a, const T *b, T *out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_pitch, \
                    u64 b_batch, u64 b_pitch, u64 out_batch))                                      \
    {                                                                                              \
        const Lines left = {batch_of(a, a_batch), a_pitch, a_is_deep ? m : k, a_is_deep ? k : m};  \
        const Lines right = {batch_of(b, b_batch), b_pitch, b_is_deep ? n : k, b_is_deep ? k : n}; \
        multiply<T, TILE, DOWN, ACROSS, a_is_deep, b_is_deep>(                                     \
            left, right, out + blockIdx.z * out_batch, m, n, k);                                   \
    }
#define PRODUCTS(T, TILE, DOWN, ACROSS)                                                            \
    PRODUCT(T, TILE, DOWN, ACROSS, nn, true, false)                                                \
    PRODUCT(T, TILE, DOWN, ACROSS, nt, true, true)                                                 \
    PRODUCT(T, TILE, DOWN, ACROSS, tn, false, false)                                               \
    PRODUCT(T, TILE, DOWN, ACROSS, tt, false, true)

PRODUCTS(bf16, 128, 2, 4)
PRODUCTS(f16, 128, 2, 4)
PRODUCTS(bf16, 64, 2, 2)
PRODUCTS(f16, 64, 2, 2)
