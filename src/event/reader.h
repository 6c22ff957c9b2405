// reader.h - event files as a stream of values.
#ifndef HKI_EVENT_READER_H
#define HKI_EVENT_READER_H
#include "event/parse.h"

// A reader over bytes instead of a file; they have to outlive it.
hk_status hki_event_reader_memory(const uint8_t *bytes, size_t size,
                                  hk_event_reader **out);

#endif // HKI_EVENT_READER_H
