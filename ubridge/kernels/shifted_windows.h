// Convolutions as products that read windows in place, for CPUs.
//
// The input is staged as f32 with the padding's zeros, so that a row of the input is as long as a row
// of positions with all its taps. Then every tap of a window lies at one distance from the window's
// position, also across the ends of rows. A vector of positions is a vector of the stage: windows
// need no packing, for a few positions between rows whose sums are not used. For a stride above 1,
// the stage has a phase for each remainder of rows and columns, whose elements become neighbors.
#ifndef UBRIDGE_SHIFTED_WINDOWS_H
#define UBRIDGE_SHIFTED_WINDOWS_H

#include "windows.h"

enum : u64 { SHIFTED = 1 << 18 }; // most elements of a stage

// How positions and taps lie in the stage of a channel.
struct Shifts : Reach {
    u64 taps_down, taps_across;     // positions from the first tap of a phase to the last
    u64 phases_down, phases_across;
    u64 step;
    u64 pitch;                      // positions from row to row, those between rows included
    // Lines of a phase: one for all of its rows, if they overlap, else one for each row of taps.
    u64 lines = 1, apart = 0, length = 0;

    template <class T> explicit Shifts(const Windows<T> &x) : Reach(x), step(x.step)
    {
        taps_down = reach_down / step;
        taps_across = reach_across / step;
        phases_down = smaller(step, reach_down + 1);
        phases_across = smaller(step, reach_across + 1);
        pitch = x.across + taps_across;
    }

    // Lays out the stage of `count` positions.
    void lay_out(u64 count)
    {
        const u64 some = whole_times(count, STRIP) + taps_across;
        const bool overlap = pitch <= some;
        lines = overlap ? 1 : taps_down + 1;
        apart = overlap ? pitch : some;
        length = overlap ? some + taps_down * pitch : some;
    }

    // Elements of a channel; channels do not lie a power of two apart.
    u64 size() const
    {
        return whole_times(phases_down * phases_across * lines * length, LANES) + LANES;
    }

    u64 place(const Tap &tap) const
    {
        const u64 down = u64(tap.down - least_down), across = u64(tap.across - least_across);
        return (down % step * phases_across + across % step) * lines * length +
               down / step * apart + across / step;
    }

    // The row-major number of a position, counting those between rows.
    u64 linear(u64 position, u64 across) const { return position / across * pitch + position % across; }

    // Stages a channel of an image, for positions from `first` on.
    template <class T> void fill(f32 *to, const T *plane, const Windows<T> &x, u64 first) const
    {
        for (u64 down = 0; down < phases_down; ++down)
            for (u64 across = 0; across < phases_across; ++across)
                for (u64 line = 0; line < lines; ++line, to += length)
                    fill_line(to, plane, x, first + line * pitch, least_down + i64(down),
                              least_across + i64(across));
    }

  private:
    template <class T>
    __attribute__((noinline)) void fill_line(f32 *to, const T *plane, const Windows<T> &x, u64 first, i64 down,
                   i64 across) const
    {
        // The columns of a row that lie in the input.
        const u64 before = across < 0 ? u64(-across) : 0;
        const u64 behind = across < i64(x.columns) ? u64(i64(x.columns) - across) : 0;
        const u64 begin = smaller((before + step - 1) / step, pitch);
        const u64 end = smaller((behind + step - 1) / step, pitch);
        const u64 away = step * x.column_step;
        u64 row = first / pitch, column = first % pitch;
        for (u64 left = length; left > 0; ++row, column = 0) {
            const u64 count = smaller(left, pitch - column);
            const u64 place = row * step + u64(down);
            // A line may begin behind the input's columns.
            const bool meets = place < x.rows && end > column;
            const u64 last = meets ? smaller(end, column + count) : column;
            const u64 start = smaller(begin > column ? begin : column, last);
            memset(to, 0, (start - column) * sizeof(f32));
            if (last > start) {
                const i64 from = i64(start * step) + across;
                widen(to + (start - column), plane + place * x.row_step + u64(from) * x.column_step,
                      last - start, away);
            }
            memset(to + (last - column), 0, (column + count - last) * sizeof(f32));
            to += count;
            left -= count;
        }
    }

    template <class T> static void widen(f32 *to, const T *from, u64 count, u64 apart)
    {
        if (apart == 1)
            Widened<T>::contiguous(reinterpret_cast<u32 *>(to), from, count);
        else if (apart == 2)
            for (u64 i = 0; i < count; ++i)
                to[i] = f32(from[2 * i]);
        else
            for (u64 i = 0; i < count; ++i)
                to[i] = f32(from[i * apart]);
    }
};

// Multiplies `rows` lines of weights by a strip of positions; `places` are the distances of taps in
// the stage.
template <u64 rows>
__attribute__((noinline)) static void multiply_shifted(const f32 *left, u64 left_step,
                                                       const f32 *staged, const u32 *places,
                                                       u64 words, f32 *sums, u64 step, bool add)
{
    Floats made[rows][2] = {};
    // Instructions address three rows from one register.
    const f32 *lines[(rows + 2) / 3];
#pragma GCC unroll 4
    for (u64 i = 0; i < (rows + 2) / 3; ++i)
        lines[i] = left + 3 * i * left_step;
    for (u64 word = 0; word < words; ++word) {
        const f32 *const from = staged + places[word];
        const Floats right[2] = {widened(from), widened(from + LANES)};
#pragma GCC unroll 12
        for (u64 row = 0; row < rows; ++row) {
            const f32 factor = lines[row / 3][row % 3 * left_step + word];
            made[row][0] += factor * right[0];
            made[row][1] += factor * right[1];
        }
    }
#pragma GCC unroll 12
    for (u64 row = 0; row < rows; ++row) {
        Floats *const to = reinterpret_cast<Floats *>(sums + row * step);
        to[0] = add ? to[0] + made[row][0] : made[row][0];
        to[1] = add ? to[1] + made[row][1] : made[row][1];
    }
}

template <u64 rows>
static inline void multiply_shifted_rest(u64 count, const f32 *left, u64 left_step,
                                         const f32 *staged, const u32 *places, u64 words, f32 *sums,
                                         u64 step, bool add)
{
    if (count == rows)
        multiply_shifted<rows>(left, left_step, staged, places, words, sums, step, add);
    else if constexpr (rows > 1)
        multiply_shifted_rest<rows - 1>(count, left, left_step, staged, places, words, sums, step,
                                        add);
}

// Some channels of some lines of weights as f32, in the order of the places.
template <class T>
static inline void pack_weights(f32 *to, u64 to_step, const Weights<T> &x, u64 line, u64 lines,
                                u64 channel, u64 channels)
{
    for (u64 i = 0; i < lines; ++i, to += to_step) {
        const T *const from = x.data + (line + i) * x.line_step + channel * x.channel_step;
        if (x.is_contiguous)
            Widened<T>::contiguous(reinterpret_cast<u32 *>(to), from, channels * x.count);
        else
            for (u64 j = 0; j < channels; ++j)
                for (u64 tap = 0; tap < x.count; ++tap)
                    to[j * x.count + tap] = f32(from[j * x.channel_step + x.taps[tap].weight]);
    }
}

// The positions that a product computes; 0 without a stage that stays in a core's cache.
template <class T> static inline u64 shifted_positions(const Windows<T> &x)
{
    if (x.count == 0 || x.count > DEPTH || x.depth == 0)
        return 0;
    Shifts shifts(x);
    shifts.lay_out(PART);
    if (shifts.size() > SHIFTED / (DEPTH / x.count))
        return 0;
    const u64 in_batch = x.down * x.across;
    const u64 images = (x.line + x.lines - 1) / in_batch - x.line / in_batch + 1;
    return images * whole_times(shifts.linear(smaller(x.lines, in_batch) - 1, x.across) + 1, STRIP);
}

// The product of weights and windows, in parts of PART positions and at most PART results.
template <class T> class ShiftedProduct {
  public:
    ShiftedProduct(const Weights<T> &weights, const Windows<T> &x, const Positions<T> &out)
        : weights_(weights), x_(x), out_(out), shifts_(x), channels_(x.depth / x.count),
          together_(smaller(DEPTH / x.count, channels_)), taps_(together_ * x.count),
          // Lines that lie a power of two apart would share places of the cache.
          pitch_(whole_times(taps_, LANES) + 16)
    {
        const u64 parts = (weights.lines + PART - 1) / PART;
        rows_ = whole_times((weights.lines + parts - 1) / parts, ROWS);
        shifts_.lay_out(PART);
        const u64 stage = together_ * shifts_.size();
        memory_.reset(allocated(stage + rows_ * (PART + pitch_) + taps_));
        staged_ = reinterpret_cast<f32 *>(memory_.get());
        sums_ = staged_ + stage;
        packed_ = sums_ + rows_ * PART;
        places_ = reinterpret_cast<u32 *>(packed_ + rows_ * pitch_);
    }

    void run()
    {
        const u64 in_batch = x_.down * x_.across, last = x_.line + x_.lines;
        for (u64 position = x_.line; position < last;) {
            const u64 batch = position / in_batch, start = batch * in_batch;
            const u64 after = smaller(last, start + in_batch);
            const u64 end = shifts_.linear(after - 1 - start, x_.across) + 1;
            for (u64 at = shifts_.linear(position - start, x_.across); at < end; at += PART)
                multiply(batch, at, smaller(PART, end - at));
            position = after;
        }
    }

  private:
    // All results of some positions of an image.
    void multiply(u64 batch, u64 first, u64 count)
    {
        shifts_.lay_out(count);
        const u64 size = shifts_.size();
        for (u64 i = 0; i < taps_; ++i)
            places_[i] = u32(i / x_.count * size + shifts_.place(x_.taps[i % x_.count]));
        for (u64 row = 0; row < weights_.lines; row += rows_) {
            const u64 rows = smaller(rows_, weights_.lines - row);
            for (u64 channel = 0; channel < channels_; channel += together_) {
                const u64 channels = smaller(together_, channels_ - channel);
                const T *const planes = x_.data + batch * x_.batch_step + channel * x_.channel_step;
                for (u64 i = 0; i < channels; ++i)
                    shifts_.fill(staged_ + i * size, planes + i * x_.channel_step, x_, first);
                pack_weights(packed_, pitch_, weights_, row, rows, channel, channels);
                const Channels taken = {channels * x_.count, channel == 0,
                                        channel + channels == channels_};
                multiply_channels(batch, first, count, row, rows, taken,
                                  next(row, rows, channel + channels));
            }
            write(batch, first, count, row, rows);
        }
    }

    // Taps of the packed channels, and whether these are the first and the last channels.
    struct Channels {
        u64 taps;
        bool begin, end;
    };

    void multiply_channels(u64 batch, u64 first, u64 count, u64 from, u64 rows,
                           const Channels &channels, const Next &next)
    {
        const u64 step = whole_times(count, STRIP);
        const u64 shares = (rows + ROWS - 1) / ROWS * (step / STRIP);
        u64 share = 0;
        for (u64 strip = 0; strip < step; strip += STRIP) {
            const u64 column = smaller((first + strip) % shifts_.pitch, x_.across - 1);
            const u64 position =
                (batch * x_.down + (first + strip) / shifts_.pitch) * x_.across + column;
            for (u64 row = 0; row < rows; row += ROWS) {
                const u64 some = smaller(ROWS, rows - row);
                next.ask_for(share++, shares);
                if (channels.end)
                    out_.ask_for(from + row, some, position - x_.line);
                multiply_shifted_rest<ROWS>(some, packed_ + row * pitch_, pitch_, staged_ + strip,
                                            places_, channels.taps, sums_ + row * step + strip,
                                            step, !channels.begin);
            }
        }
    }

    // The weights of the next channels, or of the next rows' first channels.
    Next next(u64 row, u64 rows, u64 channel) const
    {
        if (!weights_.is_contiguous)
            return {};
        if (channel == channels_) {
            row = row + rows < weights_.lines ? row + rows : 0;
            channel = 0;
        }
        const T *const from = weights_.data + row * weights_.line_step +
                              channel * weights_.channel_step;
        const u64 taps = smaller(together_, channels_ - channel) * x_.count;
        return {reinterpret_cast<const u8 *>(from), smaller(rows_, weights_.lines - row),
                weights_.line_step * sizeof(T), taps * sizeof(T)};
    }

    // Writes the sums of positions, without those between rows.
    void write(u64 batch, u64 first, u64 count, u64 row, u64 rows) const
    {
        const u64 step = whole_times(count, STRIP), pitch = shifts_.pitch;
        for (u64 at = first; at < first + count;) {
            const u64 column = at % pitch;
            const bool has_gaps = pitch > x_.across;
            const u64 end = has_gaps ? smaller(at - column + pitch, first + count) : first + count;
            if (column < x_.across) {
                const u64 position = (batch * x_.down + at / pitch) * x_.across + column;
                for (u64 i = 0; i < rows; ++i)
                    out_.write(row + i, position - x_.line, sums_ + i * step + (at - first),
                               has_gaps ? smaller(x_.across - column, end - at) : end - at);
            }
            at = end;
        }
    }

    const Weights<T> &weights_;
    const Windows<T> &x_;
    const Positions<T> &out_;
    Shifts shifts_;
    const u64 channels_, together_, taps_, pitch_;
    u64 rows_;
    std::unique_ptr<u32, Released> memory_;
    f32 *staged_, *sums_, *packed_;
    u32 *places_;
};

#endif
