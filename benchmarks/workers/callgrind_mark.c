/* Ends a part of callgrind's profile; what comes next is counted from zero. */
#include <valgrind/callgrind.h>

void mark(void) { CALLGRIND_DUMP_STATS; }
