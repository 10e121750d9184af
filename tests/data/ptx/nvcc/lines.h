/* An inlined function: the report of its fault names this file. */
__device__ __forceinline__ int shifted(const int *x, int i, int by)
{
    return x[i + by]; // line 4
}
