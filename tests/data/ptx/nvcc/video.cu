/* CUDA's SIMD functions on bytes and halves, and video instructions as programs write them. */
#define ALL(function, list)                                                                        \
    extern "C" __global__ void function(const unsigned *a, const unsigned *b, unsigned *d, int n)  \
    {                                                                                              \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                       \
        if (i < n) {                                                                               \
            const unsigned x = a[i], y = b[i];                                                     \
            int at = 0;                                                                            \
            list;                                                                                  \
        }                                                                                          \
    }
#define PUT(value) d[n * at++ + i] = (value)
#define FOR_2_AND_4(name) PUT(name##2(x, y)); PUT(name##4(x, y))

ALL(functions, {
    FOR_2_AND_4(__vabsdiffu);
    FOR_2_AND_4(__vabsdiffs);
    FOR_2_AND_4(__vsadu);
    FOR_2_AND_4(__vsads);
    FOR_2_AND_4(__vavgu);
    FOR_2_AND_4(__vavgs);
    FOR_2_AND_4(__vaddus);
    FOR_2_AND_4(__vaddss);
    FOR_2_AND_4(__vsubus);
    FOR_2_AND_4(__vsubss);
    FOR_2_AND_4(__vminu);
    FOR_2_AND_4(__vmaxs);
    FOR_2_AND_4(__vcmpltu);
    FOR_2_AND_4(__vsetges);
})

#define ASM(text)                                                                                  \
    {                                                                                              \
        unsigned made;                                                                             \
        asm(text : "=r"(made) : "r"(x), "r"(y), "r"(x ^ 0x5A5A5A5A));                              \
        PUT(made);                                                                                 \
    }
ALL(instructions, {
    ASM("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;");
    ASM("vadd4.s32.s32.s32.sat %0, %1, %2, %3;");
    ASM("vavrg4.u32.u32.u32 %0, %1, %2, %3;");
    ASM("vset4.u32.u32.lt %0, %1, %2, %3;");
    ASM("vsub2.s32.s32.s32.sat %0, %1, %2, %3;");
    ASM("vmax2.s32.s32.s32 %0, %1, %2, %3;");
    ASM("vabsdiff.u32.u32.u32.add %0, %1, %2, %3;");
    ASM("vmin.s32.s32.s32 %0, %1, %2;");
})
