/* Kernels that record the inputs of work-items: values, geometry, shared memory, time. */
#include <uhal/kernel.h>

/* Copies x to y and appends the received scalar. */
#define ECHO(name, type)                                                                           \
    KERNEL(echo_##name, (type value, const type *x, type *y, u64 n)) {                             \
        GRID_STRIDE(i, n) { y[i] = x[i]; }                                                         \
        if (blockIdx.x == 0) {                                                                     \
            THREADS(t) {                                                                           \
                if (t == 0) {                                                                      \
                    y[n] = value;                                                                  \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

ECHO(bool, bool)
ECHO(i8, i8)
ECHO(u8, u8)
ECHO(i16, i16)
ECHO(u16, u16)
ECHO(i32, i32)
ECHO(u32, u32)
ECHO(i64, i64)
ECHO(u64, u64)
ECHO(f16, f16)
ECHO(bf16, bf16)
ECHO(f32, f32)
ECHO(f64, f64)

/* Parameters of every width: each must be at the offset that the compiler expects. */
KERNEL(mixed, (bool a, i64 b, i8 c, f64 d, u16 e, f32 f, i16 g, u64 h, u8 i, i32 j, u32 k, i64 *whole,
               f64 *real)) {
    THREADS(t) {
        if (t == 0) {
            whole[0] = a;
            whole[1] = b;
            whole[2] = c;
            whole[3] = e;
            whole[4] = g;
            whole[5] = (i64)h;
            whole[6] = i;
            whole[7] = j;
            whole[8] = k;
            real[0] = d;
            real[1] = f;
        }
    }
}

struct Shape {
    i32 rows;
    u8 flag;
    f64 scale;
};

KERNEL(aggregate, (u8 before, Shape shape, u8 after, f64 *out)) {
    THREADS(t) {
        if (t == 0) {
            out[0] = before;
            out[1] = shape.rows;
            out[2] = shape.flag;
            out[3] = shape.scale;
            out[4] = after;
        }
    }
}

/* Twelve numbers a work-item: its index, its block's index, the block's and the grid's size. */
KERNEL(where, (u32 *out)) {
    const u64 rank = ((u64)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const u64 threads = (u64)blockDim.x * blockDim.y * blockDim.z;
    THREADS(t) {
        u32 *mine = out + 12 * (rank * threads + t);
        mine[0] = THREAD_X(t);
        mine[1] = THREAD_Y(t);
        mine[2] = THREAD_Z(t);
        mine[3] = blockIdx.x;
        mine[4] = blockIdx.y;
        mine[5] = blockIdx.z;
        mine[6] = blockDim.x;
        mine[7] = blockDim.y;
        mine[8] = blockDim.z;
        mine[9] = gridDim.x;
        mine[10] = gridDim.y;
        mine[11] = gridDim.z;
    }
}

/* Reverses each block's elements through dynamic shared memory. */
KERNEL(reverse, (const f32 *x, f32 *y)) {
    DYNAMIC_SHARED(f32, piece);
    const u32 threads = blockDim.x;
    const u64 first = (u64)blockIdx.x * threads;
    THREADS(t) { piece[t] = x[first + t]; }
    BARRIER();
    THREADS(t) { y[first + t] = piece[threads - 1 - t]; }
}

/* Sums each block's 256 values as a tree; one value lives across barriers. */
KERNEL(block_sum, (const f64 *x, f64 *sums)) {
    SHARED(f64, tree, 256);
    REGISTER(f64, own, 256);
    THREADS(t) {
        own(t) = x[(u64)blockIdx.x * 256 + t];
        tree[t] = own(t);
    }
    BARRIER();
    for (u32 half = 128; half > 0; half /= 2) {
        THREADS(t) {
            if (t < half) {
                tree[t] += tree[t + half];
            }
        }
        BARRIER();
    }
    THREADS(t) { sums[(u64)blockIdx.x * 256 + t] = tree[0] - own(t); }
}

KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y)) {
    GRID_STRIDE(i, n) { y[i] = a * x[i] + y[i]; }
}

KERNEL(fill, (u64 n, u32 value, u32 *out)) {
    GRID_STRIDE(i, n) { out[i] = value; }
}

/* Not commutative: the result shows the order of two launches. */
KERNEL(step, (u64 n, u32 multiply, u32 add, u32 *x)) {
    GRID_STRIDE(i, n) { x[i] = x[i] * multiply + add; }
}

KERNEL_BOUNDED(bounded, 64, (u32 *out)) {
    THREADS(t) { out[t] = t; }
}

KERNEL(nothing, ()) {}

/* Polls the flag until it is set or a limit of reads is reached; reports which. */
KERNEL(gate, (const u32 *flag, u32 *opened)) {
    const volatile u32 *watched = flag;
    u64 patience = (u64)1 << 34;
    while (*watched == 0 && patience > 0) {
        --patience;
    }
    THREADS(t) {
        if (t == 0) {
            *opened = patience > 0;
        }
    }
}
