// Elementwise operations: out[i] = function(operands[i]...) for every i, each value widened to the
// type it is computed in and the result rounded once. `out` is contiguous and may be an operand.
//
//     map(THIS_BLOCK, numel, out, Negate{}, Operand<f16>(inp, num_dims, dims, strides));
//
// On a GPU a work-item takes vectors of contiguous elements, and single elements of other layouts.
// On AMD's devices it takes single elements only. On a CPU strided or 16-bit operands are brought
// into short contiguous runs first (runs.h): one vector loop then serves every layout and all the
// types that are computed alike.
#ifndef UBRIDGE_ELEMENTWISE_H
#define UBRIDGE_ELEMENTWISE_H

#include "layout.h"
#include "number.h"

// Base of functions of many instructions, whose code for many elements at once would be long.
struct LongFunction {};

template <class Function, class... In>
constexpr bool is_long = __is_base_of(LongFunction, Function);

#if defined(__AMDGCN__)

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map(BLOCK block, u64 numel, Out *out, Function function,
                         const Operand<In> &...operands)
{
    if ((operands.contiguous && ...)) {
        GRID_STRIDE_OF(block, i, numel) {
            out[i] = narrow<Out>(function(widen(operands.data[i])...));
        }
    } else {
        GRID_STRIDE_OF(block, i, numel) { out[i] = narrow<Out>(function(widen(operands[i])...)); }
    }
}

#elif KERNEL_ON_GPU

#include "element_vectors.h"

template <class Out, u32 count, class Function, class... In>
DEVICE_FUNCTION vec<Out, count> applied(Function function, const vec<In, count> &...values)
{
    vec<Out, count> results;
    for (u32 n = 0; n < count; ++n)
        results[n] = narrow<Out>(function(widen(values[n])...));
    return results;
}

#if defined(__SPIRV__)

// The same in a loop, for less code.
template <class Out, u32 count, class Function, class... In>
DEVICE_FUNCTION vec<Out, count> applied_in_turn(Function function, vec<In, count>... values)
{
    vec<Out, count> results;
    ROLLED for (u32 n = 0; n < count; ++n)
        results[n] = narrow<Out>(function(widen(values[n])...));
    return results;
}

#else

// The type of a register with a queue's elements; two 16-bit elements share a register.
template <class T, u32 some, bool shared = (sizeof(T) < 4)> struct PlaceOf {
    typedef T Type;
};
template <class T, u32 some> struct PlaceOf<T, some, true> {
    typedef typename WordOf<some * sizeof(T)>::Type Type;
};

// A vector as a queue of `some` elements each. Elements move to the front of the queue, because
// registers have no index.
template <class T, u32 count, u32 some> struct Queue {
    typedef typename PlaceOf<T, some>::Type Place;
    static constexpr u32 EACH = some * sizeof(T) / sizeof(Place);
    static constexpr u32 COUNT = count / some * EACH;
    Place places[COUNT] = {};

    DEVICE_METHOD Queue() {}
    DEVICE_METHOD explicit Queue(const vec<T, count> &values)
    {
        memcpy(places, &values, sizeof places);
    }
    DEVICE_METHOD T operator[](u32 n) const
    {
        T values[some];
        memcpy(values, places, sizeof values);
        return values[n];
    }
    DEVICE_METHOD void advance()
    {
        for (u32 n = 0; n + EACH < COUNT; ++n)
            places[n] = places[n + EACH];
    }
    // Elements of another type may follow if they have the same size.
    template <class Other> DEVICE_METHOD void append(const Other (&values)[some])
    {
        advance();
        memcpy(places + COUNT - EACH, values, sizeof values);
    }
    template <class Other> DEVICE_METHOD vec<Other, count> vector() const
    {
        vec<Other, count> values;
        memcpy(&values, places, sizeof places);
        return values;
    }
};

template <u32 some, class Out, u32 count, class Function, class First, class... Others>
DEVICE_FUNCTION vec<Out, count> applied_to_queues(Function function, Queue<First, count, some> first,
                                                  Queue<Others, count, some>... others)
{
    // Results of the first operand's size follow it in its queue, and need no other registers.
    constexpr bool in_place = sizeof(Out) == sizeof(First);
    Queue<Out, in_place ? some : count, some> results;
    ROLLED for (u32 done = 0; done < count; done += some) {
        Out made[some];
        for (u32 n = 0; n < some; ++n)
            made[n] = narrow<Out>(function(widen(first[n]), widen(others[n])...));
        if constexpr (in_place) {
            first.append(made);
        } else {
            results.append(made);
            first.advance();
        }
        (others.advance(), ...);
    }
    if constexpr (in_place)
        return first.template vector<Out>();
    else
        return results.template vector<Out>();
}

// The same in a loop, for less code.
template <class Out, u32 count, class Function, class... In>
DEVICE_FUNCTION vec<Out, count> applied_in_turn(Function function, const vec<In, count> &...values)
{
    constexpr u32 some = count > 2 ? 2 : 1;
    return applied_to_queues<some, Out, count>(function, Queue<In, count, some>(values)...);
}

#endif

// A work-item's own elements: from `first` on, `step` apart.
struct Share {
    u64 first;
    u64 step;
};

// Maps whole vectors of contiguous elements; returns the number of mapped elements.
template <class Out, class Function, class... In>
DEVICE_FUNCTION u64 map_vectors(const Share &share, u64 numel, Out *out, Function function,
                                const In *...values)
{
    constexpr u32 EACH = vector_length<Out, In...>;
    if ((misalignment<EACH>(out) | ... | misalignment<EACH>(values)) != 0)
        return 0;
    const u64 whole = numel & ~u64(EACH - 1);
    u64 step = share.step * EACH;
#if defined(__CUDACC__)
    // Hides from nvcc how step is computed: with one or two operands, it would keep more numbers in
    // registers.
    if constexpr (sizeof...(In) < 3)
        asm("" : "+l"(step));
#endif
    u64 i = share.first * EACH;
    if constexpr (!is_long<Function, In...>) {
        // Two vectors at once, so that the second load does not wait for the first.
        ROLLED for (; i + step < whole; i += 2 * step) {
            const vec<Out, EACH> one = applied<Out>(function, load_vector<EACH>(values + i)...);
            const vec<Out, EACH> two =
                applied<Out>(function, load_vector<EACH>(values + i + step)...);
            store_vector(out + i, one);
            store_vector(out + i + step, two);
        }
    }
    // A short function has at most one vector left here.
    ROLLED for (; i < whole; i += step)
        store_vector(out + i, applied_in_turn<Out>(function, load_vector<EACH>(values + i)...));
    return whole;
}

// An operand at one element after the other. All operands have layouts of the same dims, or none.
template <class T> struct Walk {
    const T *data;
    u64 num_dims;
    const u64 *dims;
    const u64 *strides;
    u64 place = 0;

    DEVICE_METHOD explicit Walk(const Operand<T> &operand)
        : data(operand.data),
          num_dims(operand.layout.dims == nullptr ? 0 : operand.layout.num_dims),
          dims(operand.layout.dims), strides(operand.layout.strides)
    {
    }
    DEVICE_METHOD void begin(u64 index) { place = num_dims == 0 ? index : 0; }
    DEVICE_METHOD void step(u64 coordinate, u64 d) { place += coordinate * strides[d]; }
    DEVICE_METHOD T value() const { return data[place]; }
};

// Elements done … numel, one by one: a coordinate is found once for all operands.
template <class Out, class Function, class One, class... Others>
DEVICE_FUNCTION void map_elements(const Share &share, u64 done, u64 numel, Out *out,
                                  Function function, One one, Others... others)
{
    ROLLED for (u64 i = done + share.first; i < numel; i += share.step) {
        one.begin(i);
        (others.begin(i), ...);
        u64 rest = i;
        u64 d = one.num_dims;
#if defined(__CUDACC__)
        // Hides from nvcc that num_dims does not change: nvcc would make a second loop of
        // elements.
        asm volatile("" : "+l"(d));
#endif
        ROLLED for (; d-- > 0;) {
            u64 coordinate = rest;
            // The outermost dim needs no division.
            rest = d == 0 ? 0 : split_off(coordinate, one.dims[d]);
            one.step(coordinate, d);
            (others.step(coordinate, d), ...);
        }
        out[i] = narrow<Out>(function(widen(one.value()), widen(others.value())...));
    }
}

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map(BLOCK, u64 numel, Out *out, Function function,
                         const Operand<In> &...operands)
{
    // Launches have work-items along x only; work-items along y and z have nothing to do.
    if ((blockIdx.y | blockIdx.z | THREAD_Y(0) | THREAD_Z(0)) != 0)
        return;
    const Share share = {u64(blockIdx.x) * blockDim.x + THREAD_X(0), u64(gridDim.x) * blockDim.x};
    u64 done = 0;
    // Vector code of f8, and of long functions of f64, would be long.
    constexpr bool in_vectors = !(same_type<Out, f8e4m3> || ... || same_type<In, f8e4m3>) &&
                                !(widest<Out, In...> == 8 && is_long<Function, In...>);
    if (in_vectors && (operands.contiguous && ...))
        done = map_vectors(share, numel, out, function, operands.data...);
    map_elements(share, done, numel, out, function, Walk<In>(operands)...);
}

#else

#include "runs.h"

// Out of line: f32, f16 and bf16 share it.
template <class Result, class Function, class... Values>
__attribute__((noinline)) void apply(u64 count, Result *results, Function function,
                                     const Values *...values)
{
    UHAL_INDEPENDENT
    for (u64 i = 0; i < count; ++i)
        results[i] = function(values[i]...);
}

// out[i] = function(readers...) for every i of the tiles.
template <class Out, class Function, class... In>
inline void apply_to_tiles(Tiles tiles, Out *out, Function function, Reader<In> &...readers)
{
    Writer<Out> writer(out);
    for (Tile tile; tiles.next(tile);) {
        (readers.enter(tile, tiles.crossing), ...);
        const u64 count = tile.run_length();
        u64 index = tile.first;
        for (u64 runs = tile.runs(); runs > 0; --runs, index += tile.pitch) {
            apply(count, writer.begin(index), function, readers.read(index, count)...);
            writer.end(index, count);
        }
    }
}

// Elements first … last, without the tiles that a transposed operand would need.
template <class Out, class... In>
inline Tiles lines(u64 first, u64 last, const Reader<In> &...readers)
{
    const bool whole = Writer<Out>::in_place && (readers.in_place && ...);
    return Tiles(first, last, whole ? last - first : RUN);
}

template <class Out, class Function, class... In>
inline void apply_to_row(u64 count, Out *out, Function function, Reader<In>... readers)
{
    apply_to_tiles(lines<Out>(0, count, readers...), out, function, readers...);
}

template <class Out, class Function, class... In>
inline void apply_to_block(BLOCK block, u64 numel, Out *out, Function function,
                           Reader<In>... readers)
{
    Tiles tiles = lines<Out>(block.uhal_first(numel), block.uhal_last(numel), readers...);
    (readers.cross(tiles, block, numel), ...);
    apply_to_tiles(tiles, out, function, readers...);
}

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map(BLOCK block, u64 numel, Out *out, Function function,
                         const Operand<In> &...operands)
{
    if (numel > 0)
        apply_to_block(block, numel, out, function, Reader<In>(operands)...);
}

#endif

#endif
