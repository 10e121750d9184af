// User objects: the program's objects that graphs keep alive, and destroy when no graph needs them.
#include <algorithm>

#include "graph_calls.h"

using namespace cuda_sim;

std::vector<std::shared_ptr<UserObject>> cuda_sim::drop(Driver &driver,
                                                        const UserReferences &references) {
    std::vector<std::shared_ptr<UserObject>> dead;
    for (const auto &[object, count] : references) {
        object->references -= std::min(object->references, count);
        if (object->references == 0) {
            driver.user_objects.remove(object->handle);
            dead.push_back(object);
        }
    }
    return dead;
}

void cuda_sim::destroy_unlocked(Call &call, const std::vector<std::shared_ptr<UserObject>> &dead) {
    call.lock.unlock();
    for (const auto &object : dead) {
        object->destroy(object->data);
    }
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
    (void)flags;
    return initialized(__func__, [&](Call &call) {
        if (object_out == nullptr || destroy == nullptr || initialRefcount == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto object = std::make_shared<UserObject>();
        object->data = ptr;
        object->destroy = destroy;
        object->references = initialRefcount;
        *object_out = call.driver.user_objects.add(object);
        return CUDA_SUCCESS;
    });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
    return initialized(__func__, [&](Call &call) {
        const std::shared_ptr<UserObject> found = call.driver.user_objects.find(object);
        if (found == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        found->references += count;
        return CUDA_SUCCESS;
    });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
    return initialized(__func__, [&](Call &call) {
        const std::shared_ptr<UserObject> found = call.driver.user_objects.find(object);
        if (found == nullptr || count > found->references) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        destroy_unlocked(call, drop(call.driver, {{found, count}}));
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
    constexpr unsigned move = 1;
    return with_graph(__func__, graph, [&](Call &call, const std::shared_ptr<Graph> &found) {
        const std::shared_ptr<UserObject> user = call.driver.user_objects.find(object);
        if (user == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        user->references += flags == move ? 0 : count;
        found->user_objects[user] += count;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    return with_graph(__func__, graph, [&](Call &call, const std::shared_ptr<Graph> &found) {
        const std::shared_ptr<UserObject> user = call.driver.user_objects.find(object);
        const auto held = found->user_objects.find(user);
        if (held == found->user_objects.end() || held->second < count) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        held->second -= count;
        if (held->second == 0) {
            found->user_objects.erase(held);
        }
        destroy_unlocked(call, drop(call.driver, {{user, count}}));
        return CUDA_SUCCESS;
    });
}
