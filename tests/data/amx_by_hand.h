// The functions of ubridge/kernels/amx.h in plain C++, for CPUs without the unit. They follow
// Intel's manual (volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS).
#ifndef UBRIDGE_AMX_H
#define UBRIDGE_AMX_H

#include <string.h>

#include <uhal/kernel.h>

enum : u64 { TILE = 16, TILES = 2 };

static thread_local u32 tiles[8][TILE][TILE];
static thread_local bool shaped;

struct TileShapes {
    TileShapes() { shaped = true; }
    ~TileShapes() { shaped = false; }
};

static inline void by_hand(bool right)
{
    if (!right)
        __builtin_trap();
}

template <class T> static inline void load_by_hand(int tile, const T *from, u64 step)
{
    by_hand(shaped);
    for (u64 line = 0; line < TILE; ++line)
        memcpy(tiles[tile][line], from + line * step, sizeof tiles[tile][line]);
}

static inline void store_by_hand(int tile, f32 *to, u64 step)
{
    by_hand(shaped);
    for (u64 line = 0; line < TILE; ++line)
        memcpy(to + line * step, tiles[tile][line], sizeof tiles[tile][line]);
}

static inline f32 float_of(u32 bits)
{
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// sums[m][n] += left[m][2k] right[k][2n], then + left[m][2k + 1] right[k][2n + 1]
static inline void multiply_by_hand(int sums, int left, int right)
{
    by_hand(shaped && sums != left && sums != right && left != right);
    for (u64 m = 0; m < TILE; ++m)
        for (u64 k = 0; k < TILE; ++k)
            for (u64 n = 0; n < TILE; ++n) {
                const u32 a = tiles[left][m][k], b = tiles[right][k][n];
                f32 sum = float_of(tiles[sums][m][n]);
                sum += float_of(a << 16) * float_of(b << 16);
                sum += float_of(a & 0xFFFF0000U) * float_of(b & 0xFFFF0000U);
                memcpy(&tiles[sums][m][n], &sum, sizeof sum);
            }
}

#define AMX_LOAD(tile, from, step) load_by_hand(tile, from, step)
#define AMX_STORE(tile, to, step) store_by_hand(tile, to, step)
#define AMX_ZERO(tile) memset(tiles[tile], 0, sizeof tiles[tile])
#define AMX_MULTIPLY(sums, left, right) multiply_by_hand(sums, left, right)

#endif
