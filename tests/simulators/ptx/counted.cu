// Kernels with known requests; make.sh compiles this file to counted.ptx.

#define AT (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void copy(const float *x, float *y) {
    y[AT] = x[AT];
}

extern "C" __global__ void copy_vectors(const float4 *x, float4 *y) {
    y[AT] = x[AT];
}

extern "C" __global__ void copy_strided(const float *x, float *y, int stride) {
    y[AT] = x[AT * stride];
}

extern "C" __global__ void copy_offset(const float *x, float *y, int offset) {
    y[AT] = x[AT + offset];
}

extern "C" __global__ void broadcast(const float *x, float *y) {
    y[AT] = x[blockIdx.x];
}

template <int WIDTH> __device__ void transpose_in_tiles(const float *x, float *y, int n) {
    __shared__ float tile[32][WIDTH];
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
    for (int at = threadIdx.y; at < 32; at += 8)
        tile[at][threadIdx.x] = x[(row + at) * n + column];
    __syncthreads();
    for (int at = threadIdx.y; at < 32; at += 8)
        y[(blockIdx.x * 32 + at) * n + row + threadIdx.x] = tile[threadIdx.x][at];
}

extern "C" __global__ void transpose(const float *x, float *y, int n) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
    for (int at = threadIdx.y; at < 32; at += 8)
        y[column * n + row + at] = x[(row + at) * n + column];
}

extern "C" __global__ void transpose_tiled(const float *x, float *y, int n) {
    transpose_in_tiles<32>(x, y, n);
}

extern "C" __global__ void transpose_padded(const float *x, float *y, int n) {
    transpose_in_tiles<33>(x, y, n);
}

extern "C" __global__ void banks(const float *x, float *y, int stride) {
    __shared__ float held[1024];
    for (int at = threadIdx.x; at < 1024; at += 32)
        held[at] = x[at];
    __syncthreads();
    y[threadIdx.x] = held[threadIdx.x * stride % 1024];
}

extern "C" __global__ void bank_vectors(const float4 *x, float4 *y) {
    __shared__ float4 held[32];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = held[threadIdx.x ^ 1];
}

// Odd lanes take one branch, even lanes the other branch.
extern "C" __global__ void diverge(const float *x, float *y, int odd, int even) {
    float value = x[AT];
    if (AT & 1) {
#pragma unroll 1
        for (int turn = 0; turn < odd; ++turn)
            value = value * 0.5f + 1.0f;
    } else {
#pragma unroll 1
        for (int turn = 0; turn < even; ++turn)
            value = value * 0.25f - 1.0f;
    }
    y[AT] = value;
}

extern "C" __global__ void add_to_one(const float *x, float *y) {
    atomicAdd(y, x[AT]);
}

extern "C" __global__ void add_to_own(const float *x, float *y) {
    atomicAdd(y + AT, x[AT]);
}

// In turn k, the lanes with bit k set write memory; a barrier ends each turn.
extern "C" __global__ void skip_turns(float *y) {
#pragma unroll 1
    for (int turn = 0; turn < 5; ++turn) {
        if (threadIdx.x >> turn & 1)
            y[turn * blockDim.x + threadIdx.x] = turn;
        __syncthreads();
    }
}

extern "C" __global__ void divide(const long long *x, long long *y, long long by) {
    y[AT] = x[AT] / by;
}

// Tensor cores: one product of 16x8x16, its factors loaded by ldmatrix from rows of 8 halves.
extern "C" __global__ void multiply(const unsigned *x, float *y) {
    __shared__ __align__(16) unsigned held[32 * 4];
    for (int at = threadIdx.x; at < 128; at += 32)
        held[at] = x[at];
    __syncthreads();
    unsigned a[4];
    const unsigned row = (unsigned)__cvta_generic_to_shared(held + threadIdx.x * 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(row));
    float c[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%4,%5}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
    for (int at = 0; at < 4; ++at)
        y[threadIdx.x * 4 + at] = c[at];
}
