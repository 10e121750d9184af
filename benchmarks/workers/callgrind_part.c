/* A part of a program that callgrind counts. The code outside of it runs many times as fast. */
#include <valgrind/callgrind.h>

void begin(void) {
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

void end(void) {
    CALLGRIND_DUMP_STATS;
    CALLGRIND_STOP_INSTRUMENTATION;
}
