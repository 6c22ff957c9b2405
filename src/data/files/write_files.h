// data/files/write_files.h - what the writers share, private to the files
// write*.c.
#ifndef HKI_DATA_WRITE_H
#define HKI_DATA_WRITE_H
#include "base/io.h"
#include "codec/codec.h"
#include "data/data.h"
#include "hooke/writers.h"

// A file under way, packed if asked for. Zeroed: closed.
typedef struct hki_sink {
    hki_file *file;
    hki_packer *packer; // NULL: plain
    hki_buf packed;
} hki_sink;

hk_status hki_writer_options_get(hk_writer_options *out,
                                 const hk_writer_options *opt, const char *path,
                                 const char *what);
// By the name of the file; AUTO: it does not tell.
hk_write_format hki_write_format_of(const char *path);
// opt: from hki_writer_options_get, whose compression is never AUTO.
hk_status hki_sink_open(hki_sink *s, const char *path,
                        const hk_writer_options *opt);
hk_status hki_sink_write(hki_sink *s, const void *bytes, size_t size);
// The file gets its name; s is closed, also after a failure.
hk_status hki_sink_commit(hki_sink *s);
void hki_sink_discard(hki_sink *s);

// Runs a dataset and hands each element to visit.
typedef hk_status (*hki_element_visit)(void *user, const hk_element *e);
hk_status hki_for_each(hk_dataset *d, hki_element_visit visit, void *user,
                       uint64_t *count);

// Serialized example under way, as the public builder has it.
struct hk_example_builder {
    hki_buf features; // the content of Features
    hki_buf example;  // what finish gives out
};

#endif // HKI_DATA_WRITE_H
