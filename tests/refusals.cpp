// Preloaded by tests: refuses one allocation of this project's compiled code, or new threads.
//
// refuse_allocation(n) refuses the n-th allocation after this call, or none if n is 0.
// allocations() returns the number of allocations since that call. Allocations of Python and of
// other libraries are neither counted nor refused.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
}

namespace {

std::atomic<long> counted{0}, refused{0};
std::atomic<bool> counting{false};
std::atomic<int> refused_threads{0};

// Kernels are loaded from /proc. libstdc++ itself allocates memory for strings.
bool is_ours(void *caller) {
    Dl_info found;
    if (dladdr(caller, &found) == 0 || found.dli_fname == nullptr) {
        return false;
    }
    for (const char *part : {"/uhal/", "_backend/", "/ubridge/", "/proc/", "libstdc++"}) {
        if (strstr(found.dli_fname, part) != nullptr) {
            return true;
        }
    }
    return false;
}

bool is_refused(void *caller) {
    return counting.load(std::memory_order_relaxed) && is_ours(caller) &&
           counted.fetch_add(1) + 1 == refused.load();
}

void *made_or_throw(void *caller, size_t bytes, size_t alignment = 0) {
    void *const made = is_refused(caller) ? nullptr
                       : alignment != 0   ? __libc_memalign(alignment, bytes)
                                          : __libc_malloc(bytes);
    if (made == nullptr) {
        throw std::bad_alloc();
    }
    return made;
}

} // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

void refuse_allocation(long n) {
    counting = false;
    counted = 0;
    refused = n;
    counting = n != 0;
}

long allocations() {
    counting = false;
    return counted;
}

void refuse_threads(int count) { refused_threads = count; }

void *malloc(size_t bytes) { return is_refused(CALLER) ? nullptr : __libc_malloc(bytes); }

void *calloc(size_t count, size_t bytes) {
    return is_refused(CALLER) ? nullptr : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    return is_refused(CALLER) ? nullptr : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return is_refused(CALLER) ? nullptr : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    void *const made = is_refused(CALLER) ? nullptr : __libc_memalign(alignment, bytes);
    if (made == nullptr) {
        return ENOMEM;
    }
    *memory = made;
    return 0;
}

void *mmap(void *address, size_t bytes, int access, int kind, int file, off_t offset) noexcept {
    if (is_refused(CALLER)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return reinterpret_cast<void *>(syscall(SYS_mmap, address, bytes, access, kind, file, offset));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument) {
    using Create = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static const Create create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    if (is_ours(CALLER) && refused_threads.load() > 0 && refused_threads.fetch_sub(1) > 0) {
        return EAGAIN;
    }
    return create(thread, attributes, body, argument);
}

} // extern "C"

void *operator new(size_t bytes) { return made_or_throw(CALLER, bytes); }
void *operator new[](size_t bytes) { return made_or_throw(CALLER, bytes); }
void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
    return is_refused(CALLER) ? nullptr : __libc_malloc(bytes);
}
void *operator new(size_t bytes, std::align_val_t alignment) {
    return made_or_throw(CALLER, bytes, static_cast<size_t>(alignment));
}
void *operator new[](size_t bytes, std::align_val_t alignment) {
    return made_or_throw(CALLER, bytes, static_cast<size_t>(alignment));
}
void operator delete(void *memory) noexcept { free(memory); }
void operator delete[](void *memory) noexcept { free(memory); }
void operator delete(void *memory, size_t) noexcept { free(memory); }
void operator delete[](void *memory, size_t) noexcept { free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { free(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { free(memory); }
void operator delete[](void *memory, size_t, std::align_val_t) noexcept { free(memory); }
