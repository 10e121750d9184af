/* The stream and launch that a thread of the host runs, for reports of kernels; zeros if unknown.
 */
#ifndef UHAL_RUNNING_STREAM_H
#define UHAL_RUNNING_STREAM_H

#include <uhal/kernel.h>
#include <uhal/stream_teller.h>

#if KERNEL_ON_GPU
DEVICE_FUNCTION uhal_running uhal_running_launch() { return {0, 0}; }
#else
DEVICE_GLOBAL(uhal_launch_teller_function, uhal_launch_teller, 1);
DEVICE_FUNCTION uhal_running uhal_running_launch()
{
    return uhal_launch_teller[0] != nullptr ? uhal_launch_teller[0]() : uhal_running{0, 0};
}
#endif

#endif
