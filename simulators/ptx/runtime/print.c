/* vprintf as CUDA defines it: a format and a buffer with the arguments at their alignments. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

const char *uptx_reach(const struct uptx_block *block, uint64_t address) {
    if (address - block->window_base < block->window_span) {
        address += block->window_delta;
    }
    return (const char *)address;
}

/* Takes the next argument of `size` bytes from the buffer. */
static uint64_t take(const char **arguments, uint32_t size) {
    const uint64_t at = ((uint64_t)*arguments + size - 1) / size * size;
    uint64_t value = 0;
    memcpy(&value, (const void *)at, size);
    *arguments = (const char *)(at + size);
    return value;
}

static int print_one(FILE *out, char *piece, const struct uptx_block *block,
                     const char **arguments) {
    const size_t length = strlen(piece);
    const char kind = piece[length - 1];
    if (kind == '%') {
        return fprintf(out, "%%");
    }
    if (kind == 's') {
        return fprintf(out, piece, uptx_reach(block, take(arguments, 8)));
    }
    if (strchr("eEfFgGaA", kind) != NULL) {
        const uint64_t bits = take(arguments, 8);
        double value;
        memcpy(&value, &bits, 8);
        return fprintf(out, piece, value);
    }
    if (kind == 'p') {
        return fprintf(out, piece, (void *)take(arguments, 8));
    }
    const int is_long = strpbrk(piece, "lzjt") != NULL;
    return is_long ? fprintf(out, piece, take(arguments, 8))
                   : fprintf(out, piece, (int)take(arguments, 4));
}

static int print_all(FILE *out, struct uptx_block *block, const char *text, const char *given) {
    int count = 0;
    while (*text != 0) {
        if (*text != '%') {
            fputc(*text++, out);
            continue;
        }
        char piece[32];
        const size_t length = strcspn(text + 1, "%csdiouxXeEfFgGaAp") + 2;
        if (length >= sizeof piece || text[length - 1] == 0) {
            break;
        }
        memcpy(piece, text, length);
        piece[length] = 0;
        print_one(out, piece, block, &given);
        text += length;
        ++count;
    }
    return count;
}

int uptx_print(struct uptx_block *block, uint64_t format, uint64_t arguments) {
    char *made = NULL;
    size_t bytes = 0;
    /* Formatted first, so that texts of several threads do not mix and no lock outlives a fault. */
    FILE *out = open_memstream(&made, &bytes);
    if (out == NULL) {
        return -1;
    }
    const int count =
        print_all(out, block, uptx_reach(block, format), uptx_reach(block, arguments));
    fclose(out);
    const struct uptx_launch *launch = ((struct uptx_worker *)block)->launch;
    if (launch->print != NULL) {
        launch->print(made, bytes);
    } else {
        fwrite(made, 1, bytes, stdout);
    }
    free(made);
    return count;
}
