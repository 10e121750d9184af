/* Whether the calling thread is within a call of a sequence that a recorder observes. */
#ifndef UHAL_OBSERVED_H
#define UHAL_OBSERVED_H

static __thread int uhal_in_sequence;

#endif
