/* Ubridge's index_select, gather and index_add. Only index_add checks the bounds of ids: it skips
 * ids out of bounds. */
#include "gcu.h"

namespace {

constexpr u64 most_ids = 40960;               // that a SIP keeps
constexpr u64 gathered_in_l1 = u64{896} << 10; // bytes of an operand that a SIP keeps

template <class I, class T>
void select(const Sips &sips, u64 id_numel, const I *ids, const T *in, T *out, u64 left, u64 dim,
            u64 right) {
    if (id_numel > most_ids) {
        throw std::length_error("index_select keeps at most 40960 ids");
    }
    each_element(sips, left * id_numel, [&](u64 row) {
        const i64 id = i32(ids[row % id_numel]);
        const T *from = in + (i64(row / id_numel * dim) + id) * i64(right);
        for (u64 i = 0; i < right; ++i) {
            out[row * right + i] = from[i];
        }
    });
}

template <class I, class T>
void gather(const Sips &sips, u64 numel, const I *ids, const T *in, T *out, u64 left, u64 src_dim,
            u64 ids_dim, u64 right) {
    // Data that fits a SIP takes its own path, which assumes one element behind the axis.
    const u64 behind = left * src_dim * right * sizeof(T) < gathered_in_l1 ? 1 : right;
    each_element(sips, numel, [&](u64 i) {
        const u64 before = i / behind / ids_dim;
        const i64 row = i64(before * src_dim) + i64(ids[i]);
        out[i] = in[row * i64(behind) + i64(i % behind)];
    });
}

/* Adds without atomics: SIPs that add to a row at the same time all read the row's old value. */
template <class I, class T>
void add(const Sips &sips, const I *ids, u64 ids_dim, const T *in, T *out, u64 dst_dim, u64 right) {
    u64 longest = 0;
    for (u64 sip = sips.first; sip < sips.first + sips.count; ++sip) {
        const Piece piece = piece_of(ids_dim, sip, sips.total);
        longest = piece.last - piece.first > longest ? piece.last - piece.first : longest;
    }
    constexpr u64 most_sips = 1024;
    T sums[most_sips];
    for (u64 step = 0; step < longest; ++step) {
        for (u64 i = 0; i < right; ++i) {
            const auto each = [&](const auto &body) {
                for (u64 sip = sips.first; sip < sips.first + sips.count; ++sip) {
                    const Piece piece = piece_of(ids_dim, sip, sips.total);
                    const u64 at = piece.first + step;
                    if (at < piece.last && i64(ids[at]) >= 0 && u64(ids[at]) < dst_dim) {
                        body(sip - sips.first, at, out[u64(ids[at]) * right + i]);
                    }
                }
            };
            each([&](u64 sip, u64 at, T &there) {
                sums[sip] = T(wide(there) + wide(in[at * right + i]));
            });
            each([&](u64 sip, u64, T &there) { there = sums[sip]; });
        }
    }
}

} // namespace

#define SELECT(id, type)                                                                           \
    KERNEL(is_##id##_##type, (u64 id_numel, id * ids, type * inp, type * out, u64 left, u64 dim,   \
                              u64 right)) {                                                        \
        select(SIPS, id_numel, ids, inp, out, left, dim, right);                                   \
    }
#define GATHER(id, type)                                                                           \
    KERNEL(gather_##id##_##type, (u64 numel, id * ids, type * inp, type * out, u64 left,           \
                                  u64 src_dim, u64 ids_dim, u64 right)) {                          \
        NEEDS_SHARED();                                                                            \
        gather(SIPS, numel, ids, inp, out, left, src_dim, ids_dim, right);                         \
    }
#define ADD(id, type)                                                                              \
    KERNEL(ia_##id##_##type, (id * ids, u64 ids_dim, type * inp, type * out, u64 left,             \
                              u64 src_dim, u64 dst_dim, u64 right)) {                              \
        (void)left;                                                                                \
        (void)src_dim;                                                                             \
        add(SIPS, ids, ids_dim, inp, out, dst_dim, right);                                         \
    }

#define READS(id, type) SELECT(id, type) GATHER(id, type)
#define INDEXED_BY(id)                                                                             \
    READS(id, bf16) READS(id, f16) READS(id, f32) READS(id, f64) READS(id, u8) READS(id, u32)      \
    READS(id, i64) ADD(id, f16) ADD(id, bf16) ADD(id, f32) ADD(id, u8) ADD(id, u32)

INDEXED_BY(i64)
INDEXED_BY(u32)
INDEXED_BY(u8)
