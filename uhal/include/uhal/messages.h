/** Messages of kernels: PRINTF, and ASSERT for conditions.
 *
 * Both write to host memory, and the kernel continues. The program gets the messages at its next
 * wait for the device. Printed text goes to `sys.stdout`, and a failed assertion raises
 * `uhal.errors.KernelAssertionError`; the device stays usable. Values are at most eight numbers and
 * pointers. The last 4096 messages between two waits are kept; a warning counts lost ones.
 *
 *     PRINTF("x[%llu] = %g\n", i, x[i]);
 *     if (!ASSERT(index < bound, index, bound)) continue;
 *
 * For CUDA compile with `nvcc -rdc=true`, or to PTX: otherwise uhal cannot find a module's
 * messages.
 */
#ifndef UHAL_MESSAGES_H
#define UHAL_MESSAGES_H

#include <uhal/atomics.h>
#include <uhal/running_stream.h>

#define UHAL_MESSAGE_PRINTED 1
#define UHAL_MESSAGE_ASSERTION 2
#define UHAL_MESSAGE_VALUES 8
#define UHAL_MESSAGE_NOWHERE 0xFFFFFFFFU /* kernels of the host do not know their work-item */
#define UHAL_MESSAGE_IN_STREAM 0xFFFFFFFEU /* but may know their stream and launch: see `block` */

/* uhal/_messages.py reads both. */
struct uhal_message {
    u32 number; /* counts from 1; written last */
    u32 kind;
    u32 line;
    u32 thread; /* of the block, linear */
    u32 block[3]; /* or: the stream in two words, and the low word of the launch */
    u32 count; /* of values */
    u64 values[UHAL_MESSAGE_VALUES];
    char types[UHAL_MESSAGE_VALUES]; /* i, u, f or p */
    char function[120];
    char text[320];
};

struct uhal_message_channel {
    u32 pending; /* not 0: there are new messages */
    u32 capacity;
    u32 next; /* messages so far */
    u32 reserved[13];
    uhal_message messages[1]; /* `capacity` messages */
};

DEVICE_GLOBAL(uhal_message_channel *, uhal_messages, 1);

template <class Type> struct uhal_said {
    static constexpr char type = uhal_is_float<Type>::value ? 'f' : Type(-1) < Type(0) ? 'i' : 'u';
    static DEVICE_METHOD u64 bits(Type value) {
        if constexpr (uhal_is_float<Type>::value)
            return uhal_bits_as<u64>(static_cast<f64>(value));
        else
            return static_cast<u64>(static_cast<i64>(value));
    }
};
template <> struct uhal_said<f16> : uhal_said<f32> {};
template <> struct uhal_said<bf16> : uhal_said<f32> {};
template <> struct uhal_said<bool> : uhal_said<u32> {};
template <class Type> struct uhal_said<Type *> {
    static constexpr char type = 'p';
    static DEVICE_METHOD u64 bits(const Type *value) { return reinterpret_cast<u64>(value); }
};

DEVICE_FUNCTION void uhal_copy_text(char *to, const char *from, u32 most) {
    ROLLED for (u32 index = 0; index < most - 1 && from[index] != '\0'; ++index)
        to[index] = from[index];
}

DEVICE_FUNCTION void uhal_place_message(uhal_message &message) {
#if KERNEL_ON_GPU
    message.thread = uhal_thread();
    message.block[0] = blockIdx.x;
    message.block[1] = blockIdx.y;
    message.block[2] = blockIdx.z;
#else
    const uhal_running running = uhal_running_launch();
    message.thread = running.stream != 0 ? UHAL_MESSAGE_IN_STREAM : UHAL_MESSAGE_NOWHERE;
    message.block[0] = u32(running.stream);
    message.block[1] = u32(running.stream >> 32);
    message.block[2] = u32(running.launch);
#endif
}

template <class... Values>
DEVICE_FUNCTION void uhal_say(u32 kind, u32 line, const char *text, const char *function,
                              Values... values) {
    static_assert(sizeof...(Values) <= UHAL_MESSAGE_VALUES, "a message has at most 8 values");
    uhal_message_channel *const channel = uhal_messages[0];
    if (channel == nullptr)
        return;
    const u32 number = atomic_add<SCOPE_SYSTEM>(&channel->next, 1);
    uhal_message &message = channel->messages[number % channel->capacity];
    atomic_store<SCOPE_SYSTEM>(&message.number, 0);
    message.kind = kind;
    message.line = line;
    uhal_place_message(message);
    message.count = sizeof...(Values);
    u32 index = 0;
    ((message.values[index] = uhal_said<Values>::bits(values),
      message.types[index] = uhal_said<Values>::type, ++index),
     ...);
    ROLLED for (u32 at = 0; at < sizeof message.function; ++at)
        message.function[at] = 0;
    ROLLED for (u32 at = 0; at < sizeof message.text; ++at)
        message.text[at] = 0;
    uhal_copy_text(message.function, function, sizeof message.function);
    uhal_copy_text(message.text, text, sizeof message.text);
    fence<SCOPE_SYSTEM>();
    atomic_store<SCOPE_SYSTEM>(&message.number, number + 1);
    atomic_store<SCOPE_SYSTEM>(&channel->pending, 1);
}

DEVICE_FUNCTION bool uhal_holds(bool condition) { return condition; }

/* The function's name contains the kernel's name. */
#if KERNEL_ON_GPU
#define UHAL_FUNCTION __func__
#else
#define UHAL_FUNCTION __PRETTY_FUNCTION__
#endif

/** `PRINTF(format, …)`: print numbers as C's `printf` does, without `%s` and `%n`. */
#define PRINTF(format, ...)                                                                        \
    uhal_say(UHAL_MESSAGE_PRINTED, __LINE__, format, UHAL_FUNCTION, ##__VA_ARGS__)

/** `ASSERT(condition, …)`: return whether `condition` is true. A false condition is reported with
 * kernel, line, block, work-item (not on the host) and the following values. */
#define ASSERT(condition, ...)                                                                     \
    uhal_holds((condition) ? true                                                                  \
                           : (uhal_say(UHAL_MESSAGE_ASSERTION, __LINE__,                           \
                                       #condition "\n" #__VA_ARGS__, UHAL_FUNCTION, ##__VA_ARGS__), \
                              false))

#endif
