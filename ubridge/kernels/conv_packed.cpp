// Convolutions for CPUs, `conv_packed_<type>`: the results of conv1d_<type>, conv2d_<type> and their
// transposed forms (conv.cu), in groups of channels. Floats are taken in f32 and rounded once; bf16
// is multiplied as by `matmul_packed_bf16`.
//
// Convolutions are products of weights and windows; windows are packed directly from the input.
// Products are slower for a group of few results: its taps are added to whole rows instead
// (`direct_windows.h`).
// The grid is (pieces of positions, pieces of a group's results, groups and phases), of any lengths.
#include "direct_windows.h"
#include "shifted_windows.h"
#include "windows.h"

// The part of a phase and a group that a block computes.
struct Share {
    u64 group, phase_down, phase_across;
    Piece positions, results;
};

// The taps of a phase, in the order of the window; returns their number.
static u64 list_taps(const Convolution &c, const Share &share, Tap *taps)
{
    const u64 step = c.across.step(), positions = c.across.positions(share.phase_across);
    u64 count = 0;
    for (u64 i = 0; i < c.down.window; ++i)
        for (u64 j = 0; j < c.across.window; ++j) {
            Tap &tap = taps[count];
            if (!c.down.meets(share.phase_down, i, tap.down) ||
                !c.across.meets(share.phase_across, j, tap.across))
                continue;
            const u64 before = tap.across < 0 ? u64(-tap.across) : 0;
            const u64 behind =
                tap.across < i64(c.across.input) ? u64(i64(c.across.input) - tap.across) : 0;
            tap.begin = smaller((before + step - 1) / step, positions);
            tap.end = smaller((behind + step - 1) / step, positions);
            tap.weight = i * c.info[14] + j * c.info[15];
            ++count;
        }
    return count;
}

template <class Scheme, class T>
static void convolve(const Convolution &c, const Share &share, const T *src, const T *kernel, T *dst)
{
    const u64 *const info = c.info;
    const u64 window = c.down.window * c.across.window;
    const std::unique_ptr<u32, Released> memory(allocated(window * sizeof(Tap) / sizeof(u32)));
    Tap *const taps = reinterpret_cast<Tap *>(memory.get());
    const u64 count = list_taps(c, share, taps);
    const u64 inputs = c.inputs(), results = c.results();
    const u64 down = c.down.positions(share.phase_down);
    const u64 across = c.across.positions(share.phase_across);

    const u64 line_step = info[c.is_transposed ? 13 : 12];
    const u64 channel_step = info[c.is_transposed ? 12 : 13];
    const T *const weights = kernel + share.results.first * line_step +
                             (c.is_transposed ? share.group * inputs * channel_step
                                              : share.group * results * line_step);
    const bool is_contiguous = !c.is_transposed && info[15] == 1 && info[14] == c.across.window &&
                               channel_step == window;
    const u64 depth = inputs * count;
    const Weights<T> left = {weights, line_step, channel_step, taps, count ? count : 1,
                             is_contiguous, share.results.length, 0, depth};
    const u64 row = c.across.results, plane = c.down.results * row;
    const u64 first = share.group * results + share.results.first;
    T *const to = dst + first * plane + share.phase_down * row + share.phase_across;
    // Results without gaps are one row.
    const u64 rows = c.is_transposed ? down : 1;
    const Positions<T> out = {to, c.groups * results * plane, plane, row * c.down.spread(),
                              c.across.spread(), rows, down * across / rows,
                              share.positions.first};
    const Windows<T> right = {src + share.group * inputs * info[5], info[4], info[5], info[6],
                              info[7], info[2], info[3], down, across, c.across.step(), taps,
                              count ? count : 1, share.positions.first, share.positions.length, 0,
                              depth};
    if (left.lines <= FEW_RESULTS && count > 0 && is_near(right))
        return add_taps(left, right, out);
    // Vectors hold positions, or channels if positions would leave more lanes empty.
    const u64 by_positions = left.lines * whole_times(right.lines, STRIP);
    const u64 by_channels = right.lines * whole_times(left.lines, STRIP);
    if constexpr (Scheme::PER_WORD == 1) {
        const u64 shifted = left.lines * shifted_positions(right);
        // Packing windows takes a fourth of the time of a product.
        if (shifted > 0 && 3 * shifted <= 4 * smaller(by_positions, by_channels))
            return ShiftedProduct<T>(left, right, out).run();
    }
    if (by_positions <= by_channels)
        multiply_piece<Scheme>(left, right, out);
    else
        multiply_piece<Scheme>(right, left, TurnedPositions<T>{out});
}

template <class Scheme, class Index, class T>
static void convolve_blocks(const Convolution &c, const Index &block, const Index &blocks,
                            const T *src, const T *kernel, T *dst)
{
    const u64 phases = c.phases();
    for (u64 i = block.z; i < c.groups * phases; i += blocks.z) {
        const u64 down = i % phases / c.across.phases(), across = i % phases % c.across.phases();
        const u64 positions = c.info[0] * c.down.positions(down) * c.across.positions(across);
        const Share share = {i / phases, down, across, Piece(positions, block.x, blocks.x, STRIP),
                             Piece(c.results(), block.y, blocks.y, ROWS)};
        if (share.positions.length > 0 && share.results.length > 0)
            convolve<Scheme>(c, share, src, kernel, dst);
    }
}

#define CONV_PACKED(T)                                                                             \
    KERNEL(conv_packed_##T, CONVOLUTION_PARAMETERS(T))                                             \
    {                                                                                              \
        const Convolution c = CONVOLUTION;                                                         \
        convolve_blocks<SchemeOf_##T>(c, blockIdx, gridDim, src, kernel, dst);                     \
    }

CONV_PACKED(bf16)
CONV_PACKED(f16)
CONV_PACKED(f32)
