#include "task.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "event.h"

namespace uhal_host {

namespace {

constexpr size_t parameter_alignment = 64;

template <class Element> void fill_elements(void *destination, Element value, size_t count) {
    // Copies bytes, because the memory may be unaligned: only the interface checks alignment.
    unsigned char *bytes = static_cast<unsigned char *>(destination);
    for (size_t index = 0; index < count; ++index) {
        memcpy(bytes + index * sizeof value, &value, sizeof value);
    }
}

void copy_values(const Function &function, void *const *to, void *const *from) {
    for (uint32_t index = 0; index < function.kernel->parameter_count; ++index) {
        memcpy(to[index], from[index], function.kernel->parameters[index].size);
    }
}

} // namespace

void Task::set(const Launch &asked) {
    kind = TaskKind::launch;
    launch = asked;
    const Function &function = *asked.function;
    const uint32_t count = function.kernel->parameter_count;
    const size_t pointers_at = (function.parameter_bytes + sizeof(void *) - 1) & -sizeof(void *);
    unsigned char *const values = reserve(pointers_at + count * sizeof(void *));
    void **const pointers = reinterpret_cast<void **>(values + pointers_at);
    for (uint32_t index = 0; index < count; ++index) {
        pointers[index] = values + function.offsets[index];
    }
    launch.parameters = pointers;
    copy_values(*asked.function, launch.parameters, asked.parameters);
}

void Task::set_again(const Launch &asked) {
    void *const *const pointers = launch.parameters;
    copy_values(*asked.function, pointers, asked.parameters);
    // Unchanged fields are not written, so their cache lines stay in the runner's cache, too.
    if (launch.function != asked.function || !launch.has_geometry_of(asked)) {
        launch = asked;
        launch.parameters = pointers;
    }
}

void Task::set_snapshot(void *destination, const void *source, size_t bytes) {
    kind = TaskKind::copy;
    copy = {destination, reserve(bytes), bytes};
    memcpy(const_cast<void *>(copy.source), source, bytes);
}

unsigned char *Task::reserve(size_t bytes) {
    if (bytes <= sizeof storage_) {
        return storage_;
    }
    if (posix_memalign(&memory_, parameter_alignment, bytes) != 0) {
        memory_ = nullptr;
        throw std::bad_alloc();
    }
    return static_cast<unsigned char *>(memory_);
}

void Task::clear() {
    if (kind == TaskKind::record || kind == TaskKind::wait) {
        mark->drop();
        kind = TaskKind::copy;
    }
    free(memory_);
    memory_ = nullptr;
}

void run(const Copy &copy) { memmove(copy.destination, copy.source, copy.bytes); }

void run(const Call &call) {
    using Called = int (*)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
    int *const status = reinterpret_cast<int *>(call.status);
    if (__atomic_load_n(status, __ATOMIC_RELAXED) != 0) {
        return;
    }
    const int64_t *const a = call.arguments;
    const Called function = reinterpret_cast<Called>(call.function);
    const int code = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    if (code != 0) {
        __atomic_store_n(status, code, __ATOMIC_RELAXED);
    }
}

void run(const Fill &fill) {
    switch (fill.width) {
    case 1:
        memset(fill.destination, static_cast<int>(fill.value), fill.count);
        break;
    case 2:
        fill_elements(fill.destination, static_cast<uint16_t>(fill.value), fill.count);
        break;
    default:
        fill_elements(fill.destination, fill.value, fill.count);
        break;
    }
}

} // namespace uhal_host
