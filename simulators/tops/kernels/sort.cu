/* Ubridge's sort of rows. The kernel writes the order to `dst`, and with `inplace` the sorted
 * values to `x`. Rows are padded with 10000, descending rows with -10000, so values beyond these
 * bounds mix with the padding. The index of padding is the number of columns. */
#include "gcu.h"

#include <algorithm>
#include <vector>

namespace {

template <class T> struct Item {
    T value;
    u32 index;
};

template <class T, bool ascending>
void sort(const Sips &sips, T *x, u32 *dst, u64 rows, u64 columns, u64 padded, bool inplace) {
    const T filling = T(Wide<T>(ascending ? i64(10000) : i64(-10000)));
    each_element(sips, rows, [&](u64 row) {
        std::vector<Item<T>> items(padded, Item<T>{filling, u32(columns)});
        for (u64 i = 0; i < columns; ++i) {
            items[i] = {x[row * columns + i], u32(i)};
        }
        std::stable_sort(items.begin(), items.end(), [](const Item<T> &a, const Item<T> &b) {
            return ascending ? wide(a.value) < wide(b.value) : wide(a.value) > wide(b.value);
        });
        for (u64 i = 0; i < columns; ++i) {
            dst[row * columns + i] = items[i].index;
            if (inplace) {
                x[row * columns + i] = items[i].value;
            }
        }
    });
}

} // namespace

#define SORT(name, type, ascending)                                                                \
    KERNEL(name, (type * x, u32 * dst, i32 nrows, i32 ncols, i32 ncols_pad, bool inplace)) {       \
        require_shared(*this, (u64)ncols_pad *(sizeof(type) + sizeof(u32)));                       \
        sort<type, ascending>(SIPS, x, dst, (u64)nrows, (u64)ncols, (u64)ncols_pad, inplace);      \
    }
#define SORTS(suffix, type)                                                                        \
    SORT(asort_asc_##suffix, type, true) SORT(asort_desc_##suffix, type, false)

SORTS(bf16, bf16)
SORTS(f16, f16)
SORTS(f32, f32)
SORTS(f64, f64)
SORTS(u8, u8)
SORTS(u32, u32)
SORTS(i64, i64)
