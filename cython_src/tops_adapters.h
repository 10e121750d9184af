/* The adapters of TopsRuntime's functions (slot_adapters.h); null for the name of none. */
#ifndef UHAL_TOPS_ADAPTERS_H
#define UHAL_TOPS_ADAPTERS_H

#include "slot_adapters.h"

uhal_any_function uhal_tops_adapter(const char *name, uhal_any_function vendor);

#endif
