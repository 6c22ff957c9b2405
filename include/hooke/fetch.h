// hooke/fetch.h - which version of a file is there, and what is read of it.
//
//     hk_file_state state;
//     hk_status s = hk_file_get_state("https://host/rows.csv", &state);
//
// Paths are those of hooke/files.h: files of this machine, https:// and s3://.
//
// Threads: all functions are thread-safe.
#ifndef HOOKE_FETCH_H
#define HOOKE_FETCH_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/status.h"

HK_BEGIN_C

// What tells one version of a file from another.
typedef struct hk_file_state {
    int64_t size;        // -1: not known, as of a pipe
    int64_t modified_ns; // since 1970; 0: not known, as of a URL
    char tag[128];       // what the server of a URL says: ETag and
    char modified[64];   // Last-Modified; "": nothing
} hk_file_state;
// Of a file as it is now. A URL is asked for its first bytes.
HK_API hk_status hk_file_get_state(const char *path, hk_file_state *out);

// Gets the bytes of a file as they are read, from `offset` of it on, packed if
// it is; size 0: the file ends there. state: of the file when it was opened.
// Called by the thread that reads.
typedef void (*hk_file_observer)(void *user, const char *path,
                                 const hk_file_state *state, uint64_t offset,
                                 const void *bytes, size_t size);
// Reads a file from `offset` to its end for an observer.
HK_API hk_status hk_file_observe(const char *path, uint64_t offset,
                                 hk_file_observer observer, void *user);

HK_END_C
#endif // HOOKE_FETCH_H
