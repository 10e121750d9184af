/* A launch by OpenCL's own calls, for the lower bound of the benchmark. Each launch sets every
 * argument, then enqueues the kernel. */
#include <stddef.h>
#include <stdint.h>

typedef int set_argument(void *, unsigned, size_t, const void *);
typedef int set_pointer(void *, unsigned, const void *);
typedef int enqueue(void *, void *, unsigned, const size_t *, const size_t *, const size_t *,
                    unsigned, const void *, void *);

/* An argument of size 0 is a pointer, and its word is the pointer's value. */
void launch_loop(set_argument *set, set_pointer *point, enqueue *launch, void *queue, void *kernel,
                 unsigned arguments, const size_t *sizes, const uint64_t *words, int count) {
    const size_t one = 1;
    for (int i = 0; i < count; ++i) {
        for (unsigned index = 0; index < arguments; ++index) {
            if (sizes[index] == 0)
                point(kernel, index, (const void *)words[index]);
            else
                set(kernel, index, sizes[index], &words[index]);
        }
        launch(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    }
}
