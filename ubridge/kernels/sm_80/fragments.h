// Fragments of matrices in the registers of a warp, and their products on tensor cores (PTX ISA,
// "Warp-level Matrix Fragment").
#ifndef UBRIDGE_FRAGMENTS_H
#define UBRIDGE_FRAGMENTS_H

#include <uhal/kernel.h>

enum : u32 { WARP = 32 };

DEVICE_FUNCTION u32 shared_address(const void *place)
{
    return u32(__cvta_generic_to_shared(place));
}

// Four matrices of 8 x 8 from shared memory; each lane gives the address of a line of 8. Unless
// `deep`, they arrive transposed.
template <bool deep> DEVICE_FUNCTION void load_fragments(u32 *fragments, u32 address)
{
    if constexpr (deep)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                     : "r"(address)
                     : "memory");
}

template <bool deep> DEVICE_FUNCTION void load_fragments(u32 *fragments, const void *line)
{
    load_fragments<deep>(fragments, shared_address(line));
}

// sums += a times b: 16 x 8 sums, 16 deep. Let r = n / 4 and p = n % 4 * 2. From a, lane n holds
// places p and p + 1 of rows r and r + 8, then p + 8 and p + 9 of both rows. From b, lane n holds
// the same places of column r. The sums are columns p and p + 1 of row r, then of row r + 8.
DEVICE_FUNCTION void multiply_add(f32 *sums, const u32 *a, const u32 *b, f16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE_FUNCTION void multiply_add(f32 *sums, const u32 *a, const u32 *b, bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
