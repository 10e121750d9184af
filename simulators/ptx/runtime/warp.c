/* Answers of warp operations (ISA manual §9.7.9 shfl.sync, §9.7.13, §9.7.14).
 *
 * A request's first word is the mask of the lanes that take part; the answer replaces the words.
 */
#include <string.h>

#include "ptx.h"

const char *uptx_request_name(uint32_t request) {
    static const char *const names[] = {
        "the end",   "a loop",     "a barrier",  "bar.warp.sync", "shfl.sync",
        "vote.sync", "match.sync", "redux.sync", "activemask",    "elect.sync",
        "ldmatrix",  "mma.sync",   "stmatrix",   "movmatrix",     "wmma.load or .store",
        "wmma.mma",
    };
    return names[request];
}

static uint32_t mask_of(const struct uptx_thread *thread) { return (uint32_t)thread->words[0]; }

static void release(struct uptx_thread *thread, uint64_t first, uint64_t second) {
    thread->words[0] = first;
    thread->words[1] = second;
    thread->request = UPTX_PAUSE;
    thread->waits = 0;
}

/* The lanes of the mask that have not ended; 0 until all these lanes have arrived. */
static uint32_t gathered(const struct uptx_thread *warp, uint32_t lanes,
                         const struct uptx_thread *one) {
    uint32_t members = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
        const struct uptx_thread *other = &warp[lane];
        if (!(mask_of(one) >> lane & 1) || other->request == UPTX_EXIT) {
            continue;
        }
        if (other->request != one->request || other->operation != one->operation ||
            mask_of(other) != mask_of(one)) {
            return 0;
        }
        members |= 1u << lane;
    }
    return members;
}

/* Copies the words before an answer overwrites any of them. */
struct inputs {
    uint64_t value[UPTX_WARP];
    uint64_t second[UPTX_WARP];
    uint64_t third[UPTX_WARP];
};

static void shuffle(struct uptx_thread *warp, uint32_t members, const struct inputs *in) {
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        if (!(members >> lane & 1)) {
            continue;
        }
        const uint32_t b = in->second[lane] & 31;
        const uint32_t clamp = in->third[lane] & 31;
        const uint32_t segment = in->third[lane] >> 8 & 31;
        const uint32_t last = (lane & segment) | (clamp & ~segment);
        const uint32_t first = lane & segment;
        int source = 0;
        int valid = 0;
        switch (warp[lane].operation) {
        case 0:
            source = (int)lane - (int)b;
            valid = source >= (int)last;
            break;
        case 1:
            source = (int)(lane + b);
            valid = source <= (int)last;
            break;
        case 2:
            source = (int)(lane ^ b);
            valid = source <= (int)last;
            break;
        default:
            source = (int)(first | (b & ~segment));
            valid = source <= (int)last;
        }
        if (!valid || source < 0 || source >= UPTX_WARP) {
            source = (int)lane;
        }
        /* An absent lane's value is undefined: here it is a recognizable number. */
        const uint64_t value = members >> source & 1 ? in->value[source] : 0xDEADBEEF;
        release(&warp[lane], value, (uint64_t)valid);
    }
}

static void vote(struct uptx_thread *warp, uint32_t members, const struct inputs *in) {
    uint32_t ballot = 0;
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        ballot |= (members >> lane & 1 && in->value[lane]) ? 1u << lane : 0;
    }
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        if (members >> lane & 1) {
            const uint64_t answers[] = {ballot == members, ballot != 0,
                                        ballot == members || ballot == 0, ballot};
            release(&warp[lane], answers[warp[lane].operation], 0);
        }
    }
}

static void match(struct uptx_thread *warp, uint32_t members, const struct inputs *in) {
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        if (!(members >> lane & 1)) {
            continue;
        }
        uint32_t equal = 0;
        for (uint32_t other = 0; other < UPTX_WARP; ++other) {
            equal |=
                (members >> other & 1 && in->value[other] == in->value[lane]) ? 1u << other : 0;
        }
        const int all = equal == members;
        release(&warp[lane], warp[lane].operation == 1 && !all ? 0 : equal, (uint64_t)all);
    }
}

static uint32_t combine(uint32_t operation, uint32_t a, uint32_t b) {
    const int is_signed = operation & 8;
    const int less = is_signed ? (int32_t)b < (int32_t)a : b < a;
    switch (operation & 7) {
    case 0:
        return a + b;
    case 1:
        return less ? b : a;
    case 2:
        return less ? a : b;
    case 3:
        return a & b;
    case 4:
        return a | b;
    default:
        return a ^ b;
    }
}

static void reduce(struct uptx_thread *warp, uint32_t members, const struct inputs *in) {
    uint32_t lane = (uint32_t)__builtin_ctz(members);
    uint32_t total = (uint32_t)in->value[lane];
    for (++lane; lane < UPTX_WARP; ++lane) {
        if (members >> lane & 1) {
            total = combine(warp[lane].operation, total, (uint32_t)in->value[lane]);
        }
    }
    for (lane = 0; lane < UPTX_WARP; ++lane) {
        if (members >> lane & 1) {
            release(&warp[lane], total, 0);
        }
    }
}

/* A matrix has eight rows of eight 16-bit values; lane 8 m + r holds the address of row r of matrix
 * m. */
static void load_matrices(struct uptx_thread *warp, const struct inputs *in) {
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        const uint32_t count = warp[lane].operation & 7;
        const int transposed = (warp[lane].operation & 8) != 0;
        uint64_t answers[4] = {0};
        for (uint32_t matrix = 0; matrix < count; ++matrix) {
            uint16_t pair[2];
            for (uint32_t half = 0; half < 2; ++half) {
                const uint32_t row = transposed ? lane % 4 * 2 + half : lane / 4;
                const uint32_t column = transposed ? lane / 4 : lane % 4 * 2 + half;
                const char *start = (const char *)in->value[8 * matrix + row];
                memcpy(&pair[half], start + 2 * column, 2);
            }
            answers[matrix] = pair[0] | (uint32_t)pair[1] << 16;
        }
        release(&warp[lane], answers[0], answers[1]);
        warp[lane].words[2] = answers[2];
        warp[lane].words[3] = answers[3];
    }
}

static void store_matrices(struct uptx_thread *warp, const struct inputs *in) {
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        const uint32_t count = warp[lane].operation & 7;
        const int transposed = (warp[lane].operation & 8) != 0;
        for (uint32_t matrix = 0; matrix < count; ++matrix) {
            for (uint32_t half = 0; half < 2; ++half) {
                const uint32_t row = transposed ? lane % 4 * 2 + half : lane / 4;
                const uint32_t column = transposed ? lane / 4 : lane % 4 * 2 + half;
                const uint16_t value = (uint16_t)(warp[lane].words[2 + matrix] >> 16 * half);
                char *start = (char *)in->value[8 * matrix + row];
                memcpy(start + 2 * column, &value, 2);
            }
        }
    }
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        release(&warp[lane], 0, 0);
    }
}

/* The matrix whose fragments the lanes hold, transposed. */
static void move_matrix(struct uptx_thread *warp, const struct inputs *in) {
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        uint64_t pair = 0;
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t row = lane % 4 * 2 + half;
            const uint32_t column = lane / 4;
            const uint64_t other = in->value[4 * row + column / 2] >> 16 * (column % 2);
            pair |= (other & 0xFFFF) << 16 * half;
        }
        release(&warp[lane], pair, 0);
    }
}

static void answer(struct uptx_thread *warp, uint32_t members, uint32_t request) {
    struct inputs in;
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        if (members >> lane & 1) {
            in.value[lane] = warp[lane].words[1];
            in.second[lane] = warp[lane].words[2];
            in.third[lane] = warp[lane].words[3];
        }
    }
    const uint32_t leader = (uint32_t)__builtin_ctz(members);
    switch (request) {
    case UPTX_SHUFFLE:
        shuffle(warp, members, &in);
        return;
    case UPTX_VOTE:
        vote(warp, members, &in);
        return;
    case UPTX_MATCH:
        match(warp, members, &in);
        return;
    case UPTX_REDUCE:
        reduce(warp, members, &in);
        return;
    case UPTX_MATRIX_LOAD:
        load_matrices(warp, &in);
        return;
    case UPTX_MATRIX_STORE:
        store_matrices(warp, &in);
        return;
    case UPTX_MATRIX_MOVE:
        move_matrix(warp, &in);
        return;
    case UPTX_MATRIX_MULTIPLY:
        uptx_multiply(warp, warp[leader].operation);
        break;
    case UPTX_WMMA:
        uptx_wmma(warp, warp[leader].operation);
        break;
    default:
        break;
    }
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        if (!(members >> lane & 1)) {
            continue;
        }
        if (request == UPTX_MATRIX_MULTIPLY || request == UPTX_WMMA) {
            release(&warp[lane], warp[lane].words[0], warp[lane].words[1]);
        } else {
            release(&warp[lane], leader, lane == leader);
        }
    }
}

uint32_t uptx_answer_warp(struct uptx_worker *worker, struct uptx_thread *warp, uint32_t lanes) {
    uint32_t freed = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
        struct uptx_thread *one = &warp[lane];
        const uint32_t request = one->request;
        if (request < UPTX_WARP_BARRIER || request == UPTX_ACTIVE_MASK) {
            continue;
        }
        if (!(mask_of(one) >> lane & 1)) {
            uptx_fail(worker, UPTX_BAD_MASK,
                      "thread %u, lane %u: its own lane is not in the mask %#x of %s in line %u",
                      one->linear, lane, mask_of(one), uptx_request_name(request), one->line);
        }
        const uint32_t members = gathered(warp, lanes, one);
        if (members == 0) {
            continue;
        }
        if (request >= UPTX_MATRIX_LOAD && members != 0xFFFFFFFF) {
            uptx_fail(worker, UPTX_BAD_MASK, "%s in line %u needs all 32 lanes, %u are there",
                      uptx_request_name(request), one->line, (unsigned)__builtin_popcount(members));
        }
        if (request == UPTX_WARP_BARRIER && worker->watch != NULL) {
            uptx_watch_warp(worker->watch, one->linear / UPTX_WARP);
        }
        answer(warp, members, request);
        freed += (uint32_t)__builtin_popcount(members);
    }
    return freed;
}

uint32_t uptx_answer_active_mask(struct uptx_thread *warp, uint32_t lanes) {
    uint32_t freed = 0;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
        if (warp[lane].request != UPTX_ACTIVE_MASK) {
            continue;
        }
        const uint32_t line = warp[lane].line;
        uint32_t together = 0;
        for (uint32_t other = lane; other < lanes; ++other) {
            if (warp[other].request == UPTX_ACTIVE_MASK && warp[other].line == line) {
                together |= 1u << other;
            }
        }
        for (uint32_t other = lane; other < lanes; ++other) {
            if (together >> other & 1) {
                release(&warp[other], together, 0);
                ++freed;
            }
        }
    }
    return freed;
}
