// y = x transposed, three times. Blocks have 32 x 8 threads and take 32 x 32 elements.

extern "C" __global__ void simple(const float *x, float *y, int n) {
    const int column = blockIdx.x * 32 + threadIdx.x;
    const int top = blockIdx.y * 32;
    for (int row = top + threadIdx.y; row < top + 32; row += 8)
        y[column * n + row] = x[row * n + column];
}

template <int WIDTH> __device__ void in_tiles(const float *x, float *y, int n) {
    __shared__ float tile[32][WIDTH];
    const int left = blockIdx.x * 32, top = blockIdx.y * 32;
    for (int row = threadIdx.y; row < 32; row += 8)
        tile[row][threadIdx.x] = x[(top + row) * n + left + threadIdx.x];
    __syncthreads();
    for (int row = threadIdx.y; row < 32; row += 8)
        y[(left + row) * n + top + threadIdx.x] = tile[threadIdx.x][row];
}

extern "C" __global__ void tiled(const float *x, float *y, int n) {
    in_tiles<32>(x, y, n);
}

extern "C" __global__ void padded(const float *x, float *y, int n) {
    in_tiles<33>(x, y, n);
}
