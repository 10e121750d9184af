#include "runtime.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <new>
#include <pthread.h>

#include "abi.h"
#include "crash.h"
#include "platform.h"
#include "stream.h"

namespace uhal_host {

thread_local Device *current_device = nullptr;

namespace {

std::atomic<Runtime *> the_runtime{nullptr};
thread_local char last_error_text[2048] = "";

constexpr unsigned MOST_DEVICES = 64;
constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned MOST_SECONDS = 1000000;

// Threads, locks and queues of the parent are not usable in the child, and are not freed.
void forget_parent() {
    the_runtime.store(nullptr, std::memory_order_relaxed);
    current_device = nullptr;
}

// Makes the error message for a variable: expected range, given value, next step.
void refuse_variable(const char *name, unsigned most, const char *otherwise) {
    set_error_text("%s: expected a number from 1 to %u, got '%.80s'; unset it for %s", name, most,
                   getenv(name), otherwise);
}

Runtime *make_runtime() {
    unsigned devices = 1;
    unsigned threads = usable_cores();
    if (!environment_number("UHAL_HOST_DEVICES", 1, MOST_DEVICES, devices)) {
        refuse_variable("UHAL_HOST_DEVICES", MOST_DEVICES, "one device");
        return nullptr;
    }
    if (!environment_number("UHAL_HOST_THREADS", 1, MOST_THREADS, threads)) {
        refuse_variable("UHAL_HOST_THREADS", MOST_THREADS, "one thread for each core");
        return nullptr;
    }
    unsigned seconds = 0;
    if (!environment_number("UHAL_HOST_DEADLINE", 1, MOST_SECONDS, seconds)) {
        refuse_variable("UHAL_HOST_DEADLINE", MOST_SECONDS, "waits without an end");
        return nullptr;
    }
    return new Runtime(devices, threads, seconds);
}

} // namespace

Runtime *runtime() {
    Runtime *made = the_runtime.load(std::memory_order_acquire);
    if (made != nullptr) {
        return made;
    }
    made = make_runtime();
    if (made == nullptr) {
        return nullptr;
    }
    static const int registered = pthread_atfork(nullptr, nullptr, forget_parent);
    (void)registered;
    static const bool told = [] {
        tell_crashes();
        return true;
    }();
    (void)told;
    Runtime *other = nullptr;
    if (!the_runtime.compare_exchange_strong(other, made)) {
        delete made; // has started no thread yet
        return other;
    }
    return made;
}

Runtime::Runtime(unsigned device_count, unsigned thread_count, unsigned seconds)
    : nanoseconds_per_tick(measure_nanoseconds_per_tick()), deadline_seconds(seconds),
      pool(thread_count), scheduler(thread_count, pool) {
    for (unsigned ordinal = 0; ordinal < device_count; ++ordinal) {
        devices.push_back(std::make_unique<Device>(*this, static_cast<int>(ordinal)));
    }
}

void Device::fail(const std::exception_ptr &failure, const Launch &launch, const Stream &stream,
                  uint64_t index) {
    const char *const entry = launch.function->kernel->entry;
    try {
        std::rethrow_exception(failure);
    } catch (const std::bad_alloc &) {
        report_lack(launch, stream);
    } catch (const std::exception &thrown) {
        lose(std::string("kernel ") + entry + ": " + thrown.what(), &stream, index);
    } catch (...) {
        lose(std::string("kernel ") + entry + " threw an exception", &stream, index);
    }
}

void Device::report_lack(const Launch &launch, const Stream &stream) noexcept {
    const std::lock_guard<std::mutex> guard(lock_);
    Report *const end = reports_ + report_count_;
    const uhal_running running = stream.running();
    const auto is_its_own = [&](const Report &one) { return one.of.stream == running.stream; };
    if (std::any_of(reports_, end, is_its_own) || end == std::end(reports_)) {
        return;
    }
    end->of = running;
    snprintf(end->entry, sizeof end->entry, "%s", launch.function->kernel->entry);
    ++report_count_;
    reported_.store(1, std::memory_order_release);
}

bool Device::take_report(uhal_running &of, char *entry, size_t bytes) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (report_count_ == 0) {
        return false;
    }
    const Report &last = reports_[--report_count_];
    of = last.of;
    snprintf(entry, bytes, "%s", last.entry);
    reported_.store(report_count_ != 0, std::memory_order_release);
    return true;
}

int64_t Device::deadline() const {
    if (runtime.deadline_seconds == 0) {
        return 0;
    }
    const bool lost = error.load(std::memory_order_relaxed) != 0;
    return monotonic_nanoseconds() + (lost ? 0 : int64_t{runtime.deadline_seconds} * 1'000'000'000);
}

void Device::give_up() {
    if (error.load(std::memory_order_relaxed) == 0) {
        gave_up_.store(true, std::memory_order_release);
    }
    lose("what runs there has not ended within the " + std::to_string(runtime.deadline_seconds) +
             " s of UHAL_HOST_DEADLINE: it is left running, and what waits behind it is dropped",
         nullptr, 0);
}

void Device::lose(const std::string &words, const Stream *stream, uint64_t index) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (failure_.empty()) {
        failure_ = words;
        failed_stream_ = stream;
        failed_index_ = index;
        error.store(UHAL_HOST_ERROR_LAUNCH_FAILED, std::memory_order_release);
    }
}

std::string Device::failure() const {
    const std::lock_guard<std::mutex> guard(lock_);
    return failure_;
}

std::optional<uint64_t> Device::failed_index(const Stream &stream) const {
    const std::lock_guard<std::mutex> guard(lock_);
    return failed_stream_ == &stream ? std::optional<uint64_t>(failed_index_) : std::nullopt;
}

void Device::add(Stream &stream) {
    const std::lock_guard<std::mutex> guard(lock_);
    stream.next_of_device_ = streams_;
    if (streams_ != nullptr) {
        streams_->previous_of_device_ = &stream;
    }
    streams_ = &stream;
}

void Device::remove(Stream &stream) {
    const std::lock_guard<std::mutex> guard(lock_);
    Stream *const before = stream.previous_of_device_;
    Stream *const after = stream.next_of_device_;
    (before != nullptr ? before->next_of_device_ : streams_) = after;
    if (after != nullptr) {
        after->previous_of_device_ = before;
    }
}

void Device::synchronize() {
    std::vector<Stream *> busy;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        for (Stream *stream = streams_; stream != nullptr; stream = stream->next_of_device_) {
            if (stream->idle()) {
                stream->note_wait();
            } else if (stream->hold_if_alive()) {
                busy.push_back(stream);
            }
        }
    }
    Patience patience;
    patience.deadline = deadline();
    for (Stream *stream : busy) {
        if (!stream->synchronize(patience) && patience.is_over()) {
            give_up();
        }
        stream->drop();
    }
}

void set_error_text(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error_text, sizeof last_error_text, format, arguments);
    va_end(arguments);
}

const char *error_text() { return last_error_text; }

} // namespace uhal_host
