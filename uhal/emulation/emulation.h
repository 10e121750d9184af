/* Slots of the hot table, made from a library's other slots or from memory and threads.
 *
 * Each load of this library serves one vendor's library. The vendor library's slots are set once,
 * before any call. Each file is one kind of emulation; `emulation.c` lists them.
 */
#ifndef UHAL_EMULATION_H
#define UHAL_EMULATION_H

#define _POSIX_C_SOURCE 200809L /* posix_memalign, clock_gettime, nanosleep */

#include "hot_table.h"

/* The library's slots, null for missing slots, and its codes. Constant once set. */
extern uhal_hot_table uhal_base;

/* binding.c: the current device of each thread. */
int uhal_emulated_current(void **context);
int uhal_emulated_bind(void *context);

/* host_memory.c: ordinary memory, aligned to pages. */
int uhal_emulated_host_alloc(void **pointer, size_t bytes, unsigned int flags);
int uhal_emulated_host_free(void *pointer);

/* fills.c: copies of a pattern, then copies of the filled part. */
int uhal_emulated_memset_8(uint64_t destination, unsigned char value, size_t count, void *stream);
int uhal_emulated_memset_16(uint64_t destination, unsigned short value, size_t count, void *stream);
int uhal_emulated_memset_32(uint64_t destination, unsigned int value, size_t count, void *stream);

/* streams.c: for a library with synchronous calls; a stream is only a name. */
int uhal_emulated_stream_create(void **stream, unsigned int flags, int priority);
int uhal_emulated_stream_destroy(void *stream);
int uhal_emulated_stream_synchronize(void *stream);
int uhal_emulated_stream_query(void *stream);

/* events.c: an event is the time after a wait for the stream. */
int uhal_emulated_event_create(void **event, unsigned int flags);
int uhal_emulated_event_destroy(void *event);
int uhal_emulated_event_record(void *event, void *stream);
int uhal_emulated_event_synchronize(void *event);
int uhal_emulated_event_query(void *event);
int uhal_emulated_event_elapsed(float *milliseconds, void *start, void *end);
int uhal_emulated_stream_wait_event(void *stream, void *event, unsigned int flags);

/* callbacks.c: a thread polls the library's events; without events the caller waits and calls. */
int uhal_emulated_stream_callback(void *stream, uhal_host_function function, void *user_data);

#endif
