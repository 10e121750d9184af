// Matrix products by a BLAS, for CPUs. `blas_matmul_<type>` is out = a b for each batch, where
// `gemm` is the address of cblas_sgemm or cblas_dgemm with 32-bit integers. `blas_matvec_<type>`
// multiplies a matrix by a vector, with cblas_sgemv or cblas_dgemv, which reads the matrix only
// once.
//
// The products are kernels, so that they keep their stream's order, use the host runtime's threads
// and can be recorded. The grid is (pieces of n, pieces of m, batches): a block multiplies one
// piece by one call, which must not start threads itself. `a_leading` is the distance between rows,
// or with `a_transposed` between columns; the same holds for b. out is row-major. Vectors are cut
// along x alone; `step` is the distance between elements of the vector.
#include <atomic>
#include <new>
#include <string.h>
#include <sys/mman.h>

#include <uhal/kernel.h>

enum : i32 { ROW_MAJOR = 101, NOT_TRANSPOSED = 111, TRANSPOSED = 112 }; // CBLAS's values

template <class T>
using Gemm = void (*)(i32 order, i32 a_transposed, i32 b_transposed, i32 m, i32 n, i32 k, T alpha,
                      const T *a, i32 a_leading, const T *b, i32 b_leading, T beta, T *out,
                      i32 out_leading);

template <class T>
using Gemv = void (*)(i32 order, i32 transposed, i32 stored_rows, i32 stored_columns, T alpha,
                      const T *matrix, i32 leading, const T *vector, i32 step, T beta, T *out,
                      i32 out_step);

// One of `pieces` parts of a length, in whole cache lines.
struct Piece {
    u64 first;
    u64 length;

    Piece(u64 whole, u64 index, u64 pieces)
    {
        const u64 longest = ((whole + pieces - 1) / pieces + 31) & ~u64{31};
        first = index * longest < whole ? index * longest : whole;
        length = whole - first < longest ? whole - first : longest;
    }
};

// A call of OpenBLAS, which ends the process if its allocation fails. OpenBLAS keeps the memory of
// the largest number of simultaneous calls so far. One more call is made only if its memory can be
// mapped.
static std::atomic<u32> running{0}, kept{0};
class Call {
  public:
    Call() : number_(running.fetch_add(1) + 1)
    {
        const u32 before = kept.load();
        if (number_ <= before)
            return;
        const size_t bytes = (number_ - before) * EACH;
        void *const memory =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            running.fetch_sub(1);
            throw std::bad_alloc();
        }
        munmap(memory, bytes);
    }
    ~Call()
    {
        u32 before = kept.load();
        while (before < number_ && !kept.compare_exchange_weak(before, number_)) {
        }
        running.fetch_sub(1);
    }
    Call(const Call &) = delete;

  private:
    static constexpr size_t EACH = size_t{48} << 20; // OpenBLAS takes 32 MiB
    const u32 number_;
};

#define BLAS_MATMUL(T)                                                                             \
    KERNEL(blas_matmul_##T, (u64 gemm, const T *a, const T *b, T *out, u64 m, u64 n, u64 k,        \
                             u64 a_batch, u64 a_leading, bool a_transposed, u64 b_batch,           \
                             u64 b_leading, bool b_transposed))                                    \
    {                                                                                              \
        const Piece rows(m, blockIdx.y, gridDim.y);                                                \
        const Piece columns(n, blockIdx.x, gridDim.x);                                             \
        if (rows.length == 0 || columns.length == 0)                                               \
            return;                                                                                \
        const Call call;                                                                           \
        reinterpret_cast<Gemm<T>>(gemm)(                                                           \
            ROW_MAJOR, a_transposed ? TRANSPOSED : NOT_TRANSPOSED,                                 \
            b_transposed ? TRANSPOSED : NOT_TRANSPOSED, i32(rows.length), i32(columns.length),     \
            i32(k), T(1), a + blockIdx.z * a_batch + rows.first * (a_transposed ? 1 : a_leading),  \
            i32(a_leading),                                                                        \
            b + blockIdx.z * b_batch + columns.first * (b_transposed ? b_leading : 1),             \
            i32(b_leading), T(0), out + (blockIdx.z * m + rows.first) * n + columns.first,         \
            i32(n));                                                                               \
    }

BLAS_MATMUL(f32)
BLAS_MATMUL(f64)

// In some releases of OpenBLAS a NaN in out stays NaN when scaled by 0, so out is cleared here.
#define BLAS_MATVEC(T)                                                                             \
    KERNEL(blas_matvec_##T, (u64 gemv, const T *matrix, const T *vector, T *out, u64 rows,         \
                             u64 columns, u64 matrix_batch, u64 leading, bool transposed,          \
                             u64 vector_batch, u64 step))                                          \
    {                                                                                              \
        const Piece piece(rows, blockIdx.x, gridDim.x);                                            \
        if (piece.length == 0)                                                                     \
            return;                                                                                \
        T *const results = out + blockIdx.z * rows + piece.first;                                  \
        memset(results, 0, piece.length * sizeof(T));                                              \
        const Call call;                                                                           \
        reinterpret_cast<Gemv<T>>(gemv)(                                                           \
            ROW_MAJOR, transposed ? TRANSPOSED : NOT_TRANSPOSED,                                   \
            i32(transposed ? columns : piece.length), i32(transposed ? piece.length : columns),    \
            T(1), matrix + blockIdx.z * matrix_batch + piece.first * (transposed ? 1 : leading),   \
            i32(leading), vector + blockIdx.z * vector_batch, i32(step), T(1), results, 1);        \
    }

BLAS_MATVEC(f32)
BLAS_MATVEC(f64)
