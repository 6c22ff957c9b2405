// feature_words.c - lists of distinct words, found by their hash.
//
// The bytes of all words lie in one buffer; the table of slots holds indices
// and is at most half full.
#include "data/features/feature.h"

#define MIN_SLOTS 64

static size_t first_slot(const hki_words *w, const void *bytes, size_t size) {
    return (size_t)hki_feature_hash(bytes, size) & (w->n_slots - 1);
}

const char *hki_words_at(const hki_words *w, size_t index, size_t *size) {
    *size = w->word[index].size;
    return w->bytes.data + w->word[index].offset;
}

// The slot of the word, or the free one where it belongs.
static size_t probe(const hki_words *w, const void *bytes, size_t size) {
    size_t at = first_slot(w, bytes, size);
    while (w->slot[at] != 0) {
        const hki_word *const k = &w->word[w->slot[at] - 1];
        if (k->size == size &&
            (size == 0 || memcmp(w->bytes.data + k->offset, bytes, size) == 0))
            break;
        at = (at + 1) & (w->n_slots - 1);
    }
    return at;
}

int64_t hki_words_find(const hki_words *w, const void *bytes, size_t size) {
    if (w->n_slots == 0)
        return -1;
    return (int64_t)w->slot[probe(w, bytes, size)] - 1;
}

static hk_status grow_slots(hki_words *w) {
    const size_t n_slots = w->n_slots == 0 ? MIN_SLOTS : w->n_slots * 2;
    uint32_t *slot;
    HKI_TRY(hki_zalloc_array(n_slots, sizeof *slot, &slot));
    hki_free(w->slot);
    w->slot = slot;
    w->n_slots = n_slots;
    for (size_t i = 0; i < w->n; i++) {
        size_t size;
        const char *const bytes = hki_words_at(w, i, &size);
        w->slot[probe(w, bytes, size)] = (uint32_t)i + 1;
    }
    return HK_OK;
}

hk_status hki_words_add(hki_words *w, const void *bytes, size_t size,
                        int64_t *index) {
    if (w->n * 2 >= w->n_slots)
        HKI_TRY(grow_slots(w));
    const size_t at = probe(w, bytes, size);
    if (w->slot[at] == 0) {
        if (w->n >= HKI_MAX_WORDS)
            return hki_fail(HK_E_OVERFLOW, "vocabulary: more than %zu words",
                            HKI_MAX_WORDS);
        HKI_TRY(hki_list_reserve(&w->word, w->n + 1, &w->capacity,
                                 sizeof *w->word));
        const size_t offset = w->bytes.size;
        HKI_TRY(hki_buf_add(&w->bytes, bytes, size));
        w->word[w->n++] = (hki_word){.offset = offset, .size = size};
        w->slot[at] = (uint32_t)w->n;
    }
    const size_t i = w->slot[at] - 1;
    w->word[i].count++;
    *index = (int64_t)i;
    return HK_OK;
}

void hki_words_deinit(hki_words *w) {
    if (w == NULL)
        return;
    hki_buf_deinit(&w->bytes);
    hki_free(w->word);
    hki_free(w->slot);
    *w = (hki_words){0};
}

// ---- by count -------------------------------------------------------------

struct ranked {
    const char *bytes;
    size_t size;
    uint64_t count;
};

static int by_count_then_bytes(const void *a, const void *b) {
    const struct ranked *const x = a, *const y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    const int order = memcmp(x->bytes, y->bytes, HKI_MIN(x->size, y->size));
    if (order != 0)
        return order;
    return (x->size > y->size) - (x->size < y->size);
}

hk_status hki_words_by_count(const hki_words *counted, uint64_t min_count,
                             size_t max_size, hki_words *out) {
    HKI_FREED struct ranked *rank = NULL;
    size_t n = 0;
    HKI_TRY(hki_alloc_array(counted->n, sizeof *rank, &rank));
    for (size_t i = 0; i < counted->n; i++) {
        struct ranked r = {.count = counted->word[i].count};
        r.bytes = hki_words_at(counted, i, &r.size);
        if (r.count >= min_count)
            rank[n++] = r;
    }
    if (n > 0)
        qsort(rank, n, sizeof *rank, by_count_then_bytes);
    if (max_size > 0)
        n = HKI_MIN(n, max_size);
    int64_t index;
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_words_add(out, rank[i].bytes, rank[i].size, &index));
    return HK_OK;
}

// ---- from a file's text ---------------------------------------------------

// The line without its carriage returns, in place.
static size_t drop_returns(char *line, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        if (line[i] != '\r')
            line[n++] = line[i];
    return n;
}

static hk_status add_line(hki_words *w, hki_buf *line, const char *what) {
    int64_t index;
    const size_t size = drop_returns(line->data, line->size);
    const size_t number = w->n + 1;
    HKI_TRY(hki_words_add(w, line->data, size, &index));
    if (w->n < number)
        return hki_fail(HK_E_DATA,
                        "%s: line %zu has the same word as line %lld, "
                        "\"%.*s\"",
                        what, number, (long long)index + 1,
                        (int)HKI_MIN(size, (size_t)80), line->data);
    return HK_OK;
}

hk_status hki_words_from_text(const void *text, size_t size, size_t max_size,
                              const char *what, hki_words *out) {
    const char *p = text;
    const char *const end = p + size;
    HKI_SCOPED(hki_buf_deinit) hki_buf line = {0};
    hk_status s = HK_OK;
    while (s == HK_OK && p < end && (max_size == 0 || out->n < max_size)) {
        const char *const lf = memchr(p, '\n', (size_t)(end - p));
        const char *const stop = lf != NULL ? lf : end;
        line.size = 0;
        s = hki_buf_add(&line, p, (size_t)(stop - p));
        if (s == HK_OK)
            s = add_line(out, &line, what);
        p = lf != NULL ? lf + 1 : end;
    }
    if (s != HK_OK)
        hki_words_deinit(out);
    return s;
}

// ---- integers as text -----------------------------------------------------

size_t hki_decimal(int64_t v, char buf[HKI_DECIMAL_TEXT]) {
    char back[HKI_DECIMAL_TEXT];
    size_t n = 0, size = 0;
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        back[n++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (v < 0)
        buf[size++] = '-';
    while (n > 0)
        buf[size++] = back[--n];
    return size;
}
