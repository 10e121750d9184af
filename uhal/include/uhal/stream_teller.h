/* How a report of a host kernel learns its stream. Plain C, for the kernel and the host's runtime.
 *
 * A variable of this name and type is set when the library is loaded. The function returns the native
 * handle of the stream whose work the calling thread runs.
 */
#ifndef UHAL_STREAM_TELLER_H
#define UHAL_STREAM_TELLER_H

#include <stdint.h>

#define UHAL_STREAM_TELLER "uhal_stream_teller"
typedef uint64_t (*uhal_stream_teller_function)(void);

#endif
