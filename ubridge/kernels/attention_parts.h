// Where blocks that share a query's keys leave their results. Each block has one part: head_dim
// sums, their total and the largest score. Parts begin at multiples of 32 bytes, so that reads of
// a part move no bytes of its neighbors.
#ifndef UBRIDGE_ATTENTION_PARTS_H
#define UBRIDGE_ATTENTION_PARTS_H

#include <uhal/kernel.h>

// Numbers from a part to the next.
DEVICE_FUNCTION u32 part_width(u32 head_dim) { return (head_dim + 9) / 8 * 8; }

#endif
