// For CPUs: an operand or a result as contiguous runs of the type it is computed in.
//
// A run is short enough to stay in the nearest cache. Data that are already in this form are used
// in place, without a copy.
#ifndef UBRIDGE_RUNS_H
#define UBRIDGE_RUNS_H

#include "crossing.h"
#include "number.h"
#include "vector_functions.h"
#include "vectors.h"

// `count` elements that lie `stride` apart.
template <class T> DEVICE_FUNCTION void gather_line(u64 count, const T *source, u64 stride, T *run)
{
    if (stride == 0) {
        for (u64 i = 0; i < count; ++i)
            run[i] = *source;
    } else if (stride == 2) {
        // A constant stride lets the compiler use vectors.
        for (u64 i = 0; i < count; ++i)
            run[i] = source[i * 2];
    } else {
        for (u64 i = 0; i < count; ++i)
            run[i] = source[i * stride];
    }
}

// Elements index … index + count of a strided array, one after the other.
template <class T>
__attribute__((noinline)) void gather(u64 index, u64 count, const T *data, const Rows &rows, T *run)
{
    while (count > 0) {
        // Places of lines along one dim need one division: lines may be short.
        u64 left, lines, apart;
        const T *source = data + rows.at(index, left, lines, apart);
        const T *line = source - (rows.length - left) * rows.stride;
        for (; lines > 0 && count > 0; --lines) {
            const u64 length = left < count ? left : count;
            gather_line(length, source, rows.stride, run);
            run += length;
            index += length;
            count -= length;
            left = rows.length;
            source = line += apart;
        }
    }
}

template <class T>
__attribute__((noinline)) void widen_run(u64 count, const T *values, Compute<T> *run)
{
    UHAL_INDEPENDENT
    for (u64 i = 0; i < count; ++i)
        run[i] = widen(values[i]);
}

template <class T>
__attribute__((noinline)) void narrow_run(u64 count, const Compute<T> *run, T *values)
{
    UHAL_INDEPENDENT
    for (u64 i = 0; i < count; ++i)
        values[i] = narrow<T>(run[i]);
}

#if defined(__AVX2__) && defined(__F16C__)

// LANES elements rounded to f16.
DEVICE_FUNCTION void store_rounded(f16 *to, Floats values)
{
#if defined(__AVX512F__)
    const __m256i halves =
        _mm512_maskz_cvtps_ph(__mmask16(-1), __m512(values), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), halves);
#else
    const __m128i halves = _mm256_cvtps_ph(__m256(values), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), halves);
#endif
}

// Converts by an instruction that compilers do not use for f16 in loops.
template <>
__attribute__((noinline)) inline void widen_run<f16>(u64 count, const f16 *values, f32 *run)
{
    u64 i = 0;
    for (; i + LANES <= count; i += LANES)
        *reinterpret_cast<Floats *>(run + i) = widened(values + i);
    for (; i < count; ++i)
        run[i] = widen(values[i]);
}

template <>
__attribute__((noinline)) inline void narrow_run<f16>(u64 count, const f32 *run, f16 *values)
{
    u64 i = 0;
    for (; i + LANES <= count; i += LANES)
        store_rounded(values + i, *reinterpret_cast<const Floats *>(run + i));
    for (; i < count; ++i)
        values[i] = narrow<f16>(run[i]);
}

#endif

template <class T> class Reader {
  public:
    // Runs are parts of the operand itself, so a run may be as long as the operand.
    const bool in_place;

    explicit Reader(const Operand<T> &operand)
        : in_place(operand.contiguous && computes_itself<T>), contiguous_(operand.contiguous),
          data_(operand.data), rows_(operand.contiguous ? Layout{} : operand.layout)
    {
    }

    void cross(Tiles &tiles, BLOCK block, u64 numel) const
    {
        if (!contiguous_)
            tiles.cross(block, numel, rows_);
    }

    // The next reads are the tile's lines, in order, one whole line a read.
    void enter(const Tile &tile, const Crossing &along)
    {
        if (!contiguous_ && along.exists())
            enter_crossing(tile, along);
    }

    // The result is valid until the next call. `count` is at most RUN unless in_place.
    const Compute<T> *read(u64 index, u64 count)
    {
        const T *values = contiguous_ ? data_ + index : strided(index, count);
        if constexpr (computes_itself<T>) {
            return values;
        } else {
            widen_run(count, values, wide_);
            return wide_;
        }
    }

  private:
    __attribute__((noinline)) void enter_crossing(const Tile &tile, const Crossing &along)
    {
        const Crossing own(rows_);
        if (!own.same_dims(along))
            return;
        u64 left;
        turn(data_ + rows_.at(tile.first, left), tile.lines, own.step, tile.width, rows_.stride,
             gathered_);
        repeats_ = 0;
        turned_ = gathered_;
    }

    __attribute__((noinline)) const T *strided(u64 index, u64 count)
    {
        if (turned_ != nullptr) {
            const T *const values = turned_;
            turned_ += count;
            return values;
        }
        u64 left;
        const u64 place = rows_.at(index, left);
        if (rows_.stride == 1 && left >= count)
            return data_ + place;
        if (rows_.stride == 0 && left >= count)
            return repeated(place, count);
        gather(index, count, data_, rows_, gathered_);
        repeats_ = 0;
        return gathered_;
    }

    // The element at `place`, `count` times. Runs of a number, or of a line, share them.
    const T *repeated(u64 place, u64 count)
    {
        if (place != repeated_ || count > repeats_) {
            for (u64 i = 0; i < count; ++i)
                gathered_[i] = data_[place];
            repeated_ = place;
            repeats_ = count;
        }
        return gathered_;
    }

    const bool contiguous_;
    const T *const data_;
    const Rows rows_;
    const T *turned_ = nullptr;
    u64 repeated_ = 0, repeats_ = 0;
    alignas(64) T gathered_[TILE_LINES * TILE_WIDTH];
    alignas(64) Compute<T> wide_[computes_itself<T> ? 1 : RUN];
};

// A contiguous result.
template <class T> class Writer {
  public:
    static constexpr bool in_place = computes_itself<T>;

    explicit Writer(T *data) : data_(data) {}

    // The memory for computing the run that starts at `index`.
    Compute<T> *begin(u64 index)
    {
        if constexpr (computes_itself<T>)
            return data_ + index;
        else
            return wide_;
    }
    void end(u64 index, u64 count)
    {
        if constexpr (!computes_itself<T>)
            narrow_run(count, wide_, data_ + index);
        else
            (void)(index + count);
    }

  private:
    T *const data_;
    alignas(64) Compute<T> wide_[computes_itself<T> ? 1 : RUN];
};

#endif
