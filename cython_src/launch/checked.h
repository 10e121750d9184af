/* UHAL_LANE_UNSAFE builds a lane without checks of arguments, stamps and ledger, to measure their
 * cost (benchmarks/launch_overhead.py). Such a lane is never installed. */
#ifndef UHAL_CHECKED_H
#define UHAL_CHECKED_H

#ifdef UHAL_LANE_UNSAFE
enum { UHAL_CHECKED = 0 };
#else
enum { UHAL_CHECKED = 1 };
#endif

#endif
