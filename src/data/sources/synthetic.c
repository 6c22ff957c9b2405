// synthetic.c - sources that compute their elements: ranges and digits.
#include "data/core/pipeline.h"
#include "hooke/digits.h"

// What a view fills: one tensor per value, made anew when somebody kept it.
#define MAX_TENSORS 2
typedef struct scratch {
    hk_tensor *tensor[MAX_TENSORS];
} scratch;

static void scratch_close(void *p) {
    scratch *const s = p;
    for (int k = 0; k < MAX_TENSORS; k++)
        hk_tensor_release(s->tensor[k]);
    hki_free(s);
}

static hk_status scratch_open(const hk_dataset *d, hki_data_run *run,
                              void **out) {
    scratch *s;
    (void)d;
    (void)run;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    *out = s;
    return HK_OK;
}

// The memory of value k.
static hk_status fresh(const hk_dataset *d, scratch *s, size_t k,
                       hk_value *values, void **data) {
    hk_tensor **const t = &s->tensor[k];
    const hk_value *const spec = &d->spec.values[k];
    if (*t == NULL || !hki_tensor_unique(*t))
        HKI_TRY(hki_tensor_own(t, spec->dtype, &spec->shape));
    values[k].tensor = *t;
    *data = hk_tensor_data(*t);
    return HK_OK;
}

// ---- ranges ----------------------------------------------------------------

typedef struct range {
    int64_t start, step;
} range;

static hk_status range_view(const hk_dataset *d, void *p, const hki_item *item,
                            hk_value *values) {
    const range *const c = d->config;
    void *data;
    HKI_TRY(fresh(d, p, 0, values, &data));
    // Inside [start, stop), so nothing overflows.
    *(int64_t *)data =
        (int64_t)((uint64_t)c->start + (uint64_t)item->row * (uint64_t)c->step);
    return HK_OK;
}

static const hki_node_ops range_ops = {
    .name = "range",
    .pull = hki_table_pull,
    .view = range_view,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
};

// Numbers from start on before stop; differences in unsigned arithmetic, which
// holds for any two int64.
static uint64_t range_count(int64_t start, int64_t stop, int64_t step) {
    if (step > 0)
        return start >= stop
                   ? 0
                   : ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step +
                         1;
    return start <= stop
               ? 0
               : ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) +
                     1;
}

hk_dataset *hk_data_range(int64_t start, int64_t stop, int64_t step) {
    range c = {.start = start, .step = step};
    hk_status s = HK_OK;
    const uint64_t count = step != 0 ? range_count(start, stop, step) : 0;
    if (step == 0)
        s = hki_fail(HK_E_INVALID_ARG, "range: the step is 0");
    if (count > INT64_MAX)
        s = hki_fail(HK_E_OVERFLOW, "range: there are more than 2^63 numbers");
    const hk_value spec = {.name = "value",
                           .role = HK_FEATURE,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_I64};
    const hki_dataset_desc desc = {
        .ops = &range_ops,
        .config = &c,
        .config_size = sizeof c,
        .spec = &spec,
        .n_spec = 1,
        .count = (int64_t)count,
        .key = hki_key("range", 3, (int64_t[]){start, stop, step}),
        .flags = HKI_DATA_ROWS | HKI_DATA_TABLE,
    };
    return hki_dataset_finish(&desc, s);
}

// ---- digits ----------------------------------------------------------------

// Drawing takes longer than a small model's step: every image is drawn once
// and kept, unless they would take more than this.
#define MOST_KEPT (64 << 20)

typedef enum kept {
    KEPT_NOT = 0,
    KEPT_SOON = 1, // one thread writes it
    KEPT = 2
} kept;

typedef struct digits {
    hk_digits_options opt;
    uint64_t first;
    uint8_t *images;    // pixels, then the label, row by row; NULL: not kept
    atomic_uchar *have; // of type kept, one per row
} digits;

enum { KEPT_BYTES = HK_DIGITS_PIXELS + 1 };

static void digits_destroy(void *config) {
    digits *const c = config;
    hki_free(c->images);
    hki_free(c->have);
    hki_free(c);
}

static void keep_digit(const digits *c, int64_t row, const uint8_t *image,
                       int32_t label) {
    unsigned char none = KEPT_NOT;
    if (c->images == NULL ||
        !atomic_compare_exchange_strong(&c->have[row], &none, KEPT_SOON))
        return;
    uint8_t *const place = c->images + row * KEPT_BYTES;
    memcpy(place, image, HK_DIGITS_PIXELS);
    place[HK_DIGITS_PIXELS] = (uint8_t)label;
    atomic_store_explicit(&c->have[row], KEPT, memory_order_release);
}

static hk_status digits_view(const hk_dataset *d, void *p, const hki_item *item,
                             hk_value *values) {
    const digits *const c = d->config;
    void *image, *label;
    HKI_TRY(fresh(d, p, 0, values, &image));
    HKI_TRY(fresh(d, p, 1, values, &label));
    int32_t *const number = label;
    if (c->images != NULL &&
        atomic_load_explicit(&c->have[item->row], memory_order_acquire) ==
            KEPT) {
        const uint8_t *const place = c->images + item->row * KEPT_BYTES;
        memcpy(image, place, HK_DIGITS_PIXELS);
        *number = place[HK_DIGITS_PIXELS];
        return HK_OK;
    }
    HKI_TRY(hk_digits_draw(&c->opt, c->first + (uint64_t)item->row, 1, HK_U8,
                           image, number));
    keep_digit(c, item->row, image, *number);
    return HK_OK;
}

static const hki_node_ops digits_ops = {
    .name = "digits",
    .destroy = digits_destroy,
    .pull = hki_table_pull,
    .view = digits_view,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
};

static hk_status digits_config(hki_dataset_desc *desc,
                               const hk_digits_options *opt, uint64_t first,
                               int64_t count) {
    digits *c;
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    c->first = first;
    hk_digits_options_init(&c->opt, sizeof c->opt);
    HKI_TRY(hki_options_copy(&c->opt, sizeof c->opt, opt, "digits"));
    c->opt.struct_size = sizeof c->opt;
    if (count < 0 || (count > 0 && (uint64_t)count - 1 > UINT64_MAX - first))
        return hki_fail(
            HK_E_INVALID_ARG,
            "digits: %lld images from index %llu on are out of range",
            (long long)count, (unsigned long long)first);
    // The options are checked once, by drawing.
    uint8_t image[HK_DIGITS_PIXELS];
    HKI_TRY(hk_digits_draw(&c->opt, first, 1, HK_U8, image, NULL));
    if (count > 0 && count <= MOST_KEPT / KEPT_BYTES) {
        HKI_TRY(hki_alloc_array((size_t)count, KEPT_BYTES, &c->images));
        HKI_TRY(hki_zalloc_array((size_t)count, sizeof *c->have, &c->have));
    }
    const float dials[] = {c->opt.distortion, c->opt.noise, c->opt.clutter};
    const int64_t numbers[] = {(int64_t)first, count, (int64_t)c->opt.seed,
                               c->opt.split};
    desc->key = hki_hash(hki_key("digits", HKI_COUNT(numbers), numbers), dials,
                         sizeof dials);
    return HK_OK;
}

hk_dataset *hk_data_digits(const hk_digits_options *opt, uint64_t first,
                           int64_t count) {
    const hk_value spec[] = {
        {.name = "image",
         .role = HK_FEATURE,
         .form = HK_DENSE_FORM,
         .dtype = HK_U8,
         .shape = {.rank = 3, .dim = {HK_DIGITS_SIDE, HK_DIGITS_SIDE, 1}}},
        {.name = "label",
         .role = HK_LABEL,
         .form = HK_DENSE_FORM,
         .dtype = HK_I32},
    };
    hki_dataset_desc desc = {
        .ops = &digits_ops,
        .spec = spec,
        .n_spec = HKI_COUNT(spec),
        .count = count,
        .flags = HKI_DATA_ROWS | HKI_DATA_TABLE,
    };
    return hki_dataset_finish(&desc, digits_config(&desc, opt, first, count));
}
