// sample_f32: the next token of a text, chosen from logits by one block.
// ubridge/models/text/sampling.py defines the choice. All targets choose the very same token,
// because:
//
// * Probabilities are whole numbers, 2^40 for the most probable token, made by integer arithmetic.
//   Their sums are the same in any order.
// * The least logit to keep is a bit pattern. The search goes from its highest bit to its lowest.
// Each bit takes an exact sum over the tokens that such a pattern would keep: 32 sums, instead of
// a sort of 256,000 numbers.
// * Logits are scaled by fma and by single products, which no compiler can round in another way.
#include "philox.h"

#include <uhal/warp.h>

#include <math.h>
#include <string.h>

// Floats as integers in the same order; both zeros are equal, a NaN is above all.
DEVICE_FUNCTION u32 key_of(f32 value)
{
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return ~0u;
    if (value == 0)
        return 0x80000000u;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

DEVICE_FUNCTION f32 value_of(u32 key)
{
    const u32 bits = key & 0x80000000u ? key & 0x7FFFFFFFu : ~key;
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

DEVICE_FUNCTION u32 upper(u32 a, u32 b) { return u32(u64(a) * b >> 32); }

// 2^40 / e^below, for 0 <= below, to 28 bits; 0 where that is less than 1. The polynomial is one of
// degree 6 through 2^-x at the Chebyshev nodes of 0 to 1, its coefficients are multiples of 2^-32.
DEVICE_FUNCTION u64 weight_of(f32 below)
{
    // Multiples of 2^-26, then times log2(e) in multiples of 2^-31.
    const u32 parts = below < 32.0f ? u32(i32(below * 0x1p26f)) : 0x7FFFFFFFu;
    const u64 halvings = u64(parts) * 0xB8AA3B29u;
    const u32 rest = u32(halvings >> 25);
    u32 power = 0x539803u - upper(rest, 0x72A3Cu);
    power = 0x273D361u - upper(rest, power);
    power = 0xE34A75Bu - upper(rest, power);
    power = 0x3D7F577Eu - upper(rest, power);
    power = 0xB17215B2u - upper(rest, power);
    power = 0xFFFFFFFAu - upper(rest, power);
    return (u64(power) << 8) >> (halvings >> 57);
}

// A part of a whole in units of 2^-64, rounded down, and whether the rounding dropped anything.
struct Part {
    u64 number;
    bool is_above;
};

// Digit by digit, as some targets have no 128-bit products; `whole` is below 2^63.
DEVICE_FUNCTION Part part_of(u64 whole, u64 part)
{
    Part found = {0, false};
    ROLLED for (u32 digit = 0; digit < 64; ++digit) {
        found.number += part >> digit & 1 ? whole : 0;
        found.is_above |= found.number & 1;
        found.number >>= 1;
    }
    return found;
}

// Combines the values of(i) of all tokens i.
template <class Measure, class Operation>
DEVICE_FUNCTION u64 of_all(BLOCK block, u32 tokens, const Measure &of, Operation operation)
{
#if KERNEL_ON_GPU
    REGISTER_OF(block, u64, own, MAX_THREADS);
    THREADS_OF(block, t) {
        u64 found = 0;
        ROLLED for (u32 i = t; i < tokens; i += uhal_block_threads(block)) {
            found = operation(found, of(i));
        }
        own(t) = found;
    }
    return block_reduce(block, own, operation);
#else
    (void)block;
    u64 found = 0;
    for (u32 i = 0; i < tokens; ++i)
        found = operation(found, of(i));
    return found;
#endif
}

// Calls `met` with the token at which the sum of `weights`, in the order of tokens, first exceeds goal.
template <class Weights, class Met>
DEVICE_FUNCTION void find(BLOCK block, u32 tokens, u64 goal, const Weights &weights,
                          const Met &met)
{
    const auto walk = [&](u64 sum, u32 first, u32 end) {
        ROLLED for (u32 i = first; sum <= goal && i < end; ++i) {
            sum += weights(i);
            if (sum > goal)
                met(i);
        }
    };
#if KERNEL_ON_GPU
    // Each work-item has a run of tokens, and needs the sum of earlier runs.
    const u32 run = (tokens - 1) / uhal_block_threads(block) + 1;
    const auto end_of = [=](u32 t) { return t < tokens / run ? (t + 1) * run : tokens; };
    REGISTER_OF(block, u64, before, MAX_THREADS);
    THREADS_OF(block, t) {
        u64 sum = 0;
        ROLLED for (u32 i = t * run; i < end_of(t); ++i) {
            sum += weights(i);
        }
        before(t) = sum;
    }
    block_scan_exclusive(block, before, Add(), u64(0));
    THREADS_OF(block, t) { walk(before(t), t * run, end_of(t)); }
#else
    (void)block;
    walk(0, 0, tokens);
#endif
}

// The largest key for which the tokens of this key or above reach the target.
template <class Measure>
DEVICE_FUNCTION u32 reaching(BLOCK block, u32 tokens, const u32 *keys, u64 wanted,
                             const Measure &of)
{
    u32 least = 0;
    ROLLED for (u32 bit = 0x80000000u; bit != 0; bit >>= 1) {
        const u32 tried = least | bit;
        const auto kept = [&](u32 i) { return of(i) & (keys[i] >= tried ? ~u64(0) : u64(0)); };
        if (of_all(block, tokens, kept, Add()) >= wanted)
            least = tried;
    }
    return least;
}

// One block. `keys` and `weights` are scratch of `tokens` elements. `places` has each token's last
// position in the text, counted from 1. If the position is behind `forgotten`, a logit above 0 is
// multiplied by `above`, any other logit by `below`. If `counts` is not 0, `presence` is
// subtracted once and `frequency` `counts` times; then all logits are multiplied by `factor`.
// `places` and `counts` may both be null. The kernel keeps the `top_k` largest (0: all), the
// largest with a total of `top_p` / 2^64 (0: all), and logits at most -`logarithm` below the
// largest. It draws by the 53-bit random number of `position`; without `draws` it takes the first
// token kept. `chosen` gets the token, or -1 if all logits are -infinity or any is NaN; `place`
// becomes the token's last position.
KERNEL(sample_f32,
       (u32 tokens, const f32 *logits, u32 *keys, u64 *weights, f32 factor, f32 above, f32 below,
        f32 presence, f32 frequency, u32 *places, u32 *counts, u32 place, u32 forgotten, u32 top_k,
        u64 top_p, f32 logarithm, bool draws, u64 seed, u64 position, i64 *chosen))
{
    const auto scored = [&](u32 i) {
        f32 value = logits[i];
        if (places != nullptr) {
            const f32 told = counts[i] != 0 ? fma(frequency, f32(counts[i]), presence) : 0.0f;
            const f32 scale = places[i] <= forgotten ? 1.0f : value > 0 ? above : below;
            value = fma(value, scale, -told);
        }
        return u64(keys[i] = key_of(value * factor));
    };
    const u32 best_key = u32(of_all(THIS_BLOCK, tokens, scored, Max()));
    const f32 best = value_of(best_key);
    if (!(best > -INFINITY)) {
        THREADS(t) {
            if (t == 0)
                *chosen = -1;
        }
        return;
    }
    GRID_STRIDE(i, tokens) {
        weights[i] = weight_of(keys[i] == best_key ? 0.0f : best - value_of(keys[i]));
    }
    BARRIER();
    u32 least = 0;
    if (top_k != 0)
        least = reaching(THIS_BLOCK, tokens, keys, top_k, [](u32) { return u64(1); });
    const auto kept = [&](u32 i) { return weights[i] & (keys[i] >= least ? ~u64(0) : u64(0)); };
    if (top_p != 0) {
        const Part share = part_of(of_all(THIS_BLOCK, tokens, kept, Add()), top_p);
        const u64 wanted = share.number + share.is_above;
        least = reaching(THIS_BLOCK, tokens, keys, wanted, [&](u32 i) { return weights[i]; });
    }
    const u32 bottom = best < INFINITY ? key_of(best + logarithm) : best_key;
    least = bottom > least ? bottom : least;

    u64 goal = 0;
    if (draws) {
        const Philox random = philox(position, seed);
        const u64 even = (u64(random.word[0]) << 32 | random.word[1]) >> 11 << 11;
        goal = part_of(of_all(THIS_BLOCK, tokens, kept, Add()), even).number;
    }
    find(THIS_BLOCK, tokens, goal, kept, [&](u32 token) {
        *chosen = token;
        if (places != nullptr) {
            places[token] = place;
            counts[token] += 1;
        }
    });
}
