/* Captures: streams that record their work instead of running it.
 *
 * A capture begins and ends on one stream. Another stream joins by waiting for an event recorded in
 * the capture. The first stream must wait for the other stream's last work before the capture ends.
 * All steps go into one list in the order of the calls. An event is recorded before a stream waits
 * for it, so this order respects every dependency. A call that cannot be recorded invalidates the
 * capture.
 *
 * One lock serves all captures of the process; only calls on capturing streams and events take it.
 * Results are codes of runtime.h; the calling thread keeps the error text.
 */
#ifndef UHAL_HSA_CAPTURE_H
#define UHAL_HSA_CAPTURE_H

#include "graph.h"

enum { UHAL_HSA_CAPTURE_STREAMS = 32 };

/* The position of a record in a capture: the number of earlier steps of each stream, in the order
 * the streams joined. Holds the capture. */
typedef struct uhal_hsa_point {
    struct uhal_hsa_capture *capture;
    uint64_t behind[UHAL_HSA_CAPTURE_STREAMS];
} uhal_hsa_point;

int uhal_hsa_capture_launch(uhal_hsa_stream *stream, const uhal_aql_kernel *kernel,
                            const uhal_aql_geometry *geometry, void *const *parameters);
int uhal_hsa_capture_step(uhal_hsa_stream *stream, const uhal_hsa_step *step);

/* Notes that `what` was called on the stream. */
int uhal_hsa_capture_refuse(uhal_hsa_stream *stream, const char *what);

/* Makes a point at the stream's current position. */
int uhal_hsa_capture_record(uhal_hsa_stream *stream, uhal_hsa_point **point);
void uhal_hsa_point_delete(uhal_hsa_point *point);

/* Makes the stream wait for an event that was recorded at `point`; NULL: outside of captures. */
int uhal_hsa_capture_wait(uhal_hsa_stream *stream, const uhal_hsa_point *point);

/* The result of a query for the time or completion of an event with a point. */
int uhal_hsa_capture_no_time(void);

/* Removes a stream that is being destroyed. */
void uhal_hsa_capture_leave(uhal_hsa_stream *stream);

#endif
