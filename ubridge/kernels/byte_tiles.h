// The 128 work-items of a block share a tile of sums of byte products. Tensor cores multiply where
// the target has them for bytes; other targets multiply four bytes at a time.
//
// `Share` gives the sums of a work-item: row(t, i) of column(t, c). Both operands lie in shared
// memory, a line for each row and each column of the tile, in words of four bytes.
#ifndef UBRIDGE_BYTE_TILES_H
#define UBRIDGE_BYTE_TILES_H

#include "block_products_q8_1.h"

#if KERNEL_ON_GPU

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750

// products = 16 rows times 8 columns, WORDS words deep. Lane n holds rows n / 4 and n / 4 + 8, in
// turn for the words n % 4 and n % 4 + 4, and the same words of column n / 4. Lane n gets the
// products of its rows in the columns n % 4 * 2 and n % 4 * 2 + 1. Source: PTX ISA, "Matrix
// Fragments for mma.m16n8k32"; the fragments of m16n8k16 with integers and of m8n8k16 are its
// first parts.
template <u32 WORDS>
DEVICE_FUNCTION void multiply_fragments(i32 *products, const u32 *a, const u32 *b) {
    static_assert(WORDS == 4 || WORDS == 8, "instructions are 16 and 32 bytes deep");
#if __CUDA_ARCH__ >= 800
    if constexpr (WORDS == 8)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                     : "=r"(products[0]), "=r"(products[1]), "=r"(products[2]), "=r"(products[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(0));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                     "{%4, %5}, {%6}, {%7, %7, %7, %7};"
                     : "=r"(products[0]), "=r"(products[1]), "=r"(products[2]), "=r"(products[3])
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(0));
#else
    for (u32 part = 0; part < WORDS / 2; ++part) {
        i32 *const two = products + part % 2 * 2;
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, "
                     "{%4, %5};"
                     : "=r"(two[0]), "=r"(two[1])
                     : "r"(a[part]), "r"(b[part / 2]), "r"(part < 2 ? 0 : two[0]),
                       "r"(part < 2 ? 0 : two[1]));
    }
#endif
}

// A warp has all rows of a quarter of the columns.
template <u32 ROWS, u32 COLUMNS> struct Share {
    // Lines of 12 words: the lines that a warp reads at once lie in different banks.
    enum : u32 { ROWS_EACH = ROWS / 8, COLUMNS_EACH = COLUMNS / 16 };
    enum : u32 { ROW_PITCH = 12, COLUMN_PITCH = 12 };

    static DEVICE_METHOD u32 row(u32 t, u32 i) { return t % 32 / 4 + 8 * i; }
    static DEVICE_METHOD u32 column(u32 t, u32 c) {
        return t / 32 * (COLUMNS / 4) + c / 2 * 8 + t % 4 * 2 + c % 2;
    }

    // Calls add(i, c, product) for each sum, with the product of WORDS words from `first` on.
    template <u32 WORDS, class Add>
    static DEVICE_METHOD void multiply(const u32 (*rows)[ROW_PITCH],
                                       const u32 (*columns)[COLUMN_PITCH], u32 t, u32 first,
                                       const Add &add) {
        const u32 at = first + t % 4;
        // Unrolled, so that sums stay in registers.
#pragma unroll
        for (u32 i = 0; i < ROWS_EACH; i += 2) {
            u32 a[WORDS / 2];
            for (u32 part = 0; part < WORDS / 2; ++part)
                a[part] = rows[row(t, i + part % 2)][at + part / 2 * 4];
#pragma unroll
            for (u32 c = 0; c < COLUMNS_EACH; c += 2) {
                const u32 line = t / 32 * (COLUMNS / 4) + c / 2 * 8 + t % 32 / 4;
                u32 b[WORDS / 4];
                for (u32 part = 0; part < WORDS / 4; ++part)
                    b[part] = columns[line][at + part * 4];
                i32 products[4];
                multiply_fragments<WORDS>(products, a, b);
                for (u32 n = 0; n < 4; ++n)
                    add(i + n / 2, c + n % 2, products[n]);
            }
        }
    }
};

#else

// Neighboring work-items have neighboring rows; a warp has every fourth column.
template <u32 ROWS, u32 COLUMNS> struct Share {
    // One word more than a row has, so that rows begin in different banks.
    enum : u32 { ROWS_EACH = ROWS / 32, COLUMNS_EACH = COLUMNS / 4 };
    enum : u32 { ROW_PITCH = 9, COLUMN_PITCH = 8 };

    static DEVICE_METHOD u32 row(u32 t, u32 i) { return t % 32 + 32 * i; }
    static DEVICE_METHOD u32 column(u32 t, u32 c) { return t / 32 + 4 * c; }

    // Calls add(i, c, product) for each sum, with the product of WORDS words from `first` on.
    template <u32 WORDS, class Add>
    static DEVICE_METHOD void multiply(const u32 (*rows)[ROW_PITCH],
                                       const u32 (*columns)[COLUMN_PITCH], u32 t, u32 first,
                                       const Add &add) {
        u32 words[ROWS_EACH][WORDS];
        for (u32 i = 0; i < ROWS_EACH; ++i)
            for (u32 j = 0; j < WORDS; ++j)
                words[i][j] = rows[row(t, i)][first + j];
        // Unrolled, so that sums stay in registers.
#pragma unroll
        for (u32 c = 0; c < COLUMNS_EACH; ++c)
            for (u32 i = 0; i < ROWS_EACH; ++i) {
                i32 product = 0;
                for (u32 j = 0; j < WORDS; ++j)
                    product = dot4(words[i][j], columns[column(t, c)][first + j], product);
                add(i, c, product);
            }
    }
};

#endif

#endif

#endif
