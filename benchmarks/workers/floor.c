/* Loops over driver functions, for the lower bound of the benchmark. */
#include <stddef.h>
#include <stdint.h>

typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, void *, void **, void **);

void launch_loop(launch_function *launch, void *function, unsigned grid, unsigned block,
                 void *stream, void **parameters, int count) {
    for (int i = 0; i < count; ++i) {
        launch(function, grid, 1, 1, block, 1, 1, 0, stream, parameters, NULL);
    }
}

void alloc_loop(int (*alloc)(uint64_t *, size_t), int (*release)(uint64_t), int count) {
    for (int i = 0; i < count; ++i) {
        uint64_t address;
        alloc(&address, 4096);
        release(address);
    }
}

/* If a copy takes no stream, the last argument is ignored. */
void copy_loop(int (*copy)(uint64_t, const void *, size_t, void *), uint64_t to, const void *from,
               void *stream, int count) {
    for (int i = 0; i < count; ++i) {
        copy(to, from, 4096, stream);
    }
}

void sync_loop(int (*synchronize)(void *), void *stream, int count) {
    for (int i = 0; i < count; ++i) {
        synchronize(stream);
    }
}

void record_loop(int (*record)(void *, void *), void *event, void *stream, int count) {
    for (int i = 0; i < count; ++i) {
        record(event, stream);
    }
}
