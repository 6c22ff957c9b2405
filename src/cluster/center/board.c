// board.c - named notes.
#include "cluster/center/board.h"
#include "cluster/wire/frame_table.h"

static const struct {
    const char *key;
    unsigned owners;
} run_notes[HKI_BOARD_OWN] = {
    {HKI_NOTE_LIMITS, HKI_BY_WORKER | HKI_BY_ADMIN},
    {HKI_NOTE_EVALUATOR, HKI_BY_OBSERVER | HKI_BY_ADMIN},
    {HKI_NOTE_EVALUATED, HKI_BY_OBSERVER | HKI_BY_ADMIN},
    {HKI_NOTE_FETCHED, HKI_BY_WORKER | HKI_BY_CENTER | HKI_BY_ADMIN},
};

// Owners of a note of the run itself; 0: it is another one.
static unsigned run_owners(const char *key) {
    for (size_t i = 0; i < HKI_BOARD_OWN; i++)
        if (strcmp(run_notes[i].key, key) == 0)
            return run_notes[i].owners;
    return 0;
}

void hki_board_init(hki_board *b) {
    hki_mutex_init(&b->lock);
}

void hki_board_deinit(hki_board *b) {
    for (size_t i = 0; i < b->count; i++)
        hki_free(b->note[i].value);
    hki_mutex_deinit(&b->lock);
    b->count = b->count_own = 0;
}

// The note, or NULL. The lock is held.
static hki_note *find(hki_board *b, const char *key) {
    for (size_t i = 0; i < b->count; i++)
        if (strcmp(b->note[i].key, key) == 0)
            return &b->note[i];
    return NULL;
}

static void drop(hki_board *b, hki_note *n) {
    b->count_own -= run_owners(n->key) != 0;
    hki_free(n->value);
    *n = b->note[--b->count];
}

static hk_status put(hki_board *b, unsigned by, const char *key,
                     const void *value, size_t size, bool if_absent) {
    hki_note *n = find(b, key);
    const unsigned own = run_owners(key);
    const unsigned owners = n != NULL  ? n->owners
                            : own != 0 ? own
                                       : by | HKI_BY_ADMIN;
    if (by != 0 && !(owners & by))
        return hki_fail(HK_E_DENIED,
                        "board: the note %s cannot be changed by %s", key,
                        hki_party_name(by));
    if (n != NULL && if_absent)
        return hki_fail(HK_E_EXISTS, "board: the note %s exists already", key);
    if (size == 0) {
        if (n != NULL)
            drop(b, n);
        return HK_OK;
    }
    if (n == NULL && own == 0 && b->count - b->count_own == HKI_BOARD_NOTES)
        return hki_fail(
            HK_E_OVERFLOW,
            "board: %d notes are the limit; no room for the note %s",
            HKI_BOARD_NOTES, key);
    uint8_t *copy;
    HKI_TRY(hki_alloc_array(size, 1, &copy));
    memcpy(copy, value, size);
    if (n == NULL) {
        HKI_ASSERT(b->count < HKI_COUNT(b->note));
        n = &b->note[b->count++];
        *n = (hki_note){.owners = owners};
        b->count_own += own != 0;
        snprintf(n->key, sizeof n->key, "%s", key);
    }
    hki_free(n->value);
    n->value = copy;
    n->size = size;
    return HK_OK;
}

hk_status hki_board_post(hki_board *b, unsigned by, const char *key,
                         const void *value, size_t size, bool if_absent) {
    if (key == NULL || key[0] == '\0' || strlen(key) > HKI_BOARD_KEY ||
        size > HKI_BOARD_VALUE || (size > 0 && value == NULL))
        return hki_fail(
            HK_E_INVALID_ARG,
            "board: the key or the size of a note, %zu bytes, is out of range",
            size);
    HKI_LOCKED(&b->lock);
    return put(b, by, key, value, size, if_absent);
}

hk_status hki_board_read(hki_board *b, const char *key, void *value,
                         size_t capacity, size_t *size) {
    if (key == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "board: key or size is NULL");
    HKI_LOCKED(&b->lock);
    const hki_note *const n = find(b, key);
    if (n == NULL)
        return hki_fail(HK_E_NOT_FOUND, "board: there is no note %s", key);
    *size = n->size;
    if (n->size > capacity)
        return hki_fail(
            HK_E_OVERFLOW,
            "board: the note %s has %zu bytes, more than the given room", key,
            n->size);
    memcpy(value, n->value, n->size);
    return HK_OK;
}

bool hki_board_name(hki_board *b, size_t i, char name[HKI_BOARD_KEY + 1]) {
    HKI_LOCKED(&b->lock);
    const bool there = i < b->count;
    if (there)
        memcpy(name, b->note[i].key, HKI_BOARD_KEY + 1);
    return there;
}
