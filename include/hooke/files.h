// hooke/files.h - data sets in files: sources and parsers.
//
//     const char *files[] = {"train-{00..15}.tfrecord"};
//     hk_dataset *d = hk_data_tfrecord(files, 1, NULL);
//     d = hk_data_parse_example(d, features, n_features, NULL);
//     d = hk_data_batch(d, 64, 1);
//
// A list of files is a list of paths and patterns. A path that exists is taken
// as it is. Otherwise {a,b} and {000..099} are written out in this order, and
// *, ? and [...] match names as in a shell, sorted by their bytes. A pattern
// without a file is HK_E_NOT_FOUND.
//
// https://host/file and s3://bucket/key are paths, too: read in blocks ahead of
// the reader, with libcurl, which is loaded when the first of them is met.
// Braces are written out in all of them, *, ? and [...] match keys of s3://.
// docs/data.md says which variables of the environment count.
//
// Errors name the file, the record (counting from 0) and the byte offset
// (of the unpacked bytes where a file is packed).
//
// Threads: as in hooke/data.h; a parser serves one thread at a time.
#ifndef HOOKE_FILES_H
#define HOOKE_FILES_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/data.h"
#include "hooke/fetch.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// ---- which files -----------------------------------------------------------

// The string "path" of every file; shuffle 1: in TF's order for the seed,
// another one in every pass.
HK_API hk_dataset *hk_data_list_files(const char *const *files, size_t n_files,
                                      int shuffle, int64_t seed);
// The first bytes of a file: `size`, or *got when it has fewer.
HK_API hk_status hk_file_head(const char *path, void *bytes, size_t size,
                              size_t *got);

// ---- what all sources have in common ---------------------------------------

typedef enum hk_compression {
    HK_COMPRESSION_AUTO = 0, // gzip and zlib by their first bytes, else none
    HK_COMPRESSION_NONE = 1,
    HK_COMPRESSION_GZIP = 2,
    HK_COMPRESSION_ZLIB = 3
} hk_compression;

typedef struct hk_file_options {
    size_t struct_size; // set by hk_file_options_init
    hk_compression compression;
    // Where damage hides the next record, SKIP passes over the rest of the
    // file and counts it as one.
    hk_on_error on_error;
    uint64_t max_record_bytes; // default 256 MiB; a longer record is damage
    uint64_t max_file_bytes;   // default 16 GiB: files that are held in memory
    uint64_t max_pixels;       // default 64 Mi: pictures
    uint64_t buffer_bytes;     // default 256 KiB
    uint32_t any_bytes; // 0: text with NUL or bytes that are not UTF-8 is
                        // damaged (text lines, CSV); 1: taken as it is
    uint32_t reserved;
    // Where the index of a file goes that cannot be kept beside it; copied.
    // NULL: nowhere, and it is made by every process.
    const char *index_folder;
    // Gets all bytes that are read of the files, in the order of reading. NULL:
    // nobody does.
    hk_file_observer observer;
    void *observer_user;
} hk_file_options;
HK_API void hk_file_options_init(hk_file_options *opt, size_t struct_size);

// ---- records ---------------------------------------------------------------

// The records of TFRecord files: the string "record".
HK_API hk_dataset *hk_data_tfrecord(const char *const *files, size_t n_files,
                                    const hk_file_options *opt);
// The lines of text files: the string "line". TF's rules: LF ends a line,
// every CR is dropped, a last line without LF counts if it is not empty.
HK_API hk_dataset *hk_data_text(const char *const *files, size_t n_files,
                                const hk_file_options *opt);
// Records of record_bytes each between a header and a footer: the string
// "record". A file whose middle is no multiple is HK_E_INVALID_ARG.
HK_API hk_dataset *hk_data_fixed_length(const char *const *files,
                                        size_t n_files, int64_t record_bytes,
                                        int64_t header_bytes,
                                        int64_t footer_bytes,
                                        const hk_file_options *opt);

// ---- tf.train.Example ------------------------------------------------------

typedef enum hk_example_kind {
    HK_FIXED_LEN = 1,          // dense, `shape` for each example
    HK_VAR_LEN = 2,            // sparse [-1]: any number of values
    HK_FIXED_LEN_SEQUENCE = 3, // dense [-1, shape...]: any number of rows
    HK_SPARSE_LEN = 4,         // sparse `shape`: values under `key`, their
                               // places under index_keys, one list a dimension
    HK_RAGGED_LEN = 5,         // dense [-1]; hk_data_ragged_batch makes it
                               // ragged
    HK_RAW_LEN = 6             // dense `shape`: one bytes value that holds the
                               // elements' bytes, little-endian
} hk_example_kind;

typedef struct hk_example_feature {
    const char *name; // of the value
    const char *key;  // in the Example; NULL: the name
    hk_example_kind kind;
    hk_dtype dtype;  // F32, I64, STRING; stored integers also as I32 and F32;
                     // RAW_LEN: the stored type, or F32 of any
    hk_dtype stored; // F32, I64, STRING; RAW_LEN: of the bytes; 0: as dtype
                     // (I64 for I32)
    hk_role role;    // 0: feature
    hk_shape shape;
    // FIXED_LEN, RAW_LEN: elements of dtype when the key is missing (strings:
    // const char *const *): none (it is required), one for every place, or one
    // each.
    const void *defaults;
    size_t n_defaults;
    const char *const *index_keys; // SPARSE_LEN
    size_t n_index_keys;
    uint32_t allow_missing; // FIXED_LEN_SEQUENCE: 1, a missing key is empty
    uint32_t reserved;
} hk_example_feature;

typedef struct hk_parse_options {
    size_t struct_size; // set by hk_parse_options_init
    const char *input;  // string that holds the bytes; NULL: the only one
    hk_on_error on_error;
    uint32_t keep; // 1: the other values of the element stay, in front
    // 1: the bytes are SequenceExamples. The features are those of the context,
    // the feature lists come behind them. In a list FIXED_LEN_SEQUENCE gives
    // dense [-1, shape...] (one row a step), VAR_LEN sparse [-1, -1],
    // RAGGED_LEN ragged [-1, -1].
    uint32_t sequence;
    uint32_t reserved;
    const hk_example_feature *lists;
    size_t n_lists;
} hk_parse_options;
HK_API void hk_parse_options_init(hk_parse_options *opt, size_t struct_size);

// One example an element, before hk_data_batch, which has it parsed straight
// into the rows of the batch. A missing FIXED_LEN without defaults, another
// type or another count is an error.
HK_API hk_dataset *hk_data_parse_example(hk_dataset *d,
                                         const hk_example_feature *features,
                                         size_t n_features,
                                         const hk_parse_options *opt);

// The same on bytes, without a dataset. opt: sequence and lists.
typedef struct hk_example_parser hk_example_parser; // opaque
HK_API hk_status hk_example_parser_create(const hk_example_feature *features,
                                          size_t n_features,
                                          const hk_parse_options *opt,
                                          hk_example_parser **out);
HK_API void hk_example_parser_destroy(hk_example_parser *p); // NULL is allowed
// *out: borrowed from the parser until its next call.
HK_API hk_status hk_example_parse(hk_example_parser *p, const void *bytes,
                                  size_t size, const hk_element **out);

// Tells what is in a serialized Example: one call a feature. list: 1 for a
// feature list, of `count` features.
typedef hk_status (*hk_example_visit)(void *user, const char *key,
                                      size_t key_size, int list,
                                      hk_dtype stored, int64_t count);
HK_API hk_status hk_example_describe(const void *bytes, size_t size,
                                     int sequence, hk_example_visit visit,
                                     void *user);

// ---- CSV -------------------------------------------------------------------

typedef struct hk_csv_column {
    const char *name;  // of the value; with a header: of the column
    hk_dtype dtype;    // I32, I64, F32, F64, STRING; a vocabulary: integers
    hk_role role;      // 0: feature
    uint32_t required; // 1: a missing value is an error
    uint32_t allow_unknown;    // 1: a word that the vocabulary does not have
                               // gives `unknown`; 0: it is an error
    const char *default_value; // for a missing one, as text; NULL: 0 or ""
    const char *strip;         // characters cut off the end, as "." in ">50K."
    const char *const *vocabulary; // gives the number of the text in it
    size_t n_vocabulary;
    int64_t unknown;
} hk_csv_column;

typedef struct hk_csv_options {
    size_t struct_size;           // set by hk_csv_options_init
    const hk_csv_column *columns; // the values, in this order
    size_t n_columns;             // 0: all of the file, types by its first rows
    const int32_t *select; // n_columns fields, counted from 0, ascending; NULL:
                           // by the names of the header, or the first ones
    const char *const *missing;  // tokens that stand for a missing value; an
    size_t n_missing;            // empty field always does
    const hk_file_options *file; // NULL: the defaults
    int64_t skip_lines;          // at the start of each file, before a header
    int64_t n_fields;            // each row has; 0: by the header or columns,
                                 // with select: as many as it needs, or more
    int64_t infer_rows;          // rows that types come from; default 100
    uint32_t header;             // 1: the first line of a file names columns
    uint32_t trim;               // 1: blanks around unquoted fields go
    uint32_t keep_blank_lines;   // 1: an empty line is a row of one field
    char delimiter;              // default ,
    char quote;                  // default "; 0: none
    char comment;                // lines that begin with it are passed over
    char decimal;                // , in 1,5: numbers have no point; default .
    uint32_t dressed;            // 1: as hk_number_undress takes numbers
    uint32_t reserved;
} hk_csv_options;
HK_API void hk_csv_options_init(hk_csv_options *opt, size_t struct_size);

// Numbers as people write them: $1,250.50, -3 €, 12 %, with a decimal comma
// 1.250,50. groups: 1: so is 1,250, which could be 1.25 elsewhere; a CSV file
// takes it where its delimiter or its decimal mark is a comma. The plain number
// goes to out, of `size` bytes, without an end; its length, or 0 where it is
// none. *sign: what stands before or behind it, "" for nothing; NULL: not
// asked.
HK_API size_t hk_number_undress(const char *text, size_t size, char decimal,
                                int groups, char *out, const char **sign);

// RFC 4180: CRLF or LF (or CR), quoted fields with doubled quotes, delimiters
// and line ends in them; a byte-order mark is dropped. A wrong number of
// fields, a bad number, a quote inside an unquoted field are errors.
HK_API hk_dataset *hk_data_csv(const char *const *files, size_t n_files,
                               const hk_csv_options *opt);

// ---- arrays ----------------------------------------------------------------
//
// Held in memory, any element at any time; slices along axis 0. Types that
// tensors do not have become the next wider one (int8, int16, uint16: int32;
// uint32, uint64: int64; float16: float32).

typedef struct hk_array_file {
    const char *name; // of the value
    const char *path;
    hk_role role; // 0: feature
    uint32_t reserved;
} hk_array_file;

// IDX or .npy, each file by its first bytes.
HK_API hk_dataset *hk_data_arrays(const hk_array_file *files, size_t n_files,
                                  const hk_file_options *opt);
// members: from the archive (from: "x" for x.npy); none: all, as features.
HK_API hk_dataset *hk_data_npz(const char *path, const hk_select *members,
                               size_t n_members, const hk_file_options *opt);
// The binary batches of CIFAR-10 or CIFAR-100 (classes: 10, 100): "image" uint8
// [32, 32, 3], "label" int32; CIFAR-100 also has "coarse_label".
HK_API hk_dataset *hk_data_cifar(const char *const *files, size_t n_files,
                                 int classes, const hk_file_options *opt);

// An array without a dataset; *out is released by the caller. member: of an
// .npz; NULL: path is an IDX or .npy file.
HK_API hk_status hk_array_read(const char *path, const char *member,
                               const hk_file_options *opt, hk_tensor **out);

// ---- tar shards (webdataset) -----------------------------------------------

typedef enum hk_tar_kind {
    HK_TAR_BYTES = 1,   // the string
    HK_TAR_NUMBER = 2,  // a number as text
    HK_TAR_PICTURE = 3, // JPEG or PNG: uint8 [height, width, channels]
    HK_TAR_NPY = 4      // an array
} hk_tar_kind;

typedef struct hk_tar_field {
    const char *name;      // of the value
    const char *extension; // behind the first dot: "jpg"; several: "jpg;png"
    hk_tar_kind kind;
    hk_dtype dtype; // NUMBER: I32, I64, F32; NPY: of the array
    hk_role role;   // 0: feature
    int32_t reserved;
    hk_shape shape; // PICTURE, NPY: what it has to be; -1: anything. The
                    // channels of a picture have to be 1, 3 or 4
    // NUMBER: texts that stand for 0, 1, ...; copied. NULL: numbers.
    const char *const *words;
    size_t n_words;
} hk_tar_field;

typedef struct hk_tar_options {
    size_t struct_size;          // set by hk_tar_options_init
    const char *key;             // name of a value for the sample's key; NULL
    const hk_file_options *file; // NULL: the defaults
} hk_tar_options;
HK_API void hk_tar_options_init(hk_tar_options *opt, size_t struct_size);

// A sample is a run of members that agree up to the first dot of their last
// path component. Members that no field asks for are passed over; a sample
// without one of the fields is an error. Absolute names and ".." are refused.
HK_API hk_dataset *hk_data_tar(const char *const *files, size_t n_files,
                               const hk_tar_field *fields, size_t n_fields,
                               const hk_tar_options *opt);

// Calls fn with every regular file of an archive, until one call fails.
HK_API hk_status hk_tar_list(const char *path, const hk_file_options *opt,
                             hk_status (*fn)(void *user, const char *name,
                                             uint64_t size),
                             void *user);

HK_END_C
#endif // HOOKE_FILES_H
