// Entry points for modules, libraries and their kernels.
#include <algorithm>
#include <cstring>

#include "module_images.h"
#include "modules.h"
#include "operations.h"

using namespace cuda_sim;

namespace {

template <class Body> CUresult with_module(const char *name, CUmodule handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Module> module = call.driver.modules.find(handle);
        return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(call, module);
    });
}

template <class Body> CUresult with_library(const char *name, CUlibrary handle, Body body) {
    return initialized(name, [&](Call &call) {
        const std::shared_ptr<Library> library = call.driver.libraries.find(handle);
        return library == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(call, library);
    });
}

template <class Body> CUresult with_library_here(const char *name, CUlibrary handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Library> library = call.driver.libraries.find(handle);
        if (library == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        JitLog log;
        std::shared_ptr<Module> module;
        const CUresult result = module_of_library(call, *library, log, module);
        return result == CUDA_SUCCESS ? body(call, *library, module) : result;
    });
}

CUresult load(const char *name, CUmodule *handle, const void *image, JitLog log) {
    return in_context(name, [&](Call &call) {
        const CUresult unsafe = check_capture_unsafe(call);
        if (unsafe != CUDA_SUCCESS) {
            return unsafe;
        }
        if (handle == nullptr || image == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::shared_ptr<Module> module;
        const CUresult result = load_module(call, call.context, image, log, module);
        *handle = result == CUDA_SUCCESS ? module->handle : nullptr;
        return result;
    });
}

} // namespace

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return load(__func__, module, image, JitLog());
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues) {
    return load(__func__, module, image, JitLog(numOptions, options, optionValues));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return load(__func__, module, fatCubin, JitLog());
}

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    std::vector<char> bytes;
    if (fname == nullptr || !read_file(fname, bytes)) {
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    return load(__func__, module, bytes.data(), JitLog());
}

CUresult cuModuleUnload(CUmodule hmod) {
    return with_module(__func__, hmod, [&](Call &call, const std::shared_ptr<Module> &module) {
        const CUresult unsafe = check_capture_unsafe(call);
        if (unsafe != CUDA_SUCCESS) {
            return unsafe;
        }
        return unload_module(call, module);
    });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    return initialized(__func__, [&](Call &) {
        *mode = CU_MODULE_EAGER_LOADING;
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    return with_module(__func__, hmod, [&](Call &call, const std::shared_ptr<Module> &module) {
        if (hfunc == nullptr || name == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::shared_ptr<Function> function;
        const CUresult result = find_function(call.driver, module, name, function);
        *hfunc = result == CUDA_SUCCESS ? function->handle : nullptr;
        return result;
    });
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
    return with_module(__func__, mod, [&](Call &, const std::shared_ptr<Module> &module) {
        *count = static_cast<unsigned>(module->image.entries.size());
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
                                    CUmodule mod) {
    return with_module(__func__, mod, [&](Call &call, const std::shared_ptr<Module> &module) {
        const auto &entries = module->image.entries;
        for (size_t index = 0; index < entries.size() && index < numFunctions; ++index) {
            std::shared_ptr<Function> function;
            const CUresult result =
                find_function(call.driver, module, entries[index].kernel.entry, function);
            if (result != CUDA_SUCCESS) {
                return result;
            }
            functions[index] = function->handle;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    return with_module(__func__, hmod, [&](Call &call, const std::shared_ptr<Module> &module) {
        return name == nullptr ? CUDA_ERROR_INVALID_VALUE
                               : find_variable(call.driver, module, name, dptr, bytes);
    });
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions) {
    (void)libraryOptions;
    (void)libraryOptionValues;
    (void)numLibraryOptions;
    return initialized(__func__, [&](Call &call) {
        if (library == nullptr || code == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto made = std::make_shared<Library>();
        const auto *bytes = static_cast<const unsigned char *>(code);
        made->image.assign(bytes, bytes + image_bytes(code));
        made->image.insert(made->image.end(), 64, 0);
        // Loading needs a context. Without a current context, the first use loads the library.
        const std::vector<CUcontext> &stack = context_stack();
        call.context = stack.empty() ? nullptr : call.driver.contexts.find(stack.back());
        if (call.context != nullptr) {
            JitLog log(numJitOptions, jitOptions, jitOptionsValues);
            std::shared_ptr<Module> module;
            const CUresult result = module_of_library(call, *made, log, module);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        *library = call.driver.libraries.add(made);
        return CUDA_SUCCESS;
    });
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
    std::vector<char> bytes;
    if (fileName == nullptr || !read_file(fileName, bytes)) {
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    return cuLibraryLoadData(library, bytes.data(), jitOptions, jitOptionsValues, numJitOptions,
                             libraryOptions, libraryOptionValues, numLibraryOptions);
}

CUresult cuLibraryUnload(CUlibrary library) {
    return with_library(__func__, library, [&](Call &call, const std::shared_ptr<Library> &found) {
        CUresult waited = CUDA_SUCCESS;
        for (const auto &[context, module] : found->modules) {
            if (module->loaded) {
                waited = unload_module(call, module);
            }
        }
        for (const auto &[name, kernel] : found->kernels) {
            call.driver.kernels.remove(kernel->handle);
        }
        call.driver.libraries.remove(library);
        return waited;
    });
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
    return with_library_here(
        __func__, library, [&](Call &call, Library &found, const std::shared_ptr<Module> &module) {
            if (pKernel == nullptr || name == nullptr) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (find_entry(*module, name) == nullptr) {
                return CUDA_ERROR_NOT_FOUND;
            }
            std::shared_ptr<Kernel> &kernel = found.kernels[name];
            if (kernel == nullptr) {
                kernel = std::make_shared<Kernel>();
                kernel->name = name;
                kernel->library = call.driver.libraries.find(library);
                call.driver.kernels.add(kernel);
            }
            *pKernel = kernel->handle;
            return CUDA_SUCCESS;
        });
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib) {
    return with_library_here(__func__, lib,
                             [&](Call &, Library &, const std::shared_ptr<Module> &module) {
                                 *count = static_cast<unsigned>(module->image.entries.size());
                                 return CUDA_SUCCESS;
                             });
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib) {
    std::vector<std::string> names;
    const CUresult result = with_library_here(
        __func__, lib, [&](Call &, Library &, const std::shared_ptr<Module> &module) {
            for (const sim::ImageEntry &entry : module->image.entries) {
                names.push_back(entry.kernel.entry);
            }
            return CUDA_SUCCESS;
        });
    for (size_t index = 0; index < names.size() && index < numKernels; ++index) {
        const CUresult found = cuLibraryGetKernel(&kernels[index], lib, names[index].c_str());
        if (found != CUDA_SUCCESS) {
            return found;
        }
    }
    return result;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
    return with_library_here(__func__, library,
                             [&](Call &, Library &, const std::shared_ptr<Module> &module) {
                                 *pMod = module->handle;
                                 return CUDA_SUCCESS;
                             });
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    return with_library_here(__func__, library,
                             [&](Call &call, Library &, const std::shared_ptr<Module> &module) {
                                 return find_variable(call.driver, module, name, dptr, bytes);
                             });
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    return in_context(__func__, [&](Call &call) {
        const std::shared_ptr<Kernel> found = call.driver.kernels.find(kernel);
        if (found == nullptr || pFunc == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        std::shared_ptr<Function> function;
        const CUresult result = function_of_kernel(call, *found, function);
        *pFunc = result == CUDA_SUCCESS ? function->handle : nullptr;
        return result;
    });
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel) {
    return initialized(__func__, [&](Call &call) {
        const std::shared_ptr<Kernel> found = call.driver.kernels.find(kernel);
        const auto library = found == nullptr ? nullptr : found->library.lock();
        if (library == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        *pLib = library->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc) {
    return initialized(__func__, [&](Call &call) {
        if (name == nullptr || hfunc == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const std::shared_ptr<Kernel> found = call.driver.kernels.find(hfunc);
        if (found == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        *name = found->name.c_str();
        return CUDA_SUCCESS;
    });
}
