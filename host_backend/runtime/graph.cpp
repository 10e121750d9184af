#include "graph.h"

#include <utility>

#include "module.h"
#include "runtime.h"
#include "stream.h"

namespace uhal_host {

// -- steps ----------------------------------------------------------------------------------------

void Step::set(const Launch &launch) {
    task_.set(launch);
    launch.function->module->hold();
}

void Step::set(const Copy &copy) {
    task_.kind = TaskKind::copy;
    task_.copy = copy;
}

void Step::set(const Fill &fill) {
    task_.kind = TaskKind::fill;
    task_.fill = fill;
}

void Step::set(const Callback &callback) {
    task_.kind = TaskKind::callback;
    task_.callback = callback;
}

void Step::set(const Call &call) {
    task_.kind = TaskKind::call;
    task_.call = call;
}

Step::~Step() {
    if (is_launch()) {
        task_.launch.function->module->drop();
    }
}

std::unique_ptr<Step> Step::copy() const {
    switch (task_.kind) {
    case TaskKind::launch:
        return std::make_unique<Step>(task_.launch);
    case TaskKind::fill:
        return std::make_unique<Step>(task_.fill);
    case TaskKind::callback:
        return std::make_unique<Step>(task_.callback);
    case TaskKind::call:
        return std::make_unique<Step>(task_.call);
    default:
        return std::make_unique<Step>(task_.copy);
    }
}

namespace {

std::unique_ptr<Version> copy_of(const Steps &steps) {
    auto version = std::make_unique<Version>();
    version->steps.reserve(steps.size());
    for (const auto &step : steps) {
        version->steps.push_back(step->copy());
    }
    version->is_stale.resize(steps.size());
    version->stale.reserve(steps.size());
    return version;
}

// Replaces a step by a launch; on failure the old step stays.
void put(std::unique_ptr<Step> &step, const Launch &launch) {
    if (step->task().launch.function == launch.function) {
        step->set_again(launch);
    } else {
        step = std::make_unique<Step>(launch);
    }
}

} // namespace

// -- graphs ---------------------------------------------------------------------------------------

Graph::Graph(Device &graph_device) : device(graph_device) {
    device.runtime.live_graphs.fetch_add(1);
}

Graph::~Graph() { device.runtime.live_graphs.fetch_sub(1); }

// -- executable graphs ----------------------------------------------------------------------------

Executable::Executable(const Graph &graph) : device_(graph.device) {
    versions_.push_back(copy_of(graph.steps));
    newest_ = versions_.back().get();
}

Executable::~Executable() = default;

void Executable::drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

void Executable::launch(Stream &stream) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (end_ && used_ != &stream && !end_->done()) {
        stream.wait_for(MarkHold(end_->hold()));
    }
    MarkHold end;
    if (end_ && end_->held_once() && end_->done()) {
        end = std::move(end_);
        end->reset();
    } else {
        end.reset(new Mark);
    }
    const Replay replay{this, newest_, end->hold(), 0, 0};
    references_.fetch_add(1, std::memory_order_relaxed);
    newest_->launches.fetch_add(1, std::memory_order_relaxed);
    // The next launch waits for this mark. If this launch cannot be queued, finish() completes the
    // mark.
    end_ = std::move(end);
    used_ = &stream;
    try {
        stream.replay(replay);
    } catch (...) {
        finish(replay);
        throw;
    }
}

void Executable::finish(const Replay &replay) {
    replay.version->launches.fetch_sub(1, std::memory_order_release);
    replay.end->complete();
    replay.end->drop();
    replay.executable->drop();
}

void Executable::change(size_t step, const Launch &launch) {
    const std::lock_guard<std::mutex> guard(lock_);
    make_changeable();
    put(newest_->steps[step], launch);
    for (const auto &version : versions_) {
        if (version.get() != newest_ && !version->is_stale[step]) {
            version->is_stale[step] = true;
            version->stale.push_back(step);
        }
    }
}

// Finds a version that no launch uses, and makes it the newest.
void Executable::make_changeable() {
    if (newest_->launches.load(std::memory_order_acquire) == 0) {
        return;
    }
    Version &spare = spare_version();
    while (!spare.stale.empty()) {
        const size_t step = spare.stale.back();
        put(spare.steps[step], newest_->steps[step]->task().launch);
        spare.is_stale[step] = false;
        spare.stale.pop_back();
    }
    newest_ = &spare;
}

Version &Executable::spare_version() {
    for (const auto &version : versions_) {
        if (version->launches.load(std::memory_order_acquire) == 0) {
            return *version;
        }
    }
    versions_.push_back(copy_of(newest_->steps));
    return *versions_.back();
}

} // namespace uhal_host
