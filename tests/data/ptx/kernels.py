"""Kernels that Triton translates to PTX for the tests (make.py)."""

# Triton reads these annotations itself, so their evaluation cannot be postponed.
import triton
import triton.language as tl


@triton.jit
def row_sum(x, y, columns, SIZE: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, SIZE)
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(0, columns, SIZE):
        inside = start + offsets < columns
        total += tl.load(x + row * columns + start + offsets, mask=inside, other=0.0)
    tl.store(y + row, tl.sum(total, axis=0))


@triton.jit
def softmax(x, y, columns, SIZE: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, SIZE)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf"))
    raised = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * columns + offsets, raised / tl.sum(raised, axis=0), mask=inside)


@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = (rows[:, None] < m) & (start + inner[None, :] < k)
        right = (start + inner[:, None] < k) & (columns[None, :] < n)
        one = tl.load(a + rows[:, None] * k + start + inner[None, :], mask=left, other=0.0)
        other = tl.load(b + (start + inner[:, None]) * n + columns[None, :], mask=right, other=0.0)
        total += tl.dot(one, other)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=inside)


@triton.jit
def integer_matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.int32)
    for start in range(0, k, K):
        left = (rows[:, None] < m) & (start + inner[None, :] < k)
        right = (start + inner[:, None] < k) & (columns[None, :] < n)
        one = tl.load(a + rows[:, None] * k + start + inner[None, :], mask=left, other=0)
        other = tl.load(b + (start + inner[:, None]) * n + columns[None, :], mask=right, other=0)
        total = tl.dot(one, other, total, out_dtype=tl.int32)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=inside)


@triton.jit
def prefix_sum(x, y, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    tl.store(y + offsets, tl.cumsum(tl.load(x + offsets), axis=0))


@triton.jit
def sort(x, y, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    tl.store(y + offsets, tl.sort(tl.load(x + offsets)))


@triton.jit
def histogram(x, y, n, SIZE: tl.constexpr):
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = offsets < n
    tl.atomic_add(y + tl.load(x + offsets, mask=inside, other=0), 1, mask=inside)


@triton.jit
def layer_norm(x, y, columns, SIZE: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, SIZE)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    away = tl.where(inside, values - mean, 0.0)
    variance = tl.sum(away * away, axis=0) / columns
    result = away / tl.sqrt(variance + 1e-5)
    tl.store(y + row * columns + offsets, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def to_narrow(x, y, n, SIZE: tl.constexpr):
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=inside).to(y.dtype.element_ty), mask=inside)


@triton.jit
def transpose(x, y, rows, columns, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    j = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask=inside)
    other = (j[:, None] < columns) & (i[None, :] < rows)
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(tile), mask=other)


# kernel, name of its file, signature, constants, architectures
VARIANTS = [
    (row_sum, "row_sum", "*fp32 *fp32 i32", {"SIZE": 512}, (80, 90)),
    (softmax, "softmax", "*fp32 *fp32 i32", {"SIZE": 1024}, (80, 90)),
    (matmul, "matmul_f16", "*fp16 *fp16 *fp32 i32 i32 i32", {"M": 32, "N": 32, "K": 32}, (80,)),
    (matmul, "matmul_bf16", "*bf16 *bf16 *fp32 i32 i32 i32", {"M": 64, "N": 64, "K": 32}, (80,)),
    (matmul, "matmul_tf32", "*fp32 *fp32 *fp32 i32 i32 i32", {"M": 32, "N": 32, "K": 32}, (80,)),
    (integer_matmul, "matmul_s8", "*i8 *i8 *i32 i32 i32 i32", {"M": 32, "N": 32, "K": 32}, (80,)),
    (prefix_sum, "prefix_sum", "*i32 *i32", {"SIZE": 1024}, (80, 90)),
    (sort, "sort", "*i32 *i32", {"SIZE": 256}, (80,)),
    (histogram, "histogram", "*i32 *i32 i32", {"SIZE": 256}, (80, 90)),
    (layer_norm, "layer_norm_f16", "*fp16 *fp16 i32", {"SIZE": 512}, (80, 90)),
    (layer_norm, "layer_norm_bf16", "*bf16 *bf16 i32", {"SIZE": 512}, (80, 90)),
    (to_narrow, "to_e4m3", "*fp32 *fp8e4nv i32", {"SIZE": 256}, (90,)),
    (to_narrow, "to_e5m2", "*fp16 *fp8e5 i32", {"SIZE": 256}, (90,)),
    (transpose, "transpose", "*fp16 *fp16 i32 i32", {"SIZE": 32}, (80, 90)),
]
