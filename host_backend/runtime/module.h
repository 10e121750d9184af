// Loaded kernel libraries. A module is unloaded when its handle is gone and no launch needs it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel.h"
#include "launch_facts.h"

#include <uhal/host_check.h>

namespace uhal_host {

class ImageFile;
struct Device;

class Module {
  public:
    // Returns null on failure, and sets the code in `error` and the text of uhalHostLastErrorText.
    static Module *load(Device &device, const void *image, size_t bytes, int &error);

    Device &device() const { return device_; }
    size_t kernel_count() const { return function_count_; }
    Function &function(size_t index) { return functions_[index]; }
    Function *find_function(const char *name);
    const uhal_host_global *find_global(const char *name) const;
    // Is null for a module that is not checked.
    uhal_host_check *check() const { return check_; }
    // Returns whether an address lies in the library. A signal handler may call this function.
    bool has_code_at(uintptr_t address) const { return image_.holds(address); }

    void hold() { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop();

  private:
    Module(Device &device, void *library, std::unique_ptr<ImageFile> file);
    ~Module();
    int read_tables();
    int read_check();
    void set_launch_teller() const;

    Device &device_;
    void *const library_;                   // of dlopen
    const std::unique_ptr<ImageFile> file_; // of the library, for debuggers; null: it needs none
    const uhal_host_module *tables_ = nullptr;
    Span image_; // of the library
    uhal_host_check *check_ = nullptr;
    std::atomic<uint32_t> references_{1};
    std::unique_ptr<Function[]> functions_;
    size_t function_count_ = 0;
};

} // namespace uhal_host
