/* mma.sync (ISA manual §9.7.14): D = A B + C, all lanes of a warp holding their fragments.
 *
 * words[1…4] hold A, words[5…8] B, words[9…12] C; the answer is D in words[0…3].
 */
#include <math.h>
#include <string.h>

#include "ptx.h"

enum element { HALF, BFLOAT, TENSOR_FLOAT };

struct shape {
    uint32_t depth;
    enum element element;
    int narrow; /* C and D are pairs of f16 */
};

static const struct shape shapes[] = {
    {16, HALF, 0},  {16, BFLOAT, 0},      {16, HALF, 1}, {8, HALF, 0},
    {8, BFLOAT, 0}, {8, TENSOR_FLOAT, 0}, {8, HALF, 1},  {4, TENSOR_FLOAT, 0},
};

static float from_half(uint16_t bits) {
    _Float16 value;
    memcpy(&value, &bits, 2);
    return (float)value;
}

static uint16_t to_half(float value) {
    const _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
}

static float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Element `index` of the elements packed in consecutive registers. */
static float element(const uint64_t *registers, uint32_t index, enum element kind) {
    if (kind == TENSOR_FLOAT) {
        return as_float((uint32_t)registers[index] & 0xFFFFE000);
    }
    const uint16_t bits = (uint16_t)(registers[index / 2] >> (index % 2 * 16));
    return kind == HALF ? from_half(bits) : as_float((uint32_t)bits << 16);
}

/* Lane and place of element A[row][k]: a row has four lanes, each register `run` neighbours. */
static float a_value(const struct uptx_thread *warp, const struct shape *shape, uint32_t row,
                     uint32_t k) {
    const uint32_t run = shape->element == TENSOR_FLOAT ? 1 : 2;
    const uint32_t lane = row % 8 * 4 + k / run % 4;
    const uint32_t group = row / 8 + 2 * (k / (4 * run));
    return element(warp[lane].words + 1, group * run + k % run, shape->element);
}

static float b_value(const struct uptx_thread *warp, const struct shape *shape, uint32_t k,
                     uint32_t column) {
    const uint32_t run = shape->element == TENSOR_FLOAT ? 1 : 2;
    const uint32_t lane = column * 4 + k / run % 4;
    return element(warp[lane].words + 5, k / (4 * run) * run + k % run, shape->element);
}

/* Bits of an operation on 8-bit integers. Other operations are DOUBLES or an index of `shapes`. */
enum { DOUBLES = 8, INTEGERS = 16 };
enum { DEPTH_32 = 1, A_SIGNED = 2, B_SIGNED = 4, SATURATED = 8, ROWS_8 = 16 };

/* Byte `index` of the bytes packed in consecutive registers. */
static int32_t byte_of(const uint64_t *registers, uint32_t index, int is_signed) {
    const uint8_t bits = (uint8_t)(registers[index / 4] >> index % 4 * 8);
    return is_signed ? (int8_t)bits : bits;
}

static void multiply_integers(struct uptx_thread *warp, uint32_t operation) {
    const uint32_t depth = operation & DEPTH_32 ? 32 : 16;
    const uint32_t rows = operation & ROWS_8 ? 8 : 16;
    int32_t a[16][32];
    int32_t b[32][8];
    for (uint32_t k = 0; k < depth; ++k) {
        for (uint32_t row = 0; row < rows; ++row) {
            const uint64_t *words = warp[row % 8 * 4 + k / 4 % 4].words + 1;
            const uint32_t group = row / 8 + 2 * (k / 16);
            a[row][k] = byte_of(words, group * 4 + k % 4, operation & A_SIGNED);
        }
        for (uint32_t column = 0; column < 8; ++column) {
            const uint64_t *words = warp[column * 4 + k / 4 % 4].words + 5;
            b[k][column] = byte_of(words, k / 16 * 4 + k % 4, operation & B_SIGNED);
        }
    }
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        uint64_t *words = warp[lane].words;
        for (uint32_t index = 0; index < rows / 4; ++index) {
            int64_t sum = (int32_t)words[9 + index];
            for (uint32_t k = 0; k < depth; ++k) {
                sum += (int64_t)a[lane / 4 + index / 2 * 8][k] * b[k][lane % 4 * 2 + index % 2];
            }
            if (operation & SATURATED) {
                sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            }
            words[index] = (uint32_t)sum;
        }
    }
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

/* m8n8k4: a lane holds one element of A and of B, two of C. */
static void multiply_doubles(struct uptx_thread *warp) {
    double a[8][4];
    double b[4][8];
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        a[lane / 4][lane % 4] = double_of(warp[lane].words[1]);
        b[lane % 4][lane / 4] = double_of(warp[lane].words[5]);
    }
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        uint64_t *words = warp[lane].words;
        for (uint32_t index = 0; index < 2; ++index) {
            double sum = double_of(words[9 + index]);
            for (uint32_t k = 0; k < 4; ++k) {
                sum = fma(a[lane / 4][k], b[k][lane % 4 * 2 + index], sum);
            }
            memcpy(&words[index], &sum, 8);
        }
    }
}

void uptx_multiply(struct uptx_thread *warp, uint32_t operation) {
    if (operation >= INTEGERS) {
        multiply_integers(warp, operation - INTEGERS);
        return;
    }
    if (operation == DOUBLES) {
        multiply_doubles(warp);
        return;
    }
    const struct shape *shape = &shapes[operation];
    float a[16][16];
    float b[16][8];
    for (uint32_t k = 0; k < shape->depth; ++k) {
        for (uint32_t row = 0; row < 16; ++row) {
            a[row][k] = a_value(warp, shape, row, k);
        }
        for (uint32_t column = 0; column < 8; ++column) {
            b[k][column] = b_value(warp, shape, k, column);
        }
    }
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        uint64_t *words = warp[lane].words;
        float result[4];
        for (uint32_t index = 0; index < 4; ++index) {
            const uint32_t row = lane / 4 + index / 2 * 8;
            const uint32_t column = lane % 4 * 2 + index % 2;
            float sum = shape->narrow ? element(words + 9, index, HALF)
                                      : as_float((uint32_t)words[9 + index]);
            for (uint32_t k = 0; k < shape->depth; ++k) {
                sum += a[row][k] * b[k][column];
            }
            result[index] = sum;
        }
        for (uint32_t index = 0; index < 4; ++index) {
            uint32_t bits;
            memcpy(&bits, &result[index], 4);
            words[index] = bits;
        }
        if (shape->narrow) {
            words[0] = to_half(result[0]) | (uint32_t)to_half(result[1]) << 16;
            words[1] = to_half(result[2]) | (uint32_t)to_half(result[3]) << 16;
        }
    }
}
