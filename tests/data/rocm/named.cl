// OpenCL's metadata has names and types of arguments, which HIP's leaves out, and kinds of arguments
// that only an OpenCL runtime can make.
typedef unsigned uint;
typedef float float4 __attribute__((ext_vector_type(4)));

__attribute__((reqd_work_group_size(64, 2, 1)))
kernel void named(const uint n, float scale, global const float *restrict x, global float *y,
                  float4 shift, constant int *table)
{
    const uint i = __builtin_amdgcn_workitem_id_x();
    if (i < n)
        y[i] = scale * x[i] + shift.x + table[0];
}

kernel void foreign(local float *scratch, global float *out)
{
    scratch[0] = out[1];
    out[0] = scratch[0];
}
