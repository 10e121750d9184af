/* A function that is inlined: a fault in it lies in this file. */
__device__ __forceinline__ int shifted(const int *x, int i, int by)
{
    return x[i + by]; // line 4
}
