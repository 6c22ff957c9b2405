// writer.h - how an event gets from a call into the file.
#ifndef HKI_EVENT_WRITER_H
#define HKI_EVENT_WRITER_H
#include "codec/codec.h"
#include "event/histogram.h"
#include "hooke/event.h"

// Fields of Event that Hooke writes.
enum { HKI_EVENT_VERSION = 3, HKI_EVENT_SUMMARY = 5, HKI_EVENT_SESSION = 7 };

// A message under way: an Event whose last field is open.
typedef struct hki_event_draft {
    hki_buf bytes;
    size_t mark;
} hki_event_draft;

// Starts an event of the writer's time with this field open.
hk_status hki_event_begin(hk_event_writer *w, int64_t step, uint32_t field,
                          hki_event_draft *d);
// Closes the field and queues the event; `s` is the status so far, and
// nothing is sent unless it is HK_OK. Frees the draft in any case.
hk_status hki_event_send(hk_event_writer *w, hki_event_draft *d, hk_status s);
// The writer's clock, in seconds since 1970.
double hki_event_time(const hk_event_writer *w);
const hki_histogram_table *hki_event_buckets(const hk_event_writer *w);

// The tag of a value: not empty, valid UTF-8.
hk_status hki_event_check_tag(const char *call, const char *tag);

#endif // HKI_EVENT_WRITER_H
