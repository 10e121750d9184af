/* Groups the accesses of a block's threads by warp, and adds them up.
 *
 * After a warp has met at a barrier, the n-th executions of an access by the warp's lanes count as
 * one request. A GPU does the same when its lanes go through a loop together. Lanes that skip
 * different turns of a loop without a barrier are grouped wrongly.
 */
#define _GNU_SOURCE
#include "count_sums.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 1024, WARPS = THREADS / UPTX_WARP, SECTOR = 32, BANKS = 32, BANK_BYTES = 4 };

#define NO_ACCESS UINT64_MAX

_Static_assert(offsetof(struct uptx_worker, count) == sizeof(struct uptx_block),
               "kernels find `count` behind the block");
_Static_assert(offsetof(struct uptx_worker, counts) == sizeof(struct uptx_block) + 8,
               "kernels find `counts` behind `count`");

/* Incomplete requests of a warp at a site: one row for each request, with an address per lane. */
struct requests {
    uint64_t *at;
    uint32_t rows;
    uint32_t room;
};

struct uptx_counter {
    struct uptx_counts *counts;
    const struct uptx_kernel *kernel;
    const struct uptx_kernel *plain_kernel;
    struct uptx_interval *intervals;
    struct uptx_interval *plain_intervals;
    uint32_t *entered;         /* [basic block][thread] */
    uint32_t *told;            /* [site][thread]: rows that the thread has filled */
    struct requests *requests; /* [site][warp] */
    int is_counted;            /* the block that runs */
    struct sums sums;
    struct sectors touched;
};

/* -- sums --------------------------------------------------------------------------------------- */

static int open_sums(struct sums *sums, const struct uptx_counting *counting) {
    const size_t blocks = (size_t)counting->counted->basic_block_count + 1;
    const size_t sites = (size_t)counting->kernel->site_count + 1;
    memset(sums, 0, sizeof *sums);
    sums->lane_entries = calloc(blocks, sizeof *sums->lane_entries);
    sums->warp_entries = calloc(blocks, sizeof *sums->warp_entries);
    sums->sites[0] = calloc(sites, sizeof *sums->sites[0]);
    sums->sites[1] = calloc(sites, sizeof *sums->sites[1]);
    return sums->lane_entries != NULL && sums->warp_entries != NULL && sums->sites[0] != NULL &&
           sums->sites[1] != NULL;
}

static void close_sums(struct sums *sums) {
    free(sums->lane_entries);
    free(sums->warp_entries);
    free(sums->sites[0]);
    free(sums->sites[1]);
}

static void note(struct spread *spread, uint64_t value) {
    spread->sum += (double)value;
    spread->squares += (double)value * (double)value;
}

static void add_spread(struct spread *to, const struct spread *from) {
    to->sum += from->sum;
    to->squares += from->squares;
}

static void add_sums(struct sums *to, const struct sums *from,
                     const struct uptx_counting *counting) {
    for (uint32_t at = 0; at < counting->counted->basic_block_count; ++at) {
        to->lane_entries[at] += from->lane_entries[at];
        to->warp_entries[at] += from->warp_entries[at];
    }
    for (int shared = 0; shared < 2; ++shared) {
        for (uint32_t at = 0; at < counting->kernel->site_count; ++at) {
            const struct site_sums *one = &from->sites[shared][at];
            struct site_sums *sum = &to->sites[shared][at];
            sum->lanes += one->lanes;
            sum->requests += one->requests;
            sum->sectors += one->sectors;
            sum->ideal_sectors += one->ideal_sectors;
            sum->used_bytes += one->used_bytes;
            sum->wavefronts += one->wavefronts;
            sum->ideal_wavefronts += one->ideal_wavefronts;
            sum->same_address += one->same_address;
            sum->taken += one->taken;
            sum->divergent += one->divergent;
        }
    }
    to->blocks += from->blocks;
    to->warps += from->warps;
    to->block_loads += from->block_loads;
    to->block_stores += from->block_stores;
    add_spread(&to->instructions, &from->instructions);
    add_spread(&to->sectors, &from->sectors);
}

/* -- sectors ------------------------------------------------------------------------------------ */

static struct sector *find_sector(struct sectors *all, uint64_t number) {
    uint64_t at = (number * 0x9E3779B97F4A7C15u >> 20) & (all->room - 1);
    while (all->at[at].number != 0 && all->at[at].number != number) {
        at = (at + 1) & (all->room - 1);
    }
    return &all->at[at];
}

/* The entry of a sector, made when it is new; NULL when there is no memory. */
static struct sector *sector_of(struct sectors *all, uint64_t number) {
    if (2 * all->used >= all->room) {
        struct sectors wider = {.room = all->room != 0 ? 4 * all->room : 4096, .used = all->used};
        wider.at = calloc(wider.room, sizeof *wider.at);
        if (wider.at == NULL) {
            return NULL;
        }
        for (uint64_t at = 0; at < all->room; ++at) {
            if (all->at[at].number != 0) {
                *find_sector(&wider, all->at[at].number) = all->at[at];
            }
        }
        free(all->at);
        *all = wider;
    }
    struct sector *found = find_sector(all, number);
    all->used += found->number == 0;
    found->number = number;
    return found;
}

static void touch(struct uptx_counter *counter, uint64_t number, uint32_t access, uint32_t bytes) {
    struct sector *sector = sector_of(&counter->touched, number + 1);
    if (sector == NULL) {
        return;
    }
    const uint64_t block = counter->sums.blocks + 1;
    if (access != UPTX_STORE) {
        sector->loaded |= bytes;
        counter->sums.block_loads += sector->loaded_by != block;
        sector->loaded_by = block;
    }
    if (access != UPTX_LOAD) {
        sector->stored |= bytes;
        counter->sums.block_stores += sector->stored_by != block;
        sector->stored_by = block;
    }
}

static void add_sectors(struct sectors *to, const struct sectors *from) {
    for (uint64_t at = 0; at < from->room; ++at) {
        const struct sector *one = &from->at[at];
        struct sector *sector = one->number != 0 ? sector_of(to, one->number) : NULL;
        if (sector != NULL) {
            sector->loaded |= one->loaded;
            sector->stored |= one->stored;
        }
    }
}

/* -- requests ----------------------------------------------------------------------------------- */

/* The lanes of a warp whose accesses form one request. */
struct request {
    const struct uptx_site *site;
    uint32_t lanes;
    uint32_t lane[UPTX_WARP];
    uint64_t address[UPTX_WARP];
};

static void count_global(struct uptx_counter *counter, const struct request *one,
                         struct site_sums *sum) {
    uint64_t number[UPTX_WARP];
    uint32_t bytes[UPTX_WARP];
    uint32_t found = 0;
    const uint64_t whole = one->site->bytes >= SECTOR ? UINT32_MAX : (1ull << one->site->bytes) - 1;
    for (uint32_t at = 0; at < one->lanes; ++at) {
        const uint64_t sector = one->address[at] / SECTOR;
        uint32_t index = found; /* the newest first: neighbors follow each other */
        while (index > 0 && number[index - 1] != sector) {
            --index;
        }
        if (index == 0) {
            number[found] = sector;
            bytes[found] = 0;
            index = ++found;
        }
        bytes[index - 1] |= (uint32_t)(whole << one->address[at] % SECTOR);
    }
    uint64_t used = 0;
    for (uint32_t at = 0; at < found; ++at) {
        used += (uint64_t)__builtin_popcount(bytes[at]);
        touch(counter, number[at], one->site->access, bytes[at]);
    }
    sum->sectors += found;
    sum->ideal_sectors += (used + SECTOR - 1) / SECTOR;
    sum->used_bytes += used;
}

/* Wider accesses are served in halves or quarters of a warp. In each part, a bank serves one of its
 * words at a time, to any number of lanes. */
static void count_shared(const struct request *one, struct site_sums *sum) {
    const uint32_t words = one->site->bytes < BANK_BYTES ? 1 : one->site->bytes / BANK_BYTES;
    const uint32_t together = words >= BANKS ? 1 : BANKS / words;
    for (uint32_t first = 0; first < UPTX_WARP; first += together) {
        uint64_t seen[BANKS][UPTX_WARP];
        uint32_t depth[BANKS] = {0};
        uint32_t most = 0;
        for (uint32_t at = 0; at < one->lanes; ++at) {
            if (one->lane[at] < first || one->lane[at] >= first + together) {
                continue;
            }
            for (uint32_t index = 0; index < words; ++index) {
                const uint64_t word = one->address[at] / BANK_BYTES + index;
                const uint32_t bank = word % BANKS;
                uint32_t turn = 0;
                while (turn < depth[bank] && seen[bank][turn] != word) {
                    ++turn;
                }
                if (turn == depth[bank]) {
                    seen[bank][depth[bank]++] = word;
                }
                most = depth[bank] > most ? depth[bank] : most;
            }
        }
        sum->wavefronts += most;
        sum->ideal_wavefronts += most != 0;
    }
}

static uint32_t most_on_one_address(const struct request *one) {
    uint32_t most = 0;
    for (uint32_t at = 0; at < one->lanes; ++at) {
        uint32_t equal = 0;
        for (uint32_t other = 0; other < one->lanes; ++other) {
            equal += one->address[at] == one->address[other];
        }
        most = equal > most ? equal : most;
    }
    return most;
}

static void count_branch(const struct request *one, struct site_sums *sum) {
    uint32_t taken = 0;
    for (uint32_t at = 0; at < one->lanes; ++at) {
        taken += one->address[at] != 0;
    }
    ++sum->requests;
    sum->lanes += one->lanes;
    sum->taken += taken;
    sum->divergent += taken != 0 && taken != one->lanes;
}

static void count_access(struct uptx_worker *worker, uint32_t site, struct request *one) {
    struct uptx_counter *counter = worker->counter;
    uint32_t space = one->site->space;
    if (space == UPTX_GENERIC) {
        const uint64_t start = (uint64_t)worker->block.shared;
        if (one->address[0] - start < worker->block.total_shared_bytes) {
            space = UPTX_SHARED;
            for (uint32_t at = 0; at < one->lanes; ++at) {
                one->address[at] -= start;
            }
        } else if (uptx_is_local(&worker->block, one->address[0])) {
            space = UPTX_LOCAL;
        }
    }
    if (space == UPTX_LOCAL || space == UPTX_CONST) {
        return; /* other caches with other rules serve these accesses */
    }
    struct site_sums *sum = &counter->sums.sites[space == UPTX_SHARED][site];
    ++sum->requests;
    sum->lanes += one->lanes;
    if (one->site->access == UPTX_ATOMIC) {
        sum->same_address += most_on_one_address(one);
    }
    if (space == UPTX_SHARED) {
        count_shared(one, sum);
    } else {
        count_global(counter, one, sum);
    }
}

static void count_request(struct uptx_worker *worker, uint32_t site, const uint64_t *row) {
    struct request one = {.site = &worker->counter->kernel->sites[site]};
    for (uint32_t lane = 0; lane < UPTX_WARP; ++lane) {
        if (row[lane] != NO_ACCESS) {
            one.lane[one.lanes] = lane;
            one.address[one.lanes++] = row[lane];
        }
    }
    if (one.lanes == 0) {
        return;
    }
    if (one.site->access == UPTX_BRANCH) {
        count_branch(&one, &worker->counter->sums.sites[0][site]);
    } else {
        count_access(worker, site, &one);
    }
}

/* Records an access of a thread; the kernel calls it. */
static void tell(struct uptx_block *block, uint32_t site, uint64_t address, uint32_t x, uint32_t y,
                 uint32_t z) {
    struct uptx_counter *counter = ((struct uptx_worker *)block)->counter;
    const uint32_t thread = x + block->threads[0] * (y + block->threads[1] * z);
    const uint32_t row = counter->told[(size_t)site * THREADS + thread]++;
    struct requests *to = &counter->requests[(size_t)site * WARPS + thread / UPTX_WARP];
    if (row >= to->rows) {
        if (row >= to->room) {
            const uint32_t room = to->room != 0 ? 2 * to->room : 8;
            uint64_t *at = realloc(to->at, (size_t)room * UPTX_WARP * sizeof *at);
            if (at == NULL) {
                uptx_fail((struct uptx_worker *)block, UPTX_NO_MEMORY,
                          "there is no memory to count its accesses");
            }
            to->at = at;
            to->room = room;
        }
        memset(to->at + (size_t)row * UPTX_WARP, 0xFF, UPTX_WARP * sizeof *to->at);
        to->rows = row + 1;
    }
    to->at[(size_t)row * UPTX_WARP + thread % UPTX_WARP] = address;
}

/* -- warps and blocks --------------------------------------------------------------------------- */

static void count_entries(struct uptx_counter *counter, uint32_t first) {
    const uint32_t count = counter->counts->launch->counting->counted->basic_block_count;
    for (uint32_t at = 0; at < count; ++at) {
        uint32_t *lane = &counter->entered[(size_t)at * THREADS + first];
        uint32_t all = 0;
        uint32_t most = 0;
        for (uint32_t index = 0; index < UPTX_WARP; ++index) {
            all += lane[index];
            most = lane[index] > most ? lane[index] : most;
        }
        if (most != 0) {
            counter->sums.lane_entries[at] += all;
            counter->sums.warp_entries[at] += most;
            memset(lane, 0, UPTX_WARP * sizeof *lane);
        }
    }
}

void uptx_counter_meet(struct uptx_worker *worker, uint32_t warp) {
    struct uptx_counter *counter = worker->counter;
    if (counter == NULL || !counter->is_counted) {
        return;
    }
    const uint32_t first = warp * UPTX_WARP;
    count_entries(counter, first);
    for (uint32_t site = 0; site < counter->kernel->site_count; ++site) {
        struct requests *of = &counter->requests[(size_t)site * WARPS + warp];
        if (of->rows == 0) {
            continue;
        }
        for (uint32_t row = 0; row < of->rows; ++row) {
            count_request(worker, site, of->at + (size_t)row * UPTX_WARP);
        }
        of->rows = 0;
        memset(&counter->told[(size_t)site * THREADS + first], 0,
               UPTX_WARP * sizeof *counter->told);
    }
}

static uint64_t warp_instructions(const struct uptx_counter *counter) {
    const struct uptx_counted *counted = counter->counts->launch->counting->counted;
    uint64_t all = 0;
    for (uint32_t at = 0; at < counted->instruction_count; ++at) {
        all += counter->sums.warp_entries[counted->instructions[at].basic_block];
    }
    return all;
}

static uint64_t sectors_so_far(const struct uptx_counter *counter) {
    uint64_t all = 0;
    for (uint32_t site = 0; site < counter->kernel->site_count; ++site) {
        all += counter->sums.sites[0][site].sectors;
    }
    return all;
}

static void end_block(struct uptx_worker *worker) {
    struct uptx_counter *counter = worker->counter;
    const uint32_t warps = (worker->thread_count + UPTX_WARP - 1) / UPTX_WARP;
    const double instructions = counter->sums.instructions.sum;
    const double sectors = counter->sums.sectors.sum;
    for (uint32_t warp = 0; warp < warps; ++warp) {
        uptx_counter_meet(worker, warp);
    }
    note(&counter->sums.instructions, warp_instructions(counter) - (uint64_t)instructions);
    note(&counter->sums.sectors, sectors_so_far(counter) - (uint64_t)sectors);
    ++counter->sums.blocks;
    counter->sums.warps += warps;
    counter->is_counted = 0;
}

/* Chooses one of each `every` blocks at varying places, so that it samples patterns evenly. */
static int is_chosen(uint64_t index, uint64_t every) {
    uint64_t mixed = (index / every + 1) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
    return index % every == mixed % every;
}

void uptx_counter_block(struct uptx_worker *worker, uint64_t index) {
    struct uptx_counter *counter = worker->counter;
    if (counter->is_counted) {
        end_block(worker);
    }
    counter->is_counted = is_chosen(index, counter->counts->every);
    worker->kernel = counter->is_counted ? counter->kernel : counter->plain_kernel;
    worker->block.intervals = counter->is_counted ? counter->intervals : counter->plain_intervals;
}

int uptx_counter_open(struct uptx_worker *worker, struct uptx_counts *counts) {
    const struct uptx_counting *counting = counts->launch->counting;
    const size_t sites = (size_t)counting->kernel->site_count + 1;
    const size_t blocks = (size_t)counting->counted->basic_block_count + 1;
    struct uptx_counter *counter = calloc(1, sizeof *counter);
    if (counter == NULL) {
        return 0;
    }
    worker->counter = counter;
    counter->counts = counts;
    counter->kernel = counting->kernel;
    counter->plain_kernel = worker->kernel;
    counter->plain_intervals = worker->block.intervals;
    counter->intervals = calloc(sites, sizeof *counter->intervals);
    counter->entered = calloc(blocks * THREADS, sizeof *counter->entered);
    counter->told = calloc(sites * THREADS, sizeof *counter->told);
    counter->requests = calloc(sites * WARPS, sizeof *counter->requests);
    worker->count = tell;
    worker->counts = counter->entered;
    return open_sums(&counter->sums, counting) && counter->intervals != NULL &&
           counter->entered != NULL && counter->told != NULL && counter->requests != NULL;
}

void uptx_counter_close(struct uptx_worker *worker) {
    struct uptx_counter *counter = worker->counter;
    if (counter == NULL) {
        return;
    }
    if (counter->is_counted && worker->outcome == UPTX_OK) {
        end_block(worker);
    }
    struct uptx_counts *counts = counter->counts;
    worker->block.intervals = counter->plain_intervals;
    if (counter->sums.blocks != 0) {
        pthread_mutex_lock(&counts->mutex);
        add_sums(&counts->sums, &counter->sums, counts->launch->counting);
        add_sectors(&counts->touched, &counter->touched);
        pthread_mutex_unlock(&counts->mutex);
    }
    for (size_t at = 0;
         counter->requests != NULL && at < (size_t)counter->kernel->site_count * WARPS; ++at) {
        free(counter->requests[at].at);
    }
    close_sums(&counter->sums);
    free(counter->touched.at);
    free(counter->intervals);
    free(counter->entered);
    free(counter->told);
    free(counter->requests);
    free(counter);
    worker->counter = NULL;
}

/* -- a launch ----------------------------------------------------------------------------------- */

struct uptx_counts *uptx_counts_open(const struct uptx_launch *launch, uint64_t blocks) {
    struct uptx_counts *counts = calloc(1, sizeof *counts);
    if (counts == NULL) {
        return NULL;
    }
    counts->launch = launch;
    counts->grid_blocks = blocks;
    const uint64_t sampled = blocks / UPTX_SAMPLED_BLOCKS;
    const uint64_t every = launch->counting->every;
    counts->every = every != 0 ? every : sampled > 1 ? sampled : 1;
    pthread_mutex_init(&counts->mutex, NULL);
    if (!open_sums(&counts->sums, launch->counting)) {
        uptx_counts_close(counts, 0);
        return NULL;
    }
    return counts;
}

void uptx_counts_close(struct uptx_counts *counts, int is_whole) {
    if (counts == NULL) {
        return;
    }
    if (is_whole) {
        uptx_counts_tell(counts);
    }
    close_sums(&counts->sums);
    free(counts->touched.at);
    pthread_mutex_destroy(&counts->mutex);
    free(counts);
}
