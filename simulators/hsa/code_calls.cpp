// Code object readers, executables and their symbols.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "executables.h"

using namespace hsa_sim;

namespace {

constexpr uint32_t kernarg_alignment = 16; // as in the real runtime, whatever the metadata says

template <class Body>
hsa_status_t with_executable(const char *name, hsa_executable_t handle, Body body) {
    return in_runtime(name, [&](Call &call) {
        const auto executable = call.runtime.executables.find(handle);
        return executable == nullptr ? HSA_STATUS_ERROR_INVALID_EXECUTABLE : body(call, executable);
    });
}

hsa_status_t kernel_info(Symbol &symbol, int attribute, void *value) {
    const sim::HsacoKernel &kernel = *symbol.kernel;
    switch (attribute) {
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE:
        return answer(value, kernel.kernarg_bytes);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_ALIGNMENT:
        return answer(value, kernarg_alignment);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE:
        return answer(value, kernel.group_bytes);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE:
        return answer(value, kernel.private_bytes);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_DYNAMIC_CALLSTACK:
        return answer(value, kernel.dynamic_stack);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
        return find_code(symbol) ? answer(value, symbol.address)
                                 : refuse(not_supported, symbol.refusal);
    default:
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

hsa_status_t variable_info(const Symbol &symbol, int attribute, void *value) {
    switch (attribute) {
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE:
        return answer(value, static_cast<uint32_t>(symbol.bytes));
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_IS_CONST:
        return answer(value, false);
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS:
        return answer(value, symbol.address);
    default:
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

} // namespace

hsa_status_t hsa_code_object_reader_create_from_memory(const void *code_object, size_t size,
                                                       hsa_code_object_reader_t *reader) {
    return in_runtime("hsa_code_object_reader_create_from_memory", [&](Call &call) {
        if (code_object == nullptr || size == 0 || reader == nullptr) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const auto made = std::make_shared<CodeObjectReader>();
        made->data = code_object;
        made->bytes = size;
        call.runtime.readers.add(made);
        *reader = made->handle;
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_code_object_reader_create_from_file(hsa_file_t file,
                                                     hsa_code_object_reader_t *reader) {
    return in_runtime("hsa_code_object_reader_create_from_file", [&](Call &call) {
        struct stat facts = {};
        if (reader == nullptr || fstat(file, &facts) != 0 || facts.st_size <= 0) {
            return reader == nullptr ? HSA_STATUS_ERROR_INVALID_ARGUMENT
                                     : HSA_STATUS_ERROR_INVALID_FILE;
        }
        const auto made = std::make_shared<CodeObjectReader>();
        made->file.resize(static_cast<size_t>(facts.st_size));
        if (pread(file, made->file.data(), made->file.size(), 0) != facts.st_size) {
            return HSA_STATUS_ERROR_INVALID_FILE;
        }
        made->data = made->file.data();
        made->bytes = made->file.size();
        call.runtime.readers.add(made);
        *reader = made->handle;
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
    return in_runtime("hsa_code_object_reader_destroy", [&](Call &call) {
        if (call.runtime.readers.find(reader) == nullptr) {
            return HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER;
        }
        call.runtime.readers.remove(reader);
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_executable_create_alt(hsa_profile_t profile,
                                       hsa_default_float_rounding_mode_t rounding, const char *,
                                       hsa_executable_t *executable) {
    return in_runtime("hsa_executable_create_alt", [&](Call &call) {
        if (executable == nullptr || profile < HSA_PROFILE_BASE || profile > HSA_PROFILE_FULL ||
            rounding < HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT ||
            rounding > HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const auto made = std::make_shared<Executable>();
        call.runtime.executables.add(made);
        *executable = made->handle;
        return HSA_STATUS_SUCCESS;
    });
}

hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader, const char *,
                                                   hsa_loaded_code_object_t *loaded) {
    return with_executable("hsa_executable_load_agent_code_object", executable,
                           [&](Call &call, const std::shared_ptr<Executable> &found) {
                               Agent *device = call.runtime.find_agent(agent);
                               const auto source = call.runtime.readers.find(reader);
                               if (device == nullptr || !device->gpu()) {
                                   return HSA_STATUS_ERROR_INVALID_AGENT;
                               }
                               if (source == nullptr) {
                                   return HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER;
                               }
                               if (found->frozen) {
                                   return HSA_STATUS_ERROR_FROZEN_EXECUTABLE;
                               }
                               const hsa_status_t status =
                                   load_code_object(call.runtime, found, *device, *source);
                               if (status == HSA_STATUS_SUCCESS && loaded != nullptr) {
                                   loaded->handle =
                                       reinterpret_cast<uint64_t>(found->objects.back().get());
                               }
                               return status;
                           });
}

hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char *) {
    return with_executable("hsa_executable_freeze", executable,
                           [&](Call &, const std::shared_ptr<Executable> &found) {
                               if (found->frozen) {
                                   return HSA_STATUS_ERROR_FROZEN_EXECUTABLE;
                               }
                               found->frozen = true;
                               return HSA_STATUS_SUCCESS;
                           });
}

hsa_status_t hsa_executable_validate(hsa_executable_t executable, uint32_t *result) {
    return with_executable("hsa_executable_validate", executable,
                           [&](Call &, const std::shared_ptr<Executable> &) {
                               return result == nullptr ? HSA_STATUS_ERROR_INVALID_ARGUMENT
                                                        : answer(result, uint32_t{0});
                           });
}

hsa_status_t hsa_executable_destroy(hsa_executable_t executable) {
    return with_executable("hsa_executable_destroy", executable,
                           [&](Call &call, const std::shared_ptr<Executable> &found) {
                               call.runtime.destroy_executable(found);
                               return HSA_STATUS_SUCCESS;
                           });
}

hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable, const char *name,
                                               const hsa_agent_t *agent,
                                               hsa_executable_symbol_t *symbol) {
    return with_executable(
        "hsa_executable_get_symbol_by_name", executable,
        [&](Call &call, const std::shared_ptr<Executable> &found) {
            if (name == nullptr || symbol == nullptr) {
                return HSA_STATUS_ERROR_INVALID_ARGUMENT;
            }
            const Agent *device = agent == nullptr ? nullptr : call.runtime.find_agent(*agent);
            // Without an agent, a lookup finds only symbols of whole programs. Compilers no longer
            // make such symbols.
            for (const auto &one : found->symbols) {
                if (one->name == name && one->agent == device) {
                    *symbol = one->handle;
                    return HSA_STATUS_SUCCESS;
                }
            }
            return refuse(HSA_STATUS_ERROR_INVALID_SYMBOL_NAME,
                          "there is no \"" + std::string(name).substr(0, 80) +
                              "\" for this agent; a kernel is found as \"name.kd\"");
        });
}

hsa_status_t hsa_executable_iterate_agent_symbols(hsa_executable_t executable, hsa_agent_t agent,
                                                  hsa_executable_symbol_callback_t callback,
                                                  void *data) {
    return with_executable("hsa_executable_iterate_agent_symbols", executable,
                           [&](Call &call, const std::shared_ptr<Executable> &found) {
                               const Agent *device = call.runtime.find_agent(agent);
                               if (device == nullptr || callback == nullptr) {
                                   return device == nullptr ? HSA_STATUS_ERROR_INVALID_AGENT
                                                            : HSA_STATUS_ERROR_INVALID_ARGUMENT;
                               }
                               const auto symbols = found->symbols;
                               call.lock.unlock();
                               for (const auto &symbol : symbols) {
                                   const hsa_status_t status =
                                       symbol->agent == device
                                           ? callback(executable, agent, symbol->handle, data)
                                           : HSA_STATUS_SUCCESS;
                                   if (status != HSA_STATUS_SUCCESS) {
                                       return status;
                                   }
                               }
                               return HSA_STATUS_SUCCESS;
                           });
}

hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t symbol,
                                            hsa_executable_symbol_info_t attribute, void *value) {
    return in_runtime("hsa_executable_symbol_get_info", [&](Call &call) {
        const auto found = call.runtime.symbols.find(symbol);
        if (found == nullptr || value == nullptr) {
            return found == nullptr ? HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL
                                    : HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        const bool kernel = found->kernel != nullptr;
        switch (attribute) {
        case HSA_EXECUTABLE_SYMBOL_INFO_TYPE:
            return answer(value, static_cast<int32_t>(kernel ? HSA_SYMBOL_KIND_KERNEL
                                                             : HSA_SYMBOL_KIND_VARIABLE));
        case HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH:
            return answer(value, static_cast<uint32_t>(found->name.size()));
        case HSA_EXECUTABLE_SYMBOL_INFO_NAME:
            std::memcpy(value, found->name.data(), found->name.size());
            return HSA_STATUS_SUCCESS;
        case HSA_EXECUTABLE_SYMBOL_INFO_IS_DEFINITION:
            return answer(value, true);
        case HSA_EXECUTABLE_SYMBOL_INFO_AGENT:
            return answer(value, found->agent->handle);
        default:
            return kernel ? kernel_info(*found, attribute, value)
                          : variable_info(*found, attribute, value);
        }
    });
}
