/* Source of the stream and launch in reports of host kernels. Plain C, for the kernel and the
 * host's runtime. When the runtime loads a library, it sets the library's variable of this name and
 * type. The function describes the work that the calling thread runs. */
#ifndef UHAL_STREAM_TELLER_H
#define UHAL_STREAM_TELLER_H

#include <stdint.h>

struct uhal_running {
    uint64_t stream; /* its native handle, 0 if unknown */
    uint64_t launch; /* number of earlier launches in the stream; a graph counts as one */
};

#define UHAL_LAUNCH_TELLER "uhal_launch_teller"
typedef struct uhal_running (*uhal_launch_teller_function)(void);

#endif
