/* vprintf as CUDA defines it: a format and a buffer with the arguments at their alignments. */
#include <stdio.h>
#include <string.h>

#include "ptx.h"

static const char *reach(const struct uptx_block *block, uint64_t address) {
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

static int print_one(char *piece, const struct uptx_block *block, const char **arguments) {
    const size_t length = strlen(piece);
    const char kind = piece[length - 1];
    if (kind == '%') {
        return printf("%%");
    }
    if (kind == 's') {
        return printf(piece, reach(block, take(arguments, 8)));
    }
    if (strchr("eEfFgGaA", kind) != NULL) {
        const uint64_t bits = take(arguments, 8);
        double value;
        memcpy(&value, &bits, 8);
        return printf(piece, value);
    }
    if (kind == 'p') {
        return printf(piece, (void *)take(arguments, 8));
    }
    const int is_long = strpbrk(piece, "lzjt") != NULL;
    return is_long ? printf(piece, take(arguments, 8)) : printf(piece, (int)take(arguments, 4));
}

int uptx_print(struct uptx_block *block, uint64_t format, uint64_t arguments) {
    const char *text = reach(block, format);
    const char *given = reach(block, arguments);
    int count = 0;
    flockfile(stdout);
    while (*text != 0) {
        if (*text != '%') {
            putchar_unlocked(*text++);
            continue;
        }
        char piece[32];
        const size_t length = strcspn(text + 1, "%csdiouxXeEfFgGaAp") + 2;
        if (length >= sizeof piece || text[length - 1] == 0) {
            break;
        }
        memcpy(piece, text, length);
        piece[length] = 0;
        print_one(piece, block, &given);
        text += length;
        ++count;
    }
    funlockfile(stdout);
    return count;
}
