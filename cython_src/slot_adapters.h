/* Adapters: C functions for slots that a vendor's own function does not fit.
 *
 * An adapter has the slot's prototype and calls the vendor's function, whose address it is given
 * before the slot is filled. Nothing in a slot's call says whose library it is for, so an adapter
 * serves one: a process opens one library a vendor, and another one's function is refused.
 */
#ifndef UHAL_SLOT_ADAPTERS_H
#define UHAL_SLOT_ADAPTERS_H

typedef void (*uhal_any_function)(void);

enum uhal_adapter_answer { UHAL_ADAPTER_GIVEN, UHAL_ADAPTER_UNKNOWN, UHAL_ADAPTER_TAKEN };

/* Answers with the adapter `name` over the vendor's function. */
enum uhal_adapter_answer uhal_slot_adapter(const char *name, uhal_any_function vendor,
                                           uhal_any_function *adapter);

/* For an adapter's `target`, a pointer to a function: the first one given stays. */
#define UHAL_GIVE_ADAPTER(function, target)                                                        \
    do {                                                                                           \
        if ((target) != NULL && (uhal_any_function)(target) != vendor)                             \
            return UHAL_ADAPTER_TAKEN;                                                             \
        (target) = (__typeof__(target))vendor;                                                     \
        *adapter = (uhal_any_function)(function);                                                  \
        return UHAL_ADAPTER_GIVEN;                                                                 \
    } while (0)

#endif
