// words.c - a set of texts with counts; see words.h.
#include "core/words.h"
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"

static uint64_t hash(const void *bytes, size_t size) { // FNV-1a
    const unsigned char *p = bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

// Where the text is, or the free slot it would have.
static size_t find_slot(const word_list *w, const void *bytes, size_t size) {
    size_t i = hash(bytes, size) & (w->n_slots - 1);
    for (; w->slot[i]; i = (i + 1) & (w->n_slots - 1)) {
        const char *text = w->text[w->slot[i] - 1];
        if (strlen(text) == size && memcmp(text, bytes, size) == 0)
            break;
    }
    return i;
}

static void *grown(void *old, size_t used, size_t capacity, size_t size) {
    void *p = cli_alloc(capacity * size);
    if (used)
        memcpy(p, old, used * size);
    free(old);
    return p;
}

static void make_room(word_list *w) {
    if (w->n < w->capacity)
        return;
    w->capacity = w->capacity ? 2 * w->capacity : 16;
    w->text = grown(w->text, w->n, w->capacity, sizeof *w->text);
    w->count = grown(w->count, w->n, w->capacity, sizeof *w->count);
    free(w->slot);
    w->n_slots = 4 * w->capacity;
    w->slot = cli_alloc(w->n_slots * sizeof *w->slot);
    for (size_t i = 0; i < w->n; i++)
        w->slot[find_slot(w, w->text[i], strlen(w->text[i]))] = (uint32_t)i + 1;
}

size_t words_add(word_list *w, const void *bytes, size_t size) {
    const void *nul = size ? memchr(bytes, '\0', size) : NULL;
    if (nul) // texts of people have none
        size = (size_t)((const char *)nul - (const char *)bytes);
    make_room(w);
    const size_t at = find_slot(w, bytes, size);
    if (!w->slot[at]) {
        char *text = cli_alloc(size + 1);
        if (size)
            memcpy(text, bytes, size);
        w->text[w->n++] = text;
        w->slot[at] = (uint32_t)w->n;
    }
    const size_t i = w->slot[at] - 1;
    w->count[i]++;
    return i;
}

void words_free(word_list *w) {
    for (size_t i = 0; i < w->n; i++)
        free(w->text[i]);
    free(w->text);
    free(w->count);
    free(w->slot);
    *w = (word_list){0};
}
