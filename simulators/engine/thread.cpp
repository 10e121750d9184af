#include "thread.h"

#include <pthread.h>
#include <signal.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace sim {

namespace {

// Stack size: host builds of kernels keep a block's shared memory and registers on the stack.
constexpr size_t kernel_stack = size_t{64} << 20;

// Signal stack for endless recursion, which leaves no room on the kernel's own stack.
constexpr size_t handler_stack = size_t{64} << 10;

void *run(void *argument) {
    std::vector<char> room(handler_stack);
    const stack_t alternate = {room.data(), 0, room.size()};
    sigaltstack(&alternate, nullptr);
    const std::unique_ptr<std::function<void()>> body(
        static_cast<std::function<void()> *>(argument));
    (*body)();
    const stack_t none = {nullptr, SS_DISABLE, 0};
    sigaltstack(&none, nullptr);
    return nullptr;
}

} // namespace

void start_thread(std::function<void()> body) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kernel_stack);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    pthread_create(&thread, &attributes, run, new std::function<void()>(std::move(body)));
    pthread_attr_destroy(&attributes);
}

} // namespace sim
