/* The stream whose work a thread of the host runs, for reports of kernels; 0 where nobody knows it. */
#ifndef UHAL_RUNNING_STREAM_H
#define UHAL_RUNNING_STREAM_H

#include <uhal/kernel.h>
#include <uhal/stream_teller.h>

#if KERNEL_ON_GPU
DEVICE_FUNCTION u64 uhal_running_stream() { return 0; }
#else
DEVICE_GLOBAL(uhal_stream_teller_function, uhal_stream_teller, 1);
DEVICE_FUNCTION u64 uhal_running_stream()
{
    return uhal_stream_teller[0] != nullptr ? uhal_stream_teller[0]() : 0;
}
#endif

#endif
