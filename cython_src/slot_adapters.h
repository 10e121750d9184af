/* Adapters: C functions for slots that a vendor's own function does not fit.
 *
 * An adapter has the slot's prototype and calls the vendor's function. The adapter receives the
 * function's address before the slot is filled. A slot's call does not name the vendor's library,
 * so each load of a library of adapters serves one vendor library. `uhal.adapters` loads the
 * library of adapters again for another vendor library.
 */
#ifndef UHAL_SLOT_ADAPTERS_H
#define UHAL_SLOT_ADAPTERS_H

typedef void (*uhal_any_function)(void);

/* Exported by a library of adapters: returns the adapter `name` over the vendor's function, or null
 * for an unknown name. */
__attribute__((visibility("default"))) uhal_any_function
uhal_slot_adapter(const char *name, uhal_any_function vendor);

/* In the body of uhal_slot_adapter: returns `function` and sets its `target` to the vendor's
 * function. */
#define UHAL_SLOT_ADAPTER(function, target)                                                        \
    if (strcmp(name, #function) == 0) {                                                            \
        (target) = (__typeof__(target))vendor;                                                     \
        return (uhal_any_function)(function);                                                      \
    }

#endif
