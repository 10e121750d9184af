/* The adapters of TopsRuntime's functions (slot_adapters.h). */
#ifndef UHAL_TOPS_ADAPTERS_H
#define UHAL_TOPS_ADAPTERS_H

#include "slot_adapters.h"

enum uhal_adapter_answer uhal_tops_adapter(const char *name, uhal_any_function vendor,
                                           uhal_any_function *adapter);

#endif
