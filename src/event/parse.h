// parse.h - the values of one Event message, one after the other.
#ifndef HKI_EVENT_PARSE_H
#define HKI_EVENT_PARSE_H
#include "codec/codec.h"
#include "hooke/event.h"

// A zeroed struct is ready. Holds the memory that the values point into.
typedef struct hki_event_parser {
    const char *file; // for messages: where the message stands
    uint64_t offset;
    hk_event head;     // time, step, and the value where there is no summary
    bool has_head;     // it has not been handed out yet
    hki_pb values;     // what is left of the summary
    hki_buf tag, text; // NUL-terminated
    hki_buf limits, counts, numbers; // doubles
} hki_event_parser;

// Starts with a message, which has to stay until the last value is read.
// HK_E_DATA when it is malformed.
hk_status hki_event_parse(hki_event_parser *p, const uint8_t *bytes,
                          size_t size);
// The next value; HK_E_END when there is no more.
hk_status hki_event_value(hki_event_parser *p, hk_event *out);
void hki_event_parser_deinit(hki_event_parser *p);

// ---- tensors in summaries --------------------------------------------------

typedef struct hki_event_tensor {
    uint64_t dtype;       // TensorFlow's number
    bool numeric;         // of a type that hki_event_tensor_numbers knows
    int64_t rank, dim[2]; // the first two; rank counts all
    const uint8_t *message;
    size_t size;
} hki_event_tensor;

// Reads type and shape of a TensorProto; false when malformed.
bool hki_event_tensor_parse(const uint8_t *bytes, size_t size,
                            hki_event_tensor *t);
// Appends its numbers as doubles (float, double, int32, int64; nothing for
// other types). *bad: malformed.
hk_status hki_event_tensor_numbers(const hki_event_tensor *t, hki_buf *out,
                                   bool *bad);
// Its i-th string; false when there is none.
bool hki_event_tensor_string(const hki_event_tensor *t, size_t i,
                             const uint8_t **bytes, size_t *size);

// Appends the doubles of a field that is packed or single; others change
// nothing. *bad: not a whole number of them.
hk_status hki_event_doubles(const hki_pb_field *f, hki_buf *out, bool *bad);

#endif // HKI_EVENT_PARSE_H
