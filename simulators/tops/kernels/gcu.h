/* How a GCU kernel divides its work; shared by the host builds of Ubridge's entries.
 *
 * Each thread is a SIP. With any geometry, each SIP of the whole launch processes one piece of the
 * elements. The entries here have the same arguments in the same order as Ubridge's own entries,
 * and compute the same results, faults included. So a mistake in a launch has the same effect here
 * as on a GCU.
 */
#ifndef UHAL_SIMULATED_GCU_H
#define UHAL_SIMULATED_GCU_H

#include <uhal/kernel.h>

#include <stdexcept>
#include <type_traits>

/* SIPs of the running block, and the number of SIPs in the whole launch. */
struct Sips {
    u64 first;
    u64 count;
    u64 total;
};

inline Sips sips_of(const uhal_block &block) {
    const u64 threads = (u64)block.blockDim.x * block.blockDim.y * block.blockDim.z;
    const u64 blocks = (u64)block.gridDim.x * block.gridDim.y * block.gridDim.z;
    const u64 rank = ((u64)block.blockIdx.z * block.gridDim.y + block.blockIdx.y) *
                         block.gridDim.x + block.blockIdx.x;
    return {rank * threads, threads, blocks * threads};
}

#define SIPS sips_of(*this)

struct Piece {
    u64 first;
    u64 last;
};

/* One element per SIP while there are enough SIPs, else equal pieces; the last may be longer. */
inline Piece piece_of(u64 elements, u64 sip, u64 sips) {
    if (elements <= sips) {
        return {sip, sip < elements ? sip + 1 : sip};
    }
    const u64 step = elements / sips;
    return {sip * step, sip + 1 == sips ? elements : (sip + 1) * step};
}

/* cast, where and elu lack a check: with fewer elements than SIPs, every SIP takes an element. */
inline Piece careless_piece_of(u64 elements, u64 sip, u64 sips) {
    return elements < sips ? Piece{sip, sip + 1} : piece_of(elements, sip, sips);
}

template <class Body> void each_element(const Sips &sips, u64 elements, const Body &body) {
    for (u64 sip = sips.first; sip < sips.first + sips.count; ++sip) {
        const Piece piece = piece_of(elements, sip, sips.total);
        for (u64 i = piece.first; i < piece.last; ++i) {
            body(i);
        }
    }
}

template <class Body>
void each_element_carelessly(const Sips &sips, u64 elements, const Body &body) {
    for (u64 sip = sips.first; sip < sips.first + sips.count; ++sip) {
        const Piece piece = careless_piece_of(elements, sip, sips.total);
        for (u64 i = piece.first; i < piece.last; ++i) {
            body(i);
        }
    }
}

/* Kernels that keep data in L2 must be launched with enough dynamic shared memory. */
inline void require_shared(const uhal_block &block, u64 bytes) {
    if (block.dynamic_shared_bytes < bytes) {
        throw std::length_error("the launch gives the kernel too little of its cluster's L2");
    }
}

#define NEEDS_SHARED() require_shared(*this, 1)

/* Kernels compute half types in f32. */
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, f32, T>;

template <class T> Wide<T> wide(T x) {
    return Wide<T>(x);
}

#endif
