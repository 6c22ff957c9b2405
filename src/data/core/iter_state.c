// iter_state.c - iterator state as bytes: little-endian numbers, lengths before
// bytes, values with their shapes. What is read back is checked against the
// spec and against the bytes at hand before anything is allocated.
#include "data/core/pipeline.h"
#include "codec/codec.h"

// ---- writing ---------------------------------------------------------------

void hki_save_u64(hki_saver *w, uint64_t v) {
    uint8_t bytes[8];
    hki_put_u64(bytes, v);
    if (w->status == HK_OK)
        w->status = hki_buf_add(&w->buf, bytes, sizeof bytes);
}

void hki_save_i64(hki_saver *w, int64_t v) {
    hki_save_u64(w, (uint64_t)v);
}

void hki_save_bytes(hki_saver *w, const void *bytes, size_t size) {
    hki_save_u64(w, size);
    if (w->status == HK_OK && size > 0)
        w->status = hki_buf_add(&w->buf, bytes, size);
}

void hki_saver_deinit(hki_saver *w) {
    hki_buf_deinit(&w->buf);
}

// ---- reading ---------------------------------------------------------------

hk_status hki_restore_bad(hki_restorer *r, const char *what) {
    if (r->status == HK_OK)
        r->status = hki_fail(HK_E_DATA, "iterator state: %s at byte %zu", what,
                             (size_t)(r->p - r->begin));
    return r->status;
}

uint64_t hki_restore_u64(hki_restorer *r) {
    if (r->status != HK_OK)
        return 0;
    if (r->end - r->p < 8) {
        hki_restore_bad(r, "truncated");
        return 0;
    }
    const uint64_t v = hki_get_u64(r->p);
    r->p += 8;
    return v;
}

int64_t hki_restore_i64(hki_restorer *r, const char *what, int64_t low,
                        int64_t high) {
    const size_t at = (size_t)(r->p - r->begin);
    const int64_t v = (int64_t)hki_restore_u64(r);
    if (r->status == HK_OK && (v < low || v > high))
        r->status =
            hki_fail(HK_E_DATA,
                     "iterator state: byte %zu: %s is %lld, which is "
                     "not in %lld to %lld",
                     at, what, (long long)v, (long long)low, (long long)high);
    return r->status == HK_OK ? v : low;
}

const void *hki_restore_bytes(hki_restorer *r, size_t *size) {
    const uint64_t n = hki_restore_u64(r);
    *size = 0;
    if (r->status != HK_OK)
        return NULL;
    if (n > (uint64_t)(r->end - r->p)) {
        hki_restore_bad(r, "a length exceeds the state");
        return NULL;
    }
    const void *const at = r->p;
    r->p += n;
    *size = (size_t)n;
    return at;
}

// ---- faults and random streams ---------------------------------------------

void hki_save_fault(hki_saver *w, const hki_fault *f) {
    hki_save_u64(w, (uint64_t)f->status);
    if (f->status != HK_OK)
        hki_save_bytes(w, f->text, strlen(f->text));
}

void hki_restore_fault(hki_restorer *r, hki_fault *f) {
    size_t size = 0;
    f->status = (hk_status)hki_restore_i64(r, "the status of a saved error",
                                           HK_OK, HK_E_INTERNAL);
    if (f->status == HK_OK)
        return;
    const char *const text = hki_restore_bytes(r, &size);
    size = HKI_MIN(size, sizeof f->text - 1);
    if (text != NULL)
        memcpy(f->text, text, size);
    f->text[size] = '\0';
    if (f->status == HK_E_CANCELLED) // version 0.1.0 saved stops as faults
        f->status = HK_OK;
}

void hki_save_rng(hki_saver *w, const hki_rng *rng) {
    const uint32_t *const k = rng->state.key, *const c = rng->state.counter;
    hki_save_u64(w, (uint64_t)k[1] << 32 | k[0]);
    hki_save_u64(w, (uint64_t)c[1] << 32 | c[0]);
    hki_save_u64(w, (uint64_t)c[3] << 32 | c[2]);
    hki_save_u64(w, rng->used);
}

void hki_restore_rng(hki_restorer *r, hki_rng *rng) {
    uint64_t v[3];
    for (int i = 0; i < 3; i++)
        v[i] = hki_restore_u64(r);
    const uint32_t used =
        (uint32_t)hki_restore_i64(r, "the number of used random words", 0, 4);
    *rng = (hki_rng){
        .state = {.key = {(uint32_t)v[0], (uint32_t)(v[0] >> 32)},
                  .counter = {(uint32_t)v[1], (uint32_t)(v[1] >> 32),
                              (uint32_t)v[2], (uint32_t)(v[2] >> 32)}},
        .used = used,
    };
    if (used < 4) { // the block in use is that of the counter before
        uint32_t c[4];
        memcpy(c, rng->state.counter, sizeof c);
        if (c[0]-- == 0)
            c[1]--;
        hki_philox_block(rng->state.key, c, rng->block);
    }
}

// ---- values ----------------------------------------------------------------

static void save_shape(hki_saver *w, hk_shape s) {
    hki_save_i64(w, s.rank);
    for (int i = 0; i < s.rank; i++)
        hki_save_i64(w, s.dim[i]);
}

static void save_strings(hki_saver *w, const hk_tensor *t) {
    const int64_t n = hk_tensor_count(t);
    for (int64_t i = 0; i < n; i++) {
        const void *bytes;
        size_t size;
        if (w->status == HK_OK)
            w->status = hk_tensor_get_string(t, i, &bytes, &size);
        if (w->status == HK_OK)
            hki_save_bytes(w, bytes, size);
    }
}

static void save_numbers(hki_saver *w, const hk_tensor *t) {
    hk_tensor *flat = NULL;
    if (w->status == HK_OK)
        w->status = hki_tensor_flat(t, &flat);
    if (w->status == HK_OK)
        hki_save_bytes(w, hk_tensor_data(flat), hki_tensor_bytes(flat));
    hk_tensor_release(flat);
}

static void save_value(hki_saver *w, const hk_value *v) {
    save_shape(w, v->shape);
    save_shape(w, hk_tensor_shape(v->tensor));
    if (v->dtype == HK_STRING)
        save_strings(w, v->tensor);
    else
        save_numbers(w, v->tensor);
    if (v->form != HK_DENSE_FORM) {
        save_shape(w, hk_tensor_shape(v->index));
        save_numbers(w, v->index);
    }
}

void hki_save_box(hki_saver *w, const hki_box *b) {
    hki_save_u64(w, b->bytes != NULL);
    if (b->bytes != NULL) {
        hki_save_bytes(w, b->bytes, b->size);
        return;
    }
    for (size_t k = 0; k < b->element.count; k++)
        save_value(w, &b->values[k]);
}

// A shape of known dimensions; ragged: -1 is allowed.
static hk_status restore_shape(hki_restorer *r, bool ragged, hk_shape *out) {
    hk_shape s = {0};
    s.rank = (int32_t)hki_restore_i64(r, "the rank of a shape", 0, HK_MAX_RANK);
    for (int i = 0; i < s.rank; i++)
        s.dim[i] = hki_restore_i64(r, "a dimension of a shape", ragged ? -1 : 0,
                                   INT64_MAX);
    *out = s;
    return r->status;
}

static hk_status restore_numbers(hki_restorer *r, hk_tensor *t) {
    const size_t want = hki_tensor_bytes(t);
    size_t size;
    const void *const bytes = hki_restore_bytes(r, &size);
    HKI_TRY(r->status);
    if (size != want)
        return hki_restore_bad(r, "a tensor has another size");
    if (size > 0)
        memcpy(hk_tensor_data(t), bytes, size);
    return HK_OK;
}

static hk_status restore_strings(hki_restorer *r, hk_tensor *t) {
    const int64_t n = hk_tensor_count(t);
    for (int64_t i = 0; i < n; i++) {
        size_t size;
        const void *const bytes = hki_restore_bytes(r, &size);
        HKI_TRY(r->status);
        HKI_TRY(hk_tensor_set_string(t, i, bytes, size));
    }
    return HK_OK;
}

// The bytes that are left can hold a tensor of this shape.
static hk_status check_room(hki_restorer *r, const hk_shape *s, size_t item) {
    size_t bytes;
    if (hki_shape_bytes(*s, item, &bytes) != HK_OK ||
        bytes > (size_t)(r->end - r->p))
        return hki_restore_bad(r, "a shape is larger than the remaining bytes");
    return HK_OK;
}

static hk_status check_index(hki_restorer *r, const hk_value *v,
                             const hk_shape *s) {
    const hk_shape values = hk_tensor_shape(v->tensor);
    const bool sparse = v->form == HK_SPARSE_FORM;
    const bool good =
        sparse ? s->rank == 2 && values.rank == 1 &&
                     s->dim[0] == values.dim[0] && s->dim[1] == v->shape.rank
               : s->rank == 1 && v->shape.rank >= 2 && s->dim[0] >= 1 &&
                     values.rank >= 1 && s->dim[0] - 1 == v->shape.dim[0];
    return good ? HK_OK : hki_restore_bad(r, "an index has another shape");
}

// Indices inside the dense shape; row splits from 0 up to the values.
static hk_status check_entries(hki_restorer *r, const hk_value *v) {
    const int64_t *const x = hk_tensor_data(v->index);
    const int64_t n = hk_tensor_count(v->index);
    bool good = true;
    if (v->form == HK_SPARSE_FORM) {
        for (int64_t i = 0; i < n; i++)
            good = good && x[i] >= 0 &&
                   x[i] < v->shape.dim[i % HKI_MAX(v->shape.rank, 1)];
    } else {
        good = x[0] == 0 && x[n - 1] == hk_tensor_shape(v->tensor).dim[0];
        for (int64_t i = 1; i < n; i++)
            good = good && x[i] >= x[i - 1];
    }
    return good ? HK_OK : hki_restore_bad(r, "an index is out of range");
}

static hk_status restore_value(hki_restorer *r, hki_box *b, size_t k) {
    const hk_value *const spec = &b->rows.spec->values[k];
    hk_value *const v = &b->values[k];
    hk_shape whole, shape;
    hk_tensor *t;
    HKI_TRY(restore_shape(r, v->form == HK_RAGGED_FORM, &whole));
    HKI_TRY(restore_shape(r, false, &shape));
    if (!hki_shape_fits(&spec->shape, &whole) ||
        (v->form == HK_DENSE_FORM && !hk_shape_equal(whole, shape)))
        return hki_restore_bad(r, "a value does not fit the pipeline");
    const bool strings = v->dtype == HK_STRING;
    // A string takes the 8 bytes of its length at least.
    HKI_TRY(check_room(r, &shape, strings ? 8 : hk_dtype_size(v->dtype)));
    HKI_TRY(hki_box_tensor(b, k, &shape, &t));
    HKI_TRY(strings ? restore_strings(r, t) : restore_numbers(r, t));
    v->shape = whole;
    if (v->form == HK_DENSE_FORM)
        return HK_OK;
    HKI_TRY(restore_shape(r, false, &shape));
    HKI_TRY(check_index(r, v, &shape));
    HKI_TRY(check_room(r, &shape, sizeof(int64_t)));
    HKI_TRY(hki_box_index(b, k, &shape, &t));
    HKI_TRY(restore_numbers(r, t));
    return check_entries(r, v);
}

hk_status hki_restore_box(hki_restorer *r, hki_box *b) {
    const hk_element *const spec = b->rows.spec;
    if (hki_restore_i64(r, "the flag of a record", 0, 1) == 1) {
        size_t size;
        const void *const bytes = hki_restore_bytes(r, &size);
        HKI_TRY(r->status);
        if (spec->count != 1 || spec->values[0].dtype != HK_STRING ||
            spec->values[0].shape.rank != 0)
            return hki_restore_bad(r, "an unexpected record");
        return hki_box_keep_bytes(b, bytes, size);
    }
    HKI_TRY(r->status);
    for (size_t k = 0; k < spec->count; k++)
        HKI_TRY(restore_value(r, b, k));
    return HK_OK;
}

// ---- rows of blocks --------------------------------------------------------

static hki_string *cells_of(const hki_box *b, size_t k, int64_t row) {
    const hki_col *const c = &b->rows.col[k];
    return hki_tensor_strings(c->strings) + row * c->row_items;
}

static size_t number_bytes(const hki_box *b) {
    size_t n = 0;
    for (size_t k = 0; k < b->element.count; k++)
        n += b->rows.col[k].row_bytes;
    return n;
}

void hki_save_block_row(hki_saver *w, const hki_item *item) {
    const hki_box *const b = item->box;
    const int64_t row = hki_block_row(item);
    hki_save_u64(w, number_bytes(b));
    for (size_t k = 0; k < b->element.count && w->status == HK_OK; k++) {
        const hki_col *const c = &b->rows.col[k];
        if (c->row_bytes > 0)
            w->status = hki_buf_add(
                &w->buf, c->data + (size_t)row * c->row_bytes, c->row_bytes);
    }
    for (size_t k = 0; k < b->element.count; k++)
        for (int64_t j = 0;
             b->rows.col[k].strings != NULL && j < b->rows.col[k].row_items;
             j++) {
            const hki_string *const cell = &cells_of(b, k, row)[j];
            hki_save_bytes(w, hki_string_bytes(cell), cell->size);
        }
}

static hk_status restore_cells(hki_restorer *r, hki_string *cells, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        size_t size;
        const void *const bytes = hki_restore_bytes(r, &size);
        HKI_TRY(r->status);
        HKI_TRY(hki_string_set(&cells[j], bytes, size));
    }
    return HK_OK;
}

hk_status hki_restore_block_row(hki_restorer *r, hki_box *block,
                                uint64_t stamp) {
    const size_t room = (size_t)hk_tensor_shape(block->values[0].tensor).dim[0];
    size_t size;
    const uint8_t *numbers = hki_restore_bytes(r, &size);
    HKI_TRY(r->status);
    if (size != number_bytes(block))
        return hki_restore_bad(r, "a row has another size");
    if (block->stamps == NULL)
        HKI_TRY(hki_alloc_array(room, sizeof *block->stamps, &block->stamps));
    for (size_t k = 0; k < block->element.count; k++) {
        const hki_col *const c = &block->rows.col[k];
        if (c->row_bytes > 0)
            memcpy(c->data + (size_t)block->n_rows * c->row_bytes, numbers,
                   c->row_bytes);
        numbers += c->row_bytes;
        if (c->strings != NULL)
            HKI_TRY(restore_cells(r, cells_of(block, k, block->n_rows),
                                  c->row_items));
    }
    block->packed = true;
    block->stamps[block->n_rows++] = stamp;
    return HK_OK;
}
