/* Counts of a launch: workers add them up and count_told.c writes them. */
#pragma once

#include <pthread.h>

#include "count.h"

/* Requests of a site to one kind of memory, or branches of a site. */
struct site_sums {
    uint64_t lanes;
    uint64_t requests;
    uint64_t sectors;
    uint64_t ideal_sectors;
    uint64_t used_bytes;
    uint64_t wavefronts;
    uint64_t ideal_wavefronts;
    uint64_t same_address; /* sum over requests of the most lanes that name one address */
    uint64_t taken;        /* lanes that took a branch */
    uint64_t divergent;    /* branches that part of the lanes took */
};

/* A sum over counted blocks, and its spread, which says how well the grid's mean is known. */
struct spread {
    double sum;
    double squares;
};

struct sums {
    uint64_t *lane_entries; /* of each basic block */
    uint64_t *warp_entries;
    struct site_sums *sites[2]; /* global, shared */
    uint64_t blocks;
    uint64_t warps;
    uint64_t block_loads; /* sectors that a block touched, each counted once per block */
    uint64_t block_stores;
    struct spread instructions;
    struct spread sectors;
};

/* A sector of memory: its touched bytes, and the last block that touched it. */
struct sector {
    uint64_t number; /* the sector's number plus 1; 0: no sector */
    uint32_t loaded;
    uint32_t stored;
    uint64_t loaded_by;
    uint64_t stored_by;
};

struct sectors {
    struct sector *at; /* a hash table with open addressing */
    uint64_t room;
    uint64_t used;
};

struct uptx_counts {
    const struct uptx_launch *launch;
    uint64_t grid_blocks;
    uint64_t every;
    pthread_mutex_t mutex;
    struct sums sums;
    struct sectors touched;
};

/* Gives the caller the counts as members of a JSON object. */
void uptx_counts_tell(const struct uptx_counts *counts);
