// box.c - boxes: elements and records that are counted and used again.
//
// A pool belongs to one node. Its boxes may outlive the node (the last batch
// of a file that is closed by now), so the pool lives until its owner has
// closed it and every box is back. Tensors that a user has retained are left
// to the user: the pool makes new ones.
#include "data/core/pipeline.h"

struct hki_pool {
    hki_mutex lock; // guards free and out
    hki_box *free;
    int64_t out; // boxes in use
    bool closed; // no owner any more
    hki_arena arena;
    hk_element spec;
};

// ---- pools -----------------------------------------------------------------

hk_status hki_pool_create(const hk_element *spec, hki_pool **out) {
    hki_pool *p;
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    const hk_status s =
        hki_spec_copy(&p->arena, spec->values, spec->count, &p->spec);
    if (s != HK_OK) {
        hki_arena_deinit(&p->arena);
        hki_free(p);
        return s;
    }
    hki_mutex_init(&p->lock);
    *out = p;
    return HK_OK;
}

static void box_free(hki_box *b) {
    const size_t n = b->element.count;
    for (size_t k = 0; b->own != NULL && k < 2 * n; k++)
        hk_tensor_release(b->own[k]);
    hki_free(b->own);
    hki_free(b->values);
    hki_free(b->rows.col);
    hki_free(b->store);
    hki_free(b->recipe);
    hki_free(b->stamps);
    hki_free(b);
}

static void pool_free(hki_pool *p) {
    while (p->free != NULL) {
        hki_box *const b = p->free;
        p->free = b->next;
        box_free(b);
    }
    hki_mutex_deinit(&p->lock);
    hki_arena_deinit(&p->arena);
    hki_free(p);
}

void hki_pool_close(hki_pool *p) {
    if (p == NULL)
        return;
    hki_mutex_lock(&p->lock);
    p->closed = true;
    const bool last = p->out == 0;
    hki_mutex_unlock(&p->lock);
    if (last)
        pool_free(p);
}

static hk_status box_create(hki_pool *p, hki_box **out) {
    const size_t n = p->spec.count;
    hki_box *b;
    hk_status s;
    HKI_TRY(hki_zalloc_array(1, sizeof *b, &b));
    b->element.count = n;
    if ((s = hki_zalloc_array(n, sizeof *b->values, &b->values)) != HK_OK ||
        (s = hki_zalloc_array(2 * n, sizeof *b->own, &b->own)) != HK_OK ||
        (s = hki_zalloc_array(n, sizeof *b->rows.col, &b->rows.col)) != HK_OK) {
        box_free(b);
        return s;
    }
    memcpy(b->values, p->spec.values, n * sizeof *b->values);
    b->element.values = b->values;
    b->pool = p;
    b->self = b;
    b->rows.spec = &p->spec;
    b->rows.slot = &b->self;
    *out = b;
    return HK_OK;
}

hk_status hki_pool_take(hki_pool *p, hki_box **out) {
    hk_status s = HK_OK;
    hki_mutex_lock(&p->lock);
    hki_box *b = p->free;
    if (b != NULL)
        p->free = b->next;
    else
        s = box_create(p, &b);
    if (s == HK_OK)
        p->out++;
    hki_mutex_unlock(&p->lock);
    if (s != HK_OK)
        return s;
    atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
    *out = b;
    return HK_OK;
}

// Lets go of what is not the pool's.
static void box_clear(hki_box *b) {
    for (size_t k = 0; k < b->element.count; k++) {
        hk_value *const v = &b->values[k];
        if (v->tensor != NULL && v->tensor != b->own[2 * k])
            hk_tensor_release(v->tensor);
        if (v->index != NULL && v->index != b->own[2 * k + 1])
            hk_tensor_release(v->index);
        v->tensor = v->index = NULL;
        b->rows.col[k] = (hki_col){0};
    }
    b->bytes = NULL;
    b->size = 0;
    b->n_rows = 0;
    b->packed = false;
    b->n_recipe = 0;
}

hki_box *hki_box_retain(hki_box *b) {
    if (!b->lent)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void hki_box_release(hki_box *b) {
    if (b == NULL || b->lent ||
        atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    hki_pool *const p = b->pool;
    box_clear(b);
    hki_mutex_lock(&p->lock);
    b->next = p->free;
    p->free = b;
    p->out--;
    const bool last = p->closed && p->out == 0;
    hki_mutex_unlock(&p->lock);
    if (last)
        pool_free(p);
}

// ---- values of a box -------------------------------------------------------

hk_status hki_tensor_own(hk_tensor **own, hk_dtype dtype,
                         const hk_shape *shape) {
    if (*own != NULL && !hki_tensor_unique(*own)) {
        hk_tensor_release(*own);
        *own = NULL;
    }
    if (*own == NULL)
        return hk_tensor_create(dtype, *shape, own);
    if (hki_tensor_has_shape(*own, shape))
        return HK_OK;
    return hki_tensor_resize(*own, *shape);
}

// Replaces what stands in *place by the pool's tensor.
static void stand(hk_tensor **place, hk_tensor *own) {
    if (*place != NULL && *place != own)
        hk_tensor_release(*place);
    *place = own;
}

hk_status hki_box_tensor(hki_box *b, size_t k, const hk_shape *shape,
                         hk_tensor **out) {
    hk_value *const v = &b->values[k];
    // A tensor that is replaced below must not be left standing.
    if (v->tensor == b->own[2 * k])
        v->tensor = NULL;
    HKI_TRY(hki_tensor_own(&b->own[2 * k], v->dtype, shape));
    stand(&v->tensor, b->own[2 * k]);
    v->shape = *shape;
    *out = v->tensor;
    return HK_OK;
}

hk_status hki_box_index(hki_box *b, size_t k, const hk_shape *shape,
                        hk_tensor **out) {
    hk_value *const v = &b->values[k];
    if (v->index == b->own[2 * k + 1])
        v->index = NULL;
    HKI_TRY(hki_tensor_own(&b->own[2 * k + 1], HK_I64, shape));
    stand(&v->index, b->own[2 * k + 1]);
    *out = v->index;
    return HK_OK;
}

void hki_box_set(hki_box *b, size_t k, hk_tensor *t) {
    hk_value *const v = &b->values[k];
    if (v->tensor == t)
        return;
    hk_tensor_retain(t);
    stand(&v->tensor, t);
    v->shape = hk_tensor_shape(t);
    b->rows.col[k] = (hki_col){0};
}

void hki_box_set_index(hki_box *b, size_t k, hk_tensor *t) {
    hk_value *const v = &b->values[k];
    if (v->index == t)
        return;
    hk_tensor_retain(t);
    stand(&v->index, t);
}

hk_shape hki_shape_rows(const hk_shape *row, int64_t rows) {
    hk_shape s = {.rank = row->rank + 1, .dim = {rows}};
    memcpy(&s.dim[1], row->dim, (size_t)row->rank * sizeof s.dim[0]);
    return s;
}

hk_status hki_box_column(hki_box *b, size_t k, const hk_shape *row,
                         const hk_shape *whole, hki_col *out) {
    hki_col c = {0};
    hk_tensor *t;
    HKI_TRY(hki_box_tensor(b, k, whole, &t));
    HKI_TRY(hk_shape_count(*row, &c.row_items));
    c.data = hk_tensor_data(t);
    c.row_bytes = (size_t)c.row_items * hk_dtype_size(b->values[k].dtype);
    c.strings = b->values[k].dtype == HK_STRING ? t : NULL;
    *out = c;
    return HK_OK;
}

hk_status hki_box_prepare(hki_box *b) {
    for (size_t k = 0; k < b->element.count; k++) {
        const hk_value *const v = &b->pool->spec.values[k];
        if (hki_value_fixed(v))
            HKI_TRY(
                hki_box_column(b, k, &v->shape, &v->shape, &b->rows.col[k]));
    }
    return HK_OK;
}

// ---- blocks ----------------------------------------------------------------

hk_status hki_box_block(hki_box *b, int64_t rows) {
    for (size_t k = 0; k < b->element.count; k++) {
        const hk_shape *const row = &b->pool->spec.values[k].shape;
        const hk_shape whole = hki_shape_rows(row, rows);
        hki_col *const c = &b->rows.col[k];
        HKI_TRY(hki_box_column(b, k, row, &whole, c));
        if (c->strings != NULL)
            c->data = (char *)hki_tensor_strings(c->strings);
    }
    b->n_rows = rows;
    return HK_OK;
}

hk_status hki_block_copy(const hki_item *item, hki_data_rows *to, int64_t i) {
    const hki_box *const b = item->box;
    const int64_t row = hki_block_row(item);
    for (size_t k = 0; k < b->element.count; k++) {
        const hki_col *const c = &b->rows.col[k];
        const hk_shape *const shape = &to->spec->values[k].shape;
        void *data;
        if (c->strings != NULL) {
            const hki_string *const cells = hki_tensor_strings(c->strings);
            HKI_TRY(hki_rows_cells(to, k, i, shape, cells + row * c->row_items,
                                   c->row_items));
            continue;
        }
        HKI_TRY(hki_rows_tensor(to, k, i, shape, &data));
        if (c->row_bytes > 0)
            memcpy(data, c->data + (size_t)row * c->row_bytes, c->row_bytes);
    }
    return HK_OK;
}

hki_data_rows *hki_box_rows(hki_box *b) {
    return &b->rows;
}

hk_status hki_box_keep_bytes(hki_box *b, const void *bytes, size_t size) {
    if (size > b->capacity || b->store == NULL) {
        // Half as much again: records vary in length.
        const size_t room = size + size / 2 + 16;
        uint8_t *grown = NULL;
        HKI_TRY(hki_alloc_array(room, 1, &grown));
        hki_free(b->store);
        b->store = grown;
        b->capacity = room;
    }
    if (size > 0)
        memcpy(b->store, bytes, size);
    b->bytes = b->store;
    b->size = size;
    b->place.path = NULL;
    return HK_OK;
}

hk_status hki_box_recipe(hki_box *b, const hki_item *items, int64_t n) {
    if (n > b->recipe_capacity) {
        hki_item *grown = NULL;
        HKI_TRY(hki_alloc_array((size_t)n, sizeof *grown, &grown));
        hki_free(b->recipe);
        b->recipe = grown;
        b->recipe_capacity = n;
    }
    if (n > 0)
        memcpy(b->recipe, items, (size_t)n * sizeof *items);
    b->n_recipe = n;
    return HK_OK;
}
