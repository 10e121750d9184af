/* The state of the process: wgpu-native's functions, its instance and adapters, counts of objects, and
 * the last error of each thread. wgpu reports an error by a callback within the failed call.
 */
#ifndef UHAL_WG_PROCESS_H
#define UHAL_WG_PROCESS_H

#include "functions.h"

/* All other symbols are hidden. */
#pragma GCC visibility push(default)
#include "runtime.h"
#pragma GCC visibility pop

#include <stdatomic.h>
#include <stdbool.h>

enum { UHAL_WG_KINDS = UHAL_WG_KIND_PINNED + 1 };

typedef struct uhal_wg_process {
    uhal_wg_functions wgpu;
    atomic_size_t live[UHAL_WG_KINDS];
} uhal_wg_process;

extern uhal_wg_process uhal_wg;

struct uhal_wg_device;

/* The device that is current on this thread, null before the first. */
struct uhal_wg_device *uhal_wg_current(void);

WGPUAdapter uhal_wg_adapter(unsigned int index);

/* The first function forgets this thread's noted errors; the second returns the code of an error
 * noted later, or 0. */
void uhal_wg_clear_error(void);
int uhal_wg_noted_error(void);
/* Notes an error of this library; returns the code. */
int uhal_wg_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For WGPUDeviceDescriptor. */
void uhal_wg_on_error(const WGPUDevice *device, uint32_t type, WGPUStringView message,
                      void *userdata1, void *userdata2);

#endif
