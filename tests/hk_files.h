// hk_files.h - what the tests of file sources share: a folder with files in
// it, stopping at every element, faults that name their place.
#ifndef HK_FILES_H
#define HK_FILES_H
#include "hk_data.h"
#include "codec_util.h"
#include "file_util.h"
#include "hooke/files.h"

// ---- files -----------------------------------------------------------------

#define HK_BED_FILES 8

typedef struct hk_bed {
    folder d;
    char path[HK_BED_FILES][512];
    const char *files[HK_BED_FILES]; // to hand to a source
    size_t n;
} hk_bed;

static inline void hk_bed_make(hk_bed *b) {
    *b = (hk_bed){0};
    folder_make(&b->d);
}

static inline void hk_bed_remove(hk_bed *b) {
    folder_remove(&b->d);
}

// One more file; it keeps its name until the bed is removed.
static inline const char *hk_bed_add(hk_bed *b, const char *name,
                                     const void *bytes, size_t size) {
    char path[512];
    assert_true(b->n < HK_BED_FILES);
    write_file(folder_path(&b->d, name, path), bytes, size);
    memcpy(b->path[b->n], path, sizeof path);
    b->files[b->n] = b->path[b->n];
    return b->path[b->n++];
}

static inline const char *hk_bed_text(hk_bed *b, const char *name,
                                      const char *text) {
    return hk_bed_add(b, name, text, strlen(text));
}

static inline const char *hk_bed_packed(hk_bed *b, const char *name,
                                        hki_packing packing, const void *bytes,
                                        size_t size) {
    hki_buf packed = {0};
    pack(packing, 6, bytes, size, &packed);
    const char *const path = hk_bed_add(b, name, packed.data, packed.size);
    hki_buf_deinit(&packed);
    return path;
}

static inline hk_file_options hk_file_defaults(void) {
    hk_file_options o;
    hk_file_options_init(&o, sizeof o);
    return o;
}

// ---- positions -------------------------------------------------------------

typedef hk_dataset *(*hk_make)(void *user);

static inline hk_iter *hk_test_iter(hk_dataset *d) {
    hk_iter *it = NULL;
    assert_ok(hk_dataset_status(d));
    assert_ok(hk_iter_create(d, NULL, &it));
    hk_dataset_release(d);
    return it;
}

// Stops after every element, saves, restores into a new iterator and compares
// the rest with the run that was not interrupted. Returns the elements.
static inline int64_t hk_check_stops(const char *what, hk_make make,
                                     void *user) {
    char *const whole = hk_run_text(make(user), 1, -1);
    for (int64_t stop = 0;; stop++) {
        char *const got = calloc(1, HK_RUN_TEXT);
        hk_text t = {got, HK_RUN_TEXT};
        hk_iter *it = hk_test_iter(make(user));
        size_t size = 0;
        hk_text_next(&t, it, stop);
        const bool over = hk_delivered(it) < (uint64_t)stop;
        assert_ok(hk_iter_save(it, NULL, 0, &size));
        uint8_t *const bytes = malloc(size + 1);
        assert_ok(hk_iter_save(it, bytes, size, &size));
        hk_iter_destroy(it);
        it = hk_test_iter(make(user));
        assert_ok(hk_iter_restore(it, bytes, size));
        char *const before = t.at;
        hk_text_add(&t, stop > 0 ? " " : "");
        char *const rest = t.at;
        hk_text_next(&t, it, -1);
        if (t.at == rest)
            *before = '\0'; // nothing was left
        hk_iter_destroy(it);
        if (strcmp(got, whole) != 0)
            fail_msg("%s, stopped after %lld:\n  got      %s\n  expected %s",
                     what, (long long)stop, got, whole);
        free(bytes);
        free(got);
        if (over) {
            free(whole);
            return stop - 1;
        }
    }
}

// Every instruction-set level of this machine gives the same elements.
static inline void hk_check_levels(const char *what, hk_make make, void *user) {
    char *const best = hk_run_text(make(user), 1, -1);
    for (hk_isa isa = HK_ISA_BASE; isa < hki_isa_best(); isa++) {
        hk_context_options c;
        hk_iter_options o;
        hk_context *ctx = NULL;
        hk_iter *it = NULL;
        char *const got = calloc(1, HK_RUN_TEXT);
        hk_text t = {got, HK_RUN_TEXT};
        hk_context_options_init(&c, sizeof c);
        c.isa = isa;
        assert_ok(hk_context_create(&c, &ctx));
        hk_iter_options_init(&o, sizeof o);
        o.context = ctx;
        hk_dataset *const d = make(user);
        assert_ok(hk_iter_create(d, &o, &it));
        hk_dataset_release(d);
        hk_text_next(&t, it, -1);
        hk_iter_destroy(it);
        hk_context_destroy(ctx);
        if (strcmp(got, best) != 0)
            fail_msg("%s, level %s:\n  got      %s\n  expected %s", what,
                     hki_isa_name(isa), got, best);
        free(got);
    }
    free(best);
}

// ---- faults ----------------------------------------------------------------

// The pipeline gives `expected` (as hk_check_run, with the status of a fault at
// the end of it), and the message of the fault has all of the words.
static inline void hk_check_fault(const char *what, hk_dataset *d,
                                  const char *expected, const char *words) {
    hk_check_run(what, d, -1, expected);
    char list[256];
    snprintf(list, sizeof list, "%s", words);
    for (char *p = list, *end; *p != '\0'; p = end) {
        end = p + strcspn(p, "|");
        if (*end != '\0')
            *end++ = '\0';
        if (strstr(hk_last_error(), p) == NULL)
            fail_msg("%s: \"%s\" is not in \"%s\"", what, p, hk_last_error());
    }
}

// Making d (released) fails like this, and the message has the word.
static inline void hk_check_refused(hk_dataset *d, hk_status expected,
                                    const char *word) {
    assert_status(hk_dataset_status(d), expected);
    if (strstr(hk_last_error(), word) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", word, hk_last_error());
    hk_dataset_release(d);
}

// Runs d (released) to the end: elements and skipped records.
static inline void hk_count_run(hk_dataset *d, uint64_t *elements,
                                uint64_t *skipped) {
    hk_iter *const it = hk_test_iter(d);
    const hk_element *e;
    hk_iter_info stats = {0};
    hk_status s;
    while ((s = hk_iter_next(it, &e)) == HK_OK)
        continue;
    assert_int_equal(s, HK_E_END);
    assert_ok(hk_iter_get_info(it, &stats));
    *elements = stats.delivered;
    *skipped = stats.skipped;
    hk_iter_destroy(it);
}

// One pass, for the loop over failing allocations; d is released. The status
// of whatever failed.
static inline hk_status hk_run_status(hk_dataset *d) {
    hk_iter *it = NULL;
    const hk_element *e;
    hk_status s = hk_dataset_status(d);
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.threads = 1;
    if (s == HK_OK)
        s = hk_iter_create(d, &o, &it);
    hk_dataset_release(d);
    while (s == HK_OK)
        s = hk_iter_next(it, &e);
    hk_iter_destroy(it);
    return s == HK_E_END ? HK_OK : s;
}

#endif // HK_FILES_H
