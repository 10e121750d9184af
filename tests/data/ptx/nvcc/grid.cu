/* Kernels whose blocks wait for each other: launched cooperatively. */
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

/* `rounds` times, on y and z in turn: each element becomes the mean of itself and the next. */
extern "C" __global__ void smooth(float *y, float *z, int n, int rounds)
{
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < rounds; ++round) {
        const float *from = round % 2 ? z : y;
        float *to = round % 2 ? y : z;
        for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) {
            to[i] = 0.5f * (from[i] + from[(i + 1) % n]);
        }
        grid.sync();
    }
}

/* The sum of x: each block adds its part, block 0 adds the blocks' sums, all blocks read it. */
extern "C" __global__ void sum(const double *x, double *parts, double *y, int n)
{
    cg::grid_group grid = cg::this_grid();
    __shared__ double of_block[256];
    double own = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) {
        own += x[i];
    }
    of_block[threadIdx.x] = own;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            of_block[threadIdx.x] += of_block[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = of_block[0];
    }
    grid.sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        double all = 0;
        for (int block = 0; block < gridDim.x; ++block) {
            all += parts[block];
        }
        parts[0] = all;
    }
    auto token = grid.barrier_arrive();
    grid.barrier_wait(cg::grid_group::arrival_token(token));
    y[grid.thread_rank()] = parts[0];
}

/* valid[0] = whether the grid can synchronize, which a plain launch cannot. */
extern "C" __global__ void is_valid(int *valid)
{
    valid[0] = cg::this_grid().is_valid();
}

/* The last block never reaches the barrier. */
extern "C" __global__ void leave_one_out(int *done)
{
    if (blockIdx.x + 1 < gridDim.x) {
        cg::this_grid().sync();
    }
    done[blockIdx.x] = 1;
}
