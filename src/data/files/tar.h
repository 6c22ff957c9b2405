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

#endif // HKI_DATA_TAR_H
