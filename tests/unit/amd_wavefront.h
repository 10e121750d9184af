// Stands for AMD's compiler and device when kernels are compiled for this CPU. This header has the
// clang builtins that <uhal/kernel.h> uses for AMD. A work-item is a fiber. All fibers of a block
// run in turn from one yield to the next, so an operation across work-items takes two turns: one
// to give values, one to get them.
//
// The instructions follow the ISA manual ("AMD Instinct MI200 Instruction Set Architecture",
// DS_BPERMUTE_B32): the address counts bytes and wraps at the wavefront's end, and an inactive lane
// gives 0.
#pragma once

#define __HIP__ 1
#define UHAL_SIGNATURES 0

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace amd {

struct Extent {
    uint32_t x, y, z;
};

static Extent block_index, block_extent, grid_extent, work_item;
static uint32_t number, count; // the running work-item's number; the count of all work-items
static std::vector<uint32_t> words;

static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;

static void yield() {
    const uint32_t mine = number;
    const Extent place = work_item;
    swapcontext(&fibers[mine], &scheduler);
    number = mine;
    work_item = place;
}

static uint32_t bpermute(uint32_t address, uint32_t value) {
    words[number] = value;
    yield();
    const uint32_t first = number / WAVEFRONT * WAVEFRONT;
    const uint32_t lane = first + address / 4 % WAVEFRONT;
    const uint32_t found = lane < count ? words[lane] : 0;
    yield();
    return found;
}

static uint64_t ballot(bool flag) {
    words[number] = flag;
    yield();
    const uint32_t first = number / WAVEFRONT * WAVEFRONT;
    uint64_t mask = 0;
    for (uint32_t lane = 0; lane < WAVEFRONT && first + lane < count; ++lane)
        mask |= uint64_t{words[first + lane]} << lane;
    yield();
    return mask;
}

template <class Type, class Change> Type change(Type *address, Change made) {
    const Type before = *address;
    *address = made(before);
    return before;
}

static float turn(float x) { return 6.283185307f * x; }

using Kernel = void (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static Kernel kernel;
static const uint64_t *arguments;

static void run_work_item() {
    kernel(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
}

} // namespace amd

// The ABI passes integers and pointers of any type alike.
extern "C" void launch(amd::Kernel kernel, const uint32_t *grid, const uint32_t *block,
                       const uint64_t *arguments) {
    using namespace amd;
    amd::kernel = kernel;
    amd::arguments = arguments;
    block_extent = {block[0], block[1], block[2]};
    grid_extent = {grid[0] * block[0], grid[1] * block[1], grid[2] * block[2]};
    count = block[0] * block[1] * block[2];
    constexpr size_t stack = 64 << 10;
    const std::unique_ptr<char[]> stacks(new char[count * stack]);
    words.assign(count, 0);
    fibers.resize(count);
    for (uint32_t index = 0; index < grid[0] * grid[1] * grid[2]; ++index) {
        block_index = {index % grid[0], index / grid[0] % grid[1], index / grid[0] / grid[1]};
        std::vector<char> ended(count, 0);
        std::vector<ucontext_t> ends(count);
        for (uint32_t item = 0; item < count; ++item) {
            getcontext(&fibers[item]);
            fibers[item].uc_stack.ss_sp = stacks.get() + item * stack;
            fibers[item].uc_stack.ss_size = stack;
            fibers[item].uc_link = &ends[item];
            makecontext(&fibers[item], run_work_item, 0);
        }
        for (uint32_t left = count; left != 0;) {
            for (uint32_t item = 0; item < count; ++item) {
                if (ended[item])
                    continue;
                number = item;
                work_item = {item % block[0], item / block[0] % block[1], item / block[0] / block[1]};
                volatile bool is_back = false;
                getcontext(&ends[item]); // where the fiber goes when the kernel returns
                if (is_back) {
                    ended[item] = 1;
                    --left;
                    continue;
                }
                is_back = true;
                swapcontext(&scheduler, &fibers[item]);
            }
        }
    }
}

#define __builtin_amdgcn_workitem_id_x() (amd::work_item.x)
#define __builtin_amdgcn_workitem_id_y() (amd::work_item.y)
#define __builtin_amdgcn_workitem_id_z() (amd::work_item.z)
#define __builtin_amdgcn_workgroup_id_x() (amd::block_index.x)
#define __builtin_amdgcn_workgroup_id_y() (amd::block_index.y)
#define __builtin_amdgcn_workgroup_id_z() (amd::block_index.z)
#define __builtin_amdgcn_workgroup_size_x() (amd::block_extent.x)
#define __builtin_amdgcn_workgroup_size_y() (amd::block_extent.y)
#define __builtin_amdgcn_workgroup_size_z() (amd::block_extent.z)
#define __builtin_amdgcn_grid_size_x() (amd::grid_extent.x)
#define __builtin_amdgcn_grid_size_y() (amd::grid_extent.y)
#define __builtin_amdgcn_grid_size_z() (amd::grid_extent.z)
#define __builtin_amdgcn_wavefrontsize() uint32_t{WAVEFRONT}
#define __builtin_amdgcn_ds_bpermute(address, value)                                               \
    amd::bpermute(uint32_t(address), uint32_t(value))
#define __builtin_amdgcn_ballot_w64 amd::ballot
#define __builtin_amdgcn_ballot_w32 (uint32_t) amd::ballot
#define __builtin_amdgcn_s_barrier amd::yield
#define __builtin_amdgcn_fence(order, scope) ((void)0)

// The hardware's sine and cosine take angles in turns; logarithm and exponential have base 2.
#define __builtin_amdgcn_exp2f std::exp2
#define __builtin_amdgcn_logf std::log2
#define __builtin_amdgcn_sinf(x) std::sin(amd::turn(x))
#define __builtin_amdgcn_cosf(x) std::cos(amd::turn(x))
#define __builtin_amdgcn_fractf(x) ((x) - std::floor(x))
#define __builtin_amdgcn_sqrtf std::sqrt
#define __builtin_amdgcn_rsqf(x) (1 / std::sqrt(x))
#define __builtin_amdgcn_rcpf(x) (1 / (x))

#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
// No work-item is interrupted, so plain accesses are atomic here.
#define AMD_CHANGE(address, value, expression)                                                     \
    amd::change(address, [&](auto one) {                                                           \
        const decltype(one) other = value;                                                         \
        return decltype(one)(expression);                                                          \
    })
#define __hip_atomic_fetch_add(address, value, order, scope) AMD_CHANGE(address, value, one + other)
#define __hip_atomic_fetch_and(address, value, order, scope) AMD_CHANGE(address, value, one &other)
#define __hip_atomic_fetch_or(address, value, order, scope) AMD_CHANGE(address, value, one | other)
#define __hip_atomic_fetch_xor(address, value, order, scope) AMD_CHANGE(address, value, one ^ other)
#define __hip_atomic_fetch_min(address, value, order, scope)                                       \
    AMD_CHANGE(address, value, other < one ? other : one)
#define __hip_atomic_fetch_max(address, value, order, scope)                                       \
    AMD_CHANGE(address, value, other > one ? other : one)
#define __hip_atomic_exchange(address, value, order, scope)                                        \
    AMD_CHANGE(address, value, (void(one), other))
#define __hip_atomic_load(address, order, scope) (*(address))
#define __hip_atomic_store(address, value, order, scope) (*(address) = (value))
#define __hip_atomic_compare_exchange_strong(address, expected, desired, success, failure, scope)  \
    __atomic_compare_exchange_n(address, expected, desired, false, success, failure)

#include <uhal/kernel.h>

#undef SHARED
#define SHARED(type, name, ...) static type name UHAL_EXTENTS(__VA_ARGS__)
