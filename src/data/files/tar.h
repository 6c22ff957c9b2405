// data/files/tar.h - the members of a tar archive, private to the files tar*.c.
//
// An archive is a run of blocks of 512 bytes: a header, the data filled up
// with zeros, and so on, until a block of zeros or the end of the file. Known
// are ustar (also the old form without a prefix), pax (x: path and size of the
// next member; g: passed over) and GNU's long names (L) and large sizes.
#ifndef HKI_DATA_TAR_H
#define HKI_DATA_TAR_H
#include "data/files/file_reader.h"

#define HKI_TAR_BLOCK 512
#define HKI_TAR_MAX_NAME 4096

typedef struct hki_tar_member {
    char name[HKI_TAR_MAX_NAME + 1];
    size_t name_size;
    uint64_t size;
    uint64_t start; // where its headers begin in the file
} hki_tar_member;

// The next regular file; the reader stands at its data afterwards. HK_E_END at
// the end of the archive. HK_E_DATA for damage and for names that lead out of
// a folder (absolute, ".."); *known then tells whether the member's size is
// there to pass it over.
hk_status hki_tar_next(hki_file_reader *r, hki_tar_member *m, bool *known);
// Its data in the window, valid until the next call; the reader stands behind
// the member afterwards.
hk_status hki_tar_data(hki_file_reader *r, const hki_tar_member *m,
                       const uint8_t **bytes);
hk_status hki_tar_pass(hki_file_reader *r, const hki_tar_member *m);

// ---- samples ---------------------------------------------------------------

// A field that was asked for.
typedef struct hki_tar_wanted {
    const char *name;
    const char *extension; // lower case, alternatives between semicolons
    hk_tar_kind kind;
    hk_dtype dtype;
    hk_role role;
    hk_shape shape;
    const char **words; // of NUMBER: texts of 0, 1, ...; NULL: numbers
    size_t n_words;
} hki_tar_wanted;

// The config of the source.
typedef struct hki_tar_set {
    hki_files files;
    hki_arena arena;
    hki_tar_wanted *fields;
    size_t n_fields;
    const char *key; // NULL: none
    bool decodes;    // a function follows, to which HKI_TAR_WHERE is told
} hki_tar_set;

#define HKI_TAR_WHERE "__where__" // hidden value: place of a sample

// Values of the source: WHERE if it decodes, the key if asked for, the fields.
static inline size_t hki_tar_first_field(const hki_tar_set *c) {
    return (size_t)c->decodes + (c->key != NULL);
}
static inline hk_value hki_tar_string(const char *name, hk_role role) {
    return (hk_value){
        .name = name, .role = role, .form = HK_DENSE_FORM, .dtype = HK_STRING};
}

// What comes out of the source d (taken), whose config c is, decoded.
hk_dataset *hki_tar_decoded(hk_dataset *d, const hki_tar_set *c);

#endif // HKI_DATA_TAR_H
