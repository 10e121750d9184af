// Readers of memory, for benchmarks of this machine's read bandwidth. Each block of the grid reads
// a run of bytes and folds it into `out`, so that the compiler keeps the reads.
#include <string.h>

#include <uhal/kernel.h>

typedef u64 Line __attribute__((vector_size(64)));

template <u32 STREAMS, u32 AHEAD> DEVICE_FUNCTION u64 read_in_streams(const u8 *from, u64 bytes) {
    const u64 each = bytes / STREAMS / 256 * 256;
    Line sums[STREAMS] = {};
    for (u64 i = 0; i < each; i += 64)
        for (u32 stream = 0; stream < STREAMS; ++stream) {
            const u8 *const here = from + stream * each + i;
            if (AHEAD != 0)
                __builtin_prefetch(here + AHEAD);
            Line line;
            memcpy(&line, here, sizeof line);
            sums[stream] ^= line;
        }
    Line all = {};
    for (u32 stream = 0; stream < STREAMS; ++stream)
        all ^= sums[stream];
    u64 folded = 0;
    for (u32 i = 0; i < 8; ++i)
        folded ^= all[i];
    return folded;
}

// Reads `bytes` bytes from `first` on.
#define READER(entry, STREAMS, AHEAD)                                                              \
    KERNEL(entry, (const u8 *from, u64 first, u64 bytes, u64 *out)) {                              \
        const u64 each = bytes / gridDim.x / 4096 * 4096;                                          \
        out[blockIdx.x] = read_in_streams<STREAMS, AHEAD>(from + first + blockIdx.x * each, each); \
    }

READER(read_1, 1, 0)
READER(read_4, 4, 0)
READER(read_8, 8, 0)
READER(read_1_ahead, 1, 1024)
READER(read_4_ahead, 4, 512)
