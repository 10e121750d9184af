// For CPUs: operands that lie across the result, as a transposed matrix does. If such an operand
// were read in the result's order, each cache line would be fetched once for every element in it.
// So the result is made in tiles that use whole cache lines, and a tile is transposed in the
// nearest cache.
#ifndef UBRIDGE_CROSSING_H
#define UBRIDGE_CROSSING_H

#include <string.h>

#include "rows.h"

// Most lines of a tile (a cache line or two of the operand), and most elements of a line.
enum : u64 { TILE_LINES = 32, TILE_WIDTH = 128 };

// `lines` lines of the result, `pitch` apart, each of `width` neighboring elements.
struct Tile {
    u64 first;
    u64 lines;
    u64 width;
    u64 pitch;

    // Short lines that follow one another are one run.
    bool joined() const { return pitch == width && lines * width <= RUN; }
    u64 runs() const { return joined() ? 1 : lines; }
    u64 run_length() const { return joined() ? lines * width : width; }
};

// A dim, not among the innermost ones, with the smallest stride of an operand.
struct Crossing {
    // Elements along the dim, 0 if no such dim exists, and their distances in the operand and in
    // the result.
    u64 lines = 0;
    u64 step = 0;
    u64 pitch = 0;
    // Elements along the innermost line.
    u64 length = 0;

    Crossing() = default;

    __attribute__((noinline)) explicit Crossing(const Rows &rows)
        : step(rows.stride), length(rows.length)
    {
        if (length == 1 || step <= 1)
            return;
        const Layout &outer = rows.outer;
        u64 apart = length;
        u64 found = 0;
        for (u64 d = outer.num_dims; d-- > 0; apart *= outer.dims[d]) {
            if (outer.dims[d] > 1 && outer.strides[d] != 0 && outer.strides[d] < step) {
                found = d;
                lines = outer.dims[d];
                step = outer.strides[d];
                pitch = apart;
            }
        }
        // Join dims that are adjacent in both the operand and the result.
        while (found-- > 0 && outer.strides[found] == step * lines)
            lines *= outer.dims[found];
    }

    bool exists() const { return lines != 0; }
    bool same_dims(const Crossing &other) const
    {
        return lines == other.lines && pitch == other.pitch && length == other.length;
    }
};

// A block's part of the result, tile by tile.
class Tiles {
  public:
    // Elements first … last, in tiles of one line.
    Tiles(u64 first, u64 last, u64 width) : next_(first), last_(last), width_(width) {}

    // If this is the first operand with a crossing, takes the block's share of `numel` elements in
    // tiles along the crossing.
    __attribute__((noinline)) void cross(BLOCK block, u64 numel, const Rows &rows)
    {
        const Crossing found(rows);
        if (found.exists() && !crossing.exists())
            begin(block, numel, found);
    }

    bool next(Tile &tile)
    {
        if (next_ >= last_)
            return false;
        if (!crossing.exists()) {
            tile = {next_, 1, last_ - next_ < width_ ? last_ - next_ : width_, width_};
            next_ += tile.width;
        } else {
            along_crossing(tile);
        }
        return true;
    }

    Crossing crossing;

  private:
    void begin(BLOCK block, u64 numel, const Crossing &found)
    {
        crossing = found;
        width_ = found.length < TILE_WIDTH ? found.length : u64(TILE_WIDTH);
        const bool joined = found.pitch == width_ && width_ < RUN / TILE_LINES;
        const u64 lines = joined ? RUN / width_ : u64(TILE_LINES);
        lines_ = found.lines < lines ? found.lines : lines;
        down_ = (found.lines + lines_ - 1) / lines_;
        across_ = (found.length + width_ - 1) / width_;
        const u64 tiles = numel / (found.lines * found.length) * down_ * across_;
        const u64 blocks = u64(block.gridDim.x) * block.gridDim.y * block.gridDim.z;
        const u64 rows = u64(block.gridDim.y) * block.blockIdx.z + block.blockIdx.y;
        const u64 index = block.gridDim.x * rows + block.blockIdx.x;
        const u64 share = (tiles + blocks - 1) / blocks;
        next_ = index * share < tiles ? index * share : tiles;
        last_ = tiles - next_ < share ? tiles : next_ + share;
    }

    __attribute__((noinline)) void along_crossing(Tile &tile)
    {
        u64 down = next_++;
        u64 across = split_off(down, down_);
        u64 between = split_off(across, across_);
        const u64 line = down * lines_;
        const u64 column = across * width_;
        // Dims outside of the crossing one, and those inside of it.
        const u64 outer = split_off(between, crossing.pitch / crossing.length);
        tile.first = (outer * crossing.lines + line) * crossing.pitch +
                     between * crossing.length + column;
        tile.lines = crossing.lines - line < lines_ ? crossing.lines - line : lines_;
        tile.width = crossing.length - column < width_ ? crossing.length - column : width_;
        tile.pitch = crossing.pitch;
    }

    u64 next_;
    u64 last_;
    u64 width_;
    u64 lines_ = 1;
    u64 down_ = 1;
    u64 across_ = 1;
};

// Sides of the squares that are transposed in registers.
template <class W> constexpr u64 SQUARE = sizeof(W) == 8 ? 8 : 16;

// turned[c][r] = source[r][c]; rows are `stride` apart in `source`, `width` in `turned`. Each
// perfect shuffle rotates the bits of an element's position by one.
template <class W> inline void turn_square(const W *source, u64 stride, W *turned, u64 width)
{
    constexpr u64 side = SQUARE<W>;
    constexpr u64 half = side * side / 2;
    alignas(64) W before[2 * half];
    alignas(64) W after[2 * half];
    for (u64 r = 0; r < side; ++r)
        memcpy(before + r * side, source + r * stride, side * sizeof(W));
    for (u64 left = side; left > 1; left /= 2) {
        for (u64 i = 0; i < half; ++i) {
            after[2 * i] = before[i];
            after[2 * i + 1] = before[half + i];
        }
        memcpy(before, after, sizeof before);
    }
    for (u64 c = 0; c < side; ++c)
        memcpy(turned + c * width, before + c * side, side * sizeof(W));
}

// turned[line][i] = source[line * step + i * stride]
template <class W>
__attribute__((noinline)) void turn(const W *source, u64 lines, u64 step, u64 width, u64 stride,
                                    W *turned)
{
    constexpr u64 side = SQUARE<W>;
    const u64 whole_lines = step == 1 ? lines / side * side : 0;
    const u64 whole_width = width / side * side;
    for (u64 i = 0; i < whole_width; i += side)
        for (u64 line = 0; line < whole_lines; line += side)
            turn_square(source + i * stride + line, stride, turned + line * width + i, width);
    for (u64 i = 0; i < width; ++i)
        for (u64 line = i < whole_width ? whole_lines : 0; line < lines; ++line)
            turned[line * width + i] = source[line * step + i * stride];
}

#endif
