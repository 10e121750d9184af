#include "kernel.h"
#include "mirror.h"

#include <stdlib.h>
#include <string.h>

enum { NOWHERE = 0xFFFFFFFF };

typedef struct pipeline {
    struct pipeline *next;
    WGPUComputePipeline pipeline;
    uint32_t block[3];
    uint32_t shared_words;
} pipeline;

typedef struct uhal_wg_function {
    uhal_wg_device *device;
    WGPUShaderModule module;
    WGPUPipelineLayout layout;
    uhalWgArgument *arguments;
    uint32_t argument_count;
    uint32_t words;
    bool has_uniform;
    bool has_shared;
    pipeline *pipelines;
    uhal_wg_groups groups;
} uhal_wg_function;

uint64_t uhal_wg_window(const uhal_wg_device *device, const uhal_wg_buffer *buffer,
                        uint64_t *offset) {
    enum { ALIGNMENT = 256 }; /* no device asks for more */
    if (buffer->bytes <= device->info.max_binding_bytes)
        return 0;
    const uint64_t start = *offset & ~(uint64_t)(ALIGNMENT - 1);
    *offset -= start;
    return start;
}

/* -- pipelines --------------------------------------------------------------------------------- */

static WGPUStringView text(const char *characters) {
    return (WGPUStringView){characters, strlen(characters)};
}

static int make_pipeline(uhal_wg_function *function, const uhal_wg_launch *launch,
                         uint32_t shared_words, pipeline **made) {
    const WGPUConstantEntry constants[] = {
        {.key = text("block_x"), .value = launch->block[0]},
        {.key = text("block_y"), .value = launch->block[1]},
        {.key = text("block_z"), .value = launch->block[2]},
        {.key = text("shared_words"), .value = shared_words},
    };
    const WGPUComputePipelineDescriptor descriptor = {
        .layout = function->layout,
        .compute = {.module = function->module,
                    .entryPoint = text("kernel"),
                    .constantCount = function->has_shared ? 4 : 3,
                    .constants = constants}};
    pipeline *one = calloc(1, sizeof *one);
    if (one == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    uhal_wg_clear_error();
    one->pipeline =
        uhal_wg.wgpu.wgpuDeviceCreateComputePipeline(function->device->device, &descriptor);
    const int status = uhal_wg_noted_error();
    if (status != 0) {
        if (one->pipeline != NULL)
            uhal_wg.wgpu.wgpuComputePipelineRelease(one->pipeline);
        free(one);
        return status;
    }
    memcpy(one->block, launch->block, sizeof one->block);
    one->shared_words = shared_words;
    one->next = function->pipelines;
    function->pipelines = one;
    *made = one;
    return 0;
}

static int pipeline_for(uhal_wg_function *function, const uhal_wg_launch *launch,
                        pipeline **found) {
    uint32_t shared_words = 0;
    if (function->has_shared)
        shared_words = launch->shared_bytes < 4 ? 1 : (launch->shared_bytes + 3) / 4;
    for (pipeline *one = function->pipelines; one != NULL; one = one->next)
        if (memcmp(one->block, launch->block, sizeof one->block) == 0 &&
            one->shared_words == shared_words) {
            *found = one;
            return 0;
        }
    return make_pipeline(function, launch, shared_words, found);
}

/* -- functions --------------------------------------------------------------------------------- */

static int make_layouts(uhal_wg_function *function) {
    WGPUBindGroupLayoutEntry entries[UHAL_WG_MOST_BINDINGS + 1];
    memset(entries, 0, sizeof entries);
    size_t count = 0;
    if (function->has_uniform) {
        entries[0].visibility = WGPUShaderStage_Compute;
        entries[0].buffer.type = WGPUBufferBindingType_Uniform;
        entries[0].buffer.hasDynamicOffset = 1;
        count = 1;
    }
    for (uint32_t i = 0; i < function->groups.binding_count; ++i) {
        entries[count].binding = i + 1;
        entries[count].visibility = WGPUShaderStage_Compute;
        /* All bindings are writable: a buffer bound twice must have one kind of use. */
        entries[count++].buffer.type = WGPUBufferBindingType_Storage;
    }
    const WGPUDevice device = function->device->device;
    const WGPUBindGroupLayoutDescriptor group_layout = {.entryCount = count, .entries = entries};
    function->groups.layout = uhal_wg.wgpu.wgpuDeviceCreateBindGroupLayout(device, &group_layout);
    const WGPUPipelineLayoutDescriptor layout = {
        .bindGroupLayoutCount = 1,
        .bindGroupLayouts = &function->groups.layout,
        .immediateSize = function->has_uniform ? 0 : function->words * 4};
    function->layout = uhal_wg.wgpu.wgpuDeviceCreatePipelineLayout(device, &layout);
    return uhal_wg_noted_error();
}

static void release_function(uhal_wg_function *one) {
    uhal_wg_close_groups(&one->groups);
    while (one->pipelines != NULL) {
        pipeline *next = one->pipelines->next;
        uhal_wg.wgpu.wgpuComputePipelineRelease(one->pipelines->pipeline);
        free(one->pipelines);
        one->pipelines = next;
    }
    if (one->layout != NULL)
        uhal_wg.wgpu.wgpuPipelineLayoutRelease(one->layout);
    if (one->groups.layout != NULL)
        uhal_wg.wgpu.wgpuBindGroupLayoutRelease(one->groups.layout);
    if (one->module != NULL)
        uhal_wg.wgpu.wgpuShaderModuleRelease(one->module);
    free(one->arguments);
    free(one);
}

static int make_function(uhal_wg_device *device, const uhalWgKernelInfo *info,
                         uhal_wg_function **made) {
    if (info->binding_count > UHAL_WG_MOST_BINDINGS || info->words > UHAL_WG_MOST_WORDS)
        return uhal_wg_error(UHAL_WG_INVALID_VALUE, "too many parameters");
    uhal_wg_function *one = calloc(1, sizeof *one);
    if (one == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    one->device = one->groups.device = device;
    one->argument_count = info->argument_count;
    one->groups.binding_count = info->binding_count;
    one->words = info->words;
    one->has_uniform = info->has_uniform != 0;
    one->groups.uniform_bytes = one->has_uniform ? 4 * (uint64_t)info->words : 0;
    one->has_shared = info->has_shared != 0;
    one->arguments = calloc(one->argument_count + 1, sizeof *one->arguments);
    if (one->arguments == NULL) {
        free(one);
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    }
    if (one->argument_count > 0)
        memcpy(one->arguments, info->arguments, one->argument_count * sizeof *one->arguments);
    const WGPUShaderSourceWGSL source = {.chain = {NULL, WGPUSType_ShaderSourceWGSL},
                                         .code = {info->text, info->text_bytes}};
    const WGPUShaderModuleDescriptor descriptor = {.nextInChain = (WGPUChainedStruct *)&source};
    uhal_wg_clear_error();
    one->module = uhal_wg.wgpu.wgpuDeviceCreateShaderModuleTrusted(device->device, &descriptor, 0);
    int status = uhal_wg_noted_error();
    if (status == UHAL_WG_VALIDATION)
        status = UHAL_WG_INVALID_SHADER;
    if (status == 0)
        status = make_layouts(one);
    if (status != 0) {
        release_function(one);
        return status;
    }
    *made = one;
    return 0;
}

/* A launch sets no other bindings than those of arguments. */
static int check_bindings(const uhalWgKernelInfo *info) {
    uint64_t bound = 0;
    for (uint32_t i = 0; i < info->argument_count; ++i)
        if (info->arguments[i].binding < info->binding_count)
            bound |= (uint64_t)1 << info->arguments[i].binding;
    return bound == ((uint64_t)1 << info->binding_count) - 1
               ? 0
               : uhal_wg_error(UHAL_WG_INVALID_VALUE, "a binding has no argument");
}

uhalWgResult uhalWgKernelCreate(void **handle, const uhalWgKernelInfo *info) {
    uhal_wg_device *device = info->context;
    uhal_wg_function *made;
    int status = uhal_wg_check_lost(device);
    if (status == 0 && info->binding_count <= UHAL_WG_MOST_BINDINGS)
        status = check_bindings(info);
    if (status == 0)
        status = make_function(device, info, &made);
    if (status != 0)
        return status;
    pthread_mutex_lock(&device->lock);
    uhal_wg_open_groups(&made->groups);
    pthread_mutex_unlock(&device->lock);
    atomic_fetch_add(&uhal_wg.live[UHAL_WG_KIND_FUNCTION], 1);
    *handle = made;
    return 0;
}

uhalWgResult uhalWgKernelDestroy(void *handle) {
    uhal_wg_function *one = handle;
    uhal_wg_device *device = one->device;
    pthread_mutex_lock(&device->lock);
    if (device->pipeline != NULL)
        device->pipeline = NULL; /* another pipeline may get this address */
    release_function(one);
    pthread_mutex_unlock(&device->lock);
    atomic_fetch_sub(&uhal_wg.live[UHAL_WG_KIND_FUNCTION], 1);
    return 0;
}

/* -- launches ---------------------------------------------------------------------------------- */

/* Parameters of one dispatch, in the open batch's part of the uniform buffer. */
static void set_uniform(uhal_wg_function *function, WGPUComputePassEncoder pass,
                        WGPUBindGroup bound, const uint32_t *words) {
    enum { ALIGNMENT = 256 };
    uhal_wg_device *device = function->device;
    const uint32_t offset = device->uniform_end;
    const size_t bytes = (size_t)function->words * sizeof *words;
    memcpy(device->uniform_bytes + offset, words, bytes);
    device->uniform_end = (uint32_t)((offset + bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
    uhal_wg.wgpu.wgpuComputePassEncoderSetBindGroup(pass, 0, bound, 1, &offset);
}

int uhal_wg_dispatch(uhal_wg_function *function, uhal_wg_stream *stream, uhal_wg_launch *launch) {
    uhal_wg_device *device = function->device;
    pipeline *chosen = NULL;
    int status = pipeline_for(function, launch, &chosen);
    if (status != 0)
        return status;
    const WGPUBindGroup bound = uhal_wg_group_with(&function->groups, launch->bindings);
    if (bound == NULL)
        return uhal_wg_noted_error();
    memcpy(launch->words, launch->grid, sizeof launch->grid);
    const uint32_t most = device->info.max_blocks;
    for (uint32_t first = 0; first < launch->grid[0]; first += most) {
        const uint32_t rest = launch->grid[0] - first;
        if (device->uniform_end + function->words * 4 > UHAL_WG_UNIFORM_BYTES)
            status = uhal_wg_submit(device);
        const WGPUComputePassEncoder pass = status == 0 ? uhal_wg_pass(device) : NULL;
        if (pass == NULL)
            return status != 0 ? status : uhal_wg_noted_error();
        if (device->pipeline != chosen->pipeline) {
            uhal_wg.wgpu.wgpuComputePassEncoderSetPipeline(pass, chosen->pipeline);
            device->pipeline = chosen->pipeline;
            device->group = NULL;
        }
        launch->words[3] = first;
        if (function->has_uniform) {
            set_uniform(function, pass, bound, launch->words);
        } else {
            if (device->group != bound) {
                uhal_wg.wgpu.wgpuComputePassEncoderSetBindGroup(pass, 0, bound, 0, NULL);
                device->group = bound;
            }
            uhal_wg.wgpu.wgpuComputePassEncoderSetImmediates(pass, 0, launch->words,
                                                             (size_t)function->words * 4);
        }
        uhal_wg.wgpu.wgpuComputePassEncoderDispatchWorkgroups(pass, rest < most ? rest : most,
                                                              launch->grid[1], launch->grid[2]);
        if (device->mirrors != NULL)
            for (uint32_t i = 0; i < function->groups.binding_count; ++i)
                uhal_wg_use_mirror(launch->bindings[i].buffer);
        status = uhal_wg_command(stream);
        if (status != 0)
            return status;
    }
    return 0;
}

static int beyond_binding(const uhal_wg_device *device, uint64_t bytes) {
    return uhal_wg_error(UHAL_WG_BEYOND_BINDING,
                         "expected at most %llu bytes from a pointer to the end of its memory "
                         "(maxStorageBufferBindingSize), got %llu",
                         (unsigned long long)device->info.max_binding_bytes,
                         (unsigned long long)bytes);
}

/* A pointer is an offset in a buffer that is bound. */
static inline int set_pointer(uhal_wg_function *function, const uhalWgArgument *argument,
                              uint64_t address, uhal_wg_launch *launch) {
    uhal_wg_device *device = function->device;
    uhal_wg_buffer *buffer = uhal_wg_buffer_at(address);
    uint64_t offset = address & (((uint64_t)1 << UHAL_WG_OFFSET_BITS) - 1);
    uint32_t tag = argument->tag;
    uhal_wg_binding bound = {buffer, 0};
    if (argument->binding == NOWHERE && argument->word == NOWHERE)
        return 0;
    if (buffer == NULL) {
        if (address != 0)
            return uhal_wg_error(UHAL_WG_INVALID_VALUE, "no memory of the device has the address");
        tag = 0;
        bound.buffer = device->nothing;
    } else if (buffer->bytes > device->info.max_binding_bytes) {
        bound.offset = uhal_wg_window(device, buffer, &offset);
        if (buffer->bytes - bound.offset > device->info.max_binding_bytes)
            return beyond_binding(device, buffer->bytes - bound.offset);
    }
    if (bound.buffer->mirror != NULL) {
        const int status = uhal_wg_renew_mirror(bound.buffer->mirror);
        if (status != 0)
            return status;
    }
    if (argument->word != NOWHERE) {
        launch->words[argument->word] = (uint32_t)offset;
        launch->words[argument->word + 1] = tag;
    }
    if (argument->binding != NOWHERE)
        launch->bindings[argument->binding] = bound;
    return 0;
}

/* Sizes of most values compile to a move: a call of memcpy would cost more. */
static inline void set_value(uint32_t *words, const void *value, uint32_t bytes) {
    if (bytes == 4)
        memcpy(words, value, 4);
    else if (bytes == 8)
        memcpy(words, value, 8);
    else
        memcpy(words, value, bytes);
}

static int set_arguments(uhal_wg_function *function, uhal_wg_launch *launch, void **parameters) {
    const uhalWgArgument *const end = function->arguments + function->argument_count;
    for (const uhalWgArgument *argument = function->arguments; argument != end; ++argument) {
        uint64_t address = argument->address;
        if (argument->kind == UHAL_WG_ARGUMENT_VALUE) {
            if (argument->word != NOWHERE)
                set_value(&launch->words[argument->word], *parameters, argument->size);
            parameters += 1;
            continue;
        }
        if (argument->kind == UHAL_WG_ARGUMENT_POINTER)
            memcpy(&address, *parameters++, sizeof address);
        else if (argument->kind == UHAL_WG_ARGUMENT_INDIRECT)
            memcpy(&address, (const void *)(uintptr_t)argument->address, sizeof address);
        const int status = set_pointer(function, argument, address, launch);
        if (status != 0)
            return status;
    }
    return 0;
}

uhalWgResult uhalWgLaunchKernel(void *handle, unsigned int grid_x, unsigned int grid_y,
                                unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared_bytes, void *stream,
                                void **parameters, void **extra) {
    (void)extra;
    uhal_wg_function *function = handle;
    uhal_wg_launch launch;
    memset(launch.words, 0, (size_t)function->words * sizeof *launch.words);
    memcpy(launch.grid, (uint32_t[]){grid_x, grid_y, grid_z}, sizeof launch.grid);
    memcpy(launch.block, (uint32_t[]){block_x, block_y, block_z}, sizeof launch.block);
    launch.shared_bytes = shared_bytes;
    pthread_mutex_lock(&function->device->lock);
    int status = uhal_wg_check_lost(function->device);
    if (status == 0)
        status = set_arguments(function, &launch, parameters);
    if (status == 0)
        status = uhal_wg_dispatch(function, stream, &launch);
    pthread_mutex_unlock(&function->device->lock);
    return status;
}

/* -- kernels of our own ------------------------------------------------------------------------ */

/* Words 4 to 7: the source's offset, the destination's offset, bytes, the pattern. A thread writes
 * whole words, and only the requested bytes of the first and last word. */
#define COMMON                                                                                     \
    "struct Params { w: array<vec4<u32>, 2> }\n"                                                   \
    "override block_x: u32 = 1u; override block_y: u32 = 1u; override block_z: u32 = 1u;\n"        \
    "fn put(at: u32, value: u32) {\n"                                                              \
    "  let to = P.w[1].y; let end = to + P.w[1].z; let low = at * 4u; var mask = 0xffffffffu;\n"   \
    "  if (low < to) { mask = mask << ((to - low) * 8u); }\n"                                      \
    "  if (low + 4u > end) { mask = mask & (0xffffffffu >> ((low + 4u - end) * 8u)); }\n"          \
    "  if (mask == 0xffffffffu) { to_words[at] = value; return; }\n"                               \
    "  to_words[at] = (to_words[at] & ~mask) | (value & mask);\n"                                  \
    "}\n"                                                                                          \
    "@compute @workgroup_size(block_x, block_y, block_z)\n"                                        \
    "fn kernel(@builtin(global_invocation_id) id: vec3<u32>) {\n"                                  \
    "  let to = P.w[1].y; let last = (to + P.w[1].z + 3u) >> 2u;\n"                                \
    "  for (var at = (to >> 2u) + id.x; at < last; at += P.w[0].x * block_x) {"
#define COPY_BODY                                                                                  \
    " let place = P.w[1].x + 4u + at * 4u - to; let index = place >> 2u;\n"                        \
    "    let shift = (place & 3u) * 8u; var value = source(index - 1u) >> shift;\n"                \
    "    if (shift != 0u) { value |= source(index) << (32u - shift); }\n"                          \
    "    put(at, value); } }\n"
#define SOURCE                                                                                     \
    "@group(0) @binding(1) var<storage, read_write> from_words: array<u32>;\n"                     \
    "@group(0) @binding(2) var<storage, read_write> to_words: array<u32>;\n"                       \
    "fn source(at: u32) -> u32 {\n"                                                                \
    "  if (at < arrayLength(&from_words)) { return from_words[at]; } return 0u; }\n"
#define TARGET "@group(0) @binding(1) var<storage, read_write> to_words: array<u32>;\n"
#define FILL_BODY " put(at, P.w[1].w); } }\n"
#define IMMEDIATES "var<immediate> P: Params;\n"
#define UNIFORMS "@group(0) @binding(0) var<uniform> P: Params;\n"

static int make_own(uhal_wg_device *device, const char *const texts[2], uint32_t bindings,
                    uhal_wg_function **made) {
    const bool has_uniform = device->info.max_immediate_bytes == 0;
    const char *chosen = texts[has_uniform];
    const uhalWgKernelInfo info = {.context = device,
                                   .text = chosen,
                                   .text_bytes = strlen(chosen),
                                   .binding_count = bindings,
                                   .words = 8,
                                   .has_uniform = has_uniform};
    const int status = make_function(device, &info, made);
    if (status == 0)
        uhal_wg_open_groups(&(*made)->groups);
    return status;
}

int uhal_wg_make_own_kernels(uhal_wg_device *device) {
    static const char *const COPY[] = {IMMEDIATES SOURCE COMMON COPY_BODY,
                                       UNIFORMS SOURCE COMMON COPY_BODY};
    static const char *const FILL[] = {IMMEDIATES TARGET COMMON FILL_BODY,
                                       UNIFORMS TARGET COMMON FILL_BODY};
    const int status = make_own(device, COPY, 2, &device->copier);
    return status != 0 ? status : make_own(device, FILL, 1, &device->filler);
}

void uhal_wg_release_own_kernels(uhal_wg_device *device) {
    release_function(device->copier);
    release_function(device->filler);
}
