// example_find.c - walking over the entries of a serialized Example.
//
// The form of an entry that was seen before is the next one in the order of the
// last record, or found by a hash of its key; the entry is recognised by
// comparing it whole, and stored at once. Another one of the usual shape (key
// first, lengths of one or two bytes, nothing else in it) takes a short path,
// anything else that is well-formed the general one. Each length is checked
// before use.
#include "data/example/example.h"

// ---- scratch ---------------------------------------------------------------

#define MAX_FORMS 1024
#define TABLE ((size_t)1 << HKI_FORM_BITS)

// The beginning of an entry with this key, as far as it is always the same:
// the key and the tag behind it.
static void entry_head(const uint8_t *key, size_t size,
                       uint8_t head[HKI_FORM_REACH]) {
    memset(head, 0, HKI_FORM_REACH);
    head[3] = (uint8_t)size;
    memcpy(head + 4, key, size);
    head[4 + size] = 0x12;
}

// Wanted keys that share a place in the table, which is used as scratch.
static size_t count_clashes(hki_finder *f, const hki_tags *tags) {
    size_t clashes = 0;
    memset(f->table, 0, TABLE * sizeof *f->table);
    for (size_t i = 0; i <= tags->mask; i++) {
        uint8_t head[HKI_FORM_REACH];
        const hki_tag *const t = &tags->table[i];
        if (t->slot < 0 || t->size > HKI_FORM_KEY)
            continue;
        entry_head(t->bytes, t->size, head);
        uint32_t *const place = &f->table[hki_form_hash(&f->walk, head)];
        clashes += *place != 0;
        *place = 1;
    }
    return clashes;
}

static size_t shortest_key(const hki_tags *tags) {
    size_t size = HKI_FORM_KEY;
    for (size_t i = 0; i <= tags->mask; i++)
        if (tags->table[i].slot >= 0)
            size = HKI_MIN(size, (size_t)tags->table[i].size);
    return size;
}

// Chooses the multiplier under which the fewest keys meet.
static void choose_hash(hki_finder *f, const hki_tags *tags) {
    // The length, the key and its tag are the same in all entries of a key.
    const size_t n = HKI_MIN(shortest_key(tags) + 2, (size_t)8);
    uint64_t best = 1;
    size_t fewest = SIZE_MAX;
    hki_rng rng;
    hki_rng_init(&rng, 1, 0);
    f->walk.mask = UINT64_MAX >> (64 - 8 * n);
    for (int i = 0; i < 64 && fewest > 0; i++) {
        f->walk.multiplier = hki_rng_u64(&rng) | 1;
        const size_t clashes = count_clashes(f, tags);
        if (clashes < fewest) {
            fewest = clashes;
            best = f->walk.multiplier;
        }
    }
    f->walk.multiplier = best;
}

// Every key begins without a form: with the first one, which has no act.
static void clear_table(hki_finder *f) {
    for (size_t i = 0; i < TABLE; i++)
        f->table[i] = (uint32_t)(TABLE * sizeof *f->table);
    f->n_forms = 1;
}

static hk_status finder_alloc(hki_finder *f, const hki_example_spec *s) {
    const size_t places = TABLE * sizeof *f->table;
    f->n_words = s->n_features / 64 + 1;
    HKI_TRY(hki_zalloc_array(s->context.n, sizeof *f->context, &f->context));
    HKI_TRY(hki_zalloc_array(s->lists.n, sizeof *f->lists, &f->lists));
    HKI_TRY(hki_zalloc_array(s->context.n, sizeof *f->found_context,
                             &f->found_context));
    HKI_TRY(
        hki_zalloc_array(s->lists.n, sizeof *f->found_lists, &f->found_lists));
    HKI_TRY(hki_zalloc_array(f->n_words, sizeof *f->done, &f->done));
    HKI_TRY(hki_zalloc_array(f->n_words, sizeof *f->all_done, &f->all_done));
    HKI_TRY(hki_zalloc_array(MAX_FORMS, sizeof *f->form_slots, &f->form_slots));
    HKI_TRY(hki_zalloc_array(MAX_FORMS, sizeof *f->form_features,
                             &f->form_features));
    HKI_TRY(hki_zalloc_array(HKI_FORM_ORDER + 1, sizeof *f->walk.order,
                             &f->walk.order));
    HKI_TRY(
        hki_zalloc_array(places + MAX_FORMS * sizeof *f->forms, 1, &f->table));
    f->forms = (hki_form *)(void *)((char *)f->table + places);
    return HK_OK;
}

hk_status hki_finder_init(hki_finder *f, const hki_example_spec *s) {
    *f = (hki_finder){0};
    const hk_status e = finder_alloc(f, s);
    if (e != HK_OK) {
        hki_finder_deinit(f);
        return e;
    }
    for (size_t i = 0; i < s->n_features; i++)
        f->all_done[i / 64] |= UINT64_C(1) << (i % 64);
    f->walk.table = f->table;
    f->walk.done = f->done;
    f->walk.n_words = f->n_words;
    f->next_mistrust = 1;
    choose_hash(f, &s->context);
    clear_table(f);
    f->k = HKI_ISA_PICK(hki_isa_best(), hki_example_kernels_table);
    return HK_OK;
}

void hki_finder_deinit(hki_finder *f) {
    hki_free(f->context);
    hki_free(f->lists);
    hki_free(f->found_context);
    hki_free(f->found_lists);
    hki_free(f->done);
    hki_free(f->all_done);
    hki_free(f->form_slots);
    hki_free(f->form_features);
    hki_free(f->walk.order);
    hki_free(f->table);
    *f = (hki_finder){0};
}

const hki_list *hki_found_list(const hki_finder *f, bool in_list,
                               int32_t slot) {
    static const hki_list none = {0};
    const uint64_t *const found = in_list ? f->found_lists : f->found_context;
    const hki_list *const lists = in_list ? f->lists : f->context;
    return found[slot] == f->record ? &lists[slot] : &none;
}

// ---- entries ---------------------------------------------------------------

// Which type the list message of a Feature holds, by field number.
static const hk_dtype stored_of[4] = {0, HK_STRING, HK_F32, HK_I64};

typedef struct entry {
    const uint8_t *key, *value;
    size_t key_size, value_size;
} entry;

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
                                        entry *e) {
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

// Any order of fields, the last one of a kind counts, unknown ones do not.
static bool slow_entry(const uint8_t *p, size_t size, entry *e) {
    hki_pb m = {p, p + size};
    hki_pb_field f;
    bool bad;
    *e = (entry){.key = p, .value = p};
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

// ---- forms -----------------------------------------------------------------

// One walk over a record.
typedef struct walk {
    const hki_example_spec *s;
    hki_finder *f;
    size_t slack; // bytes behind the record that may be read
    bool slow;    // without the kernel, which has found fault
} walk;

static hki_form_act act_for(const hki_feature *f, hk_dtype stored) {
    if (f->kind != HK_FIXED_LEN || f->stored != stored || f->count != 1)
        return HKI_FORM_LIST;
    if (stored == HK_STRING)
        return HKI_FORM_STRING;
    if (stored == HK_F32)
        return HKI_FORM_FLOAT;
    return f->dtype == HK_I64   ? HKI_FORM_I64
           : f->dtype == HK_I32 ? HKI_FORM_I32
                                : HKI_FORM_I64_AS_FLOAT;
}

// Fills the bytes of a form from an entry whose value is r bytes long. The
// length of a single float is part of its form.
static void form_bytes(hki_form *form, const uint8_t *p, size_t key_size,
                       uint8_t r) {
    const size_t prefix = key_size + 10;
    // Of the entry, the Feature, the list and its packed values.
    const size_t lengths[] = {1, key_size + 5, key_size + 7, key_size + 9};
    memcpy(form->t, p, prefix);
    for (size_t i = 0; form->act != HKI_FORM_FLOAT && i < 4; i++) {
        form->t[lengths[i]] = (uint8_t)(form->t[lengths[i]] - r);
        form->d[lengths[i]] = 1;
    }
    memset(form->m, 255, prefix);
    form->bias = prefix - 2;
}

// The form to learn that of the entry at head in: a new one, or the one in its
// place when that is of the same key or not wanted; NULL when there is none.
static hki_form *form_for(hki_finder *f, const uint8_t *head, int32_t slot) {
    hki_form *const old = (hki_form *)(uintptr_t)hki_form_at(&f->walk, head);
    if (old->act != HKI_FORM_NONE) {
        int32_t *const old_slot = &f->form_slots[old - f->forms];
        const bool give_way = *old_slot == slot || *old_slot < 0;
        *old_slot = give_way ? slot : *old_slot;
        return give_way ? old : NULL;
    }
    if (f->n_forms == MAX_FORMS)
        return NULL;
    hki_form *const form = &f->forms[f->n_forms++];
    f->table[hki_form_hash(&f->walk, head)] =
        (uint32_t)((char *)form - (char *)f->table);
    f->form_slots[form - f->forms] = slot;
    f->form_features[form - f->forms] = -1;
    return form;
}

// The column of a feature.
static const hki_col *column(const hki_finder *f, int32_t feature) {
    return &f->rows->col[f->first + (size_t)feature];
}

static void set_target(hki_finder *f, hki_form *form, int32_t feature) {
    form->done_word = (uint32_t)(feature / 64);
    form->done_mask = UINT64_C(1) << (feature % 64);
    form->data = column(f, feature)->data;
    f->form_features[form - f->forms] = feature;
}

void hki_example_bind(hki_finder *f, hki_data_rows *rows, size_t first) {
    f->rows = rows;
    f->first = first;
    for (size_t i = 1; i < f->n_forms; i++)
        if (f->form_features[i] >= 0)
            f->forms[i].data = column(f, f->form_features[i])->data;
}

// The form of an entry that holds one string of a RAW_LEN feature: all of its
// bytes up to the string, whose length is fixed.
static void learn_raw(walk *w, const uint8_t *p, const uint8_t *end,
                      int32_t slot, const hki_list *l) {
    const hki_feature *const x = &w->s->features[w->s->only[slot]];
    const size_t size = (size_t)x->count * hk_dtype_size(x->stored);
    if (l->size < size || size == 0)
        return;
    // The string ends where the list does, if it is its only content.
    const size_t prefix = (size_t)(l->p - p) + (l->size - size);
    hki_pb m = {l->p, l->p + l->size};
    hki_pb_field f;
    bool bad;
    if (l->stored != HK_STRING || prefix > HKI_FORM_BYTES ||
        !hki_pb_next(&m, &f, &bad) || f.number != 1 || f.size != size ||
        f.bytes != p + prefix || m.p != m.end || m.end != end)
        return;
    uint8_t head[HKI_FORM_REACH] = {0};
    memcpy(head, p, HKI_MIN((size_t)(end - p), sizeof head));
    hki_form *const form = form_for(w->f, head, slot);
    if (form == NULL)
        return;
    *form = (hki_form){.act = HKI_FORM_RAW, .bias = prefix - 2};
    memcpy(form->t, p, prefix);
    set_target(w->f, form, w->s->only[slot]);
}

// Remembers the form of an entry whose value is one packed run of r bytes (or
// one string), when all of its lengths are of one byte.
static void learn_form(walk *w, const uint8_t *p, const entry *e, int32_t slot,
                       const hki_list *l) {
    const int32_t only = slot >= 0 ? w->s->only[slot] : -1;
    if (only >= 0 && w->s->features[only].kind == HK_RAW_LEN) {
        learn_raw(w, p, e->value + e->value_size, slot, l);
        return;
    }
    const hki_form_act act = slot < 0 ? HKI_FORM_PASS
                             : only < 0
                                 ? HKI_FORM_LIST
                                 : act_for(&w->s->features[only], l->stored);
    if (e->key_size > HKI_FORM_KEY || e->key != p + 4 || p[1] >= 128 ||
        e->value != e->key + e->key_size + 2 || l->p != e->value + 2 ||
        l->size < 3 || l->p[0] != 0x0a || l->p[1] != l->size - 2 ||
        (act == HKI_FORM_FLOAT && l->p[1] != 4))
        return;
    uint8_t head[HKI_FORM_REACH];
    entry_head(e->key, e->key_size, head);
    hki_form *const form = form_for(w->f, head, slot);
    if (form == NULL)
        return;
    *form = (hki_form){.act = (uint16_t)act, .stored = (uint16_t)l->stored};
    form_bytes(form, p, e->key_size, l->p[1]);
    if (act >= HKI_FORM_STRING && act != HKI_FORM_PASS)
        set_target(w->f, form, only);
}

// The form of the entry at p; NULL when it has none that is known. *r: length
// of the value.
static const hki_form *find_form(const hki_finder *f, const uint8_t *p,
                                 const uint8_t *end, size_t *r) {
    uint8_t copy[HKI_FORM_REACH];
    const uint8_t *head = p;
    const size_t left = (size_t)(end - p);
    if (left < sizeof copy) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, p, left);
        head = copy;
    }
    const hki_form *const form = hki_form_at(&f->walk, head);
    if (form->act == HKI_FORM_RAW)
        return memcmp(head, form->t, form->bias + 2) == 0 ? form : NULL;
    *r = head[1] - form->bias;
    if (form->act == HKI_FORM_NONE || head[1] >= 128 ||
        head[1] + (size_t)2 > left)
        return NULL;
    for (size_t i = 0; i < form->bias + 2; i++)
        if (head[i] != (uint8_t)(form->t[i] + form->d[i] * *r))
            return NULL;
    return form;
}

// Notes a list for reading; an earlier value of the same key counts no more.
static void note_list(walk *w, int32_t slot, hki_list l) {
    hki_finder *const f = w->f;
    const int32_t only = w->s->only[slot];
    f->context[slot] = l;
    f->found_context[slot] = f->record;
    if (only >= 0)
        f->done[only / 64] &= ~(UINT64_C(1) << (only % 64));
}

// ---- maps ------------------------------------------------------------------

// The value of a RAW_LEN feature; returns what follows it.
static const uint8_t *take_raw(walk *w, int32_t feature, const uint8_t *value,
                               const uint8_t *end) {
    const hki_feature *const x = &w->s->features[feature];
    const hki_col *const c = column(w->f, feature);
    const size_t size = (size_t)x->count * hk_dtype_size(x->stored);
    if (size > (size_t)(end - value))
        return NULL;
    hki_raw_read(x, w->f->k, value,
                 c->data + (size_t)w->f->walk.row * c->row_bytes);
    return value + size;
}

static const uint8_t *take_string(walk *w, int32_t feature,
                                  const uint8_t *value, size_t size) {
    hki_string *const cells =
        hki_tensor_strings(column(w->f, feature)->strings);
    // A failure is told when the list is read.
    return hki_string_set(&cells[w->f->walk.row], value, size) == HK_OK
               ? value + size
               : NULL;
}

// An entry of a known form that is not the kernel's: a string, or a list to be
// noted. Returns what follows it; NULL: it is no such entry.
static const uint8_t *take_entry(walk *w, const uint8_t *p,
                                 const uint8_t *end) {
    hki_finder *const f = w->f;
    size_t r;
    const hki_form *const form = find_form(f, p, end, &r);
    if (form == NULL || form->act >= HKI_FORM_PASS)
        return NULL;
    const uint8_t *const value = p + form->bias + 2;
    const size_t i = (size_t)(form - f->forms);
    if (form->act == HKI_FORM_LIST) {
        note_list(w, f->form_slots[i],
                  (hki_list){value - 2, r + 2, (hk_dtype)form->stored});
        return value + r;
    }
    const uint8_t *const next =
        form->act == HKI_FORM_RAW
            ? take_raw(w, f->form_features[i], value, end)
            : take_string(w, f->form_features[i], value, r);
    if (next != NULL)
        f->done[form->done_word] |= form->done_mask;
    return next;
}

// Entries for the kernel. Where nothing may be read behind the record, its last
// bytes are copied to where it may. NULL: something is wrong with them.
static const uint8_t *walk_kernel(walk *w, const uint8_t *p,
                                  const uint8_t *end) {
    hki_finder *const f = w->f;
    if (w->slack >= HKI_FORM_REACH)
        return f->k->walk(&f->walk, p, end, end);
    if (end - p >= HKI_FORM_REACH) {
        p = f->k->walk(&f->walk, p, end - HKI_FORM_REACH + 1, end);
        if (p == NULL)
            return NULL;
    }
    const size_t n = (size_t)(end - p);
    if (n == 0 || n >= HKI_FORM_REACH)
        return p;
    uint8_t tail[2 * HKI_FORM_REACH] = {0};
    const uint8_t *const crc_at = f->walk.crc_at; // not of the copy
    memcpy(tail, p, n);
    f->walk.crc_at = NULL;
    const uint8_t *const at = f->k->walk(&f->walk, tail, tail + n, tail + n);
    f->walk.crc_at = crc_at;
    return at == NULL ? NULL : p + (at - tail);
}

// The list of an entry, or the FeatureList, to its slot; p: the entry, NULL
// when its form is not worth learning.
static bool note_entry(walk *w, bool of_lists, const uint8_t *p,
                       const entry *e) {
    const hki_tags *const tags = of_lists ? &w->s->lists : &w->s->context;
    const int32_t slot = hki_tags_find(tags, e->key, e->key_size);
    hki_list l = {e->value, e->value_size, HK_STRING};
    if (of_lists) {
        if (slot >= 0) {
            w->f->lists[slot] = l;
            w->f->found_lists[slot] = w->f->record;
        }
        return true;
    }
    if (!hki_feature_list(e->value, e->value_size, &l))
        return false;
    if (slot >= 0)
        note_list(w, slot, l);
    if (p != NULL)
        learn_form(w, p, e, slot, &l);
    return true;
}

// One entry by the general way; returns what follows it, NULL: malformed.
static const uint8_t *walk_entry(walk *w, bool of_lists, const uint8_t *p,
                                 const uint8_t *end) {
    entry e;
    const uint8_t *const next = fast_entry(p, end, &e);
    if (next != NULL)
        return note_entry(w, of_lists, p, &e) ? next : NULL;
    hki_pb m = {p, end};
    hki_pb_field f;
    bool bad;
    if (!hki_pb_next(&m, &f, &bad))
        return NULL;
    if (f.number == 1 && f.type == HKI_PB_BYTES &&
        (!slow_entry(f.bytes, f.size, &e) ||
         !note_entry(w, of_lists, NULL, &e)))
        return NULL;
    return m.p;
}

// The entries of one Features or FeatureLists message. Returns where it is
// malformed, or where the kernel found fault (slow is set then); NULL when all
// is well.
static const uint8_t *walk_map(walk *w, bool of_lists, const uint8_t *p,
                               const uint8_t *end) {
    while (p < end) {
        const uint8_t *next = NULL;
        if (!of_lists && !w->slow) {
            next = walk_kernel(w, p, end);
            if (next == NULL) {
                w->slow = true;
                return p;
            }
            p = next;
            if (p == end)
                break;
            next = take_entry(w, p, end);
        }
        if (next == NULL)
            next = walk_entry(w, of_lists, p, end);
        if (next == NULL)
            return p;
        p = next;
    }
    return NULL;
}

static hk_status malformed(const hki_example_spec *s, const uint8_t *at,
                           const uint8_t *bytes, size_t size) {
    return hki_fail(HK_E_DATA,
                    "not a serialized %s: malformed at byte %zu of %zu",
                    s->sequence ? "SequenceExample" : "Example",
                    (size_t)(at - bytes), size);
}

static hk_status walk_example(walk *w, const uint8_t *bytes, size_t size) {
    const hki_example_spec *const s = w->s;
    size_t n;
    const uint8_t *const features =
        size >= 3 && bytes[0] == 0x0a
            ? short_length(bytes + 1, bytes + size, &n)
            : NULL;
    // The usual form: Features and nothing else.
    if (features != NULL && features + n == bytes + size) {
        const uint8_t *const bad_at =
            walk_map(w, false, features, bytes + size);
        return bad_at == NULL ? HK_OK : malformed(s, bad_at, bytes, size);
    }
    hki_pb m = {bytes, bytes + size};
    hki_pb_field field;
    bool bad = false;
    const uint8_t *fault = NULL;
    while (fault == NULL && hki_pb_next(&m, &field, &bad))
        if (field.type == HKI_PB_BYTES &&
            (field.number == 1 || (s->sequence && field.number == 2)))
            fault = walk_map(w, field.number == 2, field.bytes,
                             field.bytes + field.size);
    if (fault == NULL && bad)
        fault = m.p;
    return fault == NULL ? HK_OK : malformed(s, fault, bytes, size);
}

// One try at the record.
static hk_status walk_once(walk *w, const hki_example *e) {
    w->f->record++;
    w->f->walk.n_order = 0;
    memset(w->f->done, 0, w->f->n_words * sizeof *w->f->done);
    return walk_example(w, e->bytes, e->size);
}

// The order noted of the last record is whole and of known forms. Behind it
// goes the form without act, at which the kernel stops.
static bool order_is_good(const hki_finder *f) {
    if (f->noted == 0 || f->noted > HKI_FORM_ORDER)
        return false;
    for (size_t i = 0; i < f->noted; i++)
        if (f->walk.order[i] == f->forms)
            return false;
    f->walk.order[f->noted] = f->forms;
    return true;
}

// Entries often come in the same order in all records: then their forms need
// not be looked up. Where they do not, it is tried ever more rarely.
static bool expect_order(hki_finder *f) {
    if (f->walk.expect || f->n_words > 1)
        return f->walk.expect;
    if (f->mistrust > 0) {
        f->mistrust--;
        return false;
    }
    return order_is_good(f);
}

// Walks over the record: by the kernel first, then entry by entry.
static hk_status walk_record(walk *w, const hki_example *e) {
    hki_finder *const f = w->f;
    f->walk.expect = expect_order(f);
    hk_status s = walk_once(w, e);
    if (f->walk.expect && !w->slow) {
        f->next_mistrust = 1;
        return s;
    }
    if (f->walk.expect) {
        f->mistrust = f->next_mistrust;
        f->next_mistrust = HKI_MIN(2 * f->next_mistrust, 1024);
        f->walk.expect = w->slow = false;
        s = walk_once(w, e);
    }
    f->noted = w->slow || s != HK_OK ? 0 : f->walk.n_order;
    return w->slow ? walk_once(w, e) : s;
}

static bool all_done(const hki_finder *f) {
    for (size_t i = 0; i < f->n_words; i++)
        if (f->done[i] != f->all_done[i])
            return false;
    return true;
}

hk_status hki_example_row(const hki_example_spec *s, hki_finder *f,
                          const hki_example *e, int64_t row) {
    walk w = {.s = s, .f = f, .slack = e->slack};
    f->walk.row = row;
    f->walk.crc_at = e->check ? e->bytes : NULL;
    f->walk.crc = 0;
    const hk_status status = walk_record(&w, e);
    if (e->check) { // of what the kernel has left
        const size_t checked = (size_t)(f->walk.crc_at - e->bytes);
        *e->crc = hki_crc32c(f->walk.crc, f->walk.crc_at, e->size - checked);
    }
    HKI_TRY(status);
    return all_done(f) ? HK_OK : hki_example_read(s, f, f->rows, f->first, row);
}
