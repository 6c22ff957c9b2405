// hooke/writers.h - data sets to files.
//
//     hk_writer_options o;
//     hk_writer_options_init(&o, sizeof o);
//     o.compression = HK_COMPRESSION_AUTO;
//     hk_data_write(d, "train.tfrecord.gz", &o, &count);
//
// A file appears under its name when it is complete.
//
// Threads: a writer or builder serves one thread at a time.
#ifndef HOOKE_WRITERS_H
#define HOOKE_WRITERS_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/data.h"
#include "hooke/files.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef enum hk_write_format {
    // By the name: .csv, .npy, .idx or .tfrecord, perhaps with .gz behind it.
    HK_WRITE_AUTO = 0,
    // Floats become float lists, integers and bools int64 lists, strings bytes;
    // uint8 becomes one bytes value (RAW_LEN reads it).
    HK_WRITE_TFRECORD = 1,
    // Scalars; arrays of a fixed shape become columns name_0, name_1...
    HK_WRITE_CSV = 2,
    // One value of all elements as an array [count, shape...].
    HK_WRITE_NPY = 3,
    HK_WRITE_IDX = 4
} hk_write_format;

typedef struct hk_writer_options {
    size_t struct_size;         // set by hk_writer_options_init
    hk_write_format format;     // of hk_data_write
    hk_compression compression; // default NONE; AUTO: by the name (.gz)
    int32_t level;              // 1 to 9, default 6
    uint32_t no_header;         // CSV: no line of names
    const char *value;          // NPY, IDX: which one; NULL: the first
    char delimiter;             // CSV, default ,
    char reserved[7];
} hk_writer_options;
HK_API void hk_writer_options_init(hk_writer_options *opt, size_t struct_size);

// d is borrowed and run once; *count (NULL allowed) is the number of elements
// written.
HK_API hk_status hk_data_write(hk_dataset *d, const char *path,
                               const hk_writer_options *opt, uint64_t *count);

// ---- records and examples by hand ------------------------------------------

// Records of bytes.
typedef struct hk_record_writer hk_record_writer; // opaque
HK_API hk_status hk_record_writer_create(const char *path,
                                         const hk_writer_options *opt,
                                         hk_record_writer **out);
HK_API hk_status hk_record_write(hk_record_writer *w, const void *bytes,
                                 size_t size);
// Completes the file and frees w, also after a failure.
HK_API hk_status hk_record_writer_close(hk_record_writer *w);
HK_API void hk_record_writer_destroy(hk_record_writer *w); // gives it up

typedef struct hk_bytes {
    const void *data;
    size_t size;
} hk_bytes;

// Serialized examples.
typedef struct hk_example_builder hk_example_builder; // opaque
HK_API hk_status hk_example_builder_create(hk_example_builder **out);
HK_API void hk_example_builder_destroy(hk_example_builder *b);
// values: n floats (HK_F32), int64_t (HK_I64) or hk_bytes (HK_STRING).
HK_API hk_status hk_example_add(hk_example_builder *b, const char *key,
                                hk_dtype dtype, const void *values, size_t n);
// The bytes, borrowed until the next call; the builder is empty again.
HK_API hk_status hk_example_finish(hk_example_builder *b, const void **bytes,
                                   size_t *size);

HK_END_C
#endif // HOOKE_WRITERS_H
