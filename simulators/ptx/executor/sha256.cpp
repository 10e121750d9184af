#include "sha256.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace sim {

namespace {

constexpr size_t block_bytes = 64;

struct Constants {
    std::array<uint32_t, 8> start;
    std::array<uint32_t, 64> rounds;
};

// The first 32 bits of the fractions of square and cube roots of the first primes (§4.2.2, §5.3.3).
Constants make_constants() {
    Constants constants = {};
    size_t count = 0;
    for (unsigned candidate = 2; count < constants.rounds.size(); ++candidate) {
        bool prime = true;
        for (unsigned divisor = 2; divisor * divisor <= candidate; ++divisor) {
            prime = prime && candidate % divisor != 0;
        }
        if (!prime) {
            continue;
        }
        const auto fraction = [](long double root) {
            return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
        };
        const long double value = candidate;
        if (count < constants.start.size()) {
            constants.start[count] = fraction(std::sqrt(value));
        }
        constants.rounds[count++] = fraction(std::cbrt(value));
    }
    return constants;
}

uint32_t rotated(uint32_t value, unsigned bits) {
    return value >> bits | value << (32 - bits);
}

void add_block(std::array<uint32_t, 8> &state, const std::array<uint32_t, 64> &constants,
               const unsigned char *block) {
    std::array<uint32_t, 64> words;
    for (size_t index = 0; index < 16; ++index) {
        const unsigned char *at = block + 4 * index;
        words[index] = uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
    }
    for (size_t index = 16; index < 64; ++index) {
        const uint32_t before = words[index - 15];
        const uint32_t near = words[index - 2];
        words[index] = words[index - 16] + words[index - 7] +
                       (rotated(before, 7) ^ rotated(before, 18) ^ before >> 3) +
                       (rotated(near, 17) ^ rotated(near, 19) ^ near >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t index = 0; index < 64; ++index) {
        const uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                               ((e & f) ^ (~e & g)) + constants[index] + words[index];
        const uint32_t second =
            (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (size_t index = 0; index < state.size(); ++index) {
        state[index] += added[index];
    }
}

} // namespace

std::string sha256(std::string_view bytes) {
    static const Constants constants = make_constants();
    std::array<uint32_t, 8> state = constants.start;
    const auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
    const size_t whole = bytes.size() / block_bytes * block_bytes;
    for (size_t at = 0; at < whole; at += block_bytes) {
        add_block(state, constants.rounds, data + at);
    }
    // The remaining bytes, a one bit, zeros, and the length in bits at the end of a block.
    std::array<unsigned char, 2 * block_bytes> tail = {};
    const size_t rest = bytes.size() - whole;
    std::memcpy(tail.data(), data + whole, rest);
    tail[rest] = 0x80;
    const size_t end = rest + 1 + 8 <= block_bytes ? block_bytes : 2 * block_bytes;
    const uint64_t bits = uint64_t{bytes.size()} * 8;
    for (size_t index = 0; index < 8; ++index) {
        tail[end - 1 - index] = static_cast<unsigned char>(bits >> 8 * index);
    }
    for (size_t at = 0; at < end; at += block_bytes) {
        add_block(state, constants.rounds, tail.data() + at);
    }
    std::string text;
    for (const uint32_t word : state) {
        for (unsigned shift = 32; shift != 0; shift -= 4) {
            text += "0123456789abcdef"[word >> (shift - 4) & 15];
        }
    }
    return text;
}

} // namespace sim
