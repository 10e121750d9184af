// Kernels with one mistake each, in the line or the two lines that end in "// here". Checked mode
// must name these lines. The mistakes are from tests/simulated/planted/bugs.cu.
#include <uhal/atomics.h>
#include <uhal/kernel.h>
#include <uhal/messages.h>
#include <uhal/table.h>
#include <uhal/vector.h>
#include <uhal/warp.h>

#include <cstring>

// Each thread reads its mirror image's element: a barrier is missing in between.
KERNEL_BOUNDED(missing_barrier, 256, (const f32 *x, f32 *y)) {
    SHARED(f32, tile, 256);
    THREADS(t) {
        tile[t] = x[t]; // here
    }
    THREADS(t) {
        y[t] = tile[255 - t]; // here
    }
}

// The same kernel with the barrier.
KERNEL_BOUNDED(with_barrier, 256, (const f32 *x, f32 *y)) {
    SHARED(f32, tile, 256);
    THREADS(t) { tile[t] = x[t]; }
    BARRIER();
    THREADS(t) { y[t] = tile[255 - t]; }
}

// Writes elements 1 to n of n.
KERNEL(store_past_end, (f32 * y)) {
    THREADS(t) {
        y[blockIdx.x * blockDim.x + t + 1] = 1.0f; // here
    }
}

KERNEL(load_before_start, (const f32 *x, f32 *y)) {
    GRID_STRIDE(i, 100) {
        y[i] = x[i64(i) - 3]; // here
    }
}

// Four floats at a time, from an element that need not be a multiple of four.
KERNEL(vector_load, (const f32 *x, f32 *y)) {
    THREADS(t) {
        const f32x4 four = load_vector<4>(x + 1 + 4 * t); // here
        store_vector(y + 4 * t, four);
    }
}

// Every thread adds to the same word of shared memory, without an atomic operation.
KERNEL(shared_race, (u32 * y)) {
    SHARED(u32, count, 1);
    THREADS(t) {
        if (t == 0)
            count[0] = 0;
    }
    BARRIER();
    THREADS(t) {
        count[0] += t; // here
    }
    BARRIER();
    THREADS(t) {
        if (t == 0)
            *y = count[0];
    }
}

// Sums a tile; only the first half of the tile was written.
KERNEL(uninitialized, (f32 * y)) {
    SHARED(f32, tile, 64);
    THREADS(t) {
        if (t < 32)
            tile[t] = 1.0f;
    }
    BARRIER();
    THREADS(t) {
        y[t] = tile[t]; // here
    }
}

KERNEL(uninitialized_dynamic, (f32 * y)) {
    DYNAMIC_SHARED(f32, scratch);
    THREADS(t) {
        y[t] = scratch[t]; // here
    }
}

KERNEL(past_shared, (f32 * y)) {
    SHARED(f32, tile, 2, 16);
    SHARED(f32, next, 16);
    THREADS(t) {
        if (t < 16)
            next[t] = y[0];
        tile[t / 16][t % 16] = 1.0f; // here
    }
}

KERNEL(endless_loop, (const u32 *flag, u32 *y)) {
    THREADS(t) {
        while (*(const volatile u32 *)flag == 0) { // here
        }
        y[t] = 1;
    }
}

KERNEL(race_between_blocks, (u32 * y)) {
    THREADS(t) {
        if (t == 0)
            y[0] += blockIdx.x; // here
    }
}

KERNEL(wild_store, (u32 * y)) {
    THREADS(t) {
        *(u32 *)(0x123456780000 + y[t]) = t; // here
    }
}

KERNEL(null_pointer, (u32 * nothing)) {
    THREADS(t) {
        nothing[t] = t; // here
    }
}

// x was freed before.
KERNEL(copy, (const f32 *x, f32 *y)) {
    THREADS(t) {
        y[t] = x[t]; // here
    }
}

CONSTANT_TABLE(f32, factors, 4) = {1.0f, 2.0f, 3.0f, 4.0f};

// A constant is memory that kernels must not write.
KERNEL(writes_constant, (f32 * y)) {
    THREADS(t) {
        const_cast<f32 *>(factors)[t % 4] = 0.0f; // here
        y[t] = factors[t % 4];
    }
}

KERNEL(asserts, (const u32 *x, u32 *y)) {
    THREADS(t) {
        ASSERT(x[t] > 0, x[t]); // here
        y[t] = 1;
    }
}

// Eight bytes; the last four are past the end.
KERNEL(straddles_the_end, (f32 * y)) {
    THREADS(t) {
        if (t == 0)
            *(u64 *)(y + 62) = 0; // here
    }
}

KERNEL(volatile_store, (u32 * y)) {
    THREADS(t) {
        *(volatile u32 *)(y + 64 + t) = t; // here
    }
}

// A number that may be unaligned.
struct __attribute__((packed)) Odd {
    u8 first;
    u32 word;
};
KERNEL(unaligned_load, (const u8 *x, u32 *y)) {
    THREADS(t) {
        y[t] = ((const Odd *)x)[t].word; // here
    }
}

// The next block does not see the shared memory of this block.
KERNEL(left_by_another_block, (u32 * y)) {
    SHARED(u32, kept, 64);
    THREADS(t) {
        if (blockIdx.x == 0)
            kept[t] = t;
    }
    BARRIER();
    THREADS(t) {
        y[blockIdx.x * blockDim.x + t] = kept[t]; // here
    }
}

// The writer's fence is not enough: the reader must use an atomic operation.
KERNEL(fence_alone, (u32 * y)) {
    THREADS(t) {
        if (t == 0) {
            y[0] += blockIdx.x; // here
            fence();
        }
    }
}

KERNEL(fence_too_early, (u32 * y)) {
    THREADS(t) {
        if (t == 0) {
            atomic_add(&y[1], 1);
            fence();
            y[0] += blockIdx.x; // here
        }
    }
}

KERNEL(atomic_and_plain, (u32 * y)) {
    THREADS(t) {
        if (t == 0)
            y[0] = 1; // here
        else
            atomic_add(&y[0], 1); // here
    }
}

KERNEL(write_after_read, (u32 * y)) {
    THREADS(t) {
        if (t == 63)
            y[0] = 1; // here
        else
            y[t + 1] = y[0]; // here
    }
}

// System functions copy a row for each work-item: the last row is one element short.
KERNEL(copies_past_end, (const f32 *x, f32 *y)) {
    THREADS(t) {
        memcpy(y + t * blockDim.x, x + t * blockDim.x, blockDim.x * sizeof *x); // here
    }
}

KERNEL(moves_past_end, (const f32 *x, f32 *y)) {
    THREADS(t) {
        std::memmove(y + t * blockDim.x, x + t * blockDim.x, blockDim.x * sizeof *x); // here
    }
}

KERNEL(fills_past_end, (f32 * y)) {
    THREADS(t) {
        memset(y + t * blockDim.x, 0, blockDim.x * sizeof *y); // here
    }
}

// These kernels are correct.
KERNEL(reversed_by_warps, (u64 n, const f32 *x, f32 *y, u32 *count)) {
    REGISTER(f32, value, MAX_THREADS);
    THREADS(t) { value(t) = t < n ? x[t] : 0; }
    warp_shuffle_xor(THIS_BLOCK, value, 31, value);
    const f32 total = block_reduce(THIS_BLOCK, value, Add());
    THREADS(t) {
        if (t < n && blockIdx.x == 0)
            y[t] = value(t) + total;
        atomic_add(count, 1);
    }
    GRID_STRIDE(i, n) {
        if (i == 3)
            continue;
        y[n + i] = x[i];
    }
}

// Work-items and blocks that write different bytes of a word.
KERNEL(bytes_apart, (u8 * y)) {
    THREADS(t) { y[blockIdx.x + gridDim.x * t] = u8(t); }
}

// Blocks that publish their result, by a fence and an atomic operation.
KERNEL(last_block, (u32 * written, u32 *arrived, u32 *sum)) {
    THREADS(t) {
        if (t == 0) {
            written[blockIdx.x] = blockIdx.x;
            fence();
            if (atomic_add(arrived, 1) == gridDim.x - 1) {
                u32 all = 0;
                for (u32 block = 0; block < gridDim.x; ++block)
                    all += written[block];
                *sum = all;
            }
        }
    }
}

// System functions copy rows, and nothing after the last row.
KERNEL(rows, (const f32 *x, f32 *y, f32 *z)) {
    THREADS(t) {
        const u64 row = u64(t) * blockDim.x, bytes = blockDim.x * sizeof *x;
        memcpy(y + row, x + row, bytes);
        memmove(y + row, x + row, bytes);
        memset(z + row, 0, bytes);
        memcpy(y + blockDim.x * blockDim.x, x + blockDim.x * blockDim.x, bytes * (t / blockDim.x));
    }
}

// 40,000 bytes of static shared memory, and the launch's dynamic part.
KERNEL(static_and_dynamic, (f32 * y)) {
    SHARED(f32, tile, 10000);
    DYNAMIC_SHARED(f32, more);
    THREADS(t) { tile[t] = more[t] = f32(t); }
    BARRIER();
    THREADS(t) { y[t] = tile[t] + more[t]; }
}
