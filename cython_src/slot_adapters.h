/* Adapters: C functions for slots that a vendor's own function does not fit.
 *
 * An adapter has the slot's prototype and calls the vendor's function, whose address it is given
 * before the slot is filled. It is given once a process: a process opens one library a vendor.
 */
#ifndef UHAL_SLOT_ADAPTERS_H
#define UHAL_SLOT_ADAPTERS_H

typedef void (*uhal_any_function)(void);

/* The adapter `name` over the vendor's function; null when there is none of that name. */
uhal_any_function uhal_slot_adapter(const char *name, uhal_any_function vendor);

#endif
