/* The counts of a launch as JSON. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "count_sums.h"

static void print_distinct(FILE *to, const struct uptx_counts *counts) {
    if (counts->sums.blocks != counts->grid_blocks) {
        fputs(",\"distinct\":null", to); /* uncounted blocks touched other sectors */
        return;
    }
    uint64_t loads = 0, stores = 0, loaded = 0, stored = 0;
    for (uint64_t at = 0; at < counts->touched.room; ++at) {
        const struct sector *one = &counts->touched.at[at];
        loads += one->loaded != 0;
        stores += one->stored != 0;
        loaded += (uint64_t)__builtin_popcount(one->loaded);
        stored += (uint64_t)__builtin_popcount(one->stored);
    }
    fprintf(to,
            ",\"distinct\":{\"load_sectors\":%llu,\"store_sectors\":%llu,\"load_bytes\":%llu,"
            "\"store_bytes\":%llu}",
            (unsigned long long)loads, (unsigned long long)stores, (unsigned long long)loaded,
            (unsigned long long)stored);
}

static void print_head(FILE *to, const struct uptx_counts *counts) {
    const struct uptx_launch *launch = counts->launch;
    const struct sums *sums = &counts->sums;
    fprintf(to,
            "\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"static_shared\":%u,\"dynamic_shared\":%u,"
            "\"blocks\":%llu,\"counted_blocks\":%llu,\"warps\":%llu",
            launch->grid[0], launch->grid[1], launch->grid[2], launch->threads[0],
            launch->threads[1], launch->threads[2], launch->counting->kernel->static_shared_bytes,
            launch->dynamic_shared_bytes, (unsigned long long)counts->grid_blocks,
            (unsigned long long)sums->blocks, (unsigned long long)sums->warps);
    print_distinct(to, counts);
    fprintf(to,
            ",\"block_distinct\":{\"load_sectors\":%llu,\"store_sectors\":%llu},"
            "\"spread\":{\"instructions\":[%.17g,%.17g],\"sectors\":[%.17g,%.17g]}",
            (unsigned long long)sums->block_loads, (unsigned long long)sums->block_stores,
            sums->instructions.sum, sums->instructions.squares, sums->sectors.sum,
            sums->sectors.squares);
}

static void print_instructions(FILE *to, const struct uptx_counts *counts) {
    const struct uptx_counted *counted = counts->launch->counting->counted;
    const char *comma = "";
    fputs(",\"instructions\":[", to);
    for (uint32_t at = 0; at < counted->instruction_count; ++at) {
        const struct uptx_counted_instruction *one = &counted->instructions[at];
        const uint64_t lanes = counts->sums.lane_entries[one->basic_block];
        if (lanes != 0) {
            fprintf(to, "%s[%u,\"%s\",%llu,%llu]", comma, one->line,
                    counted->class_names[one->kind], (unsigned long long)lanes,
                    (unsigned long long)counts->sums.warp_entries[one->basic_block]);
            comma = ",";
        }
    }
    fputs("]", to);
}

static const char *const access_names[] = {"load", "store", "atomic"};

static void print_site(FILE *to, const struct uptx_site *site, const struct site_sums *sum,
                       const char *space) {
    fprintf(to,
            "{\"line\":%u,\"kind\":\"%s\",\"space\":\"%s\",\"bytes\":%u,\"lanes\":%llu,"
            "\"requests\":%llu,\"sectors\":%llu,\"ideal_sectors\":%llu,\"used_bytes\":%llu,"
            "\"wavefronts\":%llu,\"ideal_wavefronts\":%llu,\"same_address\":%llu}",
            site->line, access_names[site->access], space, site->bytes,
            (unsigned long long)sum->lanes, (unsigned long long)sum->requests,
            (unsigned long long)sum->sectors, (unsigned long long)sum->ideal_sectors,
            (unsigned long long)sum->used_bytes, (unsigned long long)sum->wavefronts,
            (unsigned long long)sum->ideal_wavefronts, (unsigned long long)sum->same_address);
}

static void print_branch(FILE *to, const struct uptx_site *site, const struct site_sums *sum) {
    fprintf(to, "{\"line\":%u,\"lanes\":%llu,\"executed\":%llu,\"taken\":%llu,\"divergent\":%llu}",
            site->line, (unsigned long long)sum->lanes, (unsigned long long)sum->requests,
            (unsigned long long)sum->taken, (unsigned long long)sum->divergent);
}

static void print_sites(FILE *to, const struct uptx_counts *counts, int branches) {
    static const char *const spaces[] = {"global", "shared"};
    const struct uptx_kernel *kernel = counts->launch->counting->kernel;
    const char *comma = "";
    fprintf(to, ",\"%s\":[", branches ? "branches" : "accesses");
    for (uint32_t at = 0; at < kernel->site_count; ++at) {
        const struct uptx_site *site = &kernel->sites[at];
        for (int shared = 0; shared < 2; ++shared) {
            const struct site_sums *sum = &counts->sums.sites[shared][at];
            if (sum->requests == 0 || (site->access == UPTX_BRANCH) != branches) {
                continue;
            }
            fputs(comma, to);
            if (branches) {
                print_branch(to, site, sum);
            } else {
                print_site(to, site, sum, spaces[shared]);
            }
            comma = ",";
        }
    }
    fputs("]", to);
}

void uptx_counts_tell(const struct uptx_counts *counts) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (to == NULL) {
        return;
    }
    print_head(to, counts);
    print_instructions(to, counts);
    print_sites(to, counts, 0);
    print_sites(to, counts, 1);
    fclose(to);
    counts->launch->counting->tell(counts->launch, text, bytes);
    free(text);
}
