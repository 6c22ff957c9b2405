// example_find.c - walking over the entries of a serialized Example.
//
// An entry of the usual shape (key first, lengths of one or two bytes, nothing
// else in it) takes a short path, anything else that is well-formed the general
// one. Each length is checked before use. What an entry holds is only noted
// here: by the slot of its key, with the number of the record it is of, so that
// nothing has to be cleared between two records.
#include "data/example/example.h"

hk_status hki_finder_init(hki_finder *f, const hki_example_spec *s) {
    *f = (hki_finder){0};
    f->lists = s->context.n;
    return hki_zalloc_array(s->context.n + s->lists.n, sizeof *f->found,
                            &f->found);
}

void hki_finder_deinit(hki_finder *f) {
    hki_free(f->found);
    *f = (hki_finder){0};
}

// ---- entries ---------------------------------------------------------------

// Which type the list message of a Feature holds, by field number.
static const hk_dtype stored_of[4] = {0, HK_STRING, HK_F32, HK_I64};

// A length of one or two bytes that stays before end; NULL: some other.
static inline const uint8_t *short_length(const uint8_t *p, const uint8_t *end,
                                          size_t *n) {
    if (end - p < 2)
        return NULL;
    size_t v = *p++;
    if (v >= 128) {
        if (*p >= 128)
            return NULL;
        v = (v & 127) | (size_t)*p++ << 7;
    }
    *n = v;
    return v <= (size_t)(end - p) ? p : NULL;
}

// The usual form: 0a <length> 0a <length> key 12 <length> value, with nothing
// behind it. Returns what follows; NULL: not of this form.
static inline const uint8_t *fast_entry(const uint8_t *p, const uint8_t *end,
                                        hki_entry *e) {
    size_t n;
    if (end - p < 4 || p[0] != 0x0a ||
        (p = short_length(p + 1, end, &n)) == NULL)
        return NULL;
    const uint8_t *const stop = p + n;
    if (n < 4 || p[0] != 0x0a ||
        (p = short_length(p + 1, stop, &e->key_size)) == NULL)
        return NULL;
    e->key = p;
    p += e->key_size;
    if (stop - p < 2 || p[0] != 0x12)
        return NULL;
    if (stop - p == 2) { // an empty value
        e->value = stop;
        e->value_size = 0;
        return p[1] == 0 ? stop : NULL;
    }
    e->value = short_length(p + 1, stop, &e->value_size);
    return e->value != NULL && e->value + e->value_size == stop ? stop : NULL;
}

bool hki_entry_parse(const uint8_t *p, size_t size, hki_entry *e) {
    hki_pb m = {p, p + size};
    hki_pb_field f;
    bool bad;
    *e = (hki_entry){.key = p, .value = p};
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.type != HKI_PB_BYTES)
            continue;
        if (f.number == 1) {
            e->key = f.bytes;
            e->key_size = f.size;
        } else if (f.number == 2) {
            e->value = f.bytes;
            e->value_size = f.size;
        }
    }
    return !bad;
}

bool hki_feature_list(const uint8_t *p, size_t size, hki_list *out) {
    const uint8_t *const end = p + size;
    *out = (hki_list){0};
    if (size >= 3) { // the usual form: one list and nothing else
        size_t n;
        const unsigned tag = p[0];
        const uint8_t *const list = short_length(p + 1, end, &n);
        if (list != NULL && list + n == end &&
            (tag == 0x0a || tag == 0x12 || tag == 0x1a)) {
            *out = (hki_list){list, n, stored_of[tag >> 3]};
            return true;
        }
    }
    hki_pb m = {p, end};
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad))
        if (f.type == HKI_PB_BYTES && f.number >= 1 && f.number <= 3)
            *out = (hki_list){f.bytes, f.size, stored_of[f.number]};
    return !bad;
}

// ---- maps ------------------------------------------------------------------

// Notes the list of an entry, or the FeatureList; false: malformed.
static bool note_entry(const hki_example_spec *s, hki_finder *f, bool of_lists,
                       const hki_entry *e) {
    const hki_tags *const tags = of_lists ? &s->lists : &s->context;
    const int32_t slot = hki_tags_find(tags, e->key, e->key_size);
    hki_list l = {e->value, e->value_size, HK_STRING};
    if (!of_lists && !hki_feature_list(e->value, e->value_size, &l))
        return false;
    if (slot >= 0)
        f->found[(of_lists ? f->lists : 0) + (size_t)slot] =
            (hki_found){.list = l, .record = f->record};
    return true;
}

// One entry; returns what follows it, NULL: malformed.
static const uint8_t *walk_entry(const hki_example_spec *s, hki_finder *f,
                                 bool of_lists, const uint8_t *p,
                                 const uint8_t *end) {
    hki_entry e;
    const uint8_t *const next = fast_entry(p, end, &e);
    if (next != NULL)
        return note_entry(s, f, of_lists, &e) ? next : NULL;
    hki_pb m = {p, end};
    hki_pb_field field;
    bool bad;
    if (!hki_pb_next(&m, &field, &bad))
        return NULL;
    if (field.number == 1 && field.type == HKI_PB_BYTES &&
        (!hki_entry_parse(field.bytes, field.size, &e) ||
         !note_entry(s, f, of_lists, &e)))
        return NULL;
    return m.p;
}

// The entries of one Features or FeatureLists message. Returns where it is
// malformed; NULL when all is well.
static const uint8_t *walk_map(const hki_example_spec *s, hki_finder *f,
                               bool of_lists, const uint8_t *p,
                               const uint8_t *end) {
    while (p < end) {
        const uint8_t *const next = walk_entry(s, f, of_lists, p, end);
        if (next == NULL)
            return p;
        p = next;
    }
    return NULL;
}

hk_status hki_example_find(const hki_example_spec *s, hki_finder *f,
                           const uint8_t *bytes, size_t size) {
    hki_pb m = {bytes, bytes + size};
    hki_pb_field field;
    bool bad = false;
    const uint8_t *fault = NULL;
    f->record++;
    while (fault == NULL && hki_pb_next(&m, &field, &bad))
        if (field.type == HKI_PB_BYTES &&
            (field.number == 1 || (s->sequence && field.number == 2)))
            fault = walk_map(s, f, field.number == 2, field.bytes,
                             field.bytes + field.size);
    if (fault == NULL && bad)
        fault = m.p;
    if (fault == NULL)
        return HK_OK;
    return hki_fail(HK_E_DATA,
                    "not a serialized %s: malformed at byte %zu of %zu",
                    s->sequence ? "SequenceExample" : "Example",
                    (size_t)(fault - bytes), size);
}
