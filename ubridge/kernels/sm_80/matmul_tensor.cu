// Matrix products on tensor cores, for NVIDIA's devices from compute capability 8.0 on:
// matmul_tensor<tile>_<layouts>_<type>, out[i, j] = sum over l of a[i, l] b[l, j], for each batch.
// f16 and bf16; sums are taken in f32 and rounded once.
//
// A matrix lies in lines of neighboring elements, `pitch` elements apart. <layouts> has one letter
// for a and one for b, as in BLAS: n for lines that are rows, t for lines that are columns. out is
// row-major. Any sizes, pitches and addresses are right; lines that begin at multiples of 16 bytes
// are read fastest.
//
// The grid is (ceil(n / tile), ceil(m / tile), batches), of blocks of exactly 128. A block makes one
// tile, going DEPTH deep into the matrices at a time. Tiles of a and b are copied to shared memory
// asynchronously, two tiles ahead of the multiplication.
#include <string.h>

#include "tensor_tiles.h"

enum : u32 { STAGES = 3 };

DEVICE_FUNCTION void copy_aligned(u32 target, const u16 *source, u32 count)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
                 "r"(2 * count)
                 : "memory");
}

// The first `count` elements at `source`, then zeros; nothing is read for 0.
DEVICE_FUNCTION void copy_chunk(Chunk *target, const u16 *source, u32 count, bool aligned)
{
    if (aligned)
        return copy_aligned(shared_address(target), source, count);
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

// Any tile of a matrix, zeros past its end.
template <u32 THREADS, class Tile>
DEVICE_FUNCTION void load_tile(Chunk *tile, const Lines &matrix, u64 first_line, u64 first_place,
                               bool aligned)
{
    ROLLED for (u32 i = threadIdx.x; i < Tile::SIZE; i += THREADS) {
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

// Tiles of an operand along the summed dim, for one work-item. `deep` lines go along this dim.
template <u32 THREADS, u32 OUTER, bool deep> struct Tiles {
    typedef Tile<OUTER, deep> Own;
    // Lines from a chunk of the work-item to its next.
    static constexpr u32 STEP = THREADS / Own::CHUNKS;
    static_assert(STEP % 8 == 0, "a work-item's chunks lie at one place of their lines");

    Lines matrix;
    u64 outer;
    bool aligned;
    // Whether all outer indices are inside the matrix.
    bool is_inside;
    u32 place;
    const u16 *next;

    DEVICE_METHOD Tiles(const Lines &given, u64 first)
        : matrix(given), outer(first), aligned(given.aligned()),
          is_inside(aligned && first + OUTER <= (deep ? given.lines : given.length))
    {
        const u32 line = threadIdx.x / Own::CHUNKS, chunk = threadIdx.x % Own::CHUNKS;
        place = Own::place(line, chunk);
        next = given.data + (deep ? first + line : line) * given.pitch + (deep ? 0 : first) +
               chunk * CHUNK;
    }

    // Loads the next tile, which begins with the summed index `depth`.
    DEVICE_METHOD void load(Chunk *tile, u64 depth)
    {
        if (is_inside && depth + DEPTH <= (deep ? matrix.length : matrix.lines)) {
            const u32 target = shared_address(tile + place);
#pragma unroll
            for (u32 i = 0; i < Own::SIZE / THREADS; ++i)
                copy_aligned(target + i * STEP * Own::CHUNKS * u32(sizeof *tile),
                             next + i * STEP * matrix.pitch, CHUNK);
        } else {
            load_tile<THREADS, Own>(tile, matrix, deep ? outer : depth, deep ? depth : outer, aligned);
        }
        next += deep ? u64(DEPTH) : DEPTH * matrix.pitch;
    }
};

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
    Tiles<Sums::THREADS, TILE, a_is_deep> from_a(a, first_row);
    Tiles<Sums::THREADS, TILE, b_is_deep> from_b(b, first_column);
    u64 loaded = 0;
    const auto load = [&](u32 stage) {
        if (loaded < k) {
            from_a.load(a_tiles[stage], loaded);
            from_b.load(b_tiles[stage], loaded);
        }
        loaded += DEPTH;
        // An empty group keeps the count.
        commit_copies();
    };

    Sums sums = {};
    for (u32 stage = 0; stage + 1 < STAGES; ++stage)
        load(stage);
    u32 stage = 0;
    ROLLED for (u64 depth = 0; depth < k; depth += DEPTH) {
        wait_for_copies();
        // Now all see this step's tiles and no longer read the tiles that are overwritten next.
        BARRIER();
        load(stage == 0 ? STAGES - 1 : stage - 1);
        sums.add(a_tiles[stage], b_tiles[stage]);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
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

PRODUCTS(bf16, 128, 2, 2)
PRODUCTS(f16, 128, 2, 2)
PRODUCTS(bf16, 64, 2, 2)
PRODUCTS(f16, 64, 2, 2)
