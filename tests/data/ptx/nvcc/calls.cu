/* Calls whose target is known only when they are made. */
typedef float (*Operation)(float, float);

__device__ float add(float a, float b) { return a + b; }
__device__ float subtract(float a, float b) { return a - b; }
__device__ float multiply(float a, float b) { return a * b; }
__device__ Operation table[3] = {add, subtract, multiply};
__device__ double unlike(double a) { return 2 * a; }
__device__ double (*other)(double) = unlike;

/* z[i] = the operation which[i] of x[i] and y[i]. */
extern "C" __global__ void apply(const int *which, const float *x, const float *y, float *z, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        z[i] = table[which[i]](x[i], y[i]);
    }
}

/* The address itself is an argument: the host read it from `table`. */
extern "C" __global__ void apply_given(Operation operation, const float *x, const float *y, float *z)
{
    z[threadIdx.x] = operation(x[threadIdx.x], y[threadIdx.x]);
}

struct Shape {
    float size;
    __device__ Shape(float given) : size(given) {}
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    using Shape::Shape;
    __device__ float area() const override { return size * size; }
};
struct Circle : Shape {
    using Shape::Shape;
    __device__ float area() const override { return 3.25f * size * size; }
};

/* Virtual functions, of objects that lie in the thread's own memory. */
extern "C" __global__ void areas(const int *round, const float *size, float *area, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        Square square(size[i]);
        Circle circle(size[i]);
        const Shape *shape = round[i] ? static_cast<const Shape *>(&circle) : &square;
        area[i] = shape->area();
    }
}

/* Functions that wait for the other threads of the block. */
__device__ __noinline__ void reverse(int *tile)
{
    const int taken = tile[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    tile[threadIdx.x] = taken;
    __syncthreads();
}
__device__ __noinline__ void sum_of_warp(int *tile)
{
    int sum = tile[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, lanes);
    }
    tile[threadIdx.x] = sum;
    __syncthreads();
}
__device__ void (*steps[2])(int *) = {reverse, sum_of_warp};

extern "C" __global__ void together(const int *x, int *y, int which)
{
    __shared__ int tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    steps[which](tile);
    y[threadIdx.x] = tile[threadIdx.x];
}
