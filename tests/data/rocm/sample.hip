// Kernels whose parameters exercise the readers. make.sh compiles this file to the images beside it.
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED static __attribute__((device)) __attribute__((shared))

struct Pair {
    int first[3];
    double second;
};

struct Bytes {
    unsigned char bytes[3];
};

KERNEL __attribute__((amdgpu_flat_work_group_size(1, 1024)))
saxpy(unsigned long n, float a, const float *x, float *y)
{
    const unsigned size = __builtin_amdgcn_workgroup_size_x();
    unsigned long i = __builtin_amdgcn_workgroup_id_x() * size + __builtin_amdgcn_workitem_id_x();
    if (i < n)
        y[i] = a * x[i] + y[i];
}

KERNEL __attribute__((amdgpu_flat_work_group_size(1, 256)))
mixed(long scale, const long *shape, Pair pair, Bytes bytes, bool flag, _Float16 h,
      unsigned short g, double d, unsigned short s, void **table)
{
    SHARED float tile[32][33];
    tile[__builtin_amdgcn_workitem_id_x() % 32][0] = (float)h + (float)g;
    __builtin_amdgcn_s_barrier();
    ((double *)table[flag])[0] =
        shape[0] * d * scale + pair.first[1] + pair.second + bytes.bytes[2] + s + tile[0][0];
}

KERNEL nothing() {}

KERNEL spills(const int *order, int *out)
{
    volatile int slots[64];
    for (int i = 0; i < 64; ++i)
        slots[i] = i * order[i];
    out[0] = slots[order[0] & 63];
}
