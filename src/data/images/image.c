// image.c - a list of operations on pictures as a function over elements.
//
// Results between two operations lie in two buffers of the thread, the last
// one goes straight to its place in the element or batch.
#include "data/images/image.h"
#include "data/data.h"

#define MAX_OPS 64

typedef struct config {
    hk_image_op *op;
    const hki_image_entry **entry;
    size_t n;
    size_t value; // of the element
    char *name;
    uint64_t seed;
    uint64_t max_pixels;
    hk_on_error on_error;
    bool decodes;
    hk_isa isa;
} config;

static void destroy(void *user) {
    config *const c = user;
    if (c == NULL)
        return;
    hki_free(c->op);
    hki_free(c->entry);
    hki_free(c->name);
    hki_free(c);
}

// ---- memory of a thread ---------------------------------------------------

static void close_scratch(void *scratch) {
    hki_image_scratch *const w = scratch;
    if (w == NULL)
        return;
    hki_picture_decoder_destroy(w->decoder);
    for (int i = 0; i < 2; i++)
        hki_free(w->picture[i]);
    for (int i = 0; i < 3; i++)
        hki_free(w->rows[i]);
    hki_free(w->index);
    hki_free(w->weight);
    hki_free(w);
}

static hk_status open_scratch(const void *user, void **out) {
    const config *const c = user;
    hki_image_scratch *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    w->kernels = HKI_ISA_PICK(c->isa, hki_image_kernels_table);
    if (c->decodes) {
        HKI_TRY_OR(hki_picture_decoder_create(&w->decoder), close_scratch(w));
    }
    *out = w;
    return HK_OK;
}

static hk_status reserve(hki_image_scratch *w, int i, size_t bytes) {
    return hki_list_reserve(&w->picture[i], bytes, &w->picture_bytes[i], 1);
}

// ---- one picture ----------------------------------------------------------

// Adds which operation it was to the message.
static hk_status op_fail(const config *c, size_t i, hk_status s) {
    char text[320];
    snprintf(text, sizeof text, "%s", hk_last_error());
    return hki_fail(s, "images \"%s\": operation %zu (%s): %s", c->name, i,
                    c->entry[i]->name, text);
}

static hk_status next_shape(const config *c, size_t i, const hki_image *in,
                            hki_image *out) {
    const hk_status s = c->entry[i]->shape(&c->op[i], in, out);
    return s == HK_OK ? HK_OK : op_fail(c, i, s);
}

// What the operations from `first` on make of `in`.
static hk_status last_shape(const config *c, size_t first, const hki_image *in,
                            hki_image *out) {
    hki_image p = *in;
    for (size_t i = first; i < c->n; i++) {
        hki_image q;
        HKI_TRY(next_shape(c, i, &p, &q));
        p = q;
    }
    *out = p;
    return HK_OK;
}

// Every operation has random numbers of its own, for every picture.
static uint64_t seed_of(const config *c, size_t op, int64_t picture) {
    return c->seed + (op + 1) * UINT64_C(0x9e3779b97f4a7c15) +
           (uint64_t)picture * UINT64_C(0xbf58476d1ce4e5b9);
}

// Runs the operations from `first` on; the last one writes to `to`.
static hk_status run_ops(const config *c, hki_image_scratch *w, size_t first,
                         const hki_image *in, uint64_t stamp, int64_t picture,
                         void *to) {
    hki_image p = *in;
    for (size_t i = first; i < c->n; i++) {
        hki_image q;
        HKI_TRY(next_shape(c, i, &p, &q));
        const int side = (int)(i & 1);
        if (i + 1 < c->n)
            HKI_TRY(reserve(w, side, hki_image_bytes(&q)));
        q.data = i + 1 < c->n ? w->picture[side] : to;
        hki_image_call call = {.op = &c->op[i], .scratch = w};
        hki_rng_init(&call.rng, seed_of(c, i, picture), stamp);
        HKI_TRY(c->entry[i]->run(&call, &p, &q));
        p = q;
    }
    return HK_OK;
}

static hk_shape shape_of(const hki_image *p, int64_t n) {
    const int64_t dims[4] = {n, p->height, p->width, p->channels};
    return n >= 0 ? hk_shape_make(4, dims) : hk_shape_make(3, dims + 1);
}

// ---- files ----------------------------------------------------------------

static hk_status check_decoded(const config *c, const hki_picture *p) {
    const hk_image_op *const op = &c->op[0];
    if (op->height == 0 || (op->height == p->height && op->width == p->width))
        return HK_OK;
    return hki_fail(HK_E_SHAPE,
                    "\"%s\": the image has %d x %d pixels, expected %d x %d",
                    c->name, p->height, p->width, op->height, op->width);
}

static hk_status decode(const config *c, hki_image_scratch *w,
                        const uint8_t *bytes, size_t size, hki_fn_call *call) {
    hki_picture p;
    HKI_TRY(hki_picture_probe(bytes, size, c->op[0].channels, c->max_pixels,
                              c->name, &p));
    HKI_TRY(check_decoded(c, &p));
    hki_image in = {.dtype = HK_U8,
                    .height = p.height,
                    .width = p.width,
                    .channels = p.channels};
    hki_image out;
    void *to = NULL;
    HKI_TRY(last_shape(c, 1, &in, &out));
    const hk_shape shape = shape_of(&out, -1);
    HKI_TRY(hki_rows_tensor(call->out, c->value, call->row, &shape, &to));
    if (c->n > 1) {
        HKI_TRY(reserve(w, 0, hki_image_bytes(&in)));
        in.data = w->picture[0];
    } else {
        in.data = to;
    }
    p.pixels = in.data;
    HKI_TRY(hki_picture_read(w->decoder, bytes, size, c->name, &p));
    return run_ops(c, w, 1, &in, call->stamp, 0, to);
}

// Says which element it was, and leaves it out if that is wanted.
static hk_status undecoded(const config *c, hki_fn_call *call, hk_status s) {
    char text[320];
    snprintf(text, sizeof text, "%s", hk_last_error());
    const uint64_t element =
        call->stamp & (((uint64_t)1 << HKI_STAMP_PASS) - 1);
    s = hki_fail(s, "element %llu: %s", (unsigned long long)element, text);
    return hki_on_error(call->run, c->on_error, s, &call->skip);
}

static hk_status apply_decoder(const config *c, hki_image_scratch *w,
                               hki_fn_call *call) {
    const void *bytes;
    size_t size;
    HKI_TRY(hk_tensor_get_string(call->in->values[c->value].tensor, 0, &bytes,
                                 &size));
    const hk_status s = decode(c, w, bytes, size, call);
    return s == HK_OK ? HK_OK : undecoded(c, call, s);
}

// ---- tensors --------------------------------------------------------------

static hk_status run_batch(const config *c, hki_image_scratch *w,
                           hki_fn_call *call, const hk_tensor *t) {
    const hk_shape s = hk_tensor_shape(t);
    const int64_t *const dim = s.dim + (s.rank == 4 ? 1 : 0);
    const int64_t n = s.rank == 4 ? s.dim[0] : -1;
    hki_image in = {.dtype = hk_tensor_dtype(t),
                    .height = dim[0],
                    .width = dim[1],
                    .channels = dim[2],
                    .data = hk_tensor_data(t)};
    hki_image out;
    void *to = NULL;
    if (dim[0] < 1 || dim[1] < 1 || dim[2] < 1 || dim[2] > 4)
        return hki_fail(HK_E_SHAPE,
                        "images \"%s\": the image has the shape %lld x %lld x "
                        "%lld, expected [height, width, 1 to 4 channels]",
                        c->name, (long long)dim[0], (long long)dim[1],
                        (long long)dim[2]);
    HKI_TRY(last_shape(c, 0, &in, &out));
    const hk_shape shape = shape_of(&out, n);
    HKI_TRY(hki_rows_tensor(call->out, c->value, call->row, &shape, &to));
    for (int64_t i = 0; i < (n >= 0 ? n : 1); i++) {
        HKI_TRY(run_ops(c, w, 0, &in, call->stamp, i, to));
        in.data = (char *)in.data + hki_image_bytes(&in);
        to = (char *)to + hki_image_bytes(&out);
    }
    return HK_OK;
}

static hk_status apply_tensor(const config *c, hki_image_scratch *w,
                              hki_fn_call *call) {
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *flat = NULL;
    HKI_TRY(hki_tensor_flat(call->in->values[c->value].tensor, &flat));
    return run_batch(c, w, call, flat);
}

static hk_status apply(const void *user, void *scratch, hki_fn_call *call) {
    const config *const c = user;
    HKI_TRY(c->decodes ? apply_decoder(c, scratch, call)
                       : apply_tensor(c, scratch, call));
    for (size_t k = 0; k < call->in->count && !call->skip; k++)
        if (k != c->value)
            HKI_TRY(
                hki_rows_copy(call->out, k, call->row, &call->in->values[k]));
    return HK_OK;
}

static const hki_fn_ops images_fn = {.name = "images",
                                     .destroy = destroy,
                                     .scratch_open = open_scratch,
                                     .scratch_close = close_scratch,
                                     .apply = apply};

// ---- the dataset ----------------------------------------------------------

HKI_OPTIONS(hk_images_options, parallel, .max_pixels = (uint64_t)64 << 20)

static hk_status take_ops(config *c, const hk_image_op *ops, size_t n) {
    if (ops == NULL || n < 1 || n > MAX_OPS)
        return hki_fail(HK_E_INVALID_ARG,
                        "images \"%s\": %zu operations; it has to be 1 to %d",
                        c->name, n, MAX_OPS);
    HKI_TRY(hki_alloc_array(n, sizeof *c->op, &c->op));
    HKI_TRY(hki_alloc_array(n, sizeof *c->entry, &c->entry));
    memcpy(c->op, ops, n * sizeof *ops);
    c->n = n;
    c->decodes = ops[0].kind == HK_IMAGE_DECODE;
    for (size_t i = 0; i < n; i++) {
        c->entry[i] = hki_image_find(ops[i].kind);
        if (c->entry[i] == NULL || (i > 0 && c->entry[i]->run == NULL))
            return hki_fail(
                HK_E_INVALID_ARG,
                "images \"%s\": operation %zu has the unknown kind %d", c->name,
                i, (int)ops[i].kind);
        const hk_status s = c->entry[i]->check(&ops[i]);
        if (s != HK_OK)
            return op_fail(c, i, s);
    }
    return HK_OK;
}

// Does the value fit what the first operation reads?
static hk_status check_input(const config *c, const hk_value *v) {
    const bool picture = (v->dtype == HK_U8 || v->dtype == HK_F32) &&
                         (v->shape.rank == 3 || v->shape.rank == 4);
    const bool file = v->dtype == HK_STRING && v->shape.rank == 0;
    if (v->form == HK_DENSE_FORM && (c->decodes ? file : picture))
        return HK_OK;
    char text[HKI_SHAPE_TEXT];
    return hki_fail(c->decodes == (v->dtype == HK_STRING) ? HK_E_SHAPE
                                                          : HK_E_DTYPE,
                    "images: \"%s\" is %s %s, expected %s", v->name,
                    hk_dtype_name(v->dtype), hki_shape_text(v->shape, text),
                    c->decodes ? "one string per element"
                               : "uint8 or float32 [height, width, channels] "
                                 "or a batch of them");
}

// The value's spec becomes that of the result.
static hk_status describe(const config *c, hk_value *v) {
    HKI_TRY(check_input(c, v));
    const bool batch = v->shape.rank == 4;
    const int64_t *const dim = v->shape.dim + (batch ? 1 : 0);
    hki_image in = {.dtype = v->dtype}, out;
    if (!c->decodes) {
        in.height = dim[0];
        in.width = dim[1];
        in.channels = dim[2];
    }
    HKI_TRY(last_shape(c, 0, &in, &out));
    const int64_t n = v->shape.dim[0]; // of a batch; may be unknown
    v->dtype = out.dtype;
    v->shape = shape_of(&out, batch ? 0 : -1);
    if (batch)
        v->shape.dim[0] = n;
    return HK_OK;
}

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *d,
                           const char *name, const hk_image_op *ops, size_t n,
                           const hk_images_options *opt) {
    hk_images_options o;
    config *c;
    hk_value *spec;
    hk_images_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "images options"));
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    if (name == NULL)
        return hki_fail(HK_E_INVALID_ARG, "images: the name is NULL");
    HKI_TRY(hki_strdup(name, &c->name));
    c->seed = (uint64_t)o.seed;
    c->max_pixels = o.max_pixels;
    c->on_error = o.on_error;
    c->isa = hki_isa_best();
    const int64_t at = hki_spec_find(&d->spec, name);
    if (at < 0)
        return hki_fail(HK_E_NOT_FOUND,
                        "images: the dataset has no value \"%s\"", name);
    c->value = (size_t)at;
    HKI_TRY(take_ops(c, ops, n));
    HKI_TRY(hki_desc_spec(desc, d->spec.count, &spec));
    memcpy(spec, d->spec.values, d->spec.count * sizeof *spec);
    desc->key = hki_hash(HKI_HASH_INIT, ops, n * sizeof *ops);
    desc->key = hki_hash(desc->key, &o.seed, sizeof o.seed);
    desc->parallel =
        o.parallel != 0 ? o.parallel : (c->decodes ? HK_DATA_AUTO : 1);
    desc->flags = o.on_error == HK_ON_ERROR_SKIP ? HKI_DATA_MAY_SKIP : 0;
    return describe(c, &spec[at]);
}

hk_dataset *hk_data_images(hk_dataset *d, const char *name,
                           const hk_image_op *ops, size_t n,
                           const hk_images_options *opt) {
    hki_dataset_desc desc = {.fn = &images_fn, .inputs = &d, .n_inputs = 1};
    return hki_dataset_good(d)
               ? hki_dataset_finish(&desc,
                                    configure(&desc, d, name, ops, n, opt))
               : d;
}
