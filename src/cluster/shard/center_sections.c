// center_sections.c - tagged sections of a center file.
#include "cluster/shard/center_sections.h"
#include <errno.h>
#include "base/io.h"
#include "codec/codec.h"

#define ALIGN 64u

// ---- tables -----------------------------------------------------------------

static hki_section_table *table_of(const hki_center_file *f, int which) {
    return (hki_section_table *)(void *)(f->map + HKI_SECTIONS_AT +
                                         which * HKI_SECTIONS_STRIDE);
}

static uint32_t table_crc(const hki_section_table *t) {
    const uint32_t n = HKI_MIN(t->count, (uint32_t)HKI_MAX_SECTIONS);
    uint32_t crc = hki_crc32c(0, t, offsetof(hki_section_table, crc));
    crc = hki_crc32c(crc, t->section, n * sizeof *t->section);
    return crc != 0 ? crc : 1;
}

static bool is_valid(const hki_section_table *t) {
    return t->count > 0 && t->count <= HKI_MAX_SECTIONS &&
           t->crc == table_crc(t);
}

// The table that counts; NULL: none does.
static hki_section_table *find_table(const hki_center_file *f) {
    hki_section_table *const a = table_of(f, 0), *const b = table_of(f, 1);
    const bool first = is_valid(a), second = is_valid(b);
    if (first && second)
        return a->generation > b->generation ? a : b;
    return first ? a : second ? b : NULL;
}

static bool has_tag(const hki_section *s, const char *tag) {
    return strncmp(s->tag, tag, sizeof s->tag) == 0;
}

static hki_section *find_section(hki_section_table *t, const char *tag) {
    for (uint32_t i = 0; t != NULL && i < t->count; i++)
        if (has_tag(&t->section[i], tag))
            return &t->section[i];
    return NULL;
}

// ---- the fixed parts --------------------------------------------------------

#define N_FIXED 6

// What the head says of them.
static void list_fixed(const hki_center_file *f, hki_section out[N_FIXED]) {
    const hki_center_head *const h = (const void *)f->map;
    const uint32_t fixed = HKI_SECTION_NEEDED | HKI_SECTION_FIXED;
    const hki_section list[N_FIXED] = {
        {.tag = "layout",
         .flags = HKI_SECTION_NEEDED,
         .at = h->layout_at,
         .bytes = h->layout_bytes},
        {.tag = "workers",
         .flags = fixed,
         .at = h->worker_at,
         .bytes = (h->max_workers + 1ull) * sizeof(hki_worker_record)},
        {.tag = "chunks",
         .flags = fixed,
         .at = h->chunk_at,
         .bytes = (uint64_t)h->n_chunks * sizeof(hki_chunk_record)},
        {.tag = "side",
         .flags = fixed,
         .at = h->side_at,
         .bytes = h->side_bytes},
        {.tag = "undo",
         .flags = fixed,
         .at = h->undo_at,
         .bytes = h->n_undo * h->undo_stride},
        {.tag = "vectors",
         .flags = fixed,
         .at = h->vector_at,
         .bytes = h->n_vectors * h->vector_stride},
    };
    memcpy(out, list, sizeof list);
    out[0].crc = hki_crc32c(0, f->map + h->layout_at, (size_t)h->layout_bytes);
}

void hki_sections_init(hki_center_file *f) {
    hki_section_table *const t = table_of(f, 0);
    table_of(f, 1)->crc = 0;
    *t = (hki_section_table){.generation = 1, .count = N_FIXED};
    list_fixed(f, t->section);
    HKI_ORDER();
    t->crc = table_crc(t);
    HKI_ORDER();
}

// The table first, then the number, then the hash over it: a head whose hash
// is that of version 1 is one of a process that died before the last step.
void hki_sections_upgrade(hki_center_file *f) {
    hki_center_head *const h = f->head;
    if (h->version < 2)
        hki_sections_init(f);
    h->version = HKI_CENTER_VERSION;
    HKI_ORDER();
    h->check = hki_center_check(h);
}

// ---- reading ----------------------------------------------------------------

// Size of the file now; it may have grown since it was mapped.
static uint64_t file_size(const hki_center_file *f) {
    uint64_t now;
    return f->fd >= 0 && hki_file_length(f->fd, "", &now) == HK_OK ? now
                                                                   : f->bytes;
}

static hk_status read_range(const hki_center_file *f, uint64_t at,
                            uint64_t bytes, uint8_t **out) {
    HKI_TRY(hki_zalloc_array((size_t)bytes + 1, 1, out));
    const hk_status s =
        hki_file_read_at(f->fd, f->path, at, *out, (size_t)bytes);
    if (s != HK_OK)
        hki_free(*out);
    return s;
}

static hk_status read_section(const hki_center_file *f, const hki_section *s,
                              const char *path, uint8_t **out) {
    const uint64_t first =
        ((const hki_center_head *)(void *)f->map)->file_bytes;
    if (s->at < first || s->bytes > HKI_MAX_SECTION ||
        s->at > file_size(f) - s->bytes)
        return hki_fail(HK_E_DATA, "%s: the section %.8s exceeds the file",
                        path, s->tag);
    HKI_TRY(read_range(f, s->at, s->bytes, out));
    if (hki_crc32c(0, *out, (size_t)s->bytes) == s->crc)
        return HK_OK;
    hki_free(*out);
    return hki_fail(HK_E_DATA, "%s: the section %.8s is damaged", path, s->tag);
}

static hk_status check_fixed(const hki_center_file *f, hki_section_table *t,
                             const char *path) {
    hki_section fixed[N_FIXED];
    list_fixed(f, fixed);
    for (size_t i = 0; i < N_FIXED; i++) {
        const hki_section *const s = find_section(t, fixed[i].tag);
        if (s == NULL || s->at != fixed[i].at || s->bytes != fixed[i].bytes ||
            s->crc != fixed[i].crc)
            return hki_fail(HK_E_DATA,
                            "%s: the section %s is missing or damaged", path,
                            fixed[i].tag);
    }
    return HK_OK;
}

static bool is_known(const hki_section *s) {
    static const char *const tags[] = {"layout", "workers", "chunks", "side",
                                       "undo",   "vectors", "writer"};
    for (size_t i = 0; i < HKI_COUNT(tags); i++)
        if (has_tag(s, tags[i]))
            return true;
    return false;
}

// Says which versions do not fit.
static hk_status unknown(const hki_center_file *f, const hki_section *s,
                         const char *path) {
    HKI_FREED uint8_t *writer = NULL;
    size_t size;
    if (hki_section_get(f, "writer", &writer, &size) != HK_OK)
        writer = NULL;
    return hki_fail(HK_E_UNSUPPORTED,
                    "%s: has the section %.8s, which hooke %s cannot read; use "
                    "%.40s, which wrote it",
                    path, s->tag, hk_version(),
                    writer != NULL ? (const char *)writer : "a later version");
}

hk_status hki_sections_check(const hki_center_file *f, const char *path) {
    if (((const hki_center_head *)(void *)f->map)->version < 2)
        return HK_OK;
    hki_section_table *const t = find_table(f);
    if (t == NULL)
        return hki_fail(HK_E_DATA, "%s: both tables of sections are damaged",
                        path);
    HKI_TRY(check_fixed(f, t, path));
    for (uint32_t i = 0; i < t->count; i++) {
        const hki_section *const s = &t->section[i];
        uint8_t *bytes;
        if (!is_known(s) && s->flags & HKI_SECTION_NEEDED)
            return unknown(f, s, path);
        if (s->flags & HKI_SECTION_NEEDED)
            continue; // a fixed part
        HKI_TRY(read_section(f, s, path, &bytes));
        hki_free(bytes);
    }
    return HK_OK;
}

hk_status hki_section_get(const hki_center_file *f, const char *tag,
                          uint8_t **bytes, size_t *size) {
    const hki_section *const s = find_section(find_table(f), tag);
    if (f->path == NULL || s == NULL)
        return hki_fail(HK_E_NOT_FOUND, "center file: there is no section %s",
                        tag);
    HKI_TRY(read_section(f, s, f->path, bytes));
    *size = (size_t)s->bytes;
    return HK_OK;
}

hk_status hki_sections_copy(const hki_center_file *f, uint8_t **bytes,
                            size_t *size) {
    const uint64_t first = f->head->file_bytes, end = file_size(f);
    *size = 0;
    *bytes = NULL;
    if (f->path == NULL || end <= first)
        return HK_OK;
    HKI_TRY(read_range(f, first, end - first, bytes));
    *size = (size_t)(end - first);
    return HK_OK;
}

// ---- writing ----------------------------------------------------------------

// Where `bytes` bytes may go: behind the fixed parts, where nothing of `t`
// lies. Each turn moves behind a section that is in the way.
static uint64_t find_place(const hki_center_file *f, const hki_section_table *t,
                           uint64_t bytes) {
    uint64_t at = f->head->file_bytes;
    for (uint32_t i = 0; i < t->count;) {
        const hki_section *const s = &t->section[i];
        if (at < s->at + s->bytes && s->at < at + bytes) {
            at = (s->at + s->bytes + ALIGN - 1) / ALIGN * ALIGN;
            i = 0;
        } else {
            i++;
        }
    }
    return at;
}

static hk_status write_range(const hki_center_file *f, uint64_t at,
                             const void *bytes, size_t size) {
    HKI_TRY(hki_file_reserve(f->fd, f->path, at + size));
    return hki_file_write_over(f->fd, f->path, at, bytes, size);
}

// The other table gets what `next` says, and counts from then on.
static void publish(const hki_center_file *f, const hki_section_table *now,
                    hki_section_table *next) {
    hki_section_table *const to = table_of(f, now == table_of(f, 0) ? 1 : 0);
    next->generation = now->generation + 1;
    next->crc = table_crc(next);
    to->crc = 0;
    HKI_ORDER();
    memcpy(to->section, next->section, sizeof next->section);
    to->count = next->count;
    to->generation = next->generation;
    HKI_ORDER();
    to->crc = next->crc;
    HKI_ORDER();
    HKI_ASSERT(is_valid(to));
}

static hk_status store(const hki_center_file *f, const hki_section_table *now,
                       hki_section *s, const void *bytes, size_t size,
                       bool sync) {
    s->at = find_place(f, now, size);
    s->bytes = size;
    s->crc = hki_crc32c(0, bytes, size);
    HKI_TRY(write_range(f, s->at, bytes, size));
    if (sync && hki_io()->fsync(f->fd) != 0)
        return hki_io_fail(errno, f->path, "flush to disk");
    return HK_OK;
}

// The section of that tag, added when there is none.
static hk_status take_section(hki_section_table *t, const char *tag,
                              uint32_t flags, const char *path,
                              hki_section **out) {
    hki_section *s = find_section(t, tag);
    if (s == NULL) {
        if (t->count == HKI_MAX_SECTIONS)
            return hki_fail(
                HK_E_OVERFLOW,
                "%s: has %d sections, which is the limit; no room for %s", path,
                HKI_MAX_SECTIONS, tag);
        s = &t->section[t->count++];
        *s = (hki_section){.flags = flags};
        memcpy(s->tag, tag, strnlen(tag, sizeof s->tag));
    }
    *out = s;
    return HK_OK;
}

hk_status hki_section_place(uint8_t *page, const char *tag, uint64_t at,
                            const void *bytes, size_t size) {
    const hki_center_file f = {.map = page};
    hki_section_table *const t = find_table(&f);
    hki_section *s = NULL;
    if (t == NULL || size > HKI_MAX_SECTION)
        return hki_fail(HK_E_STATE, "no room for %zu bytes of %s", size, tag);
    HKI_TRY(take_section(t, tag, 0, "snapshot", &s));
    s->at = at;
    s->bytes = size;
    s->crc = hki_crc32c(0, bytes, size);
    t->generation++;
    t->crc = table_crc(t);
    return HK_OK;
}

hk_status hki_section_set(hki_center_file *f, const char *tag, uint32_t flags,
                          const void *bytes, size_t size, bool sync) {
    if (f->path == NULL || f->view)
        return HK_OK;
    const hki_section_table *const now = find_table(f);
    if (now == NULL || size > HKI_MAX_SECTION)
        return hki_fail(HK_E_STATE, "%s: no room for %zu bytes of %s", f->path,
                        size, tag);
    hki_section_table next = *now;
    hki_section *s = NULL;
    HKI_TRY(take_section(&next, tag, flags, f->path, &s));
    HKI_TRY(store(f, now, s, bytes, size, sync));
    publish(f, now, &next);
    return sync ? hki_center_sync(f, f->map, 1) : HK_OK;
}
