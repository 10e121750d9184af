/* Whether the calling thread is within a call of a sequence that a recorder will be told of. */
#ifndef UHAL_OBSERVED_H
#define UHAL_OBSERVED_H

static __thread int uhal_in_sequence;

#endif
