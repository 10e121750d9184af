// For NVIDIA's devices: reductions of rows that lie side by side, as along the first axis of a
// matrix. A lane takes a row, so that neighboring lanes read neighboring elements, and the warps of a
// block share each row.
#ifndef UBRIDGE_REDUCTION_LANES_H
#define UBRIDGE_REDUCTION_LANES_H

#include "reduction.h"

template <class T> struct SideBySide {
    const Operand<T> &operand;
    bool exists = false;
    // The distance of a row's elements.
    u64 step = 0;

    DEVICE_METHOD SideBySide(const Operand<T> &rows, u64 count) : operand(rows)
    {
        const Layout &layout = rows.layout;
        if (rows.contiguous || layout.num_dims < 2)
            return;
        const u64 last = layout.num_dims - 1;
        step = layout.strides[last];
        exists = layout.dims[last] == count && step != 1 && layout.strides[last - 1] == 1;
    }
};

// Reduces elements first, first + apart … of a row; neighboring elements are `step` apart in
// memory.
template <class State, class T>
DEVICE_FUNCTION void reduce_line(State &state, const T *values, u64 step, u64 first, u64 count,
                                 u32 apart)
{
    // Number of loads that do not wait for one another.
    constexpr u32 AT_ONCE = 4;
    u64 i = first;
    ROLLED for (; i + (AT_ONCE - 1) * apart < count; i += AT_ONCE * apart) {
        T loaded[AT_ONCE];
        for (u32 n = 0; n < AT_ONCE; ++n)
            loaded[n] = values[(i + n * apart) * step];
        for (u32 n = 0; n < AT_ONCE; ++n)
            state.step(widen(loaded[n]), i + n * apart);
    }
    ROLLED for (; i < count; i += apart)
        state.step(widen(values[i * step]), i);
}

template <class State, class T, class Out>
DEVICE_FUNCTION void reduce_side_by_side(BLOCK block, const SideBySide<T> &all, u64 index,
                                         u64 blocks, u64 rows, u64 count, u64 last_dim, Out *dst)
{
    typedef SharedStates<State, MAX_THREADS> States;
    SHARED(States, states, 1);
    const u32 warps = blockDim.x * blockDim.y * blockDim.z / WARP_LANES;
    ROLLED for (u64 first = index * WARP_LANES; first < rows; first += blocks * WARP_LANES) {
        THREADS_OF(block, t) {
            State own = State::initial();
            const u64 row = first + t % WARP_LANES;
            const u32 warp = t / WARP_LANES;
            if (row < rows && warp < warps) {
                const T *const values = all.operand.data + all.operand.layout.at(row * count);
                reduce_line(own, values, all.step, warp, count, warps);
            }
            states[0].set(t, own);
        }
        BARRIER();
        THREADS_OF(block, t) {
            if (t < WARP_LANES && first + t < rows) {
                State state = states[0].get(t);
                ROLLED for (u32 warp = 1; warp < warps; ++warp)
                    state.merge(states[0].get(warp * WARP_LANES + t));
                dst[first + t] = Out(state.stored(last_dim));
            }
        }
        BARRIER();
    }
}

#endif
