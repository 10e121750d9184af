/* The ledger: the last launches of a stream, to tell later which launch broke the device.
 *
 * An entry holds the kernel's name and signature and the caller's code object, never a buffer, an
 * argument or a frame. Argument bytes beyond UHAL_LEDGER_BYTES are cut off.
 */
#ifndef UHAL_LEDGER_H
#define UHAL_LEDGER_H

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { UHAL_LEDGER_LENGTH = 256, UHAL_LEDGER_BYTES = 96 };

typedef struct uhal_launch_record {
    uint64_t ticket;  /* 0: the slot was never used */
    PyObject *kernel; /* (name, signature); for a replay, the Recording */
    PyObject *code;   /* may be null */
    int instruction_offset;
    unsigned int geometry[6];
    unsigned int shared_bytes;
    unsigned int argument_bytes;
    unsigned char arguments[UHAL_LEDGER_BYTES];
} uhal_launch_record;

typedef struct uhal_ledger {
    uint64_t count; /* records written so far; the next index is count % UHAL_LEDGER_LENGTH */
    uhal_launch_record records[UHAL_LEDGER_LENGTH];
} uhal_ledger;

static uhal_ledger *uhal_ledger_new(void) { return (uhal_ledger *)calloc(1, sizeof(uhal_ledger)); }

static void uhal_ledger_delete(uhal_ledger *ledger) {
    if (ledger == NULL) {
        return;
    }
    for (int i = 0; i < UHAL_LEDGER_LENGTH; i++) {
        Py_XDECREF(ledger->records[i].kernel);
        Py_XDECREF(ledger->records[i].code);
    }
    free(ledger);
}

/* Copies pieces of constant size, which compile to moves: a call of memcpy would cost more. */
static inline void uhal_ledger_copy(unsigned char *to, const unsigned char *from, size_t bytes) {
    for (; bytes >= 32; bytes -= 32, to += 32, from += 32) {
        memcpy(to, from, 32);
    }
    if (bytes & 16) {
        memcpy(to, from, 16);
        to += 16;
        from += 16;
    }
    if (bytes & 8) {
        memcpy(to, from, 8);
        to += 8;
        from += 8;
    }
    for (bytes &= 7; bytes > 0; bytes--) {
        *to++ = *from++;
    }
}

static inline void uhal_ledger_write(uhal_ledger *ledger, uint64_t ticket, PyObject *kernel,
                                     PyObject *code, int instruction_offset,
                                     const unsigned int *geometry, unsigned int shared_bytes,
                                     const void *arguments, size_t argument_bytes) {
    uhal_launch_record *record = &ledger->records[ledger->count++ % UHAL_LEDGER_LENGTH];
    PyObject *old_kernel = record->kernel;
    PyObject *old_code = record->code;
    Py_INCREF(kernel);
    Py_XINCREF(code);
    record->ticket = ticket;
    record->kernel = kernel;
    record->code = code;
    record->instruction_offset = instruction_offset;
    memcpy(record->geometry, geometry, sizeof(record->geometry));
    record->shared_bytes = shared_bytes;
    record->argument_bytes =
        (unsigned int)(argument_bytes < UHAL_LEDGER_BYTES ? argument_bytes : UHAL_LEDGER_BYTES);
    uhal_ledger_copy(record->arguments, (const unsigned char *)arguments, record->argument_bytes);
    /* last: dropping a reference may run Python code that launches */
    Py_XDECREF(old_kernel);
    Py_XDECREF(old_code);
}

#endif
