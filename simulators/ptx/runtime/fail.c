/* Leaves a block after an error. */
#include <stdarg.h>
#include <stdio.h>

#include "ptx.h"

void uptx_fail(struct uptx_worker *worker, int outcome, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = snprintf(worker->message, sizeof worker->message,
                          "block (%u, %u, %u): ", worker->block.block[0], worker->block.block[1],
                          worker->block.block[2]);
    vsnprintf(worker->message + length, sizeof worker->message - length, format, arguments);
    va_end(arguments);
    worker->outcome = outcome;
    siglongjmp(*worker->escape, 1);
}
