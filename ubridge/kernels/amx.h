// Intel's matrix unit: 16 lines of 16 words by 16 lines of 16 words of two bf16 each, added to 16
// lines of 16 sums in f32. Source: Intel's Software Developer's Manual, volume 1, chapter 18,
// TDPBF16PS.
//
// A process must ask the operating system for the unit's registers once, before any thread uses
// them; the launcher does so. The instructions are written as assembly. Compilers' intrinsics do
// not declare that they read memory, and GCC 12 drops the stores just before them.
#ifndef UBRIDGE_AMX_H
#define UBRIDGE_AMX_H

#include <uhal/kernel.h>

enum : u64 { TILE = 16, TILES = 2 }; // lines and words of a tile; tiles of sums in each direction

// Configures the thread's tile shapes for its lifetime.
class TileShapes {
  public:
    TileShapes()
    {
        struct alignas(64) {
            u8 palette = 1, start_row = 0, reserved[14] = {};
            u16 bytes_of_line[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            u8 lines[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } shapes;
        static_assert(sizeof shapes == 64, "as LDTILECFG reads it");
        __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
    }
    ~TileShapes() { __asm__ volatile("tilerelease" : : : "memory"); }
    TileShapes(const TileShapes &) = delete;
    TileShapes &operator=(const TileShapes &) = delete;
};

#define AMX_LOAD(tile, from, step)                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                            \
                     :                                                                             \
                     : "r"(from), "r"((step) * sizeof(u32))                                        \
                     : "memory")
#define AMX_STORE(tile, to, step)                                                                  \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                                        \
                     :                                                                             \
                     : "r"(to), "r"((step) * sizeof(u32))                                          \
                     : "memory")
#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define AMX_MULTIPLY(sums, left, right)                                                            \
    __asm__ volatile("tdpbf16ps %%tmm" #right ", %%tmm" #left ", %%tmm" #sums : :)

#endif
