/* A model of one AMD GPU, for the hook that AMD's HSA runtime has for such models since ROCm 7.
 *
 * HSA_MODEL_LIB names this library and HSA_MODEL_TOPOLOGY a folder that describes the device. Then
 * the runtime opens no kernel driver: memory is host memory, and this library handles the queues.
 * One thread per queue takes packets like a packet processor, or commands like a copy engine. No
 * kernel is executed: a dispatch is checked and noted, and counts as done. * Sources of the
 * layouts: packets, "HSA Platform System Architecture Specification" 1.2; signals,
 * amd_hsa_signal.h; kernel descriptors, LLVM's "User Guide for AMDGPU Backend"; commands of the
 * copy engines, Linux's vega10_sdma_pkt_open.h and navi10_sdma_pkt_open.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* -- calls by the runtime ---------------------------------------------------------------------- */

enum { HOOK_MAJOR = 0, HOOK_MINOR = 4 };

typedef void (*set_event_function)(void *data, unsigned event);

typedef struct model {
    set_event_function set_event;
    void *event_data;
} model;

typedef struct queue_memory {
    char *ring;
    _Atomic uint64_t *write_index; /* in packets; for copy queues in bytes */
    _Atomic uint64_t *read_index;
    void *doorbell; /* null: the runtime rings no doorbell, so the model polls write_index */
    uint32_t ring_bytes;
    uint32_t type;
} queue_memory;

typedef struct queue {
    model *owner;
    queue_memory memory;
    pthread_mutex_t in_use; /* held while the queue's thread accesses the queue's memory */
    atomic_bool stop;
    atomic_int holders; /* count of users: the runtime and the queue's thread */
} queue;

typedef struct hook {
    uint32_t major, minor;
    model *(*create)(void);
    void (*destroy)(model *);
    void (*set_aperture)(model *, void *base, uint64_t bytes);
    void (*allocated)(model *, void *address, uint64_t bytes, uint32_t flags);
    void (*freed)(model *, void *address, uint64_t bytes);
    void (*set_notify)(model *, void (*function)(void *), void *data);
    void (*set_wait)(model *, void (*function)(void *, uint64_t, uint64_t), void *data);
    queue *(*add_queue)(model *, const queue_memory *);
    void (*set_set_event)(model *, set_event_function, void *data);
    void (*remove_queue)(model *, queue *);
} hook;

/* -- what tests call --------------------------------------------------------------------------- */

enum { NOTED_KERNARG_BYTES = 1024, NOTED_DISPATCHES = 4096, COMPLAINT_BYTES = 120 };

/* A kernel dispatch as the device found it. */
typedef struct noted_dispatch {
    unsigned char packet[64];
    unsigned char descriptor[64];
    unsigned char kernarg[NOTED_KERNARG_BYTES];
    char complaint[COMPLAINT_BYTES]; /* reason why hardware would not run it; empty if valid */
} noted_dispatch;

/* Calls `body` on a thread of its own and returns its result.
 *
 * ROCr 7.2 forgets to count the nodes of a model. hsaKmtOpenKFD reads an uninitialised number of
 * bytes from its stack and clears as many bytes, at most 4 GiB. Usually the number is the lower
 * half of an address in the same stack. So the number is small if the stack is at the start of an
 * aligned 4 GiB. */
int model_run(int (*body)(void));

/* Copies the notes from `first` on; returns how many there were. */
size_t model_dispatches(noted_dispatch *noted, size_t first, size_t most);

/* Number of packets that a device of this kind does not know. */
size_t model_unknown_packets(void);

/* -- signals ----------------------------------------------------------------------------------- */

typedef struct signal {
    int64_t kind;
    _Atomic int64_t value;
    _Atomic uint64_t *mailbox; /* null if no thread sleeps on the signal */
    uint32_t event;
    uint32_t reserved;
    uint64_t start, end; /* of the packet, in ticks of the device */
} signal;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

static void complete(const model *owner, signal *done, uint64_t start) {
    if (done == NULL)
        return;
    done->start = start;
    done->end = now();
    _Atomic uint64_t *mailbox = done->mailbox;
    const uint32_t event = done->event;
    /* A waiting thread may free the signal after this decrement. */
    atomic_fetch_sub(&done->value, 1);
    if (mailbox != NULL) {
        atomic_store(mailbox, event);
        if (owner->set_event != NULL)
            owner->set_event(owner->event_data, event);
    }
}

/* -- memory ------------------------------------------------------------------------------------ */

typedef struct range {
    uint64_t start, bytes;
} range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range *ranges;
static size_t range_count, range_room;

static void allocated(model *owner, void *address, uint64_t bytes, uint32_t flags) {
    (void)owner, (void)flags;
    pthread_mutex_lock(&lock);
    if (range_count == range_room) {
        range_room = range_room * 2 + 64;
        ranges = realloc(ranges, range_room * sizeof *ranges);
        if (ranges == NULL)
            abort();
    }
    ranges[range_count++] = (range){(uint64_t)address, bytes};
    pthread_mutex_unlock(&lock);
}

static void freed(model *owner, void *address, uint64_t bytes) {
    (void)owner, (void)bytes;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < range_count; ++i)
        if (ranges[i].start == (uint64_t)address) {
            ranges[i] = ranges[--range_count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* Whether the device may touch these bytes. The lock is held. */
static bool in_memory(uint64_t address, uint64_t bytes) {
    for (size_t i = 0; i < range_count; ++i)
        if (address >= ranges[i].start && bytes <= ranges[i].bytes &&
            address - ranges[i].start <= ranges[i].bytes - bytes)
            return true;
    return false;
}

/* -- dispatches -------------------------------------------------------------------------------- */

typedef struct dispatch_packet {
    uint16_t header, setup;
    uint16_t group[3], reserved0;
    uint32_t grid[3];
    uint32_t private_bytes, group_bytes;
    uint64_t kernel, kernarg, reserved2;
    signal *done;
} dispatch_packet;

typedef struct kernel_descriptor {
    uint32_t group_bytes, private_bytes, kernarg_bytes, reserved0;
    int64_t entry; /* offset of the code from the descriptor */
    unsigned char rest[40];
} kernel_descriptor;

_Static_assert(sizeof(dispatch_packet) == 64 && sizeof(kernel_descriptor) == 64, "as specified");

static noted_dispatch *noted;
static size_t noted_count;
static atomic_size_t unknown_packets;

/* Notes the kernel's descriptor and arguments. Returns why hardware would not run it, or null.
 * The lock is held. */
static const char *note_kernel(const dispatch_packet *packet, noted_dispatch *into) {
    kernel_descriptor kernel;
    if (packet->kernel % 64 != 0 || !in_memory(packet->kernel, sizeof kernel))
        return "the kernel object is no descriptor in memory of the device";
    memcpy(&kernel, (const void *)packet->kernel, sizeof kernel);
    memcpy(into->descriptor, &kernel, sizeof kernel);
    if (!in_memory(packet->kernel + (uint64_t)kernel.entry, 256) ||
        (packet->kernel + (uint64_t)kernel.entry) % 256 != 0)
        return "the code of the kernel is not in memory of the device";
    if (packet->group_bytes < kernel.group_bytes)
        return "less group memory than the kernel takes";
    if (packet->private_bytes < kernel.private_bytes)
        return "less private memory than the kernel takes";
    if (kernel.kernarg_bytes > sizeof into->kernarg)
        return "more arguments than this model notes";
    if (kernel.kernarg_bytes != 0 &&
        (packet->kernarg % 16 != 0 || !in_memory(packet->kernarg, kernel.kernarg_bytes)))
        return "the arguments are not in memory of the device";
    memcpy(into->kernarg, (const void *)packet->kernarg, kernel.kernarg_bytes);
    return NULL;
}

static const char *check_shape(const dispatch_packet *packet) {
    const unsigned dimensions = packet->setup & 3;
    uint64_t work_items = 1;
    if (dimensions == 0 || packet->setup >> 2 != 0 || packet->header >> 13 != 0 ||
        packet->reserved0 != 0 || packet->reserved2 != 0)
        return "reserved bits are set, or there are no dimensions";
    if ((packet->header >> 9 & 3) == 3 || (packet->header >> 11 & 3) == 3)
        return "a fence has a scope that is none";
    for (unsigned axis = 0; axis < 3; ++axis) {
        if (packet->group[axis] == 0 || packet->grid[axis] == 0)
            return "a work-group or a grid is empty";
        if (axis >= dimensions && (packet->group[axis] != 1 || packet->grid[axis] != 1))
            return "an axis that is not used is not 1";
        work_items *= packet->group[axis];
    }
    return work_items > 1024 ? "a work-group has more than 1024 work-items" : NULL;
}

static void note_dispatch(const dispatch_packet *packet) {
    pthread_mutex_lock(&lock);
    if (noted == NULL)
        noted = calloc(NOTED_DISPATCHES, sizeof *noted);
    if (noted != NULL && noted_count < NOTED_DISPATCHES) {
        noted_dispatch *into = &noted[noted_count++];
        memcpy(into->packet, packet, sizeof into->packet);
        const char *shape = check_shape(packet);
        const char *kernel = note_kernel(packet, into);
        snprintf(into->complaint, sizeof into->complaint, "%s%s%s", shape ? shape : "",
                 shape && kernel ? "; " : "", kernel ? kernel : "");
    }
    pthread_mutex_unlock(&lock);
}

/* -- the packet processor ---------------------------------------------------------------------- */

enum { VENDOR_SPECIFIC, INVALID, KERNEL_DISPATCH, BARRIER_AND, AGENT_DISPATCH, BARRIER_OR };
enum { FORMAT_PM4 = 1, FORMAT_BARRIER_VALUE = 2 }; /* formats of AMD's vendor-specific packets */
enum { PACKET_BYTES = 64, DEPENDENCIES = 5 };

typedef struct packet {
    _Atomic uint16_t header;
    uint8_t format;
    uint8_t reserved0[5];
    union {
        signal *dependencies[DEPENDENCIES];
        struct {
            signal *waited;
            int64_t value, mask;
            uint32_t condition;
        } barrier_value;
    };
    uint64_t reserved2;
    signal *done;
} packet;

_Static_assert(sizeof(packet) == PACKET_BYTES, "as specified");

/* Sleeps for 10 µs to 1 ms, longer with each idle round. */
static void idle(unsigned *rounds) {
    const unsigned doublings = *rounds / 16 < 7 ? (*rounds)++ / 16 : 7;
    const struct timespec time = {0, 10000L << doublings < 1000000 ? 10000L << doublings : 1000000};
    nanosleep(&time, NULL);
}

static bool all_down(const packet *waiting) {
    for (int i = 0; i < DEPENDENCIES; ++i)
        if (waiting->dependencies[i] != NULL && atomic_load(&waiting->dependencies[i]->value) != 0)
            return false;
    return true;
}

static bool any_down(const packet *waiting) {
    bool any = false;
    for (int i = 0; i < DEPENDENCIES; ++i) {
        any |= waiting->dependencies[i] != NULL;
        if (waiting->dependencies[i] != NULL && atomic_load(&waiting->dependencies[i]->value) == 0)
            return true;
    }
    return !any;
}

static bool value_reached(const packet *waiting) {
    const int64_t value =
        atomic_load(&waiting->barrier_value.waited->value) & waiting->barrier_value.mask;
    switch (waiting->barrier_value.condition) {
    case 0:
        return value == waiting->barrier_value.value;
    case 1:
        return value != waiting->barrier_value.value;
    case 2:
        return value < waiting->barrier_value.value;
    default:
        return value >= waiting->barrier_value.value;
    }
}

static void wait_until(queue *of, bool (*holds)(const packet *), const packet *waiting) {
    unsigned rounds = 0;
    while (!atomic_load(&of->stop) && !holds(waiting))
        idle(&rounds);
}

static void process(queue *of, const packet *next, unsigned type) {
    if (type == KERNEL_DISPATCH)
        note_dispatch((const dispatch_packet *)next);
    else if (type == BARRIER_AND)
        wait_until(of, all_down, next);
    else if (type == BARRIER_OR)
        wait_until(of, any_down, next);
    else if (type == VENDOR_SPECIFIC && next->format == FORMAT_BARRIER_VALUE)
        wait_until(of, value_reached, next);
    else if (type != VENDOR_SPECIFIC || next->format != FORMAT_PM4)
        /* PM4 packets are hardware commands; the runtime only uses them to flush caches. */
        atomic_fetch_add(&unknown_packets, 1);
}

/* The runtime destroys a queue under a lock that its event notification takes, too. So no event is
 * sent while the queue is in use, and nobody waits for a thread to end. */
static void drop(queue *of) {
    if (atomic_fetch_sub(&of->holders, 1) == 1) {
        pthread_mutex_destroy(&of->in_use);
        free(of);
    }
}

static void *run_queue(void *argument) {
    queue *of = argument;
    const uint64_t packets = of->memory.ring_bytes / PACKET_BYTES;
    uint64_t index = 0;
    unsigned rounds = 0;
    pthread_mutex_lock(&of->in_use);
    while (!atomic_load(&of->stop)) {
        packet *next = (packet *)(of->memory.ring + index % packets * PACKET_BYTES);
        const unsigned type = atomic_load(&next->header) & 0xff;
        const bool idling =
            index >= atomic_load(of->memory.write_index) || type == INVALID;
        const uint64_t start = now();
        signal *done = NULL;
        if (!idling) {
            process(of, next, type);
            done = next->done;
            atomic_store(&next->header, INVALID);
            atomic_store(of->memory.read_index, ++index);
            rounds = 0;
        }
        pthread_mutex_unlock(&of->in_use);
        if (idling)
            idle(&rounds);
        complete(of->owner, done, start);
        pthread_mutex_lock(&of->in_use);
    }
    pthread_mutex_unlock(&of->in_use);
    drop(of);
    return NULL;
}

/* -- the copy engine --------------------------------------------------------------------------- */

enum {
    SDMA_NOP = 0,
    SDMA_COPY = 1,
    SDMA_FENCE = 5,
    SDMA_TRAP = 6,
    SDMA_POLL = 8,
    SDMA_ATOMIC = 10,
    SDMA_FILL = 11,
    SDMA_TIMESTAMP = 13,
    SDMA_CACHES = 17,
};
enum { SDMA_ADD_64 = 47 };
enum { QUEUE_OF_COPIES = 1 };

/* A command, copied from the ring; no command wraps around. */
typedef struct command {
    uint32_t words[8];
} command;

static uint64_t wide(const command *of, unsigned at) {
    return of->words[at] | (uint64_t)of->words[at + 1] << 32;
}

static bool reached(const command *poll) {
    const uint32_t value =
        atomic_load((const _Atomic uint32_t *)wide(poll, 1)) & poll->words[4];
    const uint32_t asked = poll->words[3];
    switch (poll->words[0] >> 28 & 7) {
    case 1:
        return value < asked;
    case 2:
        return value <= asked;
    case 3:
        return value == asked;
    case 4:
        return value != asked;
    case 5:
        return value >= asked;
    case 6:
        return value > asked;
    default:
        return true;
    }
}

static void poll_memory(queue *of, const command *poll) {
    const bool of_memory = poll->words[0] >> 31 != 0; /* else polls a register, to flush a cache */
    for (unsigned rounds = 0; of_memory && !atomic_load(&of->stop) && !reached(poll);)
        idle(&rounds);
}

/* Executes a command; returns the command's number of words, 0 for an unknown command. `event` is
 * the event for the runtime, if any. */
static unsigned execute(queue *of, const command *next, unsigned *event) {
    const uint32_t *words = next->words;
    const unsigned sub_operation = words[0] >> 8 & 0xff;
    switch (words[0] & 0xff) {
    case SDMA_NOP:
        return 1 + (words[0] >> 16 & 0x3fff);
    case SDMA_COPY:
        if (sub_operation != 0)
            return 0;
        memmove((void *)wide(next, 5), (const void *)wide(next, 3), (words[1] & 0x3fffffff) + 1);
        return 7;
    case SDMA_FENCE:
        atomic_store((_Atomic uint32_t *)wide(next, 1), words[3]);
        return 4;
    case SDMA_TRAP:
        *event = words[1] & 0xfffffff;
        return 2;
    case SDMA_POLL:
        poll_memory(of, next);
        return 6;
    case SDMA_ATOMIC:
        if (words[0] >> 25 != SDMA_ADD_64)
            return 0;
        atomic_fetch_add((_Atomic uint64_t *)wide(next, 1), wide(next, 3));
        return 8;
    case SDMA_FILL:
        if (words[0] >> 30 != 2) /* only fills in units of a word are known */
            return 0;
        for (uint32_t i = 0; i <= words[4] / 4; ++i)
            ((uint32_t *)wide(next, 1))[i] = words[3];
        return 5;
    case SDMA_TIMESTAMP:
        atomic_store((_Atomic uint64_t *)wide(next, 1), now());
        return 3;
    case SDMA_CACHES:
        return 5;
    default:
        return 0;
    }
}

static void *run_copies(void *argument) {
    queue *of = argument;
    const uint64_t ring_words = of->memory.ring_bytes / 4;
    const uint32_t *ring = (const uint32_t *)of->memory.ring;
    uint64_t at = 0;
    unsigned rounds = 0;
    bool lost = false; /* true after an unknown command, whose length is unknown */
    pthread_mutex_lock(&of->in_use);
    while (!atomic_load(&of->stop)) {
        const bool idling = lost || at == atomic_load(of->memory.write_index);
        unsigned event = 0;
        if (!idling) {
            command next;
            for (unsigned i = 0; i < 8; ++i)
                next.words[i] = ring[(at / 4 + i) % ring_words];
            const unsigned words = execute(of, &next, &event);
            lost = words == 0;
            atomic_fetch_add(&unknown_packets, lost);
            at += 4 * (uint64_t)words;
            atomic_store(of->memory.read_index, at);
            rounds = 0;
        }
        pthread_mutex_unlock(&of->in_use);
        if (idling)
            idle(&rounds);
        if (event != 0 && of->owner->set_event != NULL)
            of->owner->set_event(of->owner->event_data, event);
        pthread_mutex_lock(&of->in_use);
    }
    pthread_mutex_unlock(&of->in_use);
    drop(of);
    return NULL;
}

/* -- the hook ---------------------------------------------------------------------------------- */

static model *create(void) { return calloc(1, sizeof(model)); }

static void destroy(model *owner) { free(owner); }

static void set_aperture(model *owner, void *base, uint64_t bytes) {
    (void)owner, (void)base, (void)bytes;
}

static void set_notify(model *owner, void (*function)(void *), void *data) {
    (void)owner, (void)function, (void)data;
}

static void set_wait(model *owner, void (*function)(void *, uint64_t, uint64_t), void *data) {
    (void)owner, (void)function, (void)data;
}

static void set_set_event(model *owner, set_event_function function, void *data) {
    owner->set_event = function;
    owner->event_data = data;
}

static queue *add_queue(model *owner, const queue_memory *memory) {
    queue *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->owner = owner;
    made->memory = *memory;
    pthread_mutex_init(&made->in_use, NULL);
    atomic_store(&made->holders, 2);
    pthread_t thread;
    if (pthread_create(&thread, NULL, memory->type == QUEUE_OF_COPIES ? run_copies : run_queue,
                       made) != 0)
        abort();
    pthread_detach(thread);
    return made;
}

static void remove_queue(model *owner, queue *of) {
    (void)owner;
    atomic_store(&of->stop, true);
    pthread_mutex_lock(&of->in_use);
    pthread_mutex_unlock(&of->in_use);
    drop(of);
}

const void *get_hsakmt_model_functions(void) {
    static const hook functions = {
        HOOK_MAJOR, HOOK_MINOR, create,   destroy,   set_aperture,  allocated,
        freed,      set_notify, set_wait, add_queue, set_set_event, remove_queue,
    };
    return &functions;
}

/* -- for tests --------------------------------------------------------------------------------- */

enum { STACK_BYTES = 16 << 20 };

static void *call_body(void *argument) {
    int (*const *body)(void) = argument;
    return (void *)(intptr_t)(*body)();
}

int model_run(int (*body)(void)) {
    char *stack = MAP_FAILED;
    /* Finds an aligned 4 GiB whose start is free, from 96 TiB on, where most memory is free. */
    for (uint64_t at = 0x600000000000; stack == MAP_FAILED && at < 0x608000000000; at += 1ULL << 32)
        stack = mmap((void *)at, STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    void *result;
    pthread_attr_init(&attributes);
    if (stack == MAP_FAILED || pthread_attr_setstack(&attributes, stack, STACK_BYTES) != 0 ||
        pthread_create(&thread, &attributes, call_body, &body) != 0 ||
        pthread_join(thread, &result) != 0)
        abort();
    return (int)(intptr_t)result;
}

size_t model_dispatches(noted_dispatch *into, size_t first, size_t most) {
    pthread_mutex_lock(&lock);
    const size_t count = noted_count;
    for (size_t i = 0; first + i < count && i < most; ++i)
        into[i] = noted[first + i];
    pthread_mutex_unlock(&lock);
    return count;
}

size_t model_unknown_packets(void) { return atomic_load(&unknown_packets); }
