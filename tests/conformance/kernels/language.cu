// Functions of <uhal/kernel.h> and the headers beside it on every target, one idea a kernel.
#include <uhal/atomics.h>
#include <uhal/fast_math.h>
#include <uhal/messages.h>
#include <uhal/table.h>
#include <uhal/vector.h>
#include <uhal/warp.h>

// -- atomics -------------------------------------------------------------------------------------

// out: sum, minimum, maximum, one of the values, a count by compare-and-exchange, an uncontended
// exchange, number of tickets. `taken` gets each element's number at its own ticket.
template <uhal_scope scope, class T>
DEVICE_FUNCTION void combine(const T *values, u64 i, T *out, u32 *tickets, u32 *taken)
{
    atomic_add<scope>(&out[0], values[i]);
    atomic_min<scope>(&out[1], values[i]);
    atomic_max<scope>(&out[2], values[i]);
    atomic_exchange<scope>(&out[3], values[i]);
    T seen = atomic_load<scope>(&out[4]);
    for (;;) {
        const T found = atomic_compare_exchange<scope>(&out[4], seen, seen + T(1));
        if (found == seen)
            break;
        seen = found;
    }
    if (i == 7)
        atomic_store<scope>(&out[5], values[i]);
    taken[atomic_add<scope>(tickets, 1)] = u32(i);
}

template <uhal_scope scope, class T>
DEVICE_FUNCTION void combine_bits(const T *values, u64 i, T *out)
{
    atomic_and<scope>(&out[6], values[i]);
    atomic_or<scope>(&out[7], values[i]);
    atomic_xor<scope>(&out[8], values[i]);
}

#define FLOATS(T)                                                                                  \
    KERNEL(atomics_##T, (u64 n, const T *values, T *out, u32 *tickets, u32 *taken))                \
    {                                                                                              \
        GRID_STRIDE(i, n) { combine<SCOPE_DEVICE>(values, i, out, tickets, taken); }               \
    }
#define INTEGERS(T)                                                                                \
    KERNEL(atomics_##T, (u64 n, const T *values, T *out, u32 *tickets, u32 *taken))                \
    {                                                                                              \
        GRID_STRIDE(i, n)                                                                          \
        {                                                                                          \
            combine<SCOPE_DEVICE>(values, i, out, tickets, taken);                                 \
            combine_bits<SCOPE_DEVICE>(values, i, out);                                            \
        }                                                                                          \
    }
INTEGERS(i32)
INTEGERS(u32)
INTEGERS(i64)
INTEGERS(u64)
FLOATS(f32)
FLOATS(f64)

KERNEL(atomics_system, (u64 n, const u32 *values, u32 *out, u32 *tickets, u32 *taken))
{
    GRID_STRIDE(i, n)
    {
        combine<SCOPE_SYSTEM>(values, i, out, tickets, taken);
        combine_bits<SCOPE_SYSTEM>(values, i, out);
    }
}

// Long enough for all of a CPU's threads to take part.
KERNEL(contended, (u32 rounds, u32 *added, u64 *exchanged))
{
    THREADS(t)
    {
        for (u32 round = 0; round < rounds; ++round) {
            atomic_add(added, 1);
            u64 seen = atomic_load(exchanged);
            for (;;) {
                const u64 found = atomic_compare_exchange(exchanged, seen, seen + 1);
                if (found == seen)
                    break;
                seen = found;
            }
        }
    }
}

// The same in shared memory; each block's first work-item copies the results out.
KERNEL(atomics_block, (u64 n, const u32 *values, u32 *out))
{
    SHARED(u32, sums, 9);
    SHARED(f32, halves, 1);
    SHARED(u32, tickets, 1);
    SHARED(u32, taken, MAX_THREADS);
    THREADS(t)
    {
        if (t < 9)
            sums[t] = t == 1 || t == 6 ? 0xFFFFFFFFu : 0;
        if (t == 9)
            halves[0] = 0;
        if (t == 10)
            tickets[0] = 0;
    }
    BARRIER();
    THREADS(t)
    {
        if (t < n) {
            combine<SCOPE_BLOCK>(values, t, sums, tickets, taken);
            combine_bits<SCOPE_BLOCK>(values, t, sums);
            atomic_add<SCOPE_BLOCK>(&halves[0], 0.5f);
        }
    }
    BARRIER();
    THREADS(t)
    {
        if (t < 9)
            out[t] = sums[t];
        if (t == 9)
            out[9] = u32(halves[0]);
    }
}

// Results and effects of atomic operations without contention: each operates on a word of its own.
// The first compare-and-exchange succeeds, the second fails.
template <uhal_scope scope, class T> DEVICE_FUNCTION void tell(T value, T *word, T *told)
{
    told[0] = atomic_add<scope>(&word[0], value);
    told[1] = atomic_min<scope>(&word[1], value);
    told[2] = atomic_max<scope>(&word[2], value);
    told[3] = atomic_exchange<scope>(&word[3], value);
    told[4] = atomic_compare_exchange<scope>(&word[4], word[4], value);
    told[5] = atomic_compare_exchange<scope>(&word[5], word[5] + T(1), value);
}

template <uhal_scope scope, class T> DEVICE_FUNCTION void tell_bits(T value, T *word, T *told)
{
    told[6] = atomic_and<scope>(&word[6], value);
    told[7] = atomic_or<scope>(&word[7], value);
    told[8] = atomic_xor<scope>(&word[8], value);
}

#define RETURNS_OF_FLOATS(T)                                                                       \
    KERNEL(returns_##T, (u64 n, const T *values, T *words, T *told))                               \
    {                                                                                              \
        GRID_STRIDE(i, n) { tell<SCOPE_DEVICE>(values[i], words + 9 * i, told + 9 * i); }          \
    }
#define RETURNS(name, scope, T)                                                                    \
    KERNEL(returns_##name, (u64 n, const T *values, T *words, T *told))                            \
    {                                                                                              \
        GRID_STRIDE(i, n)                                                                          \
        {                                                                                          \
            tell<scope>(values[i], words + 9 * i, told + 9 * i);                                   \
            tell_bits<scope>(values[i], words + 9 * i, told + 9 * i);                              \
        }                                                                                          \
    }
RETURNS(i32, SCOPE_DEVICE, i32)
RETURNS(u32, SCOPE_DEVICE, u32)
RETURNS(i64, SCOPE_DEVICE, i64)
RETURNS(u64, SCOPE_DEVICE, u64)
RETURNS(block, SCOPE_BLOCK, u32)
RETURNS(system, SCOPE_SYSTEM, u32)
RETURNS_OF_FLOATS(f32)
RETURNS_OF_FLOATS(f64)

KERNEL(atomics_pairs, (u64 n, const f16 *x, const bf16 *y, f16x2 *halves, bf16x2 *brains))
{
    GRID_STRIDE(i, n)
    {
        f16x2 a;
        a[0] = x[2 * i];
        a[1] = x[2 * i + 1];
        atomic_add(halves, a);
        bf16x2 b;
        b[0] = y[2 * i];
        b[1] = y[2 * i + 1];
        atomic_add<SCOPE_SYSTEM>(brains, b);
    }
}

// The last block to arrive sees all writes that other blocks made before their fences.
KERNEL(last_block, (u32 *written, u32 *arrived, u32 *sum))
{
    REGISTER(u32, last, MAX_THREADS);
    THREADS(t)
    {
        last(t) = 0;
        if (t == 0) {
            written[blockIdx.x] = blockIdx.x + 1;
            fence();
            last(t) = atomic_add(arrived, 1) == gridDim.x - 1;
        }
    }
    THREADS(t)
    {
        if (last(t)) {
            u32 all = 0;
            for (u32 block = 0; block < gridDim.x; ++block)
                all += atomic_load(&written[block]);
            *sum = all;
        }
    }
}

// -- warps and blocks ----------------------------------------------------------------------------

// One row for each function; a row has one value for each work-item.
#define PUT(row)                                                                                   \
    THREADS(t) { out[(u64(row) * gridDim.x + blockIdx.x) * threads + t] = made(t); }
#define AGAIN() THREADS(t) { made(t) = x[blockIdx.x * threads + t]; }

#define LANES(T)                                                                                   \
    KERNEL(lanes_##T, (u32 amount, const T *x, const u32 *source, T *out))                         \
    {                                                                                              \
        const u32 threads = blockDim.x * blockDim.y * blockDim.z;                                  \
        REGISTER(T, value, MAX_THREADS);                                                           \
        REGISTER(T, made, MAX_THREADS);                                                            \
        REGISTER(u32, from, MAX_THREADS);                                                          \
        THREADS(t)                                                                                 \
        {                                                                                          \
            value(t) = x[blockIdx.x * threads + t];                                                \
            from(t) = source[t];                                                                   \
        }                                                                                          \
        warp_shuffle(THIS_BLOCK, value, from, made);                                               \
        PUT(0)                                                                                     \
        warp_shuffle(THIS_BLOCK, value, amount, made);                                             \
        PUT(1)                                                                                     \
        warp_shuffle_up(THIS_BLOCK, value, amount, made);                                          \
        PUT(2)                                                                                     \
        warp_shuffle_down(THIS_BLOCK, value, amount, made);                                        \
        PUT(3)                                                                                     \
        warp_shuffle_xor(THIS_BLOCK, value, amount, made);                                         \
        PUT(4)                                                                                     \
        AGAIN() warp_reduce(THIS_BLOCK, made, Add());                                              \
        PUT(5)                                                                                     \
        AGAIN() warp_reduce(THIS_BLOCK, made, Min());                                              \
        PUT(6)                                                                                     \
        AGAIN() warp_scan(THIS_BLOCK, made, Add());                                                \
        PUT(7)                                                                                     \
        AGAIN() warp_scan_exclusive(THIS_BLOCK, made, Max(), T(-3));                               \
        PUT(8)                                                                                     \
        AGAIN() const T total = block_reduce(THIS_BLOCK, made, Add());                             \
        THREADS(t) { made(t) = total; }                                                            \
        PUT(9)                                                                                     \
        AGAIN() const T last = block_scan(THIS_BLOCK, made, Add());                                \
        PUT(10)                                                                                    \
        THREADS(t) { made(t) = last; }                                                             \
        PUT(11)                                                                                    \
        AGAIN() const T all = block_scan_exclusive(THIS_BLOCK, made, Add(), T(2));                 \
        PUT(12)                                                                                    \
        THREADS(t) { made(t) = all; }                                                              \
        PUT(13)                                                                                    \
        const T given = block_broadcast(THIS_BLOCK, value, threads - 1);                           \
        THREADS(t) { made(t) = given; }                                                            \
        PUT(14)                                                                                    \
    }
LANES(f32)
LANES(f64)
LANES(f16)
LANES(i32)

// flags of a block: the masks of its warps, then count, any and all.
KERNEL(votes, (const u32 *flags, u32 *masks, u32 *found))
{
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    REGISTER(bool, flag, MAX_THREADS);
    REGISTER(u32, mask, MAX_THREADS);
    THREADS(t) { flag(t) = flags[blockIdx.x * threads + t] != 0; }
    warp_ballot(THIS_BLOCK, flag, mask);
    const u32 count = block_count(THIS_BLOCK, flag);
    const bool any = block_any(THIS_BLOCK, flag);
    const bool all = block_all(THIS_BLOCK, flag);
    THREADS(t)
    {
        masks[blockIdx.x * threads + t] = mask(t);
        if (t == 0) {
            found[3 * blockIdx.x] = count;
            found[3 * blockIdx.x + 1] = any;
            found[3 * blockIdx.x + 2] = all;
        }
    }
}

// A custom operation: the maximum with its index.
struct Place {
    i32 value;
    u32 at;
    u32 seen;
};
struct Greatest {
    DEVICE_METHOD Place operator()(Place one, Place other) const
    {
        Place made = other.value > one.value ? other : one;
        made.seen = one.seen + other.seen;
        return made;
    }
};

KERNEL(operations, (const u32 *x, u32 *out))
{
    REGISTER(u32, made, MAX_THREADS);
    THREADS(t) { made(t) = x[t]; }
    const u32 both = block_reduce(THIS_BLOCK, made, And());
    const u32 either = block_reduce(THIS_BLOCK, made, Or());
    const u32 odd = block_reduce(THIS_BLOCK, made, Xor());
    const u32 product = block_reduce(THIS_BLOCK, made, Multiply());
    const u32 least = block_reduce(THIS_BLOCK, made, Min());
    const u32 largest = block_reduce(THIS_BLOCK, made, Max());
    REGISTER(Place, place, MAX_THREADS);
    THREADS(t) { place(t) = Place{i32(x[t] & 0xFFFF), t, 1}; }
    const Place greatest = block_reduce(THIS_BLOCK, place, Greatest());
    THREADS(t)
    {
        if (t == 0) {
            const u32 told[] = {both, either, odd, product, least, largest, u32(greatest.value),
                                greatest.at, greatest.seen};
            for (u32 index = 0; index < 9; ++index)
                out[index] = told[index];
        }
    }
}

KERNEL(extremes, (const f32 *x, f32 *out))
{
    REGISTER(f32, made, MAX_THREADS);
    THREADS(t) { made(t) = x[blockDim.x * blockIdx.x + t]; }
    const f32 least = block_reduce(THIS_BLOCK, made, Min());
    const f32 largest = block_reduce(THIS_BLOCK, made, Max());
    THREADS(t)
    {
        if (t == 0) {
            out[2 * blockIdx.x] = least;
            out[2 * blockIdx.x + 1] = largest;
        }
    }
}

// -- vectors, tables, fast mathematics -------------------------------------------------------------

CONSTANT_TABLE(f32, weights, 4) = {0.25f, -0.5f, 2.0f, 3.0f};

#define VECTORS(T, count)                                                                          \
    KERNEL(vectors_##T, (u64 n, const T *x, T *y))                                                 \
    {                                                                                              \
        GRID_STRIDE(i, n / count)                                                                  \
        {                                                                                          \
            const vec<T, count> loaded = load_vector<count>(x + count * i);                        \
            vec<T, count> turned;                                                                  \
            for (u32 index = 0; index < count; ++index)                                            \
                turned[index] = loaded[count - 1 - index];                                         \
            store_vector(y + count * i, turned);                                                   \
        }                                                                                          \
    }
VECTORS(f32, 4)
VECTORS(f64, 2)
VECTORS(f16, 8)
VECTORS(u8, 4)
VECTORS(u16, 2)

KERNEL(weighted, (u64 n, const f32 *x, f32 *y))
{
    GRID_STRIDE(i, n) { y[i] = weights[i % 4] * x[i]; }
}

KERNEL(fast, (u64 n, const f32 *x, const f32 *y, f32 *out))
{
    GRID_STRIDE(i, n)
    {
        out[i] = fast_exp(y[i]);
        out[n + i] = fast_exp2(y[i]);
        out[2 * n + i] = fast_log(x[i]);
        out[3 * n + i] = fast_log2(x[i]);
        out[4 * n + i] = fast_sin(y[i]);
        out[5 * n + i] = fast_cos(y[i]);
        out[6 * n + i] = fast_tanh(y[i]);
        out[7 * n + i] = fast_sqrt(x[i]);
        out[8 * n + i] = fast_rsqrt(x[i]);
        out[9 * n + i] = fast_reciprocal(x[i]);
        out[10 * n + i] = fast_divide(y[i], x[i]);
        out[11 * n + i] = fast_pow(x[i], y[i]);
    }
}

// -- messages --------------------------------------------------------------------------------------

KERNEL(speaks, (u32 n, const f32 *x))
{
    THREADS(t)
    {
        if (t < n)
            PRINTF("%u of %d: %.2f, %c%%, %#llx\n", t, -i32(n), x[t], 'c', u64(1) << 40);
    }
}

KERNEL(asserts, (u32 bound, const u32 *x, u32 *y))
{
    THREADS(t)
    {
        if (!ASSERT(x[t] < bound, x[t], bound))
            continue;
        y[t] = 1;
    }
}

// -- everything combined ----------------------------------------------------------------------------

// A histogram of each block's values, and each value's position in sorted order.
KERNEL_BOUNDED(counting_sort, 256, (u32 n, const u8 *values, u32 *counts, u32 *places))
{
    SHARED(u32, bins, 256);
    REGISTER(u32, start, 256);
    THREADS(t) { bins[t] = 0; }
    BARRIER();
    THREADS(t)
    {
        for (u32 i = t; i < n; i += blockDim.x)
            atomic_add<SCOPE_BLOCK>(&bins[values[i]], 1);
    }
    BARRIER();
    THREADS(t)
    {
        start(t) = bins[t];
        counts[t] = bins[t];
    }
    BARRIER();
    const u32 all = block_scan_exclusive(THIS_BLOCK, start, Add(), 0);
    THREADS(t)
    {
        bins[t] = start(t);
        ASSERT(all == n, all, n);
    }
    BARRIER();
    THREADS(t)
    {
        for (u32 i = t; i < n; i += blockDim.x)
            places[i] = atomic_add<SCOPE_BLOCK>(&bins[values[i]], 1);
    }
}
