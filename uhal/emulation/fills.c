/* Fills by copies: a piece of the pattern from the host, then copies that double the filled part.
 *
 * The piece is ordinary memory, which `copy_h2d` reads before its return. */
#include "emulation.h"

#include <string.h>

enum { PIECE = 4096 };

static int fill(uint64_t destination, const void *pattern, size_t width, size_t count,
                void *stream) {
    const size_t bytes = width * count;
    unsigned char piece[PIECE];
    size_t filled = bytes < PIECE ? bytes : PIECE;
    size_t offset;
    int status;
    if (bytes == 0)
        return 0;
    for (offset = 0; offset < filled; offset += width)
        memcpy(piece + offset, pattern, width);
    status = uhal_base.copy_h2d(destination, piece, filled, stream);
    while (status == 0 && filled < bytes) {
        const size_t more = bytes - filled < filled ? bytes - filled : filled;
        status = uhal_base.copy_d2d(destination + filled, destination, more, stream);
        filled += more;
    }
    return status;
}

int uhal_emulated_memset_8(uint64_t destination, unsigned char value, size_t count, void *stream) {
    return fill(destination, &value, sizeof(value), count, stream);
}

int uhal_emulated_memset_16(uint64_t destination, unsigned short value, size_t count,
                            void *stream) {
    return fill(destination, &value, sizeof(value), count, stream);
}

int uhal_emulated_memset_32(uint64_t destination, unsigned int value, size_t count, void *stream) {
    return fill(destination, &value, sizeof(value), count, stream);
}
