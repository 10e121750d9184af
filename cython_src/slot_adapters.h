/* Adapters: C functions for slots that a vendor's own function does not fit.
 *
 * An adapter has the slot's prototype and calls the vendor's function, whose address it is given
 * before the slot is filled. Nothing in a slot's call says whose library it is for, so one load of
 * a library of adapters serves one library of the vendor; `uhal.adapters` loads it anew for another.
 */
#ifndef UHAL_SLOT_ADAPTERS_H
#define UHAL_SLOT_ADAPTERS_H

typedef void (*uhal_any_function)(void);

/* What a library of adapters exports: the adapter `name` over the vendor's function, null for a name
 * that it does not have. */
__attribute__((visibility("default"))) uhal_any_function
uhal_slot_adapter(const char *name, uhal_any_function vendor);

/* In its body: gives `function`, whose `target` is a pointer to the vendor's function. */
#define UHAL_SLOT_ADAPTER(function, target)                                                        \
    if (strcmp(name, #function) == 0) {                                                            \
        (target) = (__typeof__(target))vendor;                                                     \
        return (uhal_any_function)(function);                                                      \
    }

#endif
