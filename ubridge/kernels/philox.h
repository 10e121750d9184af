// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): four words of a counter and a key, the same on every target.
#ifndef UBRIDGE_PHILOX_H
#define UBRIDGE_PHILOX_H

#include <uhal/kernel.h>

struct Philox {
    u32 word[4];
};

// The words of a counter whose upper half is 0. The constants are the paper's: PHILOX_M4x32_0 and
// _1 are the factors, PHILOX_W32_0 and _1 are added to the key in each round.
DEVICE_FUNCTION Philox philox(u64 counter, u64 key) {
    u32 x0 = u32(counter), x1 = u32(counter >> 32), x2 = 0, x3 = 0;
    u32 low = u32(key), high = u32(key >> 32);
    for (u32 round = 0; round < 10; ++round) {
        const u64 first = u64(x0) * 0xD2511F53u;
        const u64 second = u64(x2) * 0xCD9E8D57u;
        x0 = u32(second >> 32) ^ x1 ^ low;
        x1 = u32(second);
        x2 = u32(first >> 32) ^ x3 ^ high;
        x3 = u32(first);
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return {{x0, x1, x2, x3}};
}

#endif
