// fetch/remote/http.h - pieces of files on other machines.
#ifndef HKI_HTTP_H
#define HKI_HTTP_H
#include "base/base.h"
#include "fetch/fetch.h"

// ---- what to ask for: target.c, aws.c --------------------------------------

// Read-only once it is made; any number of threads may use it.
typedef struct hki_target {
    char *path; // as it was given, for messages
    char *url;  // what is asked for
    bool s3;
    bool plain; // http:// was asked for
    // Signature, by libcurl; NULL: none. Never in a message.
    char *sigv4; // "aws:amz:<region>:s3"
    char *key_id, *secret;
    char *token_header; // "x-amz-security-token: ..."; NULL: none
    char *ca_file;      // NULL: where the system keeps certificates
    int64_t timeout_ms; // for a piece, with all that is tried
} hki_target;

hk_status hki_target_make(const char *path, hki_target **out);
// The list of a bucket: query is what follows the question mark.
hk_status hki_target_list(const char *path, const char *query,
                          hki_target **out);
void hki_target_destroy(hki_target *t); // NULL is allowed

// Appends text as a URL may hold it; kept: characters beside letters, digits
// and -._~ that stay as they are.
hk_status hki_percent_encode(hki_buf *b, const char *text, const char *kept);

// Who asks, by the variables and files of AWS; empty: not said anywhere.
typedef struct hki_aws {
    char key_id[256], secret[256], token[4096];
    char region[64], endpoint[512];
} hki_aws;
hk_status hki_aws_find(hki_aws *out);
// The value of a key in a section of an ini file; false: it is not there, or
// longer than capacity - 1.
bool hki_ini_find(const char *text, size_t size, const char *section,
                  const char *key, char *out, size_t capacity);

// ---- pieces: http_get.c ----------------------------------------------------

// What the first answer said of a file; all further ones have to say the same.
typedef struct hki_version {
    bool known;
    uint64_t size;
    char tag[128], modified[64]; // ETag and Last-Modified; "": none
} hki_version;

typedef struct hki_piece {
    uint64_t offset;
    size_t size; // wanted; the file may end before
    bool whole;  // the answer is all there is, `size` bytes at most
    uint8_t *bytes;
    size_t capacity; // >= size; a server without ranges may fill it
    size_t got;
} hki_piece;

// A connection, or a few; one thread uses it at a time.
typedef struct hki_http hki_http;
hk_status hki_http_take(hki_http **out);
void hki_http_give(hki_http *h); // kept for the next one; NULL is allowed
// From any thread: the call under way, or the next, gives HK_E_CANCELLED;
// until ready.
void hki_http_interrupt(hki_http *h);
void hki_http_ready(hki_http *h);
// v: learnt when it is not known, held against otherwise. Tries again what is
// worth it, until the target's timeout.
hk_status hki_http_get(hki_http *h, const hki_target *t, hki_version *v,
                       hki_piece *p);

// "bytes 0-99/1000"
bool hki_content_range(const char *text, uint64_t *first, uint64_t *last,
                       uint64_t *size);

// ---- whole files: read_ahead.c ---------------------------------------------

typedef struct hki_ahead hki_ahead; // opaque
hk_status hki_ahead_open(const char *path, const hki_watch *watch,
                         hki_ahead **out);
void hki_ahead_close(hki_ahead *a); // NULL is allowed
const hki_version *hki_ahead_version(const hki_ahead *a);
hk_status hki_ahead_read(hki_ahead *a, void *out, size_t capacity, size_t *got);
void hki_ahead_until(hki_ahead *a, uint64_t end); // nothing behind is wanted
hk_status hki_ahead_seek(hki_ahead *a, uint64_t position);

// ---- lists: s3_list.c ------------------------------------------------------

// One page of a list: add for every key; next: where the following page
// begins, "" behind the last.
hk_status hki_s3_page(const char *xml, size_t size,
                      hk_status (*add)(void *user, const char *key), void *user,
                      char *next, size_t capacity);

#endif // HKI_HTTP_H
